"""Recovery: settling a turn whose writer is gone, stopped or overtaken (I-6, I-7).

Two commits. The first raises the fence: from then on the writer can store nothing more, so what is
in the journal is all that was ever delivered. The second makes partial messages of it and writes
the turn's one end. The seizer of a living writer's turn has a short lease for that, so that others
let it finish; whoever finds a turn seized and left (its seizer was killed between the two) does the
same again.
"""

import contextlib
from collections.abc import Callable
from functools import partial

from holdfast.domain.entry import Draft, End, TurnEnded
from holdfast.engine.protocol import (
    Commit,
    JournalRow,
    Outcome,
    Refused,
    SessionState,
    Ticket,
    Waiting,
    Write,
    Written,
)
from holdfast.engine.wake_signal import in_the_middle
from holdfast.errors import HoldfastError, OperatorNeeded, TurnInterrupted
from holdfast.runtime.live.session_log import PAGE, SessionLog
from holdfast.runtime.plans.deadline import WITHIN_S, closing
from holdfast.runtime.plans.plan import (
    Pause,
    Plan,
    is_within_call,
    outcome_of,
    read,
    run,
    wait_for,
)
from holdfast.runtime.process_identity import is_gone
from holdfast.runtime.turns.message_stream import rebuild
from holdfast.runtime.turns.turn_owner import DESERTED, is_deserted

SETTLE_S = 5.0
"""How long whoever stops a living writer's turn has to write what is left of it, before
others do.
"""
AGAIN_S = 0.02


def is_dead(session: SessionLog, state: SessionState) -> bool:
    """Whether the running turn has nobody left to end it."""
    if state.turn is None:
        return False
    return session.keeper.leases.is_over(state) or is_gone(state.holder)


def settle_if_dead(session: SessionLog) -> Plan[SessionState]:
    """The session's state, once no dead turn stands in it, nor one that this process has left."""
    keeper = session.keeper
    while True:
        if keeper.is_at_work:
            yield from read(partial(sweep, session))
        # Before the state is read: if it has changed after that, the state may be old.
        works = keeper.works
        state = yield from read(session.state)
        if session.engine.read_only:
            return state
        # Before it is judged by its lease: it ends as its owner left it.
        left = keeper.take_left(session.id, state.turn)
        if left is not None:
            # Somebody else was quicker; the next round sees what they have made of it.
            with contextlib.suppress(TurnInterrupted):
                yield from left.leave_again()
        elif is_dead(session, state) or keeper.take_given_up((session.id, state.fence)):
            yield from settle(session, state, end="abandoned", reason=_cause(state))
        elif state.turn is None:
            return state
        elif state.fence == state.turn and is_deserted(session.id, state.turn):
            yield from settle(session, state, end="interrupted", reason=DESERTED)
        elif keeper.works == works and not keeper.is_at_work:
            # Else the keeper has ended a turn since the state was read, and it may be this one.
            return state


def sweep(session: SessionLog) -> None:
    """Has the keeper's work done. In the middle of another call of this thread the keeper does it,
    and may need what that call holds: then it is told so.
    """
    keeper = session.keeper
    if keeper.sweeps_here or not is_within_call():
        keeper.sweep()
        return
    keeper.settle(closing(session.engine.where, WITHIN_S))
    if keeper.is_at_work:
        raise in_the_middle(session.engine.where)


def abandon(session: SessionLog, number: int, reason: str) -> Plan[bool]:
    """Ends the turn with this number as one whose owner is gone, if it still runs: what it has not
    used waits in the inbox again (I-4).
    """
    state = yield from read(session.state)
    if not state.turn == state.fence == number:
        return False
    return (yield from settle(session, state, end="abandoned", reason=reason))


def settle_to_read(session: SessionLog) -> Plan[SessionState]:
    """The session's state for one who only reads: a dead turn that can't be settled now, on a full
    disk or behind a lock, is settled later, and what is stored can be read (I-18).
    """
    try:
        return (yield from settle_if_dead(session))
    except OperatorNeeded:
        return (yield from read(session.state))


