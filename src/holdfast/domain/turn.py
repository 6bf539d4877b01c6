"""A turn: one piece of work, from an inbound message to its one end; and the states of its tool calls."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.domain.entry import End
from holdfast.domain.repair import Seen

CallState = Literal["open", "done", "failed", "unknown"]


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


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the model or the agent made. `outcome` is the id of the message that answers it."""

    call_id: str
    name: str
    message: str
    turn: int | None
    state: CallState
    outcome: str | None = None


def addresses(messages: Sequence[Seen], own: str | None) -> list[str]:
    """Whom the reply of a turn with these messages is owed to: those who asked in it, each once (FAULTS C2)."""
    asked = [own, *(seen.note.reply_to for seen in messages)]
    return list(dict.fromkeys(address for address in asked if address is not None))


def tool_calls(seen: Sequence[Seen], *, running: int | None) -> list[ToolCall]:
    """Every call in these messages with its state; a call that nobody answered in a turn that is over is unknown
    (I-22).
    """
    open_calls: list[tuple[Seen, int]] = []
    answers: dict[tuple[str, int], Seen] = {}
    calls: list[tuple[Seen, int]] = []
    for message in seen:
        for index in range(len(message.note.calls)):
            calls.append((message, index))
            open_calls.append((message, index))
        for call_id in message.note.answers:
            asked = _asked(open_calls, call_id, message.turn)
            if asked is not None:
                open_calls.remove(asked)
                answers[asked[0].id, asked[1]] = message
    return [_state(message, index, answers.get((message.id, index)), running) for message, index in calls]


def _asked(open_calls: list[tuple[Seen, int]], call_id: str, turn: int | None) -> tuple[Seen, int] | None:
    """The open call that this id answers: in its own turn if there is one, the newest message, its first such call."""
    fitting = [asked for asked in open_calls if asked[0].note.calls[asked[1]].id == call_id]
    own = [asked for asked in fitting if asked[0].turn == turn]
    fitting = own or fitting
    return next((asked for asked in fitting if asked[0] is fitting[-1][0]), None)


def _state(message: Seen, index: int, outcome: Seen | None, running: int | None) -> ToolCall:
    call = message.note.calls[index]
    state: CallState
    if outcome is not None:
        state = "failed" if outcome.note.failed else "done"
    else:
        state = "open" if message.turn is not None and message.turn == running else "unknown"
    return ToolCall(call.id, call.name, message.id, message.turn, state, outcome.id if outcome else None)
