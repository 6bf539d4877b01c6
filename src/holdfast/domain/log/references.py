"""References: which messages a note names, by id or by the seqs at which they stand.

What a note names was there before it was written, in the session's own log or in the past that it
shares.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from holdfast.domain.entry import NOTES, Entry, note_of

_NAMING = NOTES.keys() - {"message"}
_STANDING = frozenset({"message", "compaction"})
"""The kinds of entries that stand in a view: what was said, and the summary of it."""


def messages_named(kind: str, note: Any) -> tuple[str, ...]:
    """The ids of the messages that a note of this kind names."""
    named: tuple[str, ...] = ()
    if kind in ("turn", "take"):
        named = note.takes
    elif kind == "end":
        named = note.returns
    elif kind == "closed":
        named = note.moved
    elif kind == "retract":
        named = note.messages
    elif kind in ("call", "ask", "decision", "label"):
        named = (note.message,)
    elif kind == "rewind" and note.to:
        named = (note.to,)
    return named


def places_named(kind: str, note: Any) -> set[int]:
    """The seqs of the messages that a shape or a summary is made of."""
    if kind not in ("view", "compaction"):
        return set()
    spans = note.ranges
    if kind == "compaction":
        spans += note.covers
    return {seq for span in spans for seq in span} | set(note.edits)


Named = bytes | int
"""What a note names: an id, or a seq."""


class References:
    """What the notes of one log name and is not there. Nearly all name a message that stands close
    by, so a log is added page by page, and no more of it is held than what the last two pages show;
    if something is `missing` after that, all of the log is shown once more, with the past that it
    shares.
    """

    def __init__(self) -> None:
        self._last: set[Named] = set()
        self.missing: dict[Named, list[int]] = {}
        """What nothing has shown to be there, and the seqs of the notes that name it."""

    def add(self, page: Sequence[Entry], *, unreadable: Collection[int]) -> None:
        """The next entries of the log. Those that can't be read, given by seq, are there, and name
        nothing.
        """
        here = _shown_by(page)
        # A note may stand on the page after the message that it names.
        near, self._last = self._last | here, here
        for entry in page:
            # Nearly all are messages, whose notes name nothing: they are not decoded.
            if entry.kind not in _NAMING or entry.seq in unreadable:
                continue
            for name in _named_by(entry) - near:
                self.missing.setdefault(name, []).append(entry.seq)

    def discharge(self, entries: Iterable[Entry]) -> None:
        """These are there."""
        for name in _shown_by(entries):
            self.missing.pop(name, None)

    def dangling(self) -> Iterator[tuple[int, str]]:
        """The seq of each note that names what is not there, and one thing that it names."""
        first: dict[int, Named] = {}
        for name, seqs in self.missing.items():
            for seq in seqs:
                first.setdefault(seq, name)
        for seq, name in sorted(first.items()):
            if isinstance(name, bytes):
                what = f"message {name.hex()}"
            else:
                what = f"entry {name} as a message"
            yield seq, f"it names {what}, which is not there"


def _shown_by(entries: Iterable[Entry]) -> set[Named]:
    shown: set[Named] = set()
    for entry in entries:
        if entry.kind in _STANDING:
            shown.update((entry.id, entry.seq))
    return shown


def _named_by(entry: Entry) -> set[Named]:
    note = note_of(entry.kind, entry.note)
    # what was erased names nobody
    ids = filter(None, messages_named(entry.kind, note))
    return {*map(_bytes, ids), *places_named(entry.kind, note)}


def _bytes(name: str) -> bytes:
    """An id as entries have it; one that can't be one is no entry's."""
    try:
        return bytes.fromhex(name)
    except ValueError:
        return name.encode("utf-8", "surrogatepass")
