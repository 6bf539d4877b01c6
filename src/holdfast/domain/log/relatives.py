"""Relatives: the sessions that an entry names.

A log tells of other sessions: whose past it shares, which one its key meant before, where messages
came from and where they went. It names its own session as well, in a reply that its turn confirmed.
A session that gets another id names all of them as they are called there.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from holdfast.domain.entry import Entry, note_of, noted

Renaming = Callable[[str], str]
"""From the id that a session is named by to the one that it has."""


def renamed(entry: Entry, id_of: Renaming) -> Entry:
    """The entry, with every session that it names under the id that it has."""
    fields = _NAMING.get(entry.kind)
    # An entry that says nothing names nobody.
    if fields is None or not entry.note:
        return entry
    note = note_of(entry.kind, entry.note)
    changes = {}
    for field, change in fields.items():
        before = getattr(note, field)
        after = change(before, id_of) if before else before
        if after != before:
            changes[field] = after
    # What stays the same stays so to the byte.
    if not changes:
        return entry
    return replace(entry, note=noted(replace(note, **changes)))


def _session(id: str, id_of: Renaming) -> str:
    return id_of(id)


def _brought(origins: dict[str, str], id_of: Renaming) -> dict[str, str]:
    return {message: id_of(session) for message, session in origins.items()}


def _owed(reply: str, id_of: Renaming) -> str:
    # One that its turn confirmed is named by that turn, and a turn by its session; others have an
    # id of their own.
    session, colon, number = reply.partition(":")
    return f"{id_of(session)}:{number}" if colon else reply


_NAMING: dict[str, dict[str, Callable[[Any, Renaming], Any]]] = {
    "opened": {"previous": _session, "parent": _session},
    "turn": {"brought": _brought},
    "take": {"brought": _brought, "session": _session},
    "closed": {"session": _session},
    "post": {"owed": _owed},
}
"""The fields of notes that name sessions."""
