"""What Hermes shows while it works, stored first.

Everything that is shown goes through three attributes of `AIAgent`. They are assigned for each turn, for
each agent, or by `run_conversation`, so they are made data descriptors here: whatever is assigned is
called only after the text is durable (I-5).

Hermes swallows what a callback raises, goes on, and sends no final text after a stream: the user would
see half an answer and then nothing. So a store that fails stops the turn, and the notice goes straight
to the callback that was assigned.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from holdfast.adapters.hermes.spoken.conversation import Conversation
from holdfast.adapters.hermes.spoken.left_threads import is_left
from holdfast.errors import HoldfastError, Overtaken
from holdfast.runtime.open_store import CLOSED

Callback = Callable[..., Any]

SUPERSEDED = -1
"""A number of a stream that is never the current one in Hermes."""

_CONVERSATION = "_holdfast_conversation"


class NotStored(Exception):
    """Raised into Hermes, which does not show the text then."""


def patch_run_agent(module: ModuleType) -> None:
    """Puts the descriptors in their places, and tells one answer from the next."""
    agent: Any = module.AIAgent
    for name in (
        "stream_delta_callback",
        "_stream_callback",
        "interim_assistant_callback",
    ):
        setattr(agent, name, StoredFirst(name))
    reset = agent._reset_stream_delivery_tracking

    @functools.wraps(reset)
    def _reset_stream_delivery_tracking(self: Any) -> None:
        # Before the model is asked: the original shows what its filters have held back of the
        # answer before.
        reset(self)
        conversation = speaking(self)
        if conversation is not None:
            _store(self, conversation, conversation.retry, None)

    agent._reset_stream_delivery_tracking = _reset_stream_delivery_tracking
    agent._claim_stream_writer = _claiming(agent._claim_stream_writer)


def _claiming(claim: Callable[[Any], int]) -> Callable[[Any], int]:
    @functools.wraps(claim)
    def _claim_stream_writer(self: Any) -> int:
        if not is_left(self):
            return claim(self)
        # As one that another has followed: Hermes stops reading its stream then, and what the
        # running turn streams stays the current one.
        self._ensure_stream_writer_state()
        self._stream_writer_tls.token = SUPERSEDED
        return SUPERSEDED

    return _claim_stream_writer


class StoredFirst:
    """A callback of an agent: what it shows is stored first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._slot = f"_holdfast_{name}"

    def __get__(self, agent: Any, owner: type | None = None) -> Any:
        if agent is None:
            return self
        return agent.__dict__.get(self._slot)

    def __set__(self, agent: Any, callback: Callback | None) -> None:
        # A cached agent is given its own callback again each turn.
        if callback is not None and not hasattr(callback, "holdfast_shows"):
            callback = self._storing(agent, callback)
        agent.__dict__[self._slot] = callback

    def _storing(self, agent: Any, show: Callback) -> Callback:
        @functools.wraps(show)
        def stored_first(text: Any = None, *more: Any, **named: Any) -> Any:
            if _is_too_late(agent, text):
                raise NotStored
            conversation = speaking(agent)
            if conversation is not None:
                store = self._storing_of(agent, conversation, text, named)
                if not _store(agent, conversation, store, show):
                    raise NotStored
            return show(text, *more, **named)

        stored_first.holdfast_shows = True  # type: ignore[attr-defined]
        return stored_first

    def _storing_of(
        self, agent: Any, conversation: Conversation, text: Any, named: dict[str, Any]
    ) -> Callable[[], None]:
        """What is to be done before this is shown."""
        # Nothing: a segment is over. What was streamed is told once more beside a call.
        is_told_again = bool(named.get("already_streamed"))
        if text is None or is_told_again:
            return conversation.segment
        # The same piece goes to the screen and to a voice, one after the other.
        if self.name == "_stream_callback" and agent.stream_delta_callback is not None:
            return _nothing
        if self.name == "interim_assistant_callback":
            return functools.partial(_whole, conversation, str(text))
        return functools.partial(conversation.show, str(text))


def _is_too_late(agent: Any, text: Any) -> bool:
    """Whether a thread speaks whose turn is over. It is not heard: these words are of a request that
    was stopped, and there is no answer that they belong to.
    """
    if is_left(agent):
        return True
    conversation = conversation_of(agent)
    # One that never had a turn here is not served.
    return text is not None and conversation is not None and conversation.turn is None


def _whole(conversation: Conversation, text: str) -> None:
    conversation.segment()
    conversation.show(text)
    conversation.segment()


def _nothing() -> None:
    return


def _store(
    agent: Any,
    conversation: Conversation,
    store: Callable[[], None],
    show: Callback | None,
) -> bool:
    """Whether this could be stored. If not, the turn is stopped; once, and from then on nothing of
    it is shown.
    """
    if conversation.failure is not None:
        return False
    try:
        store()
    except (HoldfastError, OSError) as error:
        stop(agent, conversation, error, show)
        return False
    return True


def stop(
    agent: Any,
    conversation: Conversation,
    error: Exception,
    show: Callback | None = None,
) -> None:
    """What this agent says can't be stored: it is stopped, and whoever watches is told."""
    with conversation.lock:
        if conversation.failure is not None:
            return
        conversation.failure = str(error)
    # Without a word: the command line sends the words of an interrupt to the model, as the user's
    # next message. And one that the user has interrupted keeps his words.
    if not getattr(agent, "_interrupt_requested", False):
        agent.interrupt()
    # Of a turn that another has taken over there is nothing to say: the other one speaks.
    by_another = isinstance(error, Overtaken) and getattr(error, "reason", "") != CLOSED
    if show is not None and not by_another:
        show(f"\n\n{notice(error)}")


def notice(error: Exception | str) -> str:
    """What the user is told."""
    return f"⚠️ Stopped: the answer can't be stored ({error})"


def not_answered(error: Exception) -> str:
    """What the user is told whose message can't be stored."""
    return f"⚠️ Your message can't be stored, so it was not answered ({error})"


def conversation_of(agent: Any) -> Conversation | None:
    """What this agent says and where, if it has said anything yet."""
    conversation: Conversation | None = agent.__dict__.get(_CONVERSATION)
    return conversation


def set_conversation(agent: Any, conversation: Conversation) -> None:
    """From now on the agent speaks here."""
    agent.__dict__[_CONVERSATION] = conversation


def speaking(agent: Any) -> Conversation | None:
    """Where what this agent shows is stored: in the turn that it runs."""
    conversation = conversation_of(agent)
    if conversation is None or conversation.turn is None:
        return None
    return conversation
