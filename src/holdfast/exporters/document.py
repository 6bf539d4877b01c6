"""A session as a document for people, piece by piece: what stands in it, in which order, whatever
it is written in.
"""

from collections.abc import Iterator

import msgspec

import holdfast
from holdfast.domain.log.explain import Outline, Section
from holdfast.domain.message import Call, Result, Text
from holdfast.domain.repair import StoredMessage
from holdfast.exporters import units
from holdfast.exporters.messages import Messages, outline_of, read_messages, read_sections
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
    """What was said, which may be anything."""

    text: str
    title: str = ""


Piece = Title | Fact | Heading | Remark | Paragraph


def document(session: holdfast.Session) -> Iterator[Piece]:
    """The pieces of the document, in order."""
    info, outline = session.info(), outline_of(session)
    yield Title(f"Session {info.id[:8]}")
    facts = {
        "id": info.id,
        "key": f"{info.key}, epoch {info.epoch}" if info.key is not None else "",
        "state": info.state,
        "opened": units.moment(info.opened_at),
        "last active": units.moment(info.active_at),
        "tokens": units.tokens(info.usage),
        "fork of": f"{outline.parent[0]}, up to {outline.parent[1]}" if outline.parent else "",
    }
    yield from (Fact(name, text) for name, text in facts.items() if text)
    if outline.instructions:
        yield Paragraph(outline.instructions, "Instructions")
    if outline.erased:
        yield Remark(f"{units.many(outline.erased, 'message')} of it were erased.")
    answered = outline.answered()
    for section, messages in read_sections(session, outline, outline.sections):
        yield from _section(section, outline, messages, answered)
    pending = outline.pending
    if pending:
        yield Heading(2, "Inbox")
        yield from _section(
            Section(None, pending), outline, read_messages(session, pending), answered
        )


def _section(
    section: Section, outline: Outline, messages: Messages, answered: set[str]
) -> Iterator[Piece]:
    if section.turn is not None:
        why = section.turn.error or section.turn.reason or ""
        end = f"{section.turn.end or 'running'}{': ' if why else ''}"
        yield Heading(2, f"Turn {section.turn.number}")
        yield Remark(f"{units.moment(section.turn.started_at)}, {end}", why)
    for seen in section.messages:
        if seen.id in outline.covers:
            stands_for = units.many(len(outline.covered(seen.id)), "message")
            yield Paragraph(messages[seen.id].text, f"{seen.seq} summary of {stands_for}")
        elif seen.id not in answered or any(
            not isinstance(part, Result) for part in messages[seen.id].parts
        ):
            yield from _message(seen, outline, messages, is_answer=seen.id in answered)


def _message(
    seen: StoredMessage, outline: Outline, messages: Messages, *, is_answer: bool
) -> Iterator[Piece]:
    message = messages[seen.id]
    marks = [message.state] if message.state in MARKED else []
    marks += ["late"] if message.late else []
    marks += [VIEWS[outline.view(seen)]] if message.state != "erased" else []
    heading = " · ".join(
        [f"{seen.seq} {message.role}", *(MARKED.get(mark, mark) for mark in marks if mark)]
    )
    yield Heading(3, heading, message.role)
    calls = iter(outline.calls.get(seen.id, ()))
    for part in message.parts if message.state != "erased" else ():
        if isinstance(part, Text):
            yield Paragraph(part.text)
        elif isinstance(part, Call):
            call = next(calls, None)
            state = CALL_STATES[call.state] if call is not None else "never whole"
            yield Paragraph(units.call(part), f"Call, {state}")
            outcome = (
                messages.get(call.outcome)
                if call is not None and call.outcome is not None
                else None
            )
            said = (
                [each for each in outcome.parts if isinstance(each, Result)]
                if outcome is not None
                else []
            )
            for result in [each for each in said if each.call_id == part.id][:1]:
                yield Paragraph(result.content, "Outcome")
        elif not isinstance(part, Result):
            yield Paragraph(units.aside(part))
        elif not is_answer:
            yield Paragraph(part.content, "Outcome")
