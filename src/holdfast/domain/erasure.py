"""Erasure: what is left of an entry when its words are taken out of the store (I-1, I-21).

A tombstone keeps what the log is built of (that there was a message, of which role, in which turn;
how a turn ended; what was spent) and nothing that anybody said, named or sent: no payload, no
reason, no error, no address, no event id.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice, takewhile
from typing import Any

from msgspec.structs import replace

from holdfast.domain.entry import (
    NOTES,
    Asked,
    CallStarted,
    Closed,
    Compacted,
    Decided,
    Entry,
    Labelled,
    Opened,
    Posted,
    Retracted,
    Shape,
    Taken,
    TurnEnded,
    TurnStarted,
    note_of,
    noted,
)
from holdfast.domain.message import MessageNote
from holdfast.errors import Damaged


def tombstone(entry: Entry) -> bytes:
    """The note that stays when this entry is erased."""
    left = _LEFT.get(entry.kind)
    if left is None:
        return b""
    try:
        return noted(left(note_of(entry.kind, entry.note)))
    except Damaged:  # what can't be read is erased all the same (I-25)
        return noted(_BLANK.get(entry.kind, NOTES[entry.kind])())


def carried_in(entries: Iterable[Entry]) -> set[str]:
    """Ids of the messages that may have waited in another session before: those that this one
    begins with. Of one that is erased, nothing tells any more whether it had to wait.
    """
    first = takewhile(
        lambda entry: entry.kind == "message" and entry.turn is None,
        islice(entries, 1, None),
    )
    return {
        entry.id.hex()
        for entry in first
        if (note := _noted(entry)) is not None and (note.inbox or note.erased)
    }


def passed_on(entries: Iterable[Entry], ids: Collection[str]) -> set[str]:
    """Which of these messages went on from this session to the next one."""
    closed = (_noted(entry) for entry in entries if entry.kind == "closed")
    return {id for note in closed if note is not None for id in note.moved if id in ids}


def telling(entries: Iterable[Entry], ids: Collection[str]) -> Iterator[Entry]:
    """The entries that tell these messages: they themselves, and turns that had taken nothing else
    and gave it back, whose notes have the address and the event id of what they began with.
    """
    for entry in entries:
        if entry.kind == "message" and entry.id.hex() in ids:
            yield entry
        elif (
            entry.kind == "turn"
            and (note := _noted(entry)) is not None
            and note.takes
            and ids
        ):
            if all(id in ids for id in note.takes):
                yield entry


def _noted(entry: Entry) -> Any:
    """The note of an entry; None when it can't be read (I-25)."""
    try:
        return note_of(entry.kind, entry.note)
    except Damaged:
        return None


def _message(note: MessageNote) -> MessageNote:
    return MessageNote(
        role=note.role, plain=False, late=note.late, usage=note.usage, erased=True
    )


_BLANK: dict[str, Any] = {
    "message": lambda: MessageNote(plain=False, erased=True),
    "call": lambda: CallStarted("", ""),
    "ask": lambda: Asked("", "", ""),
    "decision": lambda: Decided("", "", False, ""),
    "label": lambda: Labelled(""),
    "post": lambda: Posted("", "failed"),
}
"""What is left of an entry that can't be read, where a note can't say nothing."""

_LEFT: dict[str, Any] = {
    "opened": lambda note: Opened(
        note.key, note.epoch, note.previous, note.parent, note.parent_seq
    ),
    "message": _message,
    "turn": lambda note: TurnStarted(note.takes),
    "take": lambda note: Taken(note.takes),
    "call": lambda note: CallStarted("", note.message, note.index),
    "ask": lambda note: replace(note, call_id="", digest=""),
    "decision": lambda note: Decided("", note.message, note.approved, "", note.index),
    "end": lambda note: TurnEnded(note.end, returns=note.returns),
    "view": lambda note: Shape(note.ranges),
    "rewind": lambda note: note,
    "label": lambda note: Labelled(note.message, seq=note.seq),
    "retract": lambda note: Retracted(note.messages),
    "compaction": lambda note: Compacted(note.covers, note.ranges),
    "post": lambda note: Posted(note.owed, note.end),
    "closed": lambda note: Closed(moved=note.moved),
    "erased": lambda note: note,
    "blanked": lambda note: note,
}
