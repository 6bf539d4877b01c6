"""How things are told in answers: the fields that they have in the library, by the same names.

A payload is the stored JSON itself, byte for byte (I-14).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.entry import End
from holdfast.domain.message import Part, Usage
from holdfast.exporters.entry_json import EntryRecord
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.catalog.list_sessions import Listed
from holdfast.runtime.catalog.pending import PendingMessage
from holdfast.runtime.catalog.search import Hit
from holdfast.runtime.live.message import Message, stored_payload
from holdfast.runtime.turns.outbox import Owed


class SessionName(msgspec.Struct, frozen=True):
    """Which session it is."""

    id: str
    key: str | None
    epoch: int
    tenant: str


def session_name(session: AsyncSession) -> SessionName:
    return SessionName(session.id, session.key, session.epoch, session.tenant)


class SessionPage(msgspec.Struct, frozen=True):
    """Some of the sessions, newest activity first; `next` is the cursor of the page after it."""

    items: list[Listed]
    next: str | None


class MessageRecord(msgspec.Struct, frozen=True):
    """A message; see `Message`."""

    id: str
    seq: int
    role: str
    state: str
    turn: str | None
    format: str
    at: int
    text: str
    parts: list[Part]
    payload: msgspec.Raw | None
    labels: dict[str, Any]
    late: bool
    event_id: str | None
    reply_to: str | None
    finish: str | None
    model: str | None
    usage: Usage | None


def message_record(message: Message) -> MessageRecord:
    stored = stored_payload(message)
    return MessageRecord(
        id=message.id,
        seq=message.seq,
        role=message.role,
        state=message.state,
        turn=message.turn,
        format=message.format,
        at=message.at,
        text=message.text,
        parts=message.parts,
        payload=None if stored is None else msgspec.Raw(stored),
        labels=message.labels,
        late=message.late,
        event_id=message.event_id,
        reply_to=message.reply_to,
        finish=message.finish,
        model=message.model,
        usage=message.usage,
    )


class TranscriptPage(msgspec.Struct, frozen=True):
    """Some of a transcript, in order; `next` is the `after` of the page that follows, null at the
    end; `head` is the seq of the last entry.
    """

    items: list[MessageRecord]
    next: int | None
    head: int


class EntryPage(msgspec.Struct, frozen=True):
    """Some of a log, in order; `next` and `head` as in a transcript."""

    items: list[EntryRecord]
    next: int | None
    head: int


class PendingRecord(msgspec.Struct, frozen=True):
    """A message that waits, with its session and that session's key."""

    session_id: str
    key: str | None
    message: MessageRecord


class PendingPage(msgspec.Struct, frozen=True):
    """Some of what waits in all inboxes, oldest first."""

    items: list[PendingRecord]
    next: str | None


def pending_records(messages: Sequence[PendingMessage]) -> list[PendingRecord]:
    return [
        PendingRecord(each.session_id, each.key, message_record(each))
        for each in messages
    ]


class ContextRecord(msgspec.Struct, frozen=True):
    """What the model sees, ready to send; `instructions` for formats that want them beside the
    list.
    """

    format: str
    messages: list[Any]
    instructions: str
    head: int


class OwedRecord(msgspec.Struct, frozen=True):
    """A reply that is owed. `id` is the key to send it with, the same at every try; `claim` is what
    its sender gives it back with, if it was claimed.
    """

    id: str
    text: str
    reply_to: str
    key: str | None
    session_id: str
    turn_id: str
    made_at: int
    age_s: float
    claim: str | None


def owed_record(owed: Owed) -> OwedRecord:
    token = owed._work.token
    return OwedRecord(
        id=owed.id,
        text=owed.text,
        reply_to=owed.reply_to,
        key=owed.key,
        session_id=owed.session_id,
        turn_id=owed.turn_id,
        made_at=owed.made_at,
        age_s=owed.age_s,
        claim=None if token is None else token.hex(),
    )


class Owes(msgspec.Struct, frozen=True):
    """Replies to send, oldest first."""

    items: list[OwedRecord]


class Hits(msgspec.Struct, frozen=True):
    """Messages that were found, newest first."""

    items: list[Hit]


class LeasedTurnRecord(msgspec.Struct, frozen=True):
    """A turn that is held for its client, which renews its lease before `lease_s` are over."""

    id: str
    session_id: str
    key: str | None
    epoch: int
    lease_s: float


class TurnEndRecord(msgspec.Struct, frozen=True):
    """How a turn ended."""

    id: str
    end: End
    reason: str | None
    error: str | None
