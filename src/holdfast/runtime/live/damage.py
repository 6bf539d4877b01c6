"""Entries that can't be read: each takes away nothing but itself (I-18, I-25).

Nothing is looked at twice in a healthy store. Only when a reading fails is every entry of that
session vetted, and one that can't be read is shown as a placeholder in its place: a message that
says so, or, where the log needs the entry for its structure, an entry of the same kind that says
nothing more.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from holdfast.domain.entry import NOTES, Entry, note_of, noted
from holdfast.domain.message import USUAL_FORMAT, MessageNote, freeze, thaw
from holdfast.engine.address import damage_remedy
from holdfast.errors import Damaged
from holdfast.formats import registry
from holdfast.runtime.live.message import unreadable

_STRUCTURE = frozenset(
    {"opened", "turn", "take", "end", "closed", "erased", "blanked", "retract"}
)


def readable(entry: Entry, *, bodies: bool = True) -> Entry:
    """The entry, or a placeholder if it can't be read. Without `bodies` only its note is
    looked at.
    """
    try:
        _read(entry, bodies=bodies)
    except Exception:  # whatever it is that a stranger's bytes cause
        return placeholder(entry)
    return entry


def placeholder(entry: Entry) -> Entry:
    """What is shown in the place of an entry that can't be read."""
    # An empty note is read as one that says only defaults, so the fold goes on.
    if entry.kind in _STRUCTURE:
        return Entry(entry.seq, entry.kind, entry.turn, entry.id, entry.at, b"", b"")
    role = _role(entry)
    note = noted(MessageNote(role=role, origin="unreadable"))
    body = freeze({"role": role, "content": unreadable(entry.seq)})
    return Entry(entry.seq, "message", entry.turn, entry.id, entry.at, note, body)


def _role(entry: Entry) -> Literal["user", "assistant"]:
    """Who said what can't be read: the model, if its note still says so."""
    with suppress(Exception):
        if (
            entry.kind == "message"
            and note_of("message", entry.note).role == "assistant"
        ):
            return "assistant"
    return "user"


def _read(entry: Entry, *, bodies: bool) -> None:
    """Raises anything at all when the entry can't be read."""
    note: Any = None
    if entry.kind in NOTES:
        note = note_of(entry.kind, entry.note)
    # Most kinds have no body; of a message, an empty one is damage.
    if not entry.body and entry.kind != "message":
        return
    if entry.kind == "message" and bodies and not note.erased:
        registry.insist_on(note, entry.body)
    elif entry.kind == "compaction":
        registry.read(USUAL_FORMAT, entry.body)
    elif entry.kind == "instructions" and not isinstance(thaw(entry.body), str):
        raise Damaged(where="instructions", problem="they are not text")


def located(
    error: Damaged, where: str, session: str, page: Callable[[int], list[Entry]]
) -> Damaged:
    """The same error with its place in this session. `page` gives the log after a seq, page by
    page.
    """
    # An engine's own error names the store already.
    if error.where == where:
        return error
    place = f"session `{session}`"
    seq = _first_unreadable(page)
    if seq is not None:
        place = f"entry {seq} of {place}"
    problem = f"{place} can't be read back: {error.problem}"
    return Damaged(where=where, problem=problem, remedy=damage_remedy(where))


def _first_unreadable(page: Callable[[int], list[Entry]]) -> int | None:
    after = 0
    while entries := page(after):
        for entry in entries:
            if readable(entry) is not entry:
                return entry.seq
        after = entries[-1].seq
    return None
