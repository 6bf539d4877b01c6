"""Events that were accepted: how a store knows them again, and which ones a log tells of.

A store keeps a table of them beside the log. A session that is copied, restored or healed brings
only its log; its rows in that table are worked out from its entries.

A fork that was restored without its parent has a copy of the past that it shared. Events in there
are its parent's, under the parent's key: the fork itself has never accepted them (I-2). What
somebody was asked about there is bound in the fork as well (I-22).
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.domain.entry import Entry, note_of, opened_of
from holdfast.domain.reset_policy import asking_scope, scope_of
from holdfast.errors import Damaged


class AcceptedEvent(msgspec.Struct, frozen=True, gc=False):
    """An inbound event that was accepted, as a store knows it: `name` is a digest of its scope and
    id.
    """

    name: bytes
    session: str
    seq: int
    message: bytes


def event_name(scope: str, event: str) -> bytes:
    """An event id within its scope as the store knows it: enough to know it again, nothing to read
    (FAULTS K7).
    """
    # With its length, so that no other scope and event make the same words.
    words = f"{len(scope)} {scope} {event}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(words, digest_size=16).digest()


class EventsOfLog:
    """Grows with a session's log, entries in order. If that begins with a copy of the past that it
    shared with another, `past_of` names that one. `keys` are those that know its events, None
    meaning the session itself.
    """

    def __init__(
        self,
        tenant: str,
        session: str,
        *,
        keys: Iterable[str | None],
        past_of: str | None = None,
    ) -> None:
        self._session = session
        self._scopes = [
            scope_of(tenant, key=key, session=session) for key in dict.fromkeys(keys)
        ]
        self._past_of = past_of

    def add(self, entries: Iterable[Entry]) -> Iterator[AcceptedEvent]:
        """The events that these entries were accepted as, and the call ids that somebody was asked
        about.
        """
        for entry in entries:
            if self._past_of is not None:
                # Its own log begins with the entry that names the other.
                if entry.kind == "opened" and opened_of(entry).parent == self._past_of:
                    self._past_of = None
                elif entry.kind != "ask":
                    continue
            for scope in self._scopes:
                try:
                    yield from _events_of(entry, scope, self._session)
                except Damaged:
                    continue  # what can't be read tells nothing (I-25)


def _events_of(entry: Entry, scope: str, session: str) -> Iterator[AcceptedEvent]:
    if entry.kind == "ask":
        asked = note_of("ask", entry.note).call_id
        yield AcceptedEvent(
            event_name(asking_scope(scope), asked), session, entry.seq, entry.id
        )
    # Nearly all entries have none: they are told by their bytes, without a decoder.
    if b'"event"' in entry.note and entry.kind in ("message", "turn"):
        event = note_of(entry.kind, entry.note).event
        if event is not None:
            yield AcceptedEvent(event_name(scope, event), session, entry.seq, entry.id)
