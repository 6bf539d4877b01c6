"""The tools that a turn runs: each call is in the log before it is run, and answered once (I-22)."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from holdfast.domain.approval import Verdict, digests_of, judge_call
from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Asked, CallStarted, Draft
from holdfast.domain.message import CallNote, MessageNote, Spoken, freeze, target_of
from holdfast.domain.reset_policy import asking_scope
from holdfast.domain.turn import Ask, CallId, CallToRun, Place
from holdfast.errors import NotApproved, NotFound, OperatorNeeded
from holdfast.formats import registry
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.turn_calls import (
    answered,
    digests_at,
    to_run,
    was_asked,
)
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
    meant: list[Place] = []
    if call_id is None:
        # New and random: nobody can have been asked about it.
        call_id = "call_" + turn.session.world.chance(12).hex()
    else:
        verdict, is_bound, meant = yield from _judged(
            turn, call_id, digests, needs_approval
        )
        if verdict.act == "refuse":
            raise NotApproved(call_id=call_id, why=verdict.why)
        if verdict.act == "wait":
            return CallId(call_id, waiting=True)
        if verdict.ask is not None:
            return (yield from _use_approval(turn, verdict.ask))
        asks = verdict.act == "ask"
    question = None
    if asks:
        question = _Question(digests[0], not is_bound, meant)
    return (yield from _begin(turn, call_id, name, text, question))


class _Question(NamedTuple):
    """What somebody is asked about: the `digest` of the call and its arguments. The first time that
    an id is asked about `binds` it. `meant`: the calls of the model's that it may be.
    """

    digest: str
    binds: bool
    meant: list[Place]


def _judged(
    turn: RunningTurn, call_id: str, digests: tuple[str, str], needs_approval: bool
) -> Plan[tuple[Verdict, bool, list[Place]]]:
    """What is to be done about this call, whether its id was bound before, and which calls of the
    model's have these arguments, if that matters.
    """
    session = turn.session
    log = yield from read(session.log)
    with session.lock:
        asks = log.asks_of(call_id)
    is_bound = bool(asks)
    if not is_bound:
        is_bound = yield from read(partial(was_asked, session, call_id))
    done: set[Place] = set()
    if is_bound:
        # what was asked before the last compaction counts, too
        log = yield from read(session.history)
        with session.lock:
            asks = log.asks_of(call_id)
            done = answered(log, call_id)
    made: Mapping[Place, str] | None = {} if turn.calls.is_made(call_id) else None
    if made is not None and (is_bound or needs_approval):
        # An approval is for what the model has said: which of its calls is it?
        places = turn.calls.made(call_id)
        made = yield from read(partial(digests_at, session, log, places))
    verdict = judge_call(
        asks,
        digests,
        needs_approval=needs_approval,
        made=made.values() if made is not None else None,
        here=turn.calls.here(call_id),
        was_asked=is_bound,
        answered=done,
    )
    meant = [place for place, digest in (made or {}).items() if digest in digests]
    return verdict, is_bound, meant


def _begin(
    turn: RunningTurn, id: str, name: str, text: str, question: _Question | None
) -> Plan[CallId]:
    """Stores that a call is started; or, with a question, that it is asked about."""
    session, asks = turn.session, question is not None
    payload = {
        "role": "assistant",
        "parts": [{"type": "call", "id": id, "name": name, "arguments": text}],
    }
    note = MessageNote(
        role="assistant", format="holdfast", plain=False, calls=(CallNote(id, name),)
    )
    message = session.message(Spoken(note, freeze(payload)), turn=turn.number)
    among = question.meant if question is not None else ()
    begun = turn.calls.begin(id, message.id.hex(), asks=asks, among=among)
    if begun is None:
        raise NotApproved(call_id=id, why="it was started in this turn already")
    call, is_new = begun
    drafts: list[Draft] = []
    event = None
    if is_new:
        drafts.append(message)
    elif not asks:
        drafts.append(_started(turn, id, call.message, call.index))
    if question is not None:
        asked = Asked(id, call.message, question.digest, call.index)
        drafts.append(session.draft("ask", asked, turn=turn.number))
        if question.binds:
            event = (asking_scope(session.scope), id)
    back = turn.calls.forget if is_new else turn.calls.take_back
    undo = partial(back, call)
    # An interrupt alone undoes nothing: the call may be in the log, and stays begun.
    try:
        yield from turn.write(*drafts, event=event, undo=undo)
    except OperatorNeeded:
        undo()
        raise
    turn.calls.stored(call)
    return CallId(id, waiting=asks)


def _use_approval(turn: RunningTurn, ask: Ask) -> Plan[CallId]:
    """An approval is good for one start of exactly this call."""
    call = turn.calls.begin_approved(ask.call_id, ask.message, ask.index)
    if call is None:
        raise NotApproved(call_id=ask.call_id, why="its approval was used")
    undo = partial(turn.calls.forget, call)
    started = _started(turn, ask.call_id, ask.message, ask.index)
    try:
        yield from turn.write(started, undo=undo)
    except OperatorNeeded:
        undo()
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
    undo = None
    if known is not None:
        undo = partial(turn.calls.leave_unanswered, known)
    try:
        [id] = yield from store_messages(turn, [spoken], undo)
    except OperatorNeeded:
        if undo is not None:
            undo()
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
