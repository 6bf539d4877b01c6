"""`holdfast sessions show`: what happened in a session, for people."""

from collections.abc import Iterator
from typing import Any

import holdfast
from holdfast.cli import story as stories
from holdfast.cli import wording
from holdfast.cli.codes import DONE
from holdfast.cli.harmless import cut, harmless, one_line, wrapped
from holdfast.cli.opening import SHORT, opened, session_of
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser, count
from holdfast.cli.showing import Line, Printer
from holdfast.cli.story import Scene, Story
from holdfast.cli.story_object import story_object

LAST = 20
INSTRUCTIONS_MAX = 300


def options(parser: Parser) -> None:
    parser.add_session()
    parser.add_argument("--last", metavar="N", type=count, help=f"only the last N turns (default: {LAST})")
    parser.add_switch("--full", "all turns, and nothing shortened")
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Show what happened in a session.

    Turns with their ends, messages with their numbers, calls with their outcomes. A message that was cut off ends
    where the user saw it end. What the model no longer sees (retracted, hidden, rewound, summarised) is marked.
    What waits in the inbox stands at the end. Control characters in what was said are shown as signs.

    With --json, one object: `session`, `parent`, `parent_seq`, `instructions`, `turns`, `messages`, `calls`,
    `summaries`, `pending`, and `erased`, the number of messages whose words are gone. All of it is told, unless
    --last is given, and nothing is shortened.
    """
    with opened(options) as store:
        session = session_of(store, options.session)
        info, story = session.info(), stories.read(session)
        scenes = story.scenes
        if out.is_json:
            out.json(story_object(session, info, story, scenes[_first(story, scenes, options.last) :]))
            return DONE
        first = _first(story, scenes, options.last or (None if options.full else LAST))
        for line in _lines(session, info, story, scenes, first=first, full=options.full, out=out):
            out.line(*line)
    return DONE


def _first(story: Story, scenes: list[Scene], last: int | None) -> int:
    """Where the last so many turns begin. A message outside a turn counts as one; a summary does not count."""
    counted = [at for at, scene in enumerate(scenes) if scene.turn is not None or not _is_summary(story, scene)]
    return counted[-last] if last is not None and last < len(counted) else 0


def _is_summary(story: Story, scene: Scene) -> bool:
    return scene.turn is None and scene.messages[0].id in story.covers


def _lines(
    session: holdfast.Session,
    info: holdfast.SessionInfo,
    story: Story,
    scenes: list[Scene],
    *,
    first: int,
    full: bool,
    out: Output,
) -> Iterator[Line]:
    before, scenes, pending = scenes[:first], scenes[first:], story.pending
    spent = {turn.number: turn.usage for turn in session.turns()}
    printer = Printer(story, spent=spent, width=out.width, full=full)
    yield from _header(info, story, full=full, width=out.width)
    if before:
        turns = sum(scene.turn is not None for scene in before)
        left = wording.many(turns, "turn") if turns else wording.many(len(before), "message")
        yield ()
        yield ((f"… {left} before these; --full shows all", "quiet"),)
    if story.erased:
        yield ()
        yield ((f"{wording.many(story.erased, 'message')} of it were erased", "bad"),)
    for scene, messages in stories.tellings(session, story, scenes):
        if scene.turn is not None or _is_summary(story, scene):
            yield ()
        yield from printer.scene(scene, messages)
    if pending:
        yield ()
        yield (("inbox", "strong"), (f" · {wording.many(len(pending), 'message')} waiting for a turn", "quiet"))
        yield from printer.scene(Scene(None, pending), stories.told(session, pending))
    if info.running:
        yield ()
        yield ((f"A turn is running; `holdfast sessions tail {info.id[:SHORT]}` follows it.", "quiet"),)


def _header(info: holdfast.SessionInfo, story: Story, *, full: bool, width: int | None) -> Iterator[Line]:
    style = {"running": "tool", "ended": "bad"}.get(info.state, "good")
    ended = f": {story.closed}" if story.closed and info.state == "ended" else ""
    name = f"{one_line(info.key)} · epoch {info.epoch}" if info.key is not None else "(no key)"
    yield (name, "strong"), " · ", (info.state, style), ended
    facts = {
        "id": info.id,
        "tenant": info.tenant if info.tenant != "default" else "",
        "opened": wording.moment(info.opened_at),
        "active": wording.moment(info.active_at),
        "holds": f"{wording.many(info.messages, 'message')} in {wording.many(info.turns, 'turn')}, "
        f"{wording.many(info.head, 'entry', 'entries')}",
        "tokens": wording.tokens(info.usage),
        "fork of": f"{story.parent[0]}, up to {story.parent[1]}" if story.parent else "",
        "follows": story.previous or "",
    }
    for fact, text in facts.items():
        if text:
            yield (f"{fact:<9}", "quiet"), text
    if story.instructions:
        text = harmless(story.instructions) if full else cut(one_line(story.instructions), INSTRUCTIONS_MAX)
        for at, line in enumerate(wrapped(text, None if width is None else width - 9)):
            yield (f"{'' if at else 'system':<9}", "quiet"), line
