"""What comes in and what is owed: the inbox of a key, and the outbox of a store.

Accepting is a durable receipt and nothing more (I-4): the next turn takes the message. A reply that was asked for with
`reply_to` is in the outbox from the transaction that ends its turn until its sending is confirmed (I-23); every try
carries the same key.
"""

from typing import Any

import msgspec

from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Posted
from holdfast.engine.protocol import Debt, Refused
from holdfast.errors import Conflict
from holdfast.runtime.border import bordered
from holdfast.runtime.drive import Plan, Read, run
from holdfast.runtime.message import Message, shown_text_of
from holdfast.runtime.room import Room


class Receipt(msgspec.Struct, frozen=True):
    """A message was accepted, now or, with `again`, when the same event came before."""

    session_id: str
    message_id: str
    again: bool = False


class OwedWork:
    """The plans of a reply that is owed; `Owed` and `AsyncOwed` are its faces."""

    def __init__(self, room: Room, debt: Debt, text: str) -> None:
        self.room, self.debt, self.text = room, debt, text

    def sent(self, platform_id: Checked) -> Plan[None]:
        """The reply has arrived; it is owed no more. Confirming twice changes nothing."""
        yield from self._note(Posted(self.debt.id.hex(), "sent", platform_id=platform_id), pays=self.debt.id)

    def failed(self, reason: str) -> Plan[None]:
        """A try did not go through; the reply stays owed."""
        yield from self._note(Posted(self.debt.id.hex(), "failed", reason=reason))

    def _note(self, note: Posted, **write: Any) -> Plan[None]:
        outcome = yield self.room.submit(drafts=(self.room.draft("post", note),), ended_too=True, **write)
        if isinstance(outcome, Refused) and outcome.why != "taken":
            raise Conflict(session_id=self.room.id, problem=f"its reply could not be settled: {outcome.why}")


@bordered
class Owed:
    """A reply that is stored and owed to somebody. `id` is the key to send it with: the same at every try."""

    def __init__(self, work: OwedWork) -> None:
        self._work = work
        debt, room = work.debt, work.room
        self.id, self.text, self.reply_to = debt.id.hex(), work.text, debt.reply_to
        self.key, self.session_id, self.turn_id = room.key, room.id, room.turn_name(debt.turn)
        self.made_at = debt.at
        self.age_s = max(0.0, (room.world.now() - debt.at) / 1000)

    def sent(self, platform_id: str | int | None = None) -> None:
        """The reply has arrived; it is owed no more."""
        run(self._work.sent(platform_id))

    def failed(self, reason: str) -> None:
        """A try did not go through; the reply stays owed."""
        run(self._work.failed(reason))

    def __repr__(self) -> str:
        return f"<Owed {self.id[:8]} to {self.reply_to!r}, {self.age_s:.0f} s old: {self.text[:40]!r}>"


def owed(room: Room, debt: Debt) -> OwedWork:
    """A debt with the words that are owed: all that the turn said."""
    log = room.log()
    if debt.turn not in log.turns:
        log = room.history()
    with room.lock:
        said = [seen for seen in log.of_turn(debt.turn) if seen.note.role == "assistant"]
    texts = [shown_text_of(Message(room.told(seen), turn=None).parts) for seen in said]
    return OwedWork(room, debt, "\n\n".join(text for text in texts if text.strip()))


def outbox(rooms: Any, debts: list[Debt]) -> Plan[list[OwedWork]]:
    """These debts, ready to be paid; `rooms` gives the room of a session."""
    return (yield Read(lambda: [owed(rooms(debt.session), debt) for debt in debts]))
