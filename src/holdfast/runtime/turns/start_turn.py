"""Starting a turn: taking what waits, and what to do when another turn is running.

Load the state, decide, commit; the commit's guards repeat the decision, and a refusal starts over.
The inbound message is durable before any of this returns (I-4): in the turn's own first
transaction, or in the inbox while it waits for its turn. One that comes with a list of messages to
take does not wait there: if they can't be had in the end, nothing was written. Whoever takes over
from a running turn has what it names from the commit that stops that turn, or stops nobody.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.domain.arguments import Checked
from holdfast.domain.entry import STARTING, Draft, TurnStarted
from holdfast.domain.ids import turn_id
from holdfast.domain.inbox import NamedMessage, to_take
from holdfast.domain.message import Spoken
from holdfast.engine.closed_engine import closed
from holdfast.engine.protocol import (
    Accepted,
    Commit,
    Refused,
    SessionState,
    Start,
    Waiting,
    Write,
    Written,
)
from holdfast.errors import (
    AlreadyAccepted,
    BadArgument,
    HoldfastError,
    NotFound,
    SessionBusy,
    SessionEnded,
)
from holdfast.runtime.clock import World, mint
from holdfast.runtime.live.leases import WAITER_S
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import (
    Pause,
    Plan,
    has_failed,
    is_within_call,
    read,
    wait_for,
)
from holdfast.runtime.process_identity import myself
from holdfast.runtime.turns.bring import (
    NOTHING,
    Brought,
    bring,
    is_free,
    not_waiting,
    places_of,
)
from holdfast.runtime.turns.journey import follow
from holdfast.runtime.turns.recovery import settle, settle_if_dead, sweep
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.turn_owner import is_held_here

POLL_S = 0.05
"""How long a waiter sleeps without news. News of other processes come by looking."""


class TurnRequest:
    """What a caller asked for: a turn with this message, or one of the agent's own."""

    def __init__(
        self,
        world: World,
        message: Any,
        *,
        format: str,
        event_id: Checked,
        on_busy: str,
        reply_to: Checked,
        lease_s: float,
        take: Any = None,
    ) -> None:
        self.format = format
        self.event_id = event_id
        self.on_busy = on_busy
        self.reply_to = reply_to
        self.lease_s = lease_s
        # As the border has read it.
        self.take: Sequence[NamedMessage] | None = take
        self.spoken: Spoken | None = None
        if message is not None:
            self.spoken = speak(
                message, format, inbox=True, event=event_id, reply_to=reply_to
            )
        self.id = mint(world, world.now())
        self.waiter = f"{myself()}/{self.id.hex()}"
        self.accepted = False
        self.accepted_in = ""
        """The session in whose inbox its message was stored; resets may have taken it on."""
        self.renew_at = 0.0
        self.holds = False
        """Whether messages that it names may wait with it in their inboxes."""
        self.looked_at = -1
        """The head at which what it asks for was last found to be possible."""

    def draft(self, session: SessionLog) -> tuple[Draft, ...]:
        """The inbound message, unless it is in the inbox already."""
        if self.spoken is None or self.accepted:
            return ()
        return (session.message(self.spoken, turn=None, id=self.id),)

    def event(self, session: SessionLog) -> tuple[str, str] | None:
        """What the first write of the inbound message claims for its event."""
        if self.accepted:
            return None
        return session.event(self.event_id)


def start(
    session: SessionLog,
    wish: TurnRequest,
    on_ended: Callable[[], Plan[SessionLog | RunningTurn]] | None = None,
) -> Plan[RunningTurn]:
    """A running turn for this wish; see `Session.turn`. `on_ended` finds another session when this
    session is over, or starts the turn in one.
    """
    try:
        while True:
            state = yield from settle_if_dead(session)
            if state.ended:
                if on_ended is None:
                    raise (yield from read(partial(_ended, session, wish)))
                found = yield from on_ended()
                if isinstance(found, RunningTurn):
                    return found
                session = found
            elif state.turn is not None:
                yield from _meet(session, state, wish)
            else:
                waiting = yield from read(partial(session.engine.inbox, session.id))
                if wish.accepted and all(each.message != wish.id for each in waiting):
                    yield from _missed(session, wish)
                    continue
                brought = yield from find_named(session, wish, waiting)
                write = first_write(session, wish, waiting, brought)
                outcome = yield from commit_start(
                    session,
                    wish,
                    (*brought.leaving, write),
                    took=bool(write.takes or brought.origins),
                )
                if isinstance(outcome, RunningTurn):
                    return outcome
                yield from _refused(session, wish, outcome)
    except BaseException as cut:
        yield from _stop_waiting(session, wish, cut)
        raise


