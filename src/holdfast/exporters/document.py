"""A session as a document for people, piece by piece: what stands in it, in which order, whatever
it is written in.
"""

from collections.abc import Iterator

import msgspec

import holdfast
from holdfast.domain.log.explain import Outline, Section
from holdfast.domain.message import Call, Result, Text
from holdfast.domain.repair import StoredMessage
from holdfast.domain.turn import ToolCall
from holdfast.exporters import units
from holdfast.exporters.messages import (
    Messages,
    outline_of,
    read_messages,
    read_sections,
)
from holdfast.exporters.units import CALL_STATES, VIEWS

MARKED = {"partial": "cut off: the user saw no more of it", "erased": "erased"}


class Title(msgspec.Struct, frozen=True):
    text: str


class Fact(msgspec.Struct, frozen=True):
    """What is so of the session. Its text may be anything."""

    name: str
    text: str


class Heading(msgspec.Struct, frozen=True):
    """The beginning of a part (level 2) or of a message (level 3); `role` is whose."""

    level: int
    text: str
    role: str = ""


class Remark(msgspec.Struct, frozen=True):
    """A sentence of ours, and a text that it ends with, which may be anything."""

    text: str
    quoted: str = ""


class Paragraph(msgspec.Struct, frozen=True):
    """What was said, which may be anything. A call is told by its text, too."""

    text: str
    title: str = ""
    call: Call | None = None


Piece = Title | Fact | Heading | Remark | Paragraph


def document(session: holdfast.Session) -> Iterator[Piece]:
    """The pieces of the document, in order."""
    info = session.info()
    outline = outline_of(session)
    yield Title(f"Session {info.id[:8]}")
    yield from _facts(info, outline)
    if outline.log.instructions:
        yield Paragraph(outline.log.instructions, "Instructions")
    if outline.erased:
        yield Remark(f"{units.many(outline.erased, 'message')} of it were erased.")
    answered = outline.answered()
    for section, messages in read_sections(session, outline, outline.sections):
        yield from _section(section, outline, messages, answered)
    pending = outline.log.inbox
    if pending:
        yield Heading(2, "Inbox")
        yield from _section(
            Section(None, pending), outline, read_messages(session, pending), answered
        )


def _facts(info: holdfast.SessionInfo, outline: Outline) -> Iterator[Fact]:
    yield Fact("id", info.id)
    if info.key is not None:
        yield Fact("key", f"{info.key}, epoch {info.epoch}")
    yield Fact("state", info.state)
    yield Fact("opened", units.moment(info.opened_at))
    yield Fact("last active", units.moment(info.active_at))
    tokens = units.tokens(info.usage)
    if tokens:
        yield Fact("tokens", tokens)
    if outline.parent:
        parent, head = outline.parent
        yield Fact("fork of", f"{parent}, up to {head}")


def _section(
    section: Section, outline: Outline, messages: Messages, answered: set[str]
) -> Iterator[Piece]:
    if section.turn is not None:
        why = section.turn.error or section.turn.reason or ""
        end: str = section.turn.end or "running"
        if why:
            end += ": "
        yield Heading(2, f"Turn {section.turn.number}")
        yield Remark(f"{units.moment(section.turn.started_at)}, {end}", why)
    for seen in section.messages:
        if seen.id in outline.covers:
            stands_for = units.many(len(outline.covered(seen.id)), "message")
            yield Paragraph(
                messages[seen.id].text, f"{seen.seq} summary of {stands_for}"
            )
            continue
        is_answer = seen.id in answered
        # an answer stands below its call; a message that is nothing else needs no place of its own
        if is_answer and _is_nothing_but_results(messages[seen.id]):
            continue
        yield from _message(seen, outline, messages, is_answer=is_answer)


def _is_nothing_but_results(message: holdfast.Message) -> bool:
    return all(isinstance(part, Result) for part in message.parts)


def _message(
    seen: StoredMessage, outline: Outline, messages: Messages, *, is_answer: bool
) -> Iterator[Piece]:
    message = messages[seen.id]
    yield Heading(3, _heading(seen, message, outline), message.role)
    if message.state == "erased":
        return
    calls = iter(outline.calls.get(seen.id, ()))
    for part in message.parts:
        if isinstance(part, Text):
            yield Paragraph(part.text)
        elif isinstance(part, Call):
            yield from _call(part, next(calls, None), messages)
        elif not isinstance(part, Result):
            yield Paragraph(units.aside(part))
        elif not is_answer:
            yield Paragraph(part.content, "Outcome")


def _heading(seen: StoredMessage, message: holdfast.Message, outline: Outline) -> str:
    """Its number, whose it is, and all that is remarkable about it."""
    pieces = [f"{seen.seq} {message.role}"]
    if message.state in MARKED:
        pieces.append(MARKED[message.state])
    if message.late:
        pieces.append("late")
    view = VIEWS[outline.view(seen)]
    if view and message.state != "erased":
        pieces.append(view)
    return " · ".join(pieces)


def _call(part: Call, call: ToolCall | None, messages: Messages) -> Iterator[Paragraph]:
    """A call and its outcome. There is no `call` when its message was cut off in the middle of it."""
    if call is None:
        yield Paragraph(units.call(part), "Call, never whole", part)
        return
    yield Paragraph(units.call(part), f"Call, {CALL_STATES[call.state]}", part)
    if call.outcome is None or call.outcome not in messages:
        return
    for answer in messages[call.outcome].parts:
        if isinstance(answer, Result) and answer.call_id == part.id:
            yield Paragraph(answer.content, "Outcome")
            return
