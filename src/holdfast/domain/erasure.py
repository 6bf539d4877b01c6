"""Erasure: what is left of an entry when its words are taken out of the store (I-1, I-21).

A tombstone keeps what the log is built of (that there was a message, of which role, in which turn;
how a turn ended; what was spent) and nothing that anybody said, named or sent: no payload, no
reason, no error, no address, no event id.
"""

from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from holdfast.domain.entry import (
    NOTES,
    Asked,
    CallStarted,
    Decided,
    Entry,
    Labelled,
    Posted,
    legible_note,
    noted,
)
from holdfast.domain.message import MessageNote, Note

_STAYS: dict[str, tuple[str, ...]] = {
    "opened": ("key", "epoch", "previous", "parent", "parent_seq", "at"),
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
    "closed": ("moved", "session"),
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
    note = legible_note(entry)
    if note is not None:
        stays = {field: getattr(note, field) for field in _STAYS[entry.kind]}
        left = replace(left, **stays)
    return noted(left)


def entries_about(entries: Iterable[Entry], ids: Collection[str]) -> Iterator[Entry]:
    """The entries with the words of these messages, which have gone elsewhere: they themselves,
    their labels, and turns that took one of them and gave it back: they have done nothing, and
    their notes may have its address and its event id.
    """
    for entry in entries:
        if entry.kind == "message" and entry.id.hex() in ids:
            yield entry
        elif entry.kind == "turn" and (note := legible_note(entry)) is not None:
            if not set(note.takes).isdisjoint(ids):
                yield entry
        elif entry.kind == "label" and (note := legible_note(entry)) is not None:
            if note.message in ids:
                yield entry
