"""What comes in for a key: a message that starts a turn, or one that waits for the next (I-4, I-8)."""

from functools import partial
from typing import Any

from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Labelled
from holdfast.domain.message import Spoken, freeze, thaw
from holdfast.domain.reset_policy import Policy
from holdfast.engine.protocol import Waiting, Write, Written
from holdfast.formats import registry
from holdfast.runtime.changes.open_session import (
    current_state,
    open_session,
    successor,
    usable,
    why_replaced,
)
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.turns.outbox import Receipt
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.start_turn import (
    TurnRequest,
    commit_start,
    find_named,
    first_write,
    refuse_accepted,
    start,
)

# So many keys are known without a question; then it starts over, for one question
# brings each of them back.
RECENT_MAX = 10_000


def start_turn(
    store: OpenStore, key: str, request: TurnRequest, *, reset: Policy | None
) -> Plan[RunningTurn]:
    """Resolve the key, reset it if that is due, start: one transaction whenever nothing stands in
    the way (I-8).
    """
    while True:
        state = yield from current_state(store, key)
        session = yield from usable(store, state, reset)
        if session is not None:
            # Without the policy: it was asked just now, and whatever follows this
            # session is new.
            elsewhere = partial(_elsewhere, store, key, request)
            return (yield from start(session, request, on_ended=elsewhere))
        reason = why_replaced(store, state, reset)
        made = yield from read(partial(successor, store, state, key, reason))
        if made is None:
            continue
        waiting = list(made.opening.admits)
        brought = yield from find_named(made.session, request, waiting)
        first = first_write(made.session, request, waiting, brought)
        started = _opened_and_started(made.opening, first)
        commit = (*made.closing, *brought.leaving, started)
        took = bool(first.takes or brought.origins)
        outcome = yield from commit_start(made.session, request, commit, took=took)
        if isinstance(outcome, RunningTurn):
            return outcome
        if outcome.why == "accepted":
            yield from refuse_accepted(made.session, request.event_id, outcome.detail)


def _elsewhere(
    store: OpenStore, key: str, request: TurnRequest
) -> Plan[SessionLog | RunningTurn]:
    """Where to go on when the session has ended meanwhile. A message that waits goes on waiting in
    the key's next session; without one, that is made by the commit that starts the turn.
    """
    if request.accepted:
        return (yield from open_session(store, key))
    return (yield from start_turn(store, key, request, reset=None))


def _opened_and_started(opening: Write, first: Write) -> Write:
    """The write that opens a session and starts its first turn in one."""
    # What the first turn takes never waits in the new session: it is not admitted, so
    # there is nothing for `takes` to guard.
    taken = set(first.takes)
    return Write(
        opening.session,
        (*opening.drafts, *first.drafts),
        event=first.event,
        # The inbound message comes after what opens the session.
        event_draft=len(opening.drafts) + first.event_draft,
        open=opening.open,
        start=first.start,
        admits=tuple(each for each in opening.admits if each.message not in taken),
    )


def accept(
    store: OpenStore,
    key: str,
    message: Any,
    *,
    format: str,
    event_id: Checked,
    reply_to: Checked,
    labels: dict[str, Any] | None = None,
) -> Plan[Receipt]:
    """A durable receipt: the message waits in the inbox of the key's current session, made if there
    is none.
    """
    # Frozen here and not in the generator: the caller may change it before the plan runs (I-3).
    spoken = speak(message, format, inbox=True, event=event_id, reply_to=reply_to)
    if labels:
        labels = registry.plain(labels)
        # A copy of what is JSON, and an error of its own for what is not.
        labels = thaw(freeze(labels))
    return _accept(store, key, spoken, event_id, labels)


def _accept(
    store: OpenStore,
    key: str,
    spoken: Spoken,
    event_id: str | None,
    labels: dict[str, Any] | None,
) -> Plan[Receipt]:
    # Once, not in each round: if the session has ended meanwhile, the same message is
    # offered to the next one.
    id = store.arrivals.mint()
    while True:
        session = store.recent.get(key)
        if session is None:
            session = yield from open_session(store, key)
            if len(store.recent) >= RECENT_MAX:
                store.recent.clear()
            store.recent[key] = session
        drafts = [session.message(spoken, turn=None, id=id)]
        if labels:
            drafts.append(session.draft("label", Labelled(id.hex(), labels)))
        outcome = yield from session.commit(
            Write(
                session.id,
                drafts=tuple(drafts),
                event=session.event(event_id),
                admits=(Waiting(id),),
            )
        )
        if isinstance(outcome, Written):
            return Receipt(session.id, id.hex())
        # No error here: a webhook that is called twice is answered both times, with the
        # receipt of the first.
        if outcome.why == "accepted":
            known = outcome.detail
            return Receipt(known.session, known.message.hex(), again=True)
        # It has ended meanwhile: ask again which session the key means (I-8).
        store.recent.pop(key, None)
