"""Where the positions of a session are kept: its delivery log, a session of the same store.

It belongs to a tenant of its own, so lists and searches of the caller's sessions don't show it, and
its key is the id of the session that is sent. One sender at a time has it: a sender works within a
turn of the delivery log, whose lease other processes see, and which a killed one can't keep. A
sender that was overtaken can't store a position any more.

A mark waits in the inbox of a delivery log while something of its session may be unsent. It comes
with what is to be sent, in one commit, and is taken when a sender has found nothing left. So
`Store.pending` lists the sessions of which something is left, and costs what is left.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast import Session, Store, Turn
from holdfast.adapters.openviking.client.outgoing import FORMAT
from holdfast.adapters.openviking.client.position import (
    AnyRecord,
    CommitRequested,
    DeliveryRecord,
    Position,
)
from holdfast.domain.entry import Taken
from holdfast.domain.ids import is_session_id
from holdfast.engine.protocol import Refused, Waiting, Write
from holdfast.errors import AlreadyAccepted
from holdfast.runtime.border import RULES
from holdfast.runtime.changes.append import append, append_all
from holdfast.runtime.live.session_log import speak
from holdfast.runtime.plans.plan import run

_NEAR = 16
"""The newest position is mostly among so many entries at the end of a delivery log."""

_MARK = {"role": "user", "content": "something may be unsent"}

_decode = msgspec.json.Decoder(AnyRecord).decode
_encode = msgspec.json.Encoder().encode


def delivery_tenant(tenant: str) -> str:
    """Whose the delivery logs of a tenant's sessions are."""
    return f"{tenant}/openviking"


_MADE = "holdfast-"
_ID_LENGTH = 36
_CAN_BE_AN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")


def viking_id(session: Session) -> str:
    """The id that a session has in OpenViking: its key, where that can be one. A reset gives the key
    another session, and OpenViking gets another one, too. No two sessions have the same: names that
    are made here end with the session's own id, and a key that looks like one of them gets one.
    """
    key = session.key
    if key is None or not _CAN_BE_AN_ID.fullmatch(key):
        return _MADE + session.id
    if key[-_ID_LENGTH - 1 : -_ID_LENGTH] == "-" and is_session_id(key[-_ID_LENGTH:]):
        return _MADE + session.id
    # The first keeps the plain name: it may be there from before Holdfast.
    return key if session.epoch == 1 else f"{key}-{session.id}"


class LoggedRecord(msgspec.Struct, frozen=True):
    """A record with its id, its seq in the delivery log, and its time."""

    id: str
    seq: int
    at: int
    record: AnyRecord


class DeliveryLog:
    """The delivery log of one session."""

    def __init__(self, logs: Store, session: Session) -> None:
        self.session = session
        self._log = logs.session(session.id)
        self.viking_id = viking_id(session)

    def turn(self) -> Turn:
        """The right to send. Raises `SessionBusy` while another sender has it."""
        # Marks stay where they are: a sender that is killed must leave them behind.
        return self._log.turn(on_busy="refuse", take=[])

    def add(self, payload: Any, event_id: str | int | None) -> str:
        """Stores a message of the session, and marks it in the same commit; gives its id. The same
        event again gives that of the first time.
        """
        return self._append(self.session, payload, FORMAT, event_id)

    def _append(
        self,
        to: Session,
        payload: Any,
        format: str,
        event_id: str | int | None,
    ) -> str:
        event = None
        if event_id is not None:
            event = RULES["event_id"]("event_id", event_id)
        try:
            # One commit: a kill between the two would leave something that nobody looks for.
            plan = append(
                to._log,
                payload,
                format=format,
                event_id=event,
                also=(self._mark(),),
            )
            return run(plan)
        except AlreadyAccepted as known:
            return known.message_id

    def add_all(self, payloads: Sequence[Any]) -> list[str]:
        """Stores several messages of the session, all or none, and marks it; gives their ids."""
        # In one commit with them, as for one message.
        mark = (self._mark(),)
        return run(
            append_all(
                self.session._log,
                payloads,
                format=FORMAT,
                also=mark,
            )
        )

    def mark(self) -> None:
        """Says that something of the session may be unsent."""
        run(self._log._log.commit(self._mark()))

    def _mark(self) -> Write:
        log = self._log._log
        draft = log.message(
            speak(_MARK, "openai.chat", inbox=True),
            turn=None,
        )
        return Write(log.id, (draft,), admits=(Waiting(draft.id),))

    def marks(self) -> list[str]:
        """The marks that wait now, oldest first."""
        log = self._log._log
        return [waiting.message.hex() for waiting in log.engine.inbox(log.id)]

    def unmark(self, turn: Turn, marks: list[str]) -> None:
        """Takes these marks away; `TurnInterrupted` when the sender was overtaken."""
        if not marks:
            return
        # Not by `Turn.inbox`: it gives the messages, and reads the whole log for that.
        log, work = self._log._log, turn._work
        draft = log.draft("take", Taken(tuple(marks)), turn=work.number)
        takes = tuple(bytes.fromhex(mark) for mark in marks)
        write = Write(log.id, (draft,), fence=work.number, takes=takes)
        if isinstance(run(log.commit(write)), Refused):
            run(work.refuse())

    def request(self, record: CommitRequested, event_id: str | int | None) -> str:
        """Stores that a commit is wanted, and marks the session; gives its id. The same event again
        gives that of the first time.
        """
        return self._append(self._log, _payload(record), "openai.chat", event_id)

    def head(self) -> int:
        """The seq of the last record."""
        return self._log.head()

    def store(self, turn: Turn, records: Sequence[DeliveryRecord]) -> None:
        """Stores records of a sender in one commit; `TurnInterrupted` when it was overtaken."""
        turn.add_all([_payload(record) for record in records])

    def records(self, after: int) -> Iterator[LoggedRecord]:
        """The records after this seq."""
        for message in self._log.transcript(after=after):
            record = _record(message.payload)
            if record is not None:
                yield LoggedRecord(
                    message.id,
                    message.seq,
                    message.at,
                    record,
                )

    def position(self) -> Position:
        """The newest position, found from the end: how long the log is does not matter."""
        head, near = self._log.head(), _NEAR
        # Commits that are asked for while nobody sends may lie after it, in any number.
        while True:
            after = max(0, head - near)
            found = None
            for logged in self.records(after):
                if isinstance(logged.record, Position):
                    found = logged.record
            if found is not None or after == 0:
                return found or Position()
            near *= 4

    def is_due(self) -> bool:
        """Whether something of the session may be unsent, or a commit is not over."""
        position = self.position()
        if position.doubt_at is not None or position.committing or position.tasks:
            return True
        # One message is enough to know.
        for _ in self.session.transcript(after=position.sent.seq):
            return True
        return not isinstance(self.next_request(position.requests), int)

    def next_request(self, after: int) -> tuple[LoggedRecord, CommitRequested] | int:
        """The first commit that was asked for after this seq; where there is none, the seq up to
        which was looked.
        """
        for logged in self.records(after):
            if isinstance(logged.record, CommitRequested):
                return logged, logged.record
            after = logged.seq
        return after


def _payload(record: DeliveryRecord) -> dict[str, str]:
    return {
        "role": "assistant",
        "content": _encode(record).decode(),
    }


def _record(payload: object) -> AnyRecord | None:
    """A record as it was stored; None where it is damaged, or a later release wrote it."""
    content = payload.get("content") if isinstance(payload, dict) else None
    try:
        return _decode(content) if isinstance(content, str) else None
    except msgspec.DecodeError:
        return None
