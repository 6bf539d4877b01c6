"""The tools that a turn runs: each call is in the log before it is run, and answered once (I-22)."""

from functools import partial
from typing import Any

from holdfast.domain.approval import Verdict, digests_of, judge_call
from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Asked, CallStarted, Draft
from holdfast.domain.message import CallNote, MessageNote, Spoken, freeze, target_of
from holdfast.domain.reset_policy import asking_scope
from holdfast.domain.turn import Ask, CallId, CallToRun
from holdfast.errors import NotApproved, NotFound, OperatorNeeded
from holdfast.formats import registry
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.turn_calls import answered, to_run, was_asked
from holdfast.runtime.turns.turn_messages import store_messages


def call(
    turn: RunningTurn,
    name: str,
    arguments: Any,
    *,
    call_id: Checked = None,
    needs_approval: bool = False,
) -> Plan[CallId]:
    """Stores that this call is about to be run, or that it waits for approval and must not be."""
    return _call(turn, name, _frozen(arguments), call_id or None, needs_approval)


def _call(
    turn: RunningTurn, name: str, text: str, call_id: str | None, needs_approval: bool
) -> Plan[CallId]:
    digests = digests_of(name, text)
    asks, is_bound = needs_approval, False
    if call_id is None:
        # New and random: nobody can have been asked about it.
        call_id = "call_" + turn.session.world.chance(12).hex()
    else:
        verdict, is_bound = yield from _judged(turn, call_id, digests, needs_approval)
        if verdict.act == "refuse":
            raise NotApproved(call_id=call_id, why=verdict.why)
        if verdict.act == "wait":
            return CallId(call_id, waiting=True)
        if verdict.ask is not None:
            return (yield from _use_approval(turn, verdict.ask))
        asks = verdict.act == "ask"
    # The first time that an id is asked about binds it.
    binds = digests[0] if asks else None
    return (
        yield from _begin(turn, call_id, name, text, digest=binds, bind=not is_bound)
    )


def _judged(
    turn: RunningTurn, call_id: str, digests: tuple[str, str], needs_approval: bool
) -> Plan[tuple[Verdict, bool]]:
    """What is to be done about this call, and whether its id was bound before."""
    session = turn.session
    log = yield from read(session.log)
    with session.lock:
        asks = log.asks_of(call_id)
    is_bound = bool(asks)
    if not is_bound:
        is_bound = yield from read(partial(was_asked, session, call_id))
    done: set[tuple[str, int]] = set()
    if is_bound:
        # what was asked before the last compaction counts, too
        log = yield from read(session.history)
        with session.lock:
            asks = log.asks_of(call_id)
            done = answered(log, call_id)
    verdict = judge_call(
        asks,
        digests,
        needs_approval=needs_approval,
        is_made=turn.calls.is_made(call_id),
        here=turn.calls.here(call_id),
        was_asked=is_bound,
        answered=done,
    )
    return verdict, is_bound


def _begin(
    turn: RunningTurn, id: str, name: str, text: str, *, digest: str | None, bind: bool
) -> Plan[CallId]:
    """Stores that a call is started; or, with the `digest` of its arguments, that it is asked
    about. `bind`: for the first time.
    """
    session, asks = turn.session, digest is not None
    payload = {
        "role": "assistant",
        "parts": [{"type": "call", "id": id, "name": name, "arguments": text}],
    }
    note = MessageNote(
        role="assistant", format="holdfast", plain=False, calls=(CallNote(id, name),)
    )
    message = session.message(Spoken(note, freeze(payload)), turn=turn.number)
    begun = turn.calls.begin(id, message.id.hex(), asks=asks)
    if begun is None:
        raise NotApproved(call_id=id, why="it was started in this turn already")
    call, is_new = begun
    drafts: list[Draft] = []
    event = None
    if is_new:
        drafts.append(message)
    elif not asks:
        drafts.append(_started(turn, id, call.message, call.index))
    if digest is not None:
        asked = Asked(id, call.message, digest, call.index)
        drafts.append(session.draft("ask", asked, turn=turn.number))
        if bind:
            event = (asking_scope(session.scope), id)
    try:
        yield from turn.write(*drafts, event=event)
    # An interrupt does not come here: its commit was seen through, so the call may be
    # in the log and stays begun.
    except OperatorNeeded:
        if is_new:
            turn.calls.forget(call)
        else:
            turn.calls.take_back(call)
        raise
    turn.calls.stored(call)
    return CallId(id, waiting=asks)


def _use_approval(turn: RunningTurn, ask: Ask) -> Plan[CallId]:
    """An approval is good for one start of exactly this call."""
    call = turn.calls.begin_approved(ask.call_id, ask.message, ask.index)
    if call is None:
        raise NotApproved(call_id=ask.call_id, why="its approval was used")
    try:
        yield from turn.write(_started(turn, ask.call_id, ask.message, ask.index))
    except OperatorNeeded:
        turn.calls.forget(call)
        raise
    return CallId(ask.call_id)


def _started(turn: RunningTurn, call_id: str, message: str, index: int) -> Draft:
    note = CallStarted(call_id, message, index)
    return turn.session.draft("call", note, turn=turn.number)


def calls(turn: RunningTurn) -> Plan[list[CallToRun]]:
    """The calls that are to be run now."""
    if turn.ended:
        raise (yield from turn.interrupted())
    yield from turn.close_left()
    return (
        yield from read(lambda: to_run(turn.session, turn.number, turn.calls.begun()))
    )


def result(
    turn: RunningTurn, call_id: Checked, content: Any, *, error: bool = False
) -> Plan[str]:
    """Stores what the tool answered; late, if the turn is over by now."""
    return _result(turn, call_id, _frozen(content), error)


def _result(turn: RunningTurn, call_id: str, text: str, error: bool) -> Plan[str]:
    known = turn.calls.answer(call_id)
    if known is None and not (yield from _called_elsewhere(turn, call_id)):
        raise NotFound(
            what="tool call",
            name=call_id,
            hint="store it with Turn.call before the tool runs",
        )
    part: dict[str, Any] = {"type": "result", "call_id": call_id, "content": text}
    if error:
        part["error"] = True
    note = MessageNote(
        role="tool",
        format="holdfast",
        plain=False,
        answers=(call_id,),
        target=target_of(known.message, known.index) if known is not None else None,
        failed=error,
    )
    spoken = Spoken(note, freeze({"role": "tool", "parts": [part]}))
    try:
        [id] = yield from store_messages(turn, [spoken])
    except OperatorNeeded:
        if known is not None:
            turn.calls.leave_unanswered(known)
        raise
    return id


def _called_elsewhere(turn: RunningTurn, call_id: str) -> Plan[bool]:
    """Whether the session has a call of this id at all: another turn may have made it."""
    log = yield from read(turn.session.history)
    with turn.session.lock:
        for message in log.by_seq:
            if any(call.id == call_id for call in message.note.calls):
                return True
    return False


def _frozen(value: Any) -> str:
    """Arguments or an outcome as the text that is stored; taken when the call is made, before
    anything waits (I-3).
    """
    data = registry.plain(value)
    return data if type(data) is str else freeze(data).decode()