def first_write(
    session: SessionLog,
    wish: TurnRequest,
    waiting: list[Waiting],
    brought: Brought = NOTHING,
) -> Write:
    """The write that starts this wish's turn and takes what waits, but for what others
    wait with; and what is brought from elsewhere.
    """
    own = wish.draft(session)
    takes = tuple(each.message for each in _to_take(session, wish, waiting))
    named = [message.hex() for message in takes]
    named += brought.origins
    # Last: all else came in before it.
    named += [draft.id.hex() for draft in own]
    note = TurnStarted(
        takes=tuple(named),
        reply_to=wish.reply_to,
        event=wish.event_id,
        brought=brought.origins,
    )
    return Write(
        session.id,
        drafts=(*brought.drafts, *own, session.draft("turn", note, turn=STARTING)),
        idle=True,
        event=wish.event(session),
        # It goes with the draft of the wish's own message.
        event_draft=len(brought.drafts),
        start=Start(wish.waiter, wish.lease_s),
        takes=takes,
    )


def find_named(
    session: SessionLog, wish: TurnRequest, waiting: list[Waiting]
) -> Plan[Brought]:
    """What this wish names and what waits elsewhere. Raises when something that it names can't be
    had: `AlreadyAccepted` if its event came before, whose turn may have taken it; else `NotFound`.
    """
    if not wish.take:
        return NOTHING
    brought = yield from read(partial(bring, session, wish.take, waiting, wish.waiter))
    free = _free(session, wish, waiting)
    _, missing = to_take([*free, *brought.origins], wish.take)
    for each in wish.take:
        if each.id in missing:
            # Asked after the inbox was: a turn takes what is named and its event in one commit.
            if wish.event_id is not None and not wish.accepted:
                yield from refuse_known_event(session, wish)
            raise not_waiting(each.id)
    return brought


def _free(
    session: SessionLog, wish: TurnRequest, waiting: list[Waiting]
) -> dict[str, Waiting]:
    free = partial(is_free, session, session.id, wish.waiter)
    return {each.message.hex(): each for each in waiting if free(each)}


def _to_take(
    session: SessionLog, wish: TurnRequest, waiting: list[Waiting]
) -> list[Waiting]:
    """What this wish's turn takes from the inbox: what was named, or else all that nobody else
    waits with; and always the wish's own message.
    """
    takes, _ = to_take(tuple(_free(session, wish, waiting)), wish.take)
    # In the order of the inbox, whatever order they were named in.
    wanted = {*takes, wish.id.hex()}
    return [each for each in waiting if each.message.hex() in wanted]


def commit_start(
    session: SessionLog, wish: TurnRequest, commit: Commit, *, took: bool
) -> Plan[RunningTurn | Refused]:
    """Starts the turn. It is held before it runs: if the caller is interrupted anywhere between the
    commit and the turn in its hands, the keeper finds out whether it was started, and lets go of
    it.
    """
    work: RunningTurn = session.kinds.turn(
        session,
        holder=wish.waiter,
        format=wish.format,
        lease_s=wish.lease_s,
        reply_to=wish.reply_to,
        took=took,
    )
    ticket = None
    try:
        submit = partial(session.engine.submit, commit)
        ticket = session.keeper.start(submit, session.lineages)
        if ticket is None:
            raise closed(session.engine.where)
        outcome = yield from wait_for(ticket)
        if isinstance(outcome, Written):
            work.begin(outcome.turn)
            session.note_stored(commit[-1].drafts, outcome)
            return work
    except HoldfastError:
        session.keeper.drop(work)
        raise
    except BaseException as cut:
        session.keeper.forsake(work)
        # A store that does not answer is waited for by the keeper: its caller leaves.
        answers = ticket is None or (ticket.done and not has_failed(ticket))
        if answers and not isinstance(cut, GeneratorExit):
            # the caller's own next turn is to find the session free
            yield from read(partial(sweep, session))
        raise
    session.keeper.drop(work)
    return outcome


