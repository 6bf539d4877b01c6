"""Reading the events of a session, in the order in which they were stored: no clock has a say in it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig

from holdfast.adapters.adk.events import StoredEvent, event_of, with_closed_calls
from holdfast.domain.arguments import kind_of, number, optional, whole
from holdfast.domain.entry import Entry, note_of
from holdfast.domain.repair import StoredMessage
from holdfast.errors import BadArgument
from holdfast.runtime.live.session_log import SessionLog

BEYOND = 16
"""So many entries more than events are read back from the end, for those that are none."""

_SHAPING = frozenset({"view", "rewind", "retract", "compaction"})
"""Entries by which somebody has changed what stands in a session, by Holdfast's own means."""

_COUNT = optional(whole())
_SINCE = optional(number("seconds since 1970", above=-(1 << 53), most=1 << 53))


class WantedEvents(NamedTuple):
    """Which events are asked for: all of them, the last so many, those from a time on."""

    recent: int | None = None
    since: float | None = None

    @classmethod
    def of(cls, config: Any) -> "WantedEvents":
        if config is None:
            return cls()
        if not isinstance(config, GetSessionConfig):
            given = kind_of(config)
            raise BadArgument(
                parameter="config", takes="a GetSessionConfig", given=given
            )
        return cls(
            _COUNT("num_recent_events", config.num_recent_events),
            _SINCE("after_timestamp", config.after_timestamp),
        )


ALL = WantedEvents()


class Events(NamedTuple):
    """What was read: the events that are asked for, and the last one of all, if there is any."""

    events: list[Event]
    last: Event | None


def read_events(log: SessionLog, head: int, wanted: WantedEvents = ALL) -> Events:
    """The events of a session up to this entry."""
    return log.reading(lambda: _read(log, head, wanted))


def _read(log: SessionLog, head: int, wanted: WantedEvents) -> Events:
    # With a time as well, how many there are is only known when all have been looked
    # at.
    count = wanted.recent if wanted.since is None else None
    entries = _tail(log, head, count)
    standing = _messages(entries)
    if standing is None:
        standing = _standing(log)
    last = event_of(standing[-1]) if standing else None
    found = []
    agent = "model"
    for seen in _last(standing, count):
        # Who has said what can't be read is not known any more: whoever spoke last.
        event = event_of(seen, agent)
        agent = event.author if event.author != "user" else agent
        if wanted.since is None or event.timestamp >= wanted.since:
            found.append(StoredEvent(seen, event))
    found = _last(found, wanted.recent)
    return Events(with_closed_calls(found, _cut(entries)), last)


def _last(found: list[Any], count: int | None) -> list[Any]:
    return found if count is None else found[len(found) - min(count, len(found)) :]


def _tail(log: SessionLog, head: int, count: int | None) -> list[Entry]:
    """The entries that hold the last so many messages, or all."""
    if count is None:
        return _entries(log, 0, head)
    # Asked for none, the last one is still needed: it says when the session was last
    # used.
    count = max(count, 1)
    reach = 2 * count + BEYOND
    while True:
        after = max(head - reach, 0)
        entries = _entries(log, after, head)
        messages = sum(entry.kind == "message" for entry in entries)
        # One more than asked for: nothing before them is needed then.
        if messages > count or not after:
            return entries
        reach *= 4


def _entries(log: SessionLog, after: int, head: int) -> list[Entry]:
    found: list[Entry] = []
    while after < head and (page := log.page(after)):
        found += page
        after = page[-1].seq
    # What came in since is not what the head was read for.
    while found and found[-1].seq > head:
        found.pop()
    return found


def _messages(entries: list[Entry]) -> list[StoredMessage] | None:
    """The messages among these that stand; None where more has to be known to tell."""
    hidden: dict[str, bool] = {}
    found = []
    for entry in entries:
        if entry.kind in _SHAPING:
            return None
        if entry.kind == "label":
            note = note_of("label", entry.note)
            shown = note.labels.get("visible_to_model", True)
            hidden[note.message] = shown is False
        elif entry.kind == "message":
            seen = _stored(entry)
            if seen.note.inbox:
                return None
            if not seen.note.erased:
                found.append(seen)
    if not hidden:
        return found
    return [seen for seen in found if not hidden.get(seen.id)]


def _stored(entry: Entry) -> StoredMessage:
    note = note_of("message", entry.note)
    id, at = entry.id.hex(), entry.at
    return StoredMessage(id, entry.seq, entry.turn, note, entry.body, at=at)


def _standing(log: SessionLog) -> list[StoredMessage]:
    folded = log.log()
    with log.lock:
        return [log.with_payload(each) for each in folded.visible]


def _cut(entries: list[Entry]) -> Iterator[int]:
    """The turns that were cut off."""
    for entry in entries:
        if entry.kind == "end" and entry.turn is not None:
            if note_of("end", entry.note).end != "completed":
                yield entry.turn
