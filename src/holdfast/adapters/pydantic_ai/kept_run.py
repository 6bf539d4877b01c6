"""A run of the harness as its records tell it, and the messages that its snapshots are made of.

The records of a run lie in a session of its own. The messages of its snapshots lie in another, which
all runs of a conversation share: each is stored once, and a snapshot is ranges of places in it.
"""

import threading
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from holdfast.adapters.pydantic_ai.messages import FORMAT, messages_of, payloads_of
from holdfast.domain.message import freeze
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.session import Session

Record = dict[str, Any]
CHANGES = 2
"""So many of the last messages of a snapshot may have been changed in place since."""


class KeptRun:
    """What is known of a run. Its lock is held while one looks at it or changes it."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.lock = threading.RLock()
        self.registered: Record | None = None
        self.events: list[Record] = []
        self.snapshots: list[Record] = []
        self.effects: dict[str, Record] = {}
        self._head = 0

    def catch_up(self) -> "KeptRun":
        """Reads what was stored since."""
        with self.lock:
            for message in Session(self.log).transcript(after=self._head):
                self._head = message.seq
                record = message.payload
                # One that can't be read takes away nothing but itself (I-25).
                if isinstance(record, dict):
                    self._take(record)
        return self

    def _take(self, record: Record) -> None:
        kind = record.get("kind")
        if kind == "run":
            self.registered = record
        elif kind == "event":
            self.events.append(record)
        elif kind == "snapshot":
            self.snapshots.append(record)
        elif kind == "effect":
            # The last to come stands last: it is a ledger, and its order is told.
            self.effects[str(record.get("tool_call_id"))] = record


class NewWords(NamedTuple):
    """A list of messages as ranges of places, and those that are to be stored for it. `head` is what
    the places were counted from.
    """

    ranges: list[list[int]]
    payloads: list[Record]
    head: int
    places: list[int]


class KeptWords:
    """The messages of a conversation's snapshots, each at a place that it keeps."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.lock = threading.RLock()
        self._messages: list[Message] = []
        self._known: dict[tuple[bytes, int], int] = {}
        self._known_to = 0
        self._last: list[tuple[Any, int]] = []
        self._head = 0

    def catch_up(self) -> None:
        """Reads what was stored since."""
        with self.lock:
            # First: what is stored while it is read must not be taken for read.
            head = self.log.state().head
            for message in Session(self.log).transcript(after=self._head):
                head = max(head, message.seq)
                self._messages.append(message)
            self._head = head

    def _know_all(self) -> None:
        """Finds out what the messages say: for those who store some more, and not for readers."""
        while (place := self._known_to) < len(self._messages):
            message = self._messages[place]
            payload = message.payload if message.format == FORMAT else None
            if payload is not None:
                self._know(payload, place)
            self._known_to = place + 1

    def _know(self, payload: Record, place: int) -> None:
        digest, number = sha256(freeze(payload)).digest(), 0
        while (digest, number) in self._known:
            number += 1
        self._known[digest, number] = place

    def placed(self, messages: Sequence[Any]) -> NewWords:
        """Where these messages are, and where those that are new will be."""
        with self.lock:
            self._know_all()
            same = self._same(messages)
            places = [place for _, place in self._last[:same]]
            used = set(places)
            new: list[Record] = []
            for payload in payloads_of(messages[same:]):
                place = self._place(payload, used)
                if place is None:
                    place = len(self._messages) + len(new)
                    new.append(payload)
                used.add(place)
                places.append(place)
            return NewWords(_ranges(places), new, self._head, places)

    def _same(self, messages: Sequence[Any]) -> int:
        """How many of them are the very objects of the last snapshot: those are not looked at again."""
        count = 0
        for (known, _), message in zip(self._last, messages, strict=False):
            if known is not message:
                break
            count += 1
        # The last ones are compared by what they say: the harness may have changed them
        # in place.
        return max(0, min(count, len(self._last) - CHANGES))

    def _place(self, payload: Record, used: set[int]) -> int | None:
        digest, number = sha256(freeze(payload)).digest(), 0
        while True:
            place = self._known.get((digest, number))
            # Two that are equal in one list are two messages.
            if place is None or place not in used:
                return place
            number += 1

    def stored(self, messages: Sequence[Any], new: NewWords) -> None:
        """A snapshot of these messages is stored."""
        with self.lock:
            self._last = list(zip(messages, new.places, strict=True))
        if new.payloads:
            self.catch_up()

    def read(self, ranges: Sequence[Sequence[int]]) -> list[Any]:
        """The messages at these places."""
        with self.lock:
            found = []
            for first, count in ranges:
                found += self._messages[first : first + count]
        return messages_of(found)


def _ranges(places: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for place in places:
        if found and sum(found[-1]) == place:
            found[-1][1] += 1
        else:
            found.append([place, 1])
    return found
