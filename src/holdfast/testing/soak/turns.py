"""What callers of a soak do with turns. Each act draws what it needs from the dice of the stage,
does it on both sides, and tells what was acknowledged; False when there was nothing to do it with.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from holdfast.domain.entry import End
from holdfast.domain.reset_policy import Daily, Idle
from holdfast.runtime.changes.receive import start_turn
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.turns import turn_messages, turn_tools
from holdfast.runtime.turns.end_turn import Ending
from holdfast.runtime.turns.start_turn import TurnRequest, start
from holdfast.testing.oracle import FORMATS
from holdfast.testing.soak.differential import Answer, Pair, Side
from holdfast.testing.soak.world import Desk, HeldStream, HeldTurn, SoakWorld

KEYS = ("k0", "k1", "k2")
EVENTS = 12
ENDS: dict[End, int] = {"completed": 6, "interrupted": 2, "failed": 1}
LATE = 0.2
"""How often a call that may fly does."""


def begin(stage: SoakWorld, desk: Desk) -> bool:
    """A turn is asked for, of a session or of a key, with a message or without."""
    dice = stage.dice
    text = stage.word("ask") if dice.happens(0.9) else None
    options: dict[str, Any] = {
        "format": dice.pick(FORMATS),
        "event_id": f"event {dice.below(EVENTS)}"
        if text is not None and dice.happens(0.2)
        else None,
        "on_busy": dice.weighted({"wait": 4, "refuse": 3, "interrupt": 2}),
        "reply_to": f"friend {dice.below(3)}" if dice.happens(0.3) else None,
        "lease_s": dice.pick([10.0, 30.0, 300.0]),
    }
    plan: Callable[[Side], Plan[Any]]
    if desk.sessions and dice.happens(0.6):
        held = dice.pick(desk.sessions)
        scope = held.scope

        def plan(side: Side) -> Plan[Any]:
            log = held.logs.of(side)
            return start(log, TurnRequest(log.world, text, **options))
    else:
        scope, reset = (
            dice.pick(KEYS),
            dice.weighted({None: 5, Idle(hours=5): 1, Daily(at="04:00"): 1}),
        )

        def plan(side: Side) -> Plan[Any]:
            work = desk.stores.of(side)._work
            request = TurnRequest(work.world, text, **options)
            started: Plan[Any] = start_turn(work, scope, request, reset=reset)
            return started

    stage.call(
        desk,
        plan,
        partial(_begun, stage, desk, text, scope, options["event_id"]),
        flies=LATE,
    )
    return True


def _begun(
    stage: SoakWorld,
    desk: Desk,
    text: str | None,
    scope: str,
    event_id: str | None,
    answer: Answer,
    at_once: bool,
) -> None:
    if answer.error == "AlreadyAccepted":
        known_as(stage, scope, event_id, answer.plain[1]["message_id"])
    if answer.values is not None:
        turn = HeldTurn(answer.values)
        desk.turns.append(turn)
        stage.ledger.began(turn.id)
        if text is not None:
            stage.ledger.said(turn.session, None, text, ordered=at_once)


def known_as(stage: SoakWorld, scope: str, event_id: str | None, id: str) -> None:
    """An event was acknowledged as this message."""
    if event_id is not None:
        stage.ledger.event(scope, event_id, id)


def say(stage: SoakWorld, desk: Desk) -> bool:
    text = stage.word("say")
    return _work(
        stage,
        desk,
        lambda work: turn_messages.say(work, text),
        lambda turn, _: stage.ledger.said(turn.session, None, text),
    )


def add(stage: SoakWorld, desk: Desk) -> bool:
    """A finished message in the words of one provider or another, calls included."""
    text, call_id = stage.word("add"), f"made_{stage.words}"
    format, payload = stage.dice.pick(list(_messages(text, call_id)))

    def added(turn: HeldTurn, id: str) -> None:
        stage.ledger.said(turn.session, id, None)
        if call_id in repr(payload):
            turn.calls.append(call_id)

    return _work(
        stage, desk, lambda work: turn_messages.add(work, payload, format), added
    )


def _messages(text: str, call_id: str) -> Iterator[tuple[str, Any]]:
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": "look", "arguments": '{"at": 1}'},
    }
    yield "openai.chat", {"role": "assistant", "content": text}
    yield "openai.chat", {"role": "assistant", "content": text, "tool_calls": [call]}
    yield (
        "anthropic",
        {"role": "assistant", "content": [{"type": "text", "text": text}]},
    )
    use = {"type": "tool_use", "id": call_id, "name": "look", "input": {"at": 1}}
    yield (
        "anthropic",
        {"role": "assistant", "content": [{"type": "text", "text": text}, use]},
    )
    words = [{"type": "output_text", "text": text, "annotations": []}]
    yield "openai.responses", {"type": "message", "role": "assistant", "content": words}
    yield "holdfast", {"role": "assistant", "parts": [{"type": "text", "text": text}]}


def speak(stage: SoakWorld, desk: Desk) -> bool:
    """A stream begins, goes on by a chunk, or is left before its end."""
    if not desk.turns:
        return False
    turn = stage.dice.pick(desk.turns)
    if turn.streams and stage.dice.happens(0.9):
        stream = stage.dice.pick(turn.streams)
        if stage.dice.happens(0.05):
            turn.streams.remove(stream)
            stage.ask(lambda side: stream.tellings.of(side).close())
        else:
            _next_chunk(stage, desk, turn, stream)
    else:
        format = stage.dice.pick(["text", "openai.chat"])
        chunks, calls = _chunks(stage, format)
        tellings = Pair(
            [face.deliver(list(chunks), format=format) for face in turn.faces]
        )
        stream = HeldStream(tellings, calls)
        turn.streams.append(stream)
        _next_chunk(stage, desk, turn, stream)
    return True


def _next_chunk(
    stage: SoakWorld, desk: Desk, turn: HeldTurn, stream: HeldStream
) -> None:
    """Hands on one more chunk; after the last one the message is stored."""
    answer = stage.ask(lambda side: next(stream.tellings.of(side), None))
    if answer.error is not None:
        desk.drop(turn)
        return
    if not stream.id and answer.plain is not None:
        stream.id = turn.works[1]._streams[-1].id.hex()
    if answer.plain is not None:
        stage.ledger.shown(turn.id, stream.id, answer.plain)
        return
    turn.streams.remove(stream)
    if stream.id:
        # Its turn may have been over for long, and the message made by whoever ended it.
        stage.ledger.said(turn.session, stream.id, None, ordered=False)
        turn.calls += stream.calls


def _chunks(stage: SoakWorld, format: str) -> tuple[list[Any], list[str]]:
    """A stream of some chunks; one of a provider may want its last, and then its end."""
    words = [f"<{stage.word('tell')}>" for _ in range(stage.dice.below(5))]
    if format == "text":
        return words, []
    deltas: list[dict[str, Any]] = [
        {"role": "assistant"},
        *({"content": word} for word in words),
    ]
    calls = [f"told_{stage.words}_{number}" for number in range(stage.dice.below(3))]
    for index, call_id in enumerate(calls):
        function = {"name": "look", "arguments": ""}
        deltas.append(
            {"tool_calls": [{"index": index, "id": call_id, "function": function}]}
        )
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in ('{"at":', "1}")
        ]
    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    if stage.dice.happens(0.8):
        reason = "tool_calls" if calls else "stop"
        chunks.append(
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        )
        return chunks, calls
    return chunks, []


def use_a_tool(stage: SoakWorld, desk: Desk) -> bool:
    """A call is stored: a new one, one that the model made, or one that was asked for before."""
    if not desk.turns:
        return False
    dice, turn = stage.dice, stage.dice.pick(desk.turns)
    name, arguments, call_id, asks = (
        dice.pick(["look", "pay"]),
        {"at": dice.below(9)},
        None,
        dice.happens(0.2),
    )
    asked = [
        (id, what, how)
        for session, id, what, how in stage.asked
        if session == turn.session
    ]
    if asked and dice.happens(0.4):
        call_id, name, arguments = dice.pick(asked)
    elif turn.calls and dice.happens(0.3):
        call_id = dice.pick(turn.calls)

    def called(turn: HeldTurn, id: Any) -> None:
        turn.calls.append(str(id))
        if call_id is None:
            stage.ledger.called(turn.id, str(id))
            if asks:
                stage.asked.append((turn.session, str(id), name, arguments))

    def plan(work: Any) -> Plan[Any]:
        return turn_tools.call(
            work, name, arguments, call_id=call_id, needs_approval=asks
        )

    return _work(stage, desk, plan, called, turn)


def answer_a_call(stage: SoakWorld, desk: Desk) -> bool:
    """A tool's outcome, of a call of this turn, or now and then of one that nobody made."""
    turns = [turn for turn in desk.turns if turn.calls]
    if not turns:
        return False
    turn, text = stage.dice.pick(turns), stage.word("found")
    call_id = (
        stage.dice.pick(turn.calls) if stage.dice.happens(0.95) else "nobody made it"
    )
    failed = stage.dice.happens(0.2)

    def answered(turn: HeldTurn, id: str) -> None:
        stage.ledger.said(turn.session, id, None)

    return _work(
        stage,
        desk,
        lambda work: turn_tools.result(work, call_id, text, error=failed),
        answered,
        turn,
    )


