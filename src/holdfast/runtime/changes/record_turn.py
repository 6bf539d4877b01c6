"""A turn that begins with a caller's own list, or goes on with one: what is new in the list stands in
the turn (I-12, I-4).

    load      the log, what its view shows, what the handle remembers
    decide    as `record` does
    commit    what is new, the view if the list needs one, and the start of the turn, at once: whoever
              asks a model for an answer to the list waits for one commit

The list must not be changed while the plan runs.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from holdfast.domain.entry import STARTING, Draft, TurnStarted
from holdfast.domain.ids import turn_id
from holdfast.domain.message import freeze
from holdfast.domain.record.memory import LastList, Memory
from holdfast.domain.record.reconcile import reconcile
from holdfast.engine.protocol import Refused, Start, Write
from holdfast.errors import SessionBusy
from holdfast.runtime.changes.open_session import (
    Successor,
    current_state,
    successor,
    usable,
)
from holdfast.runtime.changes.record import (
    Within,
    decided,
    decided_again,
    keep,
    plain_list,
)
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan, read, wait_for
from holdfast.runtime.turns.recovery import settle_if_dead
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.start_turn import TurnRequest, commit_start

LEASE_S = 30.0
_START = Within(STARTING, ahead=1)


class GivenList(NamedTuple):
    """A list that its caller keeps, and what is remembered of the lists before it. With `is_whole`
    unset it is the news alone, as one that goes on from what the other side keeps: nothing is looked
    for in it, and the view stays as it is.
    """

    memory: Memory
    messages: Sequence[Any]
    format: str
    is_whole: bool = True


class ListTurn(NamedTuple):
    """A running turn, and the ids of what its list has brought it."""

    work: RunningTurn
    new: tuple[str, ...]


def start_in(store: OpenStore, key: str, given: GivenList) -> Plan[ListTurn]:
    """A turn that begins with this list, in the key's current session. If there is none, the same
    commit opens it (I-8).
    """
    while True:
        state = yield from current_state(store, key)
        session = yield from usable(store, state, None)
        if session is not None:
            return (yield from start_with(session, given))
        made = yield from read(partial(successor, store, state, key, "replaced"))
        if made is not None:
            started = yield from _opened(made, given)
            if started is not None:
                return started


def _opened(made: Successor, given: GivenList) -> Plan[ListTurn | None]:
    """The first turn of a session, in which all of its list is new; None when somebody else has
    opened one.
    """
    session, opening, format = made.session, made.opening, given.format
    payloads = plain_list(given.messages, format)
    found = reconcile(payloads, shown=())
    news = _news(session, found.new if given.is_whole else payloads, format, STARTING)
    new = tuple(draft.id.hex() for draft in news)
    drafts = [*opening.drafts, session.draft("turn", TurnStarted(), turn=STARTING)]
    if given.is_whole and found.instructions is not None:
        drafts.append(session.draft("instructions", body=freeze(found.instructions)))
    drafts += news
    wish = _wish(session, format)
    start = Start(wish.waiter, wish.lease_s)
    write = replace(opening, drafts=tuple(drafts), start=start)
    commit = (*made.closing, write)
    outcome = yield from commit_start(session, wish, commit, took=False)
    if isinstance(outcome, Refused):
        return None
    if given.is_whole:
        _, remembered = found.settle(new)
        leading = len(payloads) - len(remembered)
        given.memory.keep(format, LastList(remembered, leading, len(drafts)))
    return ListTurn(outcome, new)


def start_with(session: SessionLog, given: GivenList) -> Plan[ListTurn]:
    """A turn that begins with this list. `SessionBusy` while another turn runs; `SessionEnded` when
    there can be none.
    """
    return (
        _start(session, given) if given.is_whole else _start_with_news(session, given)
    )


def _start(session: SessionLog, given: GivenList) -> Plan[ListTurn]:
    memory, format = given.memory, given.format
    messages = list(given.messages)
    yield from _wait_until_free(session)
    payloads, first = yield from read(
        partial(decided, session, memory, messages, format=format, within=_START)
    )
    decision = first
    while True:
        drafts = decision.drafts
        started = yield from _started(
            session,
            format,
            drafts,
            head=decision.head,
            shows_past=decision.shows_past,
        )
        if started is not None:
            head = decision.head + 1 + len(drafts)
            keep(session, memory, decision, first, payloads, format=format, head=head)
            return ListTurn(started, decision.new)
        yield from _wait_until_free(session)
        decision = yield from decided_again(
            session, memory, first, format=format, within=_START
        )


def _start_with_news(session: SessionLog, given: GivenList) -> Plan[ListTurn]:
    news = _news(session, given.messages, given.format, STARTING)
    yield from _wait_until_free(session)
    while True:
        started = yield from _started(session, given.format, tuple(news))
        if started is not None:
            return ListTurn(started, tuple(draft.id.hex() for draft in news))
        yield from _wait_until_free(session)


def _wait_until_free(session: SessionLog) -> Plan[None]:
    """A turn whose owner is gone is settled; one that runs is told."""
    state = yield from settle_if_dead(session)
    if state.ended:
        raise (yield from read(session.ended))
    if state.turn is not None:
        name = turn_id(session.id, state.turn)
        raise SessionBusy(session_id=session.id, turn_id=name)


def _started(
    session: SessionLog,
    format: str,
    drafts: tuple[Draft, ...],
    *,
    head: int | None = None,
    shows_past: bool = False,
) -> Plan[RunningTurn | None]:
    """The turn, started with these drafts in it; None when somebody else has written meanwhile."""
    wish = _wish(session, format)
    first = session.draft("turn", TurnStarted(), turn=STARTING)
    write = Write(
        session.id,
        drafts=(first, *drafts),
        idle=True,
        head=head,
        start=Start(wish.waiter, wish.lease_s),
        unbase=shows_past,
    )
    outcome = yield from commit_start(session, wish, (write,), took=False)
    return None if isinstance(outcome, Refused) else outcome


def _wish(session: SessionLog, format: str) -> TurnRequest:
    return TurnRequest(
        session.world,
        None,
        format=format,
        event_id=None,
        on_busy="refuse",
        reply_to=None,
        lease_s=LEASE_S,
    )


def go_on_with(turn: RunningTurn, given: GivenList) -> Plan[ListTurn]:
    """The turn goes on with this list. `TurnInterrupted` when it is over."""
    if given.is_whole:
        return _go_on(turn, given)
    news = _news(turn.session, given.messages, given.format, turn.number)
    return _go_on_with_news(turn, news)


def _go_on(turn: RunningTurn, given: GivenList) -> Plan[ListTurn]:
    memory, format = given.memory, given.format
    messages = list(given.messages)
    session, within = turn.session, Within(turn.number)
    yield from turn.close_left()
    payloads, first = yield from read(
        partial(decided, session, memory, messages, format=format, within=within)
    )
    decision = first
    while True:
        if turn.ended:
            raise (yield from turn.interrupted())
        write = Write(
            session.id,
            drafts=decision.drafts,
            fence=turn.number,
            head=decision.head,
            unbase=decision.shows_past,
        )
        outcome = yield from wait_for(session.engine.submit((write,)))
        if not isinstance(outcome, Refused):
            break
        if outcome.why != "moved":
            raise (yield from turn.interrupted())
        decision = yield from decided_again(
            session, memory, first, format=format, within=within
        )
    head = decision.head + len(decision.drafts)
    keep(session, memory, decision, first, payloads, format=format, head=head)
    return ListTurn(turn, decision.new)


def _go_on_with_news(turn: RunningTurn, news: list[Draft]) -> Plan[ListTurn]:
    yield from turn.write(*news)
    return ListTurn(turn, tuple(draft.id.hex() for draft in news))


def _news(
    session: SessionLog, messages: Sequence[Any], format: str, turn: int
) -> list[Draft]:
    return [session.message(speak(each, format), turn=turn) for each in messages]
