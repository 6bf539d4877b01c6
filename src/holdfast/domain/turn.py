"""A turn: one piece of work, from an inbound message to its one end; and the states of its tool
calls.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from holdfast.domain.entry import End
from holdfast.domain.repair import Messages, StoredMessage, calls_of, pair

FORKED: tuple[End, str] = ("interrupted", "the session was forked")
"""How a turn ends, and why, in a session that was forked off while it was running: there it never
goes on.
"""

CallState = Literal[
    "open", "waiting", "approved", "rewound", "denied", "done", "failed", "unknown"
]


Place = tuple[str, int]
"""A call by the id of its message and its index among the calls of that."""


class CallId(str):
    """The id of a call that was stored: text. With `waiting`, the call waits for approval and must
    not be run yet. Models use ids again, so `place` says which call it is of: by the id of the
    message that makes it, and its index among the calls of that.
    """

    waiting: bool = False
    place: Place | None = None

    def __new__(
        cls, id: str, *, waiting: bool = False, place: Place | None = None
    ) -> "CallId":
        made = super().__new__(cls, id)
        made.waiting = waiting
        made.place = place
        return made


class Ask(msgspec.Struct):
    """A call that was put to somebody for approval. `approved` is None until they decide; an
    approval is used once, by the start of exactly this call.
    """

    call_id: str
    message: str
    index: int
    digest: str
    approved: bool | None = None
    started_in: int | None = None

    @property
    def may_start(self) -> bool:
        """Whether it was approved, and the approval not used."""
        return self.approved is True and self.started_in is None

    @property
    def is_open(self) -> bool:
        """Whether the call is still waiting, for a decision or to be run."""
        # Approved and not started is open too: nobody has run it.
        return self.approved is not False and self.started_in is None


def place_of(call_id: str | None) -> Place | None:
    """The call that an id names, if it says more than plain text does."""
    return call_id.place if isinstance(call_id, CallId) else None


Asks = Mapping[Place, Ask]
_NO_ASKS: Asks = {}
_NOTHING_SAID: Mapping[str, Sequence[str]] = {}


class TurnRecord(msgspec.Struct):
    """A turn as the log tells it. `end` is None while it runs."""

    number: int
    started_at: int = 0
    reply_to: str | None = None
    end: End | None = None
    reason: str | None = None
    error: str | None = None
    ended_at: int | None = None
    takes: list[str] = []
    seq: int = 0
    spoke: bool = False
    """Whether it left anything of its own: if it did, it has used what it took (I-4)."""
    sent_seq: int = 0
    """The entry with which the turn itself confirmed that what it had said was sent."""
    heard: Mapping[str, int] | None = None
    """What was still being spoken then: so many characters of each message had arrived."""

    def not_arrived(self, message: str, text: str) -> str:
        """What is left to send of this message, which came into the log after the confirmation."""
        return text[self.heard.get(message, 0) :] if self.heard else text


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call that the model or the agent made, and what became of it. `message` is the id of
    the message that makes it, `outcome` the id of the one that answers it; `turn` is the number of
    the turn; `arguments` is JSON text as it was said. `index` is its place among the calls of its
    message, from 0.
    """

    call_id: str
    name: str
    message: str
    turn: int | None
    state: CallState
    outcome: str | None = None
    arguments: str = ""
    index: int = 0


class CallToRun(msgspec.Struct, frozen=True):
    """A tool call that is to be run now. `arguments` are parsed, or the text that the model said
    where that is no JSON, or can be read in more than one way; `message` is the id of the message
    that makes the call, `index` its place among the calls of that message, from 0. `call_id` names
    just this call, though others may have the same id.
    """

    call_id: CallId
    name: str
    arguments: Any
    message: str
    index: int = 0


def addresses(messages: Messages, own: str | None) -> list[str]:
    """Whom the reply of a turn with these messages is owed to: those who asked in it, each once
    (FAULTS C2).
    """
    asked = [own, *(seen.note.reply_to for seen in messages)]
    # in the order in which they asked
    return list(dict.fromkeys(address for address in asked if address is not None))


def tool_calls(
    seen: Messages,
    *,
    running: int | None,
    asks: Asks = _NO_ASKS,
    said: Mapping[str, Sequence[str]] = _NOTHING_SAID,
    gone: Collection[int] = (),
) -> list[ToolCall]:
    """Every call in these messages with its state; a call that nobody answered in a turn that is
    over is unknown (I-22). `said`: the arguments of a message's calls, by its id. `gone`: seqs of
    messages that the view has gone back from.
    """
    pairs = pair(seen)
    calls = []
    for at, message in enumerate(seen):
        for index, call in enumerate(calls_of(message)):
            answer = pairs.get((at, index))
            outcome = seen[answer[0]] if answer is not None else None
            ask = asks.get((message.id, index))
            arguments = said.get(message.id, ())[index : index + 1]
            calls.append(
                ToolCall(
                    call.id,
                    call.name,
                    message.id,
                    message.turn,
                    _state(message, outcome, running, ask, gone),
                    outcome.id if outcome else None,
                    "".join(arguments),
                    index,
                )
            )
    return calls


def _state(
    message: StoredMessage,
    outcome: StoredMessage | None,
    running: int | None,
    ask: Ask | None,
    gone: Collection[int],
) -> CallState:
    """What became of a call that was made in this message."""
    turn = message.turn
    if ask is not None and ask.approved is False:
        return "denied"
    if outcome is not None:
        return "failed" if outcome.note.failed else "done"
    if ask is not None:
        if ask.is_open:
            # Nobody is to decide about it, and nothing runs it, until a rewind brings it back.
            if message.seq in gone:
                return "rewound"
            return "approved" if ask.approved else "waiting"
        # It was approved later, and is run by the turn that has used the approval.
        turn = ask.started_in
    return "open" if turn is not None and turn == running else "unknown"
