"""Snapshots of an agent, as its messages and what is beside them.

A message is recognised by what it says, tracking id and all; the same words twice are two messages.
One whose words have changed (it was redacted) is a new message, and the old one leaves the model's
view.
"""

import json
import re
import threading
from collections import Counter
from typing import Any, NamedTuple

from holdfast.adapters.framework import key_of
from holdfast.domain.entry import Draft, Labelled
from holdfast.domain.message import freeze, thaw
from holdfast.engine.protocol import Write, Written
from holdfast.formats.frameworks.strands import NAME, message_of
from holdfast.formats.reading import fields
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.session import Session

_PLACE = re.compile(
    r"(?P<prefix>(?:.*/)?(?P<session>[^/]+)/scopes/agent/(?P<agent>[^/]+)/snapshots/)"
)
Snapshot = dict[str, Any]
Ranges = list[list[int]]


def taken_apart(data: bytes) -> Snapshot | None:
    """The snapshot that these bytes are; None when they are none, or would come back otherwise."""
    try:
        snapshot = fields(json.loads(data))
        # What is read has to have the bytes that were written, so only what is worded
        # as Strands words it can be taken apart.
        is_same = worded(snapshot) == data
    except (ValueError, RecursionError):
        return None
    messages = fields(snapshot.get("data")).get("messages")
    return snapshot if is_same and isinstance(messages, list) else None


def worded(snapshot: Snapshot) -> bytes:
    """A snapshot as Strands writes it."""
    return json.dumps(snapshot, ensure_ascii=False).encode()


class SnapshotScope(NamedTuple):
    """An agent whose snapshots these are: where they are, and where its messages are."""

    prefix: str
    messages_key: str

    @classmethod
    def of(cls, name: str) -> "SnapshotScope | None":
        """Whose snapshot lies under this key, if it is that of one."""
        found = _PLACE.match(name)
        if found is None:
            return None
        session, agent = found["session"], found["agent"]
        key = key_of(NAME, session, agent)
        if found["prefix"] != f"session/{session}/scopes/agent/{agent}/snapshots/":
            # In somebody's own part of a storage: others may use these names, too.
            key = key_of(NAME, found["prefix"])
        return cls(found["prefix"], key)


def reassembled(messages: Session | None, value: Snapshot) -> bytes:
    """A snapshot as it was written. A message that can't be read says so."""
    said: list[Any] = []
    for first, last in value["messages"] if messages is not None else ():
        assert messages is not None
        for message in messages.transcript(after=first - 1):
            if message.seq > last:
                break
            payload = message.payload
            if payload is None:
                role = "assistant" if message.role == "assistant" else "user"
                payload = {"role": role, "content": [{"text": message.text}]}
            said.append(message_of(payload))
    snapshot: Snapshot = value["snapshot"]
    snapshot["data"]["messages"] = said
    return worded(snapshot)


class _Place(NamedTuple):
    message: Any
    body: bytes
    seq: int


class StoredMessages:
    """The messages of an agent that snapshots refer to, by what they say. It remembers what it has
    read, and the list that it was given last.
    """

    def __init__(self, session: Session) -> None:
        self._log = session._log
        self._lock = threading.Lock()
        self._seqs: dict[bytes, list[int]] = {}
        self._marks: dict[str, str] = {}
        self._read_to = self._head = 0
        self._last: list[_Place] = []

    def write(self, record: Session, snapshot: Snapshot) -> None:
        """Stores what is new in a snapshot, and the places of its messages, in one commit."""
        # Frozen before anything waits, and refused before anything is written.
        said = fields(snapshot["data"])["messages"]
        with self._lock:
            run(self._written(record._log, snapshot, said))

    def _written(
        self, record: SessionLog, snapshot: Snapshot, said: list[Any]
    ) -> Plan[None]:
        log = self._log
        while True:
            yield from read(self._catch_up)
            drafts: list[Draft] = []
            places = self._places(said, drafts)
            data = {**snapshot["data"], "messages": None}
            ranges = _ranges([place.seq for place in places])
            value = {"snapshot": {**snapshot, "data": data}, "messages": ranges}
            spoken = speak({"record": "snapshot", "value": value}, NAME)
            beside = Write(record.id, (record.message(spoken, turn=None),))
            commit = (Write(log.id, tuple(drafts), head=self._head), beside)
            submitted = log.engine.submit(commit if drafts else (beside,))
            outcome = yield from wait_for(submitted)
            if isinstance(outcome, Written):
                self._last = places
                return
            # Somebody else has written meanwhile: their messages have these places.
            if outcome.why == "ended":
                ended = log if outcome.session == log.id else record
                raise (yield from read(ended.ended))

    def _places(self, said: list[Any], drafts: list[Draft]) -> list[_Place]:
        """Where each message is, or is going to be; those that are new are drafts."""
        used: Counter[bytes] = Counter()
        places, labels = [], []
        for at, message in enumerate(said):
            known = self._last[at] if at < len(self._last) else None
            if known is not None and known.message == message:
                body = known.body
            else:
                body = freeze(message)
            seqs = self._seqs.get(body, ())
            number, used[body] = used[body], used[body] + 1
            if number < len(seqs):
                places.append(_Place(message, body, seqs[number]))
                continue
            drafts.append(self._log.message(speak(message, NAME), turn=None))
            places.append(_Place(message, body, self._head + len(drafts)))
            replaced = self._marks.get(str(fields(message).get("tracking_id")))
            if replaced is not None:
                note = Labelled(replaced, {"visible_to_model": False})
                labels.append(self._log.draft("label", note))
        drafts += labels
        return places

    def _catch_up(self) -> None:
        log = self._log
        folded = log.log()
        if folded.since > 1:
            folded = log.history()
        with log.lock:
            self._head = folded.head
            new = [seen for seen in folded.natural if seen.seq > self._read_to]
        for seen in new:
            body = log.with_payload(seen).body
            if seen.note.format == NAME and body:
                message = message_of(thaw(body))
                self._marks[str(message.get("tracking_id"))] = seen.id
                self._seqs.setdefault(freeze(message), []).append(seen.seq)
        self._marks.pop("None", None)
        self._read_to = self._head


def _ranges(seqs: list[int]) -> Ranges:
    """Places one after the other, as first and last of each stretch."""
    found: Ranges = []
    for seq in seqs:
        if found and found[-1][1] + 1 == seq:
            found[-1][1] = seq
        else:
            found.append([seq, seq])
    return found
