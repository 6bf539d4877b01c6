"""What is to be stored because of a line, one step after the other.

`session` is the agent's id of a session. A `slot` names a message that grows, in one session and
one connection: a message of the agent's, a tool's call, its outcome.
"""

from typing import Any, Literal

import msgspec

from holdfast.formats.acp.messages import As


class WireStep(msgspec.Struct, frozen=True):
    """Something to be stored."""

    session: str


class SessionMade(WireStep, frozen=True):
    """There is such a session; nothing is known of it yet."""


class SessionOpened(WireStep, frozen=True):
    """A session was made or loaded; `facts` are what the agent and the client said of it."""

    facts: dict[str, Any]


class SessionForked(WireStep, frozen=True):
    """`into` was made of this session."""

    into: str


class LoadBegan(WireStep, frozen=True):
    """What comes next may be stored already: the recording has to know what is."""


class PromptBegan(WireStep, frozen=True):
    """A prompt was given, and its turn begins."""

    prompt: str
    payload: Any


class PromptQueued(WireStep, frozen=True):
    """A prompt was given while another one runs."""

    prompt: str
    payload: Any


class PromptTaken(WireStep, frozen=True):
    """A prompt that was queued has its turn now."""

    prompt: str


class PromptWithdrawn(WireStep, frozen=True):
    """A prompt that was queued gets no turn of its own. It was refused or cancelled before it
    began, or, with `is_heard`, answered in the turn that runs.
    """

    prompt: str
    answer: Any
    is_heard: bool = False


class WithdrawnTaken(WireStep, frozen=True):
    """What was withdrawn leaves the inbox, if nothing that waits for a turn of its own is there."""


class OwnTurnBegan(WireStep, frozen=True):
    """The agent has something to say that nobody has asked for."""


class Said(WireStep, frozen=True):
    """More of a message. These updates are durable before any of them is shown."""

    slot: str
    kind: As
    updates: tuple[dict[str, Any], ...]


class MessageClosed(WireStep, frozen=True):
    """A message is whole."""

    slot: str


class Noted(WireStep, frozen=True):
    """Something that is no message: it is a label on the message of `slot`, or on the last one."""

    name: str
    value: Any
    slot: str | None = None


class SaidAside(WireStep, frozen=True):
    """The message of this slot is no word of the model's: people see it, models don't."""

    slot: str


class CallAnswered(WireStep, frozen=True):
    """The outcome of a call whose turn is over."""

    call: str
    updates: tuple[dict[str, Any], ...]


class Misplaced(WireStep, frozen=True):
    """What this load has added so far stood before messages that were known: the model sees the
    session without it.
    """


class LineKept(WireStep, frozen=True):
    """A line that is stored as it came, outside any turn."""

    facts: dict[str, Any]


class TurnOver(WireStep, frozen=True):
    """A turn is over. The messages of the slots in `whole` are whole now; they become entries in the
    commit that ends the turn, so that its answer waits for one commit.
    """

    end: Literal["completed", "interrupted", "failed"]
    why: str = ""
    whole: tuple[str, ...] = ()


Steps = tuple[WireStep, ...]


class LineVerdict(msgspec.Struct, frozen=True):
    """What a line comes to: what is stored before it is passed on, what after, and whether it is
    passed on at all.
    """

    before: Steps = ()
    after: Steps = ()
    is_shown: bool = True
    to_agent: bytes = b""
    """What the agent is told in the client's place."""
    to_client: bytes = b""
    """What the client is told in the agent's place."""
    instead: bytes | None = None
    """What is passed on in the place of the line."""
    replays: str | None = None
    """The session that is replayed from the store before the line is passed on."""
