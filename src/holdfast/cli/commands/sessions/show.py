"""`holdfast sessions show`: what happened in a session, for people."""

from collections.abc import Iterator
from typing import Any

import holdfast
from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser, count
from holdfast.cli.render.session_text import Line, Printer
from holdfast.cli.targets import SHORT, opened, session_of
from holdfast.domain.log.explain import Outline, Section
from holdfast.exporters import units
from holdfast.exporters.messages import outline_of, read_messages, read_sections
from holdfast.exporters.safe_text import cut, harmless, one_line, wrapped
from holdfast.exporters.session_json import session_json

LAST = 20
INSTRUCTIONS_MAX = 300


def options(parser: Parser) -> None:
    parser.add_session()
    parser.add_argument(
        "--last",
        metavar="N",
        type=count,
        help=f"only the last N turns (default: {LAST})",
    )
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
        info = session.info()
        outline = outline_of(session)
        sections = outline.sections
        last = options.last
        if out.is_json:
            wanted = sections[_first(outline, sections, last) :]
            out.json(session_json(session, info, outline, wanted))
            return DONE
        if last is None and not options.full:
            last = LAST
        first = _first(outline, sections, last)
        for line in _lines(
            session, info, outline, sections, first=first, full=options.full, out=out
        ):
            out.line(*line)
    return DONE


def _first(outline: Outline, sections: list[Section], last: int | None) -> int:
    """Where the last so many turns begin. A message outside a turn counts as one; a summary does
    not count.
    """
    counted = [at for at, each in enumerate(sections) if not _is_summary(outline, each)]
    if last is None or last >= len(counted):
        return 0
    return counted[-last]


def _is_summary(outline: Outline, section: Section) -> bool:
    return section.turn is None and section.messages[0].id in outline.covers


def _lines(
    session: holdfast.Session,
    info: holdfast.SessionInfo,
    outline: Outline,
    sections: list[Section],
    *,
    first: int,
    full: bool,
    out: Output,
) -> Iterator[Line]:
    before = sections[:first]
    pending = outline.log.inbox
    spent = {turn.number: turn.usage for turn in session.turns()}
    printer = Printer(outline, spent=spent, width=out.width, full=full)
    yield from _header(info, outline, full=full, width=out.width)
    if before:
        turns = sum(section.turn is not None for section in before)
        left = (
            units.many(turns, "turn") if turns else units.many(len(before), "message")
        )
        yield ()
        yield ((f"… {left} before these; --full shows all", "quiet"),)
    if outline.erased:
        yield ()
        yield ((f"{units.many(outline.erased, 'message')} of it were erased", "bad"),)
    for section, messages in read_sections(session, outline, sections[first:]):
        if section.turn is not None or _is_summary(outline, section):
            yield ()
        yield from printer.section(section, messages)
    if pending:
        yield ()
        yield (
            ("inbox", "strong"),
            (f" · {units.many(len(pending), 'message')} waiting for a turn", "quiet"),
        )
        yield from printer.section(
            Section(None, pending), read_messages(session, pending)
        )
    if info.running:
        yield ()
        yield (
            (
                f"A turn is running; `holdfast sessions tail {info.id[:SHORT]}` follows it.",
                "quiet",
            ),
        )


def _header(
    info: holdfast.SessionInfo, outline: Outline, *, full: bool, width: int | None
) -> Iterator[Line]:
    style = {"running": "tool", "ended": "bad"}.get(info.state, "good")
    ended = (
        f": {outline.log.closed}"
        if outline.log.closed and info.state == "ended"
        else ""
    )
    name = (
        f"{one_line(info.key)} · epoch {info.epoch}"
        if info.key is not None
        else "(no key)"
    )
    yield (name, "strong"), " · ", (info.state, style), ended
    facts = {
        "id": info.id,
        "tenant": info.tenant if info.tenant != "default" else "",
        "opened": units.moment(info.opened_at),
        "active": units.moment(info.active_at),
        "holds": f"{units.many(info.messages, 'message')} in {units.many(info.turns, 'turn')}, "
        f"{units.many(info.head, 'entry', 'entries')}",
        "tokens": units.tokens(info.usage),
        "fork of": f"{outline.parent[0]}, up to {outline.parent[1]}"
        if outline.parent
        else "",
        "follows": outline.previous or "",
    }
    for fact, text in facts.items():
        if text:
            yield (f"{fact:<9}", "quiet"), text
    if outline.log.instructions:
        if full:
            text = harmless(outline.log.instructions)
        else:
            text = cut(one_line(outline.log.instructions), INSTRUCTIONS_MAX)
        name = "system"
        for line in wrapped(text, None if width is None else width - 9):
            yield (f"{name:<9}", "quiet"), line
            name = ""
