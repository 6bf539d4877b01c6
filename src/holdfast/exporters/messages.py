"""Messages of an outline with their payloads, read some at a time (I-24)."""

from collections.abc import Iterable, Iterator
from typing import Any

import holdfast
from holdfast.domain.entry import Entry, note_of
from holdfast.domain.ids import turn_id
from holdfast.domain.log.explain import Outline, Section
from holdfast.domain.repair import StoredMessage
from holdfast.runtime.live.message import Message

# How many messages are read at once to be printed.
AT_ONCE = 1000


def outline_of(session: holdfast.Session) -> Outline:
    """The outline of this session, read from its log."""
    return Outline(session.entries())


# Messages with their payloads, by id.
Messages = dict[str, Message]


def read_messages(
    session: holdfast.Session, wanted: Iterable[StoredMessage]
) -> Messages:
    """These messages with their payloads."""
    seqs = {seen.seq: seen for seen in wanted}
    found: Messages = {}
    if seqs:
        for entry in session.entries(after=min(seqs) - 1):
            if entry.seq in seqs:
                found[entry.id.hex()] = message_of(
                    session, entry, turn=seqs[entry.seq].turn
                )
            # The rest of a long log need not be read.
            if len(found) == len(seqs):
                break
    return found


def read_sections(
    session: holdfast.Session, outline: Outline, sections: Iterable[Section]
) -> Iterator[tuple[Section, Messages]]:
    """Each section with its messages and the outcomes of its calls, read some at a time (I-24)."""
    waiting: list[Section] = []
    count = 0
    for section in sections:
        waiting.append(section)
        count += len(section.messages)
        if count >= AT_ONCE:
            yield from _read_all(session, outline, waiting)
            waiting = []
            count = 0
    yield from _read_all(session, outline, waiting)


def _read_all(
    session: holdfast.Session, outline: Outline, sections: list[Section]
) -> Iterator[tuple[Section, Messages]]:
    wanted = {seen.id: seen for section in sections for seen in section.messages}
    messages = read_messages(session, wanted.values())
    for id in wanted:
        for call in outline.calls.get(id, ()):
            # an outcome that came late stands in another turn
            if call.outcome is not None and call.outcome not in messages:
                messages |= read_messages(session, [outline.found(call.outcome)])
    for section in sections:
        yield section, messages


def message_of(session: holdfast.Session, entry: Entry, *, turn: int | None) -> Message:
    """An entry as the message that it holds; a summary is one, too."""
    # The note of a summary says what it covers, not how a message is spoken.
    stored = entry.note if entry.kind == "message" else b""
    note: Any = note_of("message", stored)
    seen = StoredMessage(
        entry.id.hex(), entry.seq, turn, note, entry.body, False, (), entry.at
    )
    name = None if turn is None else turn_id(session.id, turn)
    return Message(seen, turn=name)
