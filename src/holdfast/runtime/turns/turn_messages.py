"""What a turn says, takes from the inbox, and takes back.

What it had done before it knew that it was over (a tool's outcome, a finished message) is stored
all the same, under its own turn and marked late, and the caller is told (I-7).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Posted, Retracted, Taken
from holdfast.domain.inbox import to_take
from holdfast.domain.message import Spoken
from holdfast.engine.protocol import Write, Written
from holdfast.errors import TurnInterrupted
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import speak
from holdfast.runtime.plans.plan import Plan, Read, read, wait_for
from holdfast.runtime.turns.bring import bring, not_waiting
from holdfast.runtime.turns.end_turn import COMPLETED
from holdfast.runtime.turns.outbox import OwedWork
from holdfast.runtime.turns.running_turn import RunningTurn


def context(
    turn: RunningTurn, format: str | None, *, prefill: bool = False
) -> Plan[Context]:
    """What the model sees now, with what the turn's left streams have said."""
    yield from turn.close_left()
    shape = format or turn.format
    context: Context = yield Read(lambda: turn.session.context(shape, prefill=prefill))
    return context


def say(turn: RunningTurn, text: str) -> Plan[str]:
    """Text, whole and durable; given back to be shown."""
    if turn.ended:
        raise (yield from turn.interrupted())
    spoken = speak(text, turn.format, role="assistant")
    # Never stored late: it is shown once it is stored, and a turn that is over shows nothing more.
    yield from turn.write(turn.session.message(spoken, turn=turn.number))
    turn.spoke_last = COMPLETED
    return text


def add(turn: RunningTurn, message: Any, format: str | None) -> Plan[str]:
    """A finished message; its id."""
    return _add(turn, speak(message, format or turn.format, role="assistant"))


def _add(turn: RunningTurn, spoken: Spoken) -> Plan[str]:
    [id] = yield from store_messages(turn, [spoken])
    turn.spoke_last = COMPLETED
    return id


def add_all(
    turn: RunningTurn, messages: Sequence[Any], format: str | None
) -> Plan[list[str]]:
    """Several finished messages at once: all of them are stored, or none; their ids."""
    # Frozen here and not in the generator: the caller may change them before the plan runs (I-3).
    shape = format or turn.format
    return _add_all(
        turn, [speak(message, shape, role="assistant") for message in messages]
    )


def _add_all(turn: RunningTurn, spoken: list[Spoken]) -> Plan[list[str]]:
    if not spoken:
        return []
    ids = yield from store_messages(turn, spoken)
    turn.spoke_last = COMPLETED
    return ids


def store_messages(
    turn: RunningTurn, spoken: list[Spoken], undo: Callable[[], None] | None = None
) -> Plan[list[str]]:
    """Stores finished messages in one commit; late, if the turn is over by now. Their ids."""
    session = turn.session
    drafts = [session.message(each, turn=turn.number) for each in spoken]
    try:
        yield from turn.write(*drafts, undo=undo)
    except TurnInterrupted:
        # Under the same ids and without a fence; the session, too, may be over by now.
        late = []
        for each, draft in zip(spoken, drafts, strict=True):
            marked = Spoken(replace(each.note, late=True), each.body)
            late.append(session.message(marked, turn=turn.number, id=draft.id))
        yield from session.commit(Write(session.id, drafts=tuple(late), ended_too=True))
        raise
    ids = []
    for each, draft in zip(spoken, drafts, strict=True):
        id = draft.id.hex()
        turn.calls.note(id, each.note)
        ids.append(id)
    return ids


def inbox(turn: RunningTurn, take: Any = None) -> Plan[list[Message]]:
    """Takes what came in meanwhile; with `take`, as the border has read it, just those messages."""
    session = turn.session
    yield from turn.close_left()
    while True:
        waiting = yield from read(lambda: session.engine.inbox(session.id))
        is_free = partial(session.keeper.leases.is_free, session.id)
        free = [each.message.hex() for each in waiting if is_free(each)]
        brought = yield from read(partial(bring, session, take, waiting))
        wanted, missing = to_take([*free, *brought.origins], take)
        for id in missing:
            raise not_waiting(id)
        takes = tuple(w.message for w in waiting if w.message.hex() in wanted)
        if not takes and not brought.origins:
            # Without a commit, nothing else would tell that the turn is over.
            if (yield from stopped(turn)):
                raise (yield from turn.interrupted())
            return []
        ids = [message.hex() for message in takes] + [*brought.origins]
        note = Taken(tuple(ids), brought=brought.origins)
        draft = session.draft("take", note, turn=turn.number)
        # Before it is known: a caller that is cancelled here has taken them, and owes the answer.
        turn.took = True
        drafts = (*brought.drafts, draft)
        mine = Write(session.id, fence=turn.number, drafts=drafts, takes=takes)
        outcome = yield from wait_for(session.engine.submit((*brought.leaving, mine)))
        if isinstance(outcome, Written):
            return (yield from read(partial(session.pick, ids)))
        if outcome.why != "taken":
            raise (yield from turn.interrupted())


def retract(turn: RunningTurn, reason: str) -> Plan[None]:
    """Takes this turn's answer out of the model's view; the user did see it, and the transcript
    keeps it.
    """
    session = turn.session
    yield from turn.take_back_streams()
    log = yield from read(session.log)
    ids = []
    with session.lock:
        for message in log.of_turn(turn.number):
            if message.note.role != "user":
                ids.append(message.id)
    note = Retracted(tuple(ids), reason)
    yield from turn.write(session.draft("retract", note, turn=turn.number))


def sent(turn: RunningTurn, platform_id: Checked) -> Plan[None]:
    """What this turn has said so far has arrived; if the turn is over, what it owes is paid."""
    session = turn.session
    if not turn.ended:
        # What is being spoken has its place in the log later, and has arrived so far.
        heard = turn.shown()
        note = Posted(turn.id, "sent", platform_id=platform_id, heard=heard)
        yield from turn.write(session.draft("post", note, turn=turn.number))
        turn.heard.update(heard)
        return
    debts = yield from read(lambda: session.engine.debts(session.id))
    for debt in debts:
        if debt.turn == turn.number:
            yield from OwedWork(session, debt, "").sent(platform_id)


def stopped(turn: RunningTurn) -> Plan[bool]:
    """Whether this turn is over: stopped, taken over, or ended."""
    if not turn.ended:
        state = yield from read(turn.session.state)
        # A seized turn is still the running one until it is settled; its fence tells.
        if state.turn != turn.number or state.fence != turn.number:
            turn.close()
    if turn.ended:
        turn.tell_owner()
    return turn.ended
