"""What comes in is stored before Hermes sees it, and kept until a turn has it.

    handle_message        a receipt, before anything else; what came before is not passed on
    merges, queues        joined events carry the receipts of all of them; an overwritten one is kept
    busy handler, steer   which message interrupts or steers is known to the agent
    claim                 a turn opens: these receipts are what it is about
    end of processing     what Hermes did something else with is settled; what it lost is put back
    start                 what earlier processes left is put back

Receipts are written by a thread that the event loop awaits: an adapter does not read its next update
before this one is durable.
"""

import functools
import logging
import sys
from types import ModuleType
from typing import Any

from holdfast import Receipt
from holdfast.adapters.hermes.received import steering
from holdfast.adapters.hermes.received.book import Received
from holdfast.adapters.hermes.received.gateway import current
from holdfast.adapters.hermes.serving import running_turn, serving_of
from holdfast.adapters.hermes.spoken import steered
from holdfast.adapters.hermes.spoken.live_list import Said
from holdfast.adapters.hermes.streams import conversation_of
from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast.hermes")


def claim(agent: Any, user_message: Any) -> list[Receipt]:
    """The receipts of the messages that this call of `run_conversation` is about, for
    `Session.turn(take=…)`: asked by `turns`, once for each call, in the agent's thread.
    """
    serving = serving_of(agent)
    if serving is None:
        return []
    steering.begin(agent)
    words, interrupting = steering.interrupting(agent)
    some = list(current.get())
    some += steering.handed_back(agent, user_message)
    # Once: an agent that this one calls in its turn is about something else.
    current.set(())
    inbox = serving.inbox
    mine = inbox.book.open_of(some)
    # Without an event, Hermes goes on with the words that have interrupted the turn before.
    if not mine and words is not None and words == user_message:
        mine = inbox.book.open_of(interrupting)
    is_own = False
    for each in mine:
        is_own = is_own or each in interrupting
    if is_own:
        # This very message has interrupted the turn before, too late: it would interrupt its own
        # turn, and be run again. Not by `clear_interrupt`, which drops what steers.
        agent._interrupt_requested = False
        agent._interrupt_message = None
    inbox.book.close(mine)
    return _receipts(mine)


def _receipts(some: list[Received]) -> list[Receipt]:
    found = []
    for each in some:
        found.append(each.receipt)
    return found


def patch_run_agent(module: ModuleType) -> None:
    """What steers an agent and what interrupts it is known by its receipts."""
    agent: Any = module.AIAgent
    steer = agent.steer
    drain = agent._drain_pending_steer
    interrupt = agent.interrupt
    clear = agent.clear_interrupt

    @functools.wraps(steer)
    def steer_by(self: Any, text: str) -> bool:
        some = list(current.get())
        with steering.lock:
            # The gateway queues it then: it knows an agent as running for a while after its turn.
            if some and steering.is_over(self):
                return False
            is_taken = bool(steer(self, text))
            if is_taken:
                steering.steered(self, some, text)
        return is_taken

    @functools.wraps(drain)
    def _drain_pending_steer(self: Any) -> Any:
        caller = sys._getframe(1)
        fate = steering.fate_of_words(caller)
        seen: list[Received] = []
        with steering.lock:
            text = drain(self)
            if fate == "handed back":
                steering.hand_back(self)
            elif fate == "seen" and text:
                seen = steering.taken_up(self)
        _take_steered(self, seen, caller.f_locals.get("messages"))
        return text

    @functools.wraps(interrupt)
    def interrupted(self: Any, message: Any = None) -> None:
        steering.interrupted(self, list(current.get()), message)
        interrupt(self, message)

    @functools.wraps(clear)
    def clear_interrupt(self: Any) -> None:
        clear(self)
        steering.dropped(self)

    agent.steer = steer_by
    agent._drain_pending_steer = _drain_pending_steer
    agent.interrupt = interrupted
    agent.clear_interrupt = clear_interrupt


def _take_steered(agent: Any, some: list[Received], messages: Any) -> None:
    """The running turn takes these: the model is about to see them in a result of these messages."""
    serving = serving_of(agent)
    turn = running_turn(agent)
    if serving is None or turn is None or not some:
        return
    taken = serving.inbox.book.close(some)
    if not taken:
        return
    try:
        stored = turn.inbox(take=_receipts(taken))
    except HoldfastError as error:
        # The model sees the words all the same; they wait in the store for the next start.
        log.error("words that steer can't be stored in their turn: %s", error)
        return
    conversation = conversation_of(agent)
    if conversation is None or len(stored) != len(taken):
        return
    words: list[Said] = []
    payloads = []
    for each, message in zip(taken, stored, strict=True):
        # A dict of its own, as if Hermes had one: it is known by that.
        words.append(({}, {"role": "user", "content": each.text}))
        payloads.append(dict(message.payload))
    conversation.steer(messages, payloads, words)
    steered.keep_rows(agent, words)
