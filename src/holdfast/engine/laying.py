"""What a log tells of the rows that stand beside it: whoever lays a session down works them out again from here."""

from collections.abc import Iterable, Iterator

from holdfast.domain.entry import Entry, note_of
from holdfast.domain.routing import asking_scope, scope_of
from holdfast.engine.codec import event_name
from holdfast.engine.protocol import Event
from holdfast.errors import Damaged


def events_in(entries: Iterable[Entry], *, tenant: str, key: str | None, session: str) -> Iterator[Event]:
    """The events that these entries were accepted as, and the call ids that somebody was asked about."""
    scope = scope_of(tenant, key=key, session=session)
    for entry in entries:
        try:
            yield from _events_of(entry, scope, session)
        except Damaged:
            continue  # what can't be read tells nothing (I-25)


def _events_of(entry: Entry, scope: str, session: str) -> Iterator[Event]:
    if entry.kind == "ask":
        asked = note_of("ask", entry.note).call_id
        yield Event(event_name(asking_scope(scope), asked), session, entry.seq, entry.id)
    # Nearly all entries have none: they are told by their bytes, without a decoder.
    if b'"event"' in entry.note and entry.kind in ("message", "turn"):
        event = note_of(entry.kind, entry.note).event
        if event is not None:
            yield Event(event_name(scope, event), session, entry.seq, entry.id)