def _insist_may_wait(session: SessionLog, state: SessionState, name: str) -> None:
    """Raises where the turn that runs can't end while this caller waits for it."""
    takes = ""
    if state.fence == state.turn and is_held_here(session.id, state.turn or 0):
        takes = (
            f"this thread or task holds turn `{name}` itself, and would wait for ever"
        )
    elif is_within_call():
        takes = (
            f"turn `{name}` is running, and this thread is in the middle of another call, which "
            "may be the one that starts it"
        )
    if takes:
        takes = f'"interrupt" or "refuse" here: {takes}'
        raise BadArgument(parameter="on_busy", takes=takes, given='"wait"')


def _meet(session: SessionLog, state: SessionState, wish: TurnRequest) -> Plan[None]:
    """Another turn is running."""
    name = turn_id(session.id, state.turn or 0)
    # Before anything else: an event that comes again is told as such, busy or not; and what can't
    # be taken is no reason to wait, nor to stop anybody. Whoever waits looks again when there are
    # new entries: an inbox may be long.
    seizing = None
    if wish.on_busy != "wait" or wish.looked_at != state.head:
        wish.looked_at = state.head
        seizing = yield from _look(session, wish)
    if wish.on_busy == "refuse":
        raise SessionBusy(session_id=session.id, turn_id=name)
    # Before the look at who holds it: a caller may interrupt its own turn.
    if wish.on_busy == "interrupt":
        yield from settle(
            session,
            state,
            end="interrupted",
            reason="a new turn took over",
            seizing=seizing,
        )
        return
    _insist_may_wait(session, state, name)
    # With a list it may come to nothing: then nothing is to stay of it.
    if wish.spoken is not None and not wish.accepted and not wish.take:
        outcome = yield from session.commit(
            Write(
                session.id,
                drafts=wish.draft(session),
                event=wish.event(session),
                admits=(Waiting(wish.id, wish.waiter, lease_s=WAITER_S),),
            )
        )
        if isinstance(outcome, Refused):
            yield from _refused(session, wish, outcome)
            return
        wish.accepted, wish.accepted_in = True, session.id
        wish.renew_at = session.world.tick() + WAITER_S / 3
    if wish.accepted and session.world.tick() >= wish.renew_at:
        yield from _go_on_waiting(session, wish)
    yield Pause(session.engine, session.id, POLL_S)


def _look(
    session: SessionLog, wish: TurnRequest
) -> Plan[Callable[[Write], Commit] | None]:
    """Raises when this wish can't come true. Else, if it names messages: what makes of a seizure
    one that has them wait with this wish, or is refused.
    """
    if wish.event_id is not None and not wish.accepted:
        yield from refuse_known_event(session, wish)
    if not wish.take:
        return None
    waiting = yield from read(partial(session.engine.inbox, session.id))
    brought = yield from find_named(session, wish, waiting)

    def hold(seizure: Write) -> Commit:
        wish.holds = True
        here = _held(session.id, _to_take(session, wish, waiting), wish)
        elsewhere = [_held(id, found, wish) for id, found in brought.found.items()]
        return *elsewhere, replace(seizure, takes=here.takes, admits=here.admits)

    return hold


def _held(place: str, waiting: Sequence[Waiting], wish: TurnRequest) -> Write:
    """The write that has these messages wait with this wish. Refused `taken` when a turn has taken
    one of them.
    """
    return Write(
        place,
        takes=tuple(each.message for each in waiting),
        admits=tuple(
            replace(each, waiter=wish.waiter, lease_s=WAITER_S) for each in waiting
        ),
        ended_too=True,
    )


def _go_on_waiting(session: SessionLog, wish: TurnRequest) -> Plan[None]:
    """Renews the waiter's lease on the wish's message, if that is still in the inbox."""
    wish.renew_at = session.world.tick() + WAITER_S / 3
    for waiting in (yield from read(partial(session.engine.inbox, session.id))):
        if waiting.message == wish.id:
            # Refused when a turn has taken it by now; the next look tells that.
            mine = replace(waiting, waiter=wish.waiter, lease_s=WAITER_S)
            yield from wait_for(
                session.engine.submit(
                    (replace(_waited_for(session.id, mine), fleeting=True),)
                )
            )


def _waited_for(session: str, waiting: Waiting) -> Write:
    """The write that gives a message in the inbox this waiter. Refused `taken` when a turn has
    taken the message.
    """
    return Write(session, takes=(waiting.message,), admits=(waiting,), ended_too=True)


