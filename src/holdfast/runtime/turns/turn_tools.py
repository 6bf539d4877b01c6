"""The tools that a turn runs: each call is in the log before it is run, and answered once (I-22)."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from holdfast.domain.approval import Verdict, digests_of, judge_call
from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Asked, CallStarted, Draft
from holdfast.domain.message import CallNote, MessageNote, Spoken, freeze, target_of
from holdfast.domain.reset_policy import asking_scope
from holdfast.domain.turn import Ask, CallId, CallToRun, Place, place_of
from holdfast.errors import BadArgument, NotApproved, NotFound, OperatorNeeded
from holdfast.formats import registry
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.turns.call_book import MeantCall
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.turn_calls import (
    answered,
    called_as,
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
    named = place_of(call_id)
    if call_id is None:
        # New and random: nobody can have been asked about it.
        call_id = "call_" + turn.session.world.chance(12).hex()
    else:
        call_id = str.__str__(call_id)
        verdict, is_bound = yield from _judged(
            turn, call_id, digests, needs_approval, named
        )
        if verdict.act == "refuse":
            raise NotApproved(call_id=call_id, why=verdict.why)
        if verdict.act == "wait":
            return CallId(call_id, waiting=True, place=verdict.place)
        if verdict.ask is not None:
            return (yield from _use_approval(turn, verdict.ask))
        asks = verdict.act == "ask"
        meant = yield from _meant(turn, call_id, digests, named)
    question = _Question(digests[0], not is_bound) if asks else None
    return (yield from _begin(turn, call_id, name, text, question, meant))


class _Question(NamedTuple):
    """What somebody is asked about: the `digest` of the call and its arguments. The first time that
    an id is asked about `binds` it.
    """

    digest: str
    binds: bool


def _judged(
    turn: RunningTurn,
    call_id: str,
    digests: tuple[str, ...],
    needs_approval: bool,
    named: Place | None,
) -> Plan[tuple[Verdict, bool]]:
    """What is to be done about this call, and whether its id was bound before."""
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
        named=named,
    )
    return verdict, is_bound


def _meant(
    turn: RunningTurn, call_id: str, digests: tuple[str, ...], named: Place | None
) -> Plan[list[Place]]:
    """The calls of the model's, made in this turn and not started, of which one is meant; none for
    a call of the agent's own. Models use an id again (FAULTS E4): of several, the one that its id
    has named, or those with these arguments.
    """
    if named is not None and turn.calls.is_made(call_id, named):
        return [named]
    places = turn.calls.made(call_id)
    if len(places) < 2:
        return places
    log = yield from read(turn.session.log)
    made = yield from read(partial(digests_at, turn.session, log, places))
    meant = [place for place, digest in made.items() if digest in digests]
    if not meant:
        raise BadArgument(
            parameter="call_id",
            takes="the `CallToRun.call_id` of the call that is meant: the model has made several"
            f" calls {call_id!r} in this turn, and none of them has these arguments",
            given="plain text",
        )
    return meant


def _begin(
    turn: RunningTurn,
    id: str,
    name: str,
    text: str,
    question: _Question | None,
    among: list[Place],
) -> Plan[CallId]:
    """Stores that a call is started; or, with a question, that it is asked about. `among`: the calls
    of the model's that it may be.
    """
    session, asks = turn.session, question is not None
    payload = {
        "role": "assistant",
        "parts": [{"type": "call", "id": id, "name": name, "arguments": text}],
    }
    note = MessageNote(
        role="assistant", format="holdfast", plain=False, calls=(CallNote(id, name),)
    )
    message = session.message(Spoken(note, freeze(payload)), turn=turn.number)
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
    return CallId(id, waiting=asks, place=(call.message, call.index))


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
    return CallId(ask.call_id, place=(ask.message, ask.index))


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
    turn: RunningTurn,
    call_id: Checked,
    content: Any,
    *,
    error: bool = False,
    message: Checked = None,
    index: int | None = None,
) -> Plan[str]:
    """Stores what the tool answered; late, if the turn is over by now."""
    named = place_of(call_id) if message is None and index is None else None
    meant = MeantCall(message, index, named)
    return _result(turn, str.__str__(call_id), _frozen(content), error, meant)


def _result(
    turn: RunningTurn, call_id: str, text: str, error: bool, meant: MeantCall
) -> Plan[str]:
    known = turn.calls.answer_meant(call_id, meant)
    if known is not None:
        target: str | None = target_of(known.message, known.index)
    else:
        target = yield from _target_in_log(turn, call_id, meant)
    part: dict[str, Any] = {"type": "result", "call_id": call_id, "content": text}
    if error:
        part["error"] = True
    note = MessageNote(
        role="tool",
        format="holdfast",
        plain=False,
        answers=(call_id,),
        target=target,
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


def _target_in_log(
    turn: RunningTurn, call_id: str, meant: MeantCall
) -> Plan[str | None]:
    """The call that an outcome belongs to which is not of a call that this turn has open: one of
    another turn, one that waits, or one that has an outcome. None for a repetition.
    """
    log = yield from read(turn.session.history)
    with turn.session.lock:
        made = called_as(log, call_id)
        done = answered(log, call_id)
    places = [place for place in made if meant.fits(*place)]
    if not places:
        hint = "store it with Turn.call before the tool runs"
        raise NotFound(what="tool call", name=call_id, hint=hint)
    if meant.named in made:
        places = [meant.named]
    else:
        # A call of its own turn comes before those of others, whose ids it may repeat.
        own = [place for place in places if made[place] == turn.number]
        places = own or places
    left = [place for place in places if place not in done]
    if len(left) > 1:
        raise meant.several(call_id, {message for message, _ in left})
    if left:
        return target_of(*left[0])
    # A repetition. One that names its call says so: it is not the outcome of another.
    if meant.is_named and len(done) < len(made):
        return target_of(*places[0])
    return None


def _frozen(value: Any) -> str:
    """Arguments or an outcome as the text that is stored; taken when the call is made, before
    anything waits (I-3).
    """
    data = registry.plain(value)
    return data if type(data) is str else freeze(data).decode()