def settle(
    session: SessionLog,
    state: SessionState,
    *,
    end: End,
    reason: str,
    gives_back: bool = False,
    seizing: Callable[[Write], Commit] | None = None,
    also: Callable[[Write], Plan[Commit]] | None = None,
) -> Plan[bool]:
    """Ends the running turn of `state` in its writer's stead. False when it was ended by somebody
    else meanwhile.

    An abandoned turn gives back what it has not used; others do if `gives_back`. `seizing` makes
    more of the first write, in the same commit: if it is refused, nobody is stopped. `also` makes
    more of the last: nothing can happen between the turn's end and that.
    """
    assert state.turn is not None
    # An end that somebody asked for is written with the seizure: if its seizer is killed before the
    # second commit, the next one carries this end on, and does not take the turn for one that was
    # left.
    is_asked = end != "abandoned" and not gives_back and state.fence == state.turn
    asked: tuple[Draft, ...] = ()
    lease_s = None
    # Not one that gives back: what it returns is known only when the journal was read.
    # Nor after an earlier seizure, which may have written an end already.
    if is_asked:
        note = TurnEnded(end, reason=reason)
        asked = (session.draft("end", note, turn=state.turn),)
        lease_s = SETTLE_S
    first = Write(
        session.id,
        drafts=asked,
        fence=state.fence,
        seize=True,
        renew_s=lease_s,
        ended_too=True,
    )
    seizure = (session.id, state.fence + 1)
    # Before it is submitted: if this is interrupted, and the cleaning up as well, the keeper ends
    # the turn.
    held = session.keeper.seize(
        seizure, partial(_settle_seized, session, seizure, end, reason)
    )
    ticket = session.engine.submit((first,) if seizing is None else seizing(first))
    try:
        outcome = yield from wait_for(ticket)
        if isinstance(outcome, Refused):
            session.keeper.seized_no_more(seizure)
            return False
        outcome = yield from _end_seized(session, state, end, reason, also)
        session.keeper.seized_no_more(seizure)
    except BaseException as cut:
        try:
            yield from _let_go(session, seizure, ticket, cut)
        finally:
            del held  # not with this frame, which the error keeps
        raise
    # An end that was asked for is in the log since the seizure, whoever did the rest.
    return is_asked or not isinstance(outcome, Refused)


def _end_seized(
    session: SessionLog,
    state: SessionState,
    end: End,
    reason: str,
    also: Callable[[Write], Plan[Commit]] | None,
) -> Plan[Outcome]:
    """The second commit, made anew as long as something came in that it does not know of."""
    while True:
        last = yield from _last_write(session, state, end, reason)
        commit: Commit = (last,)
        if also is not None:
            commit = yield from also(last)
        outcome = yield from wait_for(session.engine.submit(commit))
        if not isinstance(outcome, Refused) or outcome.why != "moved":
            return outcome
        # something came in late, or an old server was asked
        yield Pause(session.engine, session.id, AGAIN_S)


def _last_write(
    session: SessionLog, state: SessionState, end: End, reason: str
) -> Plan[Write]:
    """The write that ends a seized turn: its one end, what it had delivered, and what it gives
    back.
    """
    number = state.turn
    assert number is not None
    # The journal before the log: a message that was finished meanwhile is then known to the log,
    # and not made anew.
    rows = yield from read(partial(journal, session, state.journal))
    log = yield from read(session.log)
    with session.lock:
        of_turn = log.of_turn(number)
        turn = log.turns.get(number)
        head = log.head
    known = {bytes.fromhex(message.id) for message in of_turn}
    partials = rebuild([row for row in rows if row.turn == number], known=known)
    drafts = []
    for id, spoken in partials:
        drafts.append(session.message(spoken, turn=number, id=id))
    returns: list[str] = []
    admits: list[Waiting] = []
    # A seizer that was asked to end the turn has written its end with the seizure.
    if turn is None or turn.end is None:
        if turn is not None and not turn.spoke and not partials:
            for message in of_turn:
                if message.id in turn.takes:
                    returns.append(message.id)
                    admits.append(Waiting(bytes.fromhex(message.id), None, message.seq))
        note = TurnEnded(end, reason=reason, returns=tuple(returns))
        drafts.append(session.draft("end", note, turn=number))
    return Write(
        session.id,
        drafts=tuple(drafts),
        fence=state.fence + 1,
        # All that it was made from: a server that was replaced may have less of it. With nothing to
        # store and nothing to give back, more could not change that: then it is not refused for
        # what arrives.
        head=head if drafts or admits else None,
        position=rows[-1].position if rows else state.journal,
        finish=True,
        ended_too=True,
        admits=tuple(admits),
    )


