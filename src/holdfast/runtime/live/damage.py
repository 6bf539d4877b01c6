"""Entries that can't be read: each takes away nothing but itself (I-18, I-25).

Nothing is looked at twice in a healthy store. Only when a reading fails is every entry of that
session vetted, and one that can't be read is shown as a placeholder in its place: a message that
says so, or, where the log needs the entry for its structure, an entry of the same kind that says
nothing more.
"""

from collections.abc import Callable
from typing import Any, Literal

from holdfast.domain.entry import NOTES, Entry, note_of, noted
from holdfast.domain.message import MessageNote, freeze, thaw
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
    if entry.kind in _STRUCTURE:
        return Entry(entry.seq, entry.kind, entry.turn, entry.id, entry.at, b"", b"")
    role = _role(entry)
    note = noted(MessageNote(role=role, origin="unreadable"))
    body = freeze({"role": role, "content": unreadable(entry.seq)})
    return Entry(entry.seq, "message", entry.turn, entry.id, entry.at, note, body)


def _role(entry: Entry) -> Literal["user", "assistant"]:
    """Who said what can't be read: the model, if its note still says so."""
    try:
        note = (
            note_of("message", entry.note) if entry.kind == "message" else MessageNote()
        )
    except Exception:
        return "user"
    return "assistant" if note.role == "assistant" else "user"


def _read(entry: Entry, *, bodies: bool) -> None:
    note: Any = note_of(entry.kind, entry.note) if entry.kind in NOTES else None
    if entry.kind == "message" and bodies and not note.erased:
        registry.read(note.format, entry.body)
    elif entry.kind == "compaction" and entry.body:
        registry.read("openai.chat", entry.body)
    elif (
        entry.kind == "instructions"
        and entry.body
        and not isinstance(thaw(entry.body), str)
    ):
        raise Damaged(where="instructions", problem="they are not text")


def located(
    error: Damaged, where: str, session: str, page: Callable[[int], list[Entry]]
) -> Damaged:
    """The same error with its place in this session. `page` gives the log after a seq, page by
    page.
    """
    if error.where == where:
        return error
    after = 0
    while entries := page(after):
        for entry in entries:
            if readable(entry) is not entry:
                problem = (
                    f"entry {entry.seq} of session `{session}` can't be read back: "
                    f"{error.problem}"
                )
                return Damaged(
                    where=where, problem=problem, remedy=damage_remedy(where)
                )
        after = entries[-1].seq
    problem = f"session `{session}` can't be read back: {error.problem}"
    return Damaged(where=where, problem=problem, remedy=damage_remedy(where))
