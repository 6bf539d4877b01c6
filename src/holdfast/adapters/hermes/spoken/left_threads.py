"""Threads that a turn of an agent has left behind, and that may not speak any more.

Hermes streams on a thread of its own for each request, and does not wait for it when a turn is
interrupted. Such a thread may take the broken connection for an empty answer, and ask the model once
more: by then its turn is over and the flag that would have stopped it is cleared, so it would speak
when nobody runs, or into the answer of the next turn, whose own stream Hermes then takes for the old
one, and drops.
"""

import threading
import weakref
from collections.abc import Collection
from typing import Any

_LEFT = "_holdfast_left_threads"
_OWN = "_holdfast_turn_thread"


def begin(agent: Any) -> Collection[threading.Thread]:
    """A turn begins on this thread; those that are there already, for `end`."""
    agent.__dict__[_OWN] = threading.current_thread()
    return threading.enumerate()


def end(agent: Any, before: Collection[threading.Thread]) -> None:
    """The turn is over: what it has started and is still there has nothing more to say."""
    left = agent.__dict__.setdefault(_LEFT, weakref.WeakSet())
    for thread in threading.enumerate():
        if thread not in before:
            left.add(thread)


def is_left(agent: Any) -> bool:
    """Whether the calling thread was left behind by an earlier turn of this agent."""
    thread = threading.current_thread()
    # One of a pool, which was started in an earlier turn, may be the one that runs this one.
    if agent.__dict__.get(_OWN) is thread:
        return False
    return thread in agent.__dict__.get(_LEFT, ())