def _settle_seized(
    session: SessionLog, seizure: tuple[str, int], end: End, reason: str
) -> None:
    """Ends a turn whose seizer was interrupted again and again, as the seizer would have. On the
    keeper's thread, where no signal arrives.
    """
    # Behind the commit that seizes it, if that was submitted at all; what this asks for is always
    # refused.
    session.submit(Write(session.id, fence=-1, fleeting=True)).result()
    state = session.engine.state(session.id)
    if state is not None and state.turn is not None and state.fence == seizure[1]:
        run(settle(session, state, end=end, reason=reason))
    session.keeper.seized_no_more(seizure)


def _let_go(
    session: SessionLog, seizure: tuple[str, int], ticket: Ticket, cut: BaseException
) -> Plan[None]:
    if isinstance(outcome_of(ticket), Written):
        yield from _leave(session, seizure[1], cut)
    # Else it is not known yet what became of it: the keeper waits for that.
    if ticket.done:
        session.keeper.seized_no_more(seizure)


def _leave(session: SessionLog, fence: int, cut: BaseException) -> Plan[None]:
    """Lets go of a seizure whose seizer was interrupted: its lease ends now, so the next caller
    that looks at the session settles the turn at once.
    """
    try:
        left = session.submit(Write(session.id, fence=fence, renew_s=0, ended_too=True))
        # A generator that is being closed may not wait for anything.
        if not isinstance(cut, GeneratorExit):
            yield from wait_for(left)
    except HoldfastError:
        session.keeper.give_up((session.id, fence))


def journal(session: SessionLog, after: int = 0) -> list[JournalRow]:
    """The journal rows of this session, from this position on."""
    rows: list[JournalRow] = []
    while True:
        page = session.engine.journal(session.id, after=after, limit=PAGE)
        rows.extend(page)
        if len(page) < PAGE:
            return rows
        after = page[-1].position


def _cause(state: SessionState) -> str:
    if state.fence != state.turn:
        return "seized and left"
    if is_gone(state.holder):
        return "its process is gone"
    return "its lease ran out"


class TurnClaim:
    """A turn by the name under which it was asked for, so that it can be let go of though nobody
    knows its number. It does not hold the turn: it is what is left when the turn is dropped.
    """

    def __init__(self, session: SessionLog, holder: str) -> None:
        self._session = session
        self._holder = holder
        self.number = 0
        self.ended_because: str | None = None
        """Why, when its store has ended it: then it was not dropped."""

    def release(self) -> None:
        """Nobody holds this turn any more: it is ended, and gives back what it has not used. Where
        it is not known whether the turn was started, that is waited for.
        """
        session = self._session
        if not self.number:
            # Behind the commit that starts it, if that was submitted at all; what this asks for is
            # always refused.
            session.submit(Write(session.id, fence=-1, fleeting=True)).result()
        state = session.engine.state(session.id)
        if state is None or state.turn is None:
            return  # it was never started, or somebody else has seen to it
        if state.fence != state.turn or state.holder != self._holder:
            return
        # Once: whoever has asked for it may learn of it meanwhile.
        is_unused = not self.number
        end: End = "interrupted"
        reason = "its start was interrupted"
        if not is_unused and self.ended_because is not None:
            reason = self.ended_because
        elif not is_unused:
            end, reason = "abandoned", "it was dropped"
        run(settle(session, state, end=end, reason=reason, gives_back=is_unused))
