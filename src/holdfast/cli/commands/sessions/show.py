"""`holdfast sessions show`: what happened in a session, for people."""

from collections.abc import Iterator
from typing import Any

from holdfast import Session, SessionInfo
from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser, count
from holdfast.cli.render.session_text import Line, Printer
from holdfast.cli.targets import SHORT, opened_session
from holdfast.domain.log.explain import Outline, Section
from holdfast.domain.message import Usage
from holdfast.exporters import units
from holdfast.exporters.messages import outline_of, read_messages, read_sections
from holdfast.exporters.safe_text import cut, harmless, one_line, wrapped
from holdfast.exporters.session_json import session_json

LAST = 20
INSTRUCTIONS_MAX = 300


def options(parser: Parser) -> None:
    parser.add_session()
    last = f"only the last N turns (default: {LAST})"
    parser.add_value("--last", "N", last, type=count)
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
    with opened_session(options) as session:
        info = session.info()
        outline = outline_of(session)
        # Once: they are put together each time they are asked for.
        sections = outline.sections
        last = options.last
        if out.is_json:
            wanted = sections[_first(outline, sections, last) :]
            out.json(session_json(session, info, outline, wanted))
            return DONE
        # Only for people: programs get all of it, unless they ask for less.
        if last is None and not options.full:
            last = LAST
        printer = Printer(
            outline, spent=_spent(session), width=out.width, full=options.full
        )
        out.lines(_header(info, outline, full=options.full, width=out.width))
        first = _first(outline, sections, last)
        if first:
            out.lines(_left_out(sections[:first]))
        out.lines(_body(session, outline, printer, sections[first:]))
        if info.running:
            follow = f"`holdfast sessions tail {info.id[:SHORT]}` follows it."
            out.line()
            out.line((f"A turn is running; {follow}", "quiet"))
    return DONE


def _first(outline: Outline, sections: list[Section], last: int | None) -> int:
    """Where the last so many turns begin. A message outside a turn counts as one; a summary does
    not count.
    """
    counted = []
    for at, section in enumerate(sections):
        if not _is_summary(outline, section):
            counted.append(at)
    if last is None or last >= len(counted):
        return 0
    return counted[-last]


def _is_summary(outline: Outline, section: Section) -> bool:
    return section.turn is None and section.messages[0].id in outline.covers


def _spent(session: Session) -> dict[int, Usage]:
    return {turn.number: turn.usage for turn in session.turns()}


def _left_out(before: list[Section]) -> Iterator[Line]:
    turns = sum(section.turn is not None for section in before)
    left = units.many(len(before), "message")
    if turns:
        left = units.many(turns, "turn")
    yield ()
    yield ((f"… {left} before these; --full shows all", "quiet"),)


def _body(
    session: Session, outline: Outline, printer: Printer, sections: list[Section]
) -> Iterator[Line]:
    if outline.erased:
        yield ()
        yield ((f"{units.many(outline.erased, 'message')} of it were erased", "bad"),)
    for section, messages in read_sections(session, outline, sections):
        if section.turn is not None or _is_summary(outline, section):
            yield ()
        yield from printer.section(section, messages)
    pending = outline.log.inbox
    if pending:
        waiting = f" · {units.many(len(pending), 'message')} waiting for a turn"
        yield ()
        yield ("inbox", "strong"), (waiting, "quiet")
        inbox = Section(None, pending)
        yield from printer.section(inbox, read_messages(session, pending))


def _header(
    info: SessionInfo, outline: Outline, *, full: bool, width: int | None
) -> Iterator[Line]:
    style = {"running": "tool", "ended": "bad"}.get(info.state, "good")
    ended = ""
    if outline.log.closed and info.state == "ended":
        ended = f": {outline.log.closed}"
    name = "(no key)"
    if info.key is not None:
        name = f"{one_line(info.key)} · epoch {info.epoch}"
    yield (name, "strong"), " · ", (info.state, style), ended
    for fact, text in _facts(info, outline).items():
        if text:
            yield (f"{fact:<9}", "quiet"), text
    if not outline.log.instructions:
        return
    if full:
        text = harmless(outline.log.instructions)
    else:
        text = cut(one_line(outline.log.instructions), INSTRUCTIONS_MAX)
    name = "system"
    # 9 columns are the name in front.
    for line in wrapped(text, None if width is None else width - 9):
        yield (f"{name:<9}", "quiet"), line
        name = ""


def _facts(info: SessionInfo, outline: Outline) -> dict[str, str]:
    """What there is to say of a session, by its name; empty where there is nothing."""
    messages = units.many(info.messages, "message")
    turns = units.many(info.turns, "turn")
    parent = ""
    if outline.parent:
        parent = f"{outline.parent[0]}, up to {outline.parent[1]}"
    return {
        "id": info.id,
        "tenant": "" if info.tenant == "default" else info.tenant,
        "opened": units.moment(info.opened_at),
        "active": units.moment(info.active_at),
        "holds": f"{messages} in {turns}, {units.many(info.head, 'entry', 'entries')}",
        "tokens": units.tokens(info.usage),
        "fork of": parent,
        "follows": outline.previous or "",
    }
