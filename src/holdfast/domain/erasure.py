"""Erasure: what is left of an entry when its words are taken out of the store (I-1, I-21).

A tombstone keeps what the log is built of (that there was a message, of which role, in which turn;
how a turn ended; what was spent) and nothing that anybody said, named or sent: no payload, no
reason, no error, no address, no event id.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace

from holdfast.domain.entry import (
    NOTES,
    Asked,
    CallStarted,
    Decided,
    Entry,
    Labelled,
    Posted,
    note_of,
    noted,
)
from holdfast.domain.message import MessageNote, Note
from holdfast.errors import Damaged

_STAYS: dict[str, tuple[str, ...]] = {
    "opened": ("key", "epoch", "previous", "parent", "parent_seq"),
    "message": ("role", "late", "usage"),
    "turn": ("takes", "brought"),
    "take": ("takes", "brought", "session"),
    "call": ("message", "index"),
    "ask": ("message", "index"),
    "decision": ("message", "approved", "index"),
    "end": ("end", "returns"),
    "view": ("ranges",),
    "rewind": ("to", "gone", "turns", "cut", "ranges"),
    "label": ("message", "seq"),
    "retract": ("messages",),
    "compaction": ("covers", "ranges"),
    "post": ("owed", "end"),
    "closed": ("moved",),
    "erased": ("entries", "messages", "bytes", "reason"),
    "blanked": ("seqs",),
}
"""What stays of the note of each kind. A field that is not named here goes: what is added to a note
later may be somebody's words.
"""

_BLANK: dict[str, Note] = {
    "message": MessageNote(plain=False, erased=True),
    "call": CallStarted("", ""),
    "ask": Asked("", "", ""),
    "decision": Decided("", "", False, ""),
    "label": Labelled(""),
    "post": Posted("", "failed"),
}
"""A note that tells nothing, for kinds whose defaults do not."""


def tombstone(entry: Entry) -> bytes:
    """The note that stays when this entry is erased."""
    if entry.kind not in _STAYS:
        return b""
    left = _BLANK.get(entry.kind) or NOTES[entry.kind]()
    # What can't be read is erased all the same (I-25).
    note = _noted(entry)
    if note is not None:
        stays = {field: getattr(note, field) for field in _STAYS[entry.kind]}
        left = replace(left, **stays)
    return noted(left)


def carried_in(entries: Iterable[Entry]) -> set[str]:
    """Ids of the messages that may have waited in another session before: those that this one
    begins with. Of one that is erased, nothing tells any more whether it had to wait.
    """
    carried = set()
    # The first entry opens the session, and those that were carried over follow it.
    for entry in islice(entries, 1, None):
        if entry.kind != "message" or entry.turn is not None:
            break
        note = _noted(entry)
        if note is not None and (note.inbox or note.erased):
            carried.add(entry.id.hex())
    return carried


def brought_in(entries: Iterable[Entry]) -> dict[str, set[str]]:
    """Ids of the messages that turns of this session brought along from the inboxes of other
    sessions, by the session.
    """
    brought: dict[str, set[str]] = {}
    for entry in entries:
        # Nearly none does: it is told by the bytes, without a decoder.
        if entry.kind in ("turn", "take") and b'"brought"' in entry.note:
            note = _noted(entry)
            for id, session in note.brought.items() if note is not None else ():
                brought.setdefault(session, set()).add(id)
    return brought


def passed_on(entries: Iterable[Entry], ids: Collection[str]) -> set[str]:
    """Which of these messages went on from this session to the next one."""
    moved: set[str] = set()
    for entry in entries:
        if entry.kind == "closed" and (note := _noted(entry)) is not None:
            moved.update(note.moved)
    return moved.intersection(ids)


def entries_about(entries: Iterable[Entry], ids: Collection[str]) -> Iterator[Entry]:
    """The entries with the words of these messages: they themselves, their labels, and turns that
    had taken nothing else and gave it back, whose notes have the address and the event id of what
    they began with.
    """
    for entry in entries:
        if entry.kind == "message" and entry.id.hex() in ids:
            yield entry
        elif entry.kind == "turn" and (note := _noted(entry)) is not None:
            if note.takes and set(ids).issuperset(note.takes):
                yield entry
        elif entry.kind == "label" and (note := _noted(entry)) is not None:
            if note.message in ids:
                yield entry


def _noted(entry: Entry) -> Any:
    """The note of an entry; None when it can't be read (I-25)."""
    try:
        return note_of(entry.kind, entry.note)
    except Damaged:
        return None
