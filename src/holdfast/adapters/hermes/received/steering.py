"""Words that steer a running agent, and the flag that interrupts it: which messages these are.

Hermes keeps steered words in a buffer of the agent, joined with line breaks. Where they go into a
tool's result the model sees them, and they are taken into the running turn just before; where they
are handed back unseen, or dropped, they are open as before.
"""

import threading
from typing import Any, Literal

from holdfast.adapters.hermes.received.book import Received

_BUFFER = "_holdfast_steering"
_UNSEEN = "_holdfast_unseen"
_INTERRUPT = "_holdfast_interrupt"
_OVER = "_holdfast_turn_is_over"

lock = threading.Lock()
"""Held where Hermes fills its buffer and where it empties it: the two are in different threads."""


def begin(agent: Any) -> None:
    """A turn begins, which can be steered."""
    agent.__dict__[_OVER] = False


def is_over(agent: Any) -> bool:
    """Whether the turn has emptied the buffer for the last time. Hermes would still take words, and
    show them to the turn after the next.
    """
    return bool(agent.__dict__.get(_OVER))


def steered(agent: Any, some: list[Received], text: str) -> None:
    """The agent has these words in its buffer."""
    for each in some:
        each.is_held = True
        each.was_queued = True
    buffer = agent.__dict__.setdefault(_BUFFER, [])
    # As Hermes has it: stripped of blanks, and joined with line breaks later.
    buffer.append((text.strip(), some))


def taken_up(agent: Any) -> list[Received]:
    """The model sees the words of the buffer now: whose they are."""
    return _emptied(agent)


def hand_back(agent: Any) -> None:
    """The turn is over, and the gateway is given the words, unseen: it may make a turn of them."""
    agent.__dict__[_OVER] = True
    buffer = agent.__dict__.get(_BUFFER, [])
    agent.__dict__[_UNSEEN] = buffer
    for each in _emptied(agent):
        each.is_handed_back = True


def dropped(agent: Any) -> None:
    """Hermes has thrown the buffer away."""
    _emptied(agent)


def _emptied(agent: Any) -> list[Received]:
    some = []
    for _, received in agent.__dict__.pop(_BUFFER, []):
        some += received
    for each in some:
        # Whoever looks for lost messages may find it from now on.
        each.is_held = False
    return some


def handed_back(agent: Any, words: Any) -> list[Received]:
    """The messages that a turn is about whose words are those that were handed back before."""
    some: list[Received] = []
    texts = []
    for text, received in agent.__dict__.pop(_UNSEEN, []):
        texts.append(text)
        some += received
    for each in some:
        each.is_handed_back = False
    return some if _are_joined(texts, words) else []


def _are_joined(texts: list[str], words: Any) -> bool:
    """Whether these words are those texts. Hermes may have joined them in another order: what it puts
    back into the buffer stands behind what came meanwhile.
    """
    joined = "\n".join(texts)
    if not joined or len(words) != len(joined):
        return False
    for text in texts:
        if text not in words:
            return False
    return True


def interrupted(agent: Any, some: list[Received], text: Any) -> None:
    """These messages have set the agent's interrupt flag."""
    for each in some:
        # Where the gateway and its adapter are not of one mind, the flag is all that has the words:
        # Hermes goes on with them if the agent sees it in time.
        each.was_queued = True
    agent.__dict__[_INTERRUPT] = (text, some)


def interrupting(agent: Any) -> tuple[Any, list[Received]]:
    """The words that have set the interrupt flag since the last turn began, and their messages."""
    words, some = agent.__dict__.pop(_INTERRUPT, (None, []))
    return words, some


def fate_of_words(frame: Any) -> Literal["seen", "kept", "handed back"]:
    """What the caller that empties the buffer does with the words: it puts them into a tool's result;
    without one it puts them back; at the end of a turn it hands them to the gateway.
    """
    if frame.f_code.co_name == "finalize_turn":
        return "handed back"
    known = frame.f_locals
    messages = known.get("messages") or []
    # One caller tells how many results there are, the other looks through its whole list.
    last = known.get("num_tool_msgs") or len(messages)
    for message in messages[-last:]:
        if not isinstance(message, dict):
            continue
        if message.get("role") == "tool":
            return "seen"
    return "kept"