def take_from_the_inbox(stage: SoakWorld, desk: Desk) -> bool:
    return _work(
        stage, desk, lambda work: turn_messages.inbox(work), lambda turn, taken: None
    )


def retract(stage: SoakWorld, desk: Desk) -> bool:
    return _work(
        stage,
        desk,
        lambda work: turn_messages.retract(work, "wrong"),
        lambda turn, _: None,
    )


def look(stage: SoakWorld, desk: Desk) -> bool:
    """What the model would be sent, and whether there is any use in going on."""
    format = stage.dice.pick(FORMATS)

    def looked(turn: HeldTurn, is_over: bool) -> None:
        if is_over:
            desk.drop(turn)

    is_there = _work(
        stage,
        desk,
        lambda work: turn_messages.context(work, format),
        lambda turn, _: None,
    )
    return is_there and _work(
        stage, desk, lambda work: turn_messages.stopped(work), looked
    )


def leave(stage: SoakWorld, desk: Desk) -> bool:
    """A turn ends, one way or another; its streams go no further."""
    if not desk.turns:
        return False
    turn, end = stage.dice.pick(desk.turns), stage.dice.weighted(ENDS)
    desk.drop(turn)

    def plan(side: Side) -> Plan[None]:
        work = turn.works.of(side)
        ending: Plan[None]
        if end == "completed":
            ending = work.leave(work.clean_end)
        else:
            reason = "so it was" if end == "interrupted" else None
            error = "no" if end == "failed" else None
            ending = work.finish(Ending(end, reason, error))
        return ending

    was_over = turn.works[1].ended
    how = turn.works[1].clean_end.end if end == "completed" else end

    def left(answer: Answer, at_once: bool) -> None:
        if answer.error is None and not was_over:
            stage.ledger.ended(turn.id, how)

    stage.call(desk, plan, left, flies=LATE)
    return True


def forget(stage: SoakWorld, desk: Desk) -> bool:
    """A turn is dropped without an end: the keeper of its desk finds out, or its lease runs out."""
    if not desk.turns:
        return False
    desk.drop(stage.dice.pick(desk.turns))
    return True


def _work(
    stage: SoakWorld,
    desk: Desk,
    plan: Callable[[Any], Plan[Any]],
    then: Callable[[HeldTurn, Any], None],
    turn: HeldTurn | None = None,
) -> bool:
    """Something is done in a turn, at once. If the turn is over by then, it is out of its owner's
    hands.
    """
    if turn is None:
        if not desk.turns:
            return False
        turn = stage.dice.pick(desk.turns)
    held = turn

    def done(answer: Answer, at_once: bool) -> None:
        if answer.error == "TurnInterrupted":
            desk.drop(held)
        if answer.values is not None:
            then(held, answer.values[1])

    stage.call(desk, lambda side: plan(held.works.of(side)), done)
    return True