def _stop_waiting(
    session: SessionLog, wish: TurnRequest, cut: BaseException
) -> Plan[None]:
    """The caller no longer waits; its message was accepted and stays, for whichever turn comes
    next, and so does what was kept for it. After a reset it waits in the key's new session.
    """
    if wish.spoken is None and not wish.holds:
        # not asked by `accepted`: the caller may have been cancelled while its message was being
        # accepted
        return
    with contextlib.suppress(HoldfastError):
        # Not by `read`, which yields: a plan that is being closed must not.
        current = session.current()
        places = {session.id, current.id if current is not None else session.id}
        if wish.holds:
            places |= {*places_of(session, wish.take).values()}
        for place in places:
            for waiting in session.engine.inbox(place):
                if waiting.waiter == wish.waiter:
                    free = replace(waiting, waiter=None, lease_s=None)
                    ticket = session.engine.submit((_waited_for(place, free),))
                    # The caller's own next turn is to find it free.
                    if not isinstance(cut, GeneratorExit):
                        yield from wait_for(ticket)


def _missed(session: SessionLog, wish: TurnRequest) -> Plan[None]:
    """The wish's own message no longer waits here. Returns when a reset has taken it along, since
    the state was looked at: then it is to be looked for where it waits now.
    """
    state = yield from read(session.state)
    if not state.ended:
        raise (yield from read(partial(_taken, session, wish)))


def _refused(session: SessionLog, wish: TurnRequest, refused: Refused) -> Plan[None]:
    """Raises what a refused start means to its caller; returns when it should be tried again."""
    if refused.why == "accepted":
        yield from refuse_accepted(session, wish.event_id, refused.detail)
    if refused.why == "taken" and wish.accepted:
        waiting = yield from read(partial(session.engine.inbox, session.id))
        # else it was another message that a turn took
        if not any(each.message == wish.id for each in waiting):
            yield from _missed(session, wish)
    if refused.why == "missing":
        raise NotFound(what="session", name=session.id, hint="it may have been erased")


def _ended(session: SessionLog, wish: TurnRequest) -> SessionEnded:
    """The session has ended before the turn could begin. A reset takes the message of a caller that
    waited along: then it is not to be sent again.
    """
    error = session.ended()
    current = error.current_id
    if not wish.accepted or current is None:
        return error
    waiting = session.engine.inbox(current)
    if all(each.message != wish.id for each in waiting):
        return error
    return SessionEnded(**(error.fields | {"message_id": wish.id.hex()}))


def _taken(session: SessionLog, wish: TurnRequest) -> AlreadyAccepted:
    """Somebody else's turn took the message of a caller that seemed gone, and its work is done
    there; or it was erased while it waited. A turn never starts without the message it was asked
    for with.
    """
    # Not this one: whoever waits goes on to the key's next session, and its message need not.
    accepted = Accepted(wish.accepted_in, 0, wish.id)
    return already(session, wish.event_id, accepted)


def refuse_known_event(session: SessionLog, wish: TurnRequest) -> Plan[None]:
    """Raises `AlreadyAccepted` when this event came before."""
    known = yield from read(
        lambda: session.engine.accepted(session.scope, wish.event_id or "")
    )
    if known is not None:
        yield from refuse_accepted(session, wish.event_id, known)


def refuse_accepted(
    session: SessionLog, event_id: str | None, known: Accepted
) -> Plan[None]:
    """Raises `AlreadyAccepted`, which names what this event became."""
    raise (yield from read(lambda: already(session, event_id, known)))


def already(
    session: SessionLog, event_id: str | None, known: Accepted
) -> AlreadyAccepted:
    """The error that names what a message became, wherever it has gone; of an event, if it came as
    one.
    """
    id = known.message.hex()
    place, stay, is_no_session = follow(session, [(id, known.session, known.seq)])[id]
    taker = None
    if is_no_session:
        standing = f"it went on to session `{place}`, which is not in this store"
    elif stay is None:
        standing = (
            "the log of that session does not have it: `holdfast doctor` tells more"
        )
    elif stay.turn is not None:
        taker = turn_id(place, stay.turn)
        standing = "a turn took it, and there is nothing more to do"
    elif stay.waits:
        standing = (
            "it waits in the inbox for the next turn: start one without a message"
        )
    elif stay.is_erased:
        standing = (
            "it was erased before a turn took it, and there is nothing more to do"
        )
    else:
        standing = "it was stored outside a turn, and there is nothing more to do"
    return AlreadyAccepted(
        event_id=event_id,
        message_id=id,
        turn_id=taker,
        session_id=place,
        standing=standing,
    )
