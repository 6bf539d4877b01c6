"""What callers of a soak do with turns. Each act draws what it needs from the dice of its world,
does it on both sides, and tells what was acknowledged; False when there was nothing to do it with.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from holdfast.domain.entry import End
from holdfast.domain.reset_policy import Daily, Idle
from holdfast.runtime.changes.receive import start_turn
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.turns import turn_messages, turn_tools
from holdfast.runtime.turns.end_turn import Ending
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.start_turn import TurnRequest, start
from holdfast.testing.completions import (
    Payload,
    call_deltas,
    completions_call,
    completions_chunks,
)
from holdfast.testing.oracle import FORMATS
from holdfast.testing.soak.differential import Answer
from holdfast.testing.soak.world import Desk, HeldStream, HeldTurn, SoakWorld

# Few, so that desks meet in the same sessions.
KEYS = ("k0", "k1", "k2")
EVENTS = 12
ENDS: dict[End, int] = {"completed": 6, "interrupted": 2, "failed": 1}
LATE = 0.2
"""How often a call that may fly does."""


def begin(world: SoakWorld, desk: Desk) -> bool:
    """A turn is asked for, of a session or of a key, with a message or without."""
    dice = world.dice
    text = world.word("ask") if dice.happens(0.9) else None
    format = dice.pick(FORMATS)
    event_id = one_event(world, 0.2) if text is not None else None
    on_busy = dice.weighted({"wait": 4, "refuse": 3, "interrupt": 2})
    options: dict[str, Any] = {
        "format": format,
        "event_id": event_id,
        "on_busy": on_busy,
        "reply_to": one_friend(world),
        "lease_s": dice.pick([10.0, 30.0, 300.0]),
    }
    if desk.sessions and dice.happens(0.6):
        held = dice.pick(desk.sessions)
        begun = partial(_begun, world, desk, text, held.scope, event_id)

        def of_a_session(log: SessionLog) -> Plan[Any]:
            return start(log, TurnRequest(log.world, text, **options))

        world.call(desk, begun, of_a_session, held.logs, flies=LATE)
    else:
        key = dice.pick(KEYS)
        reset = dice.weighted({None: 5, Idle(hours=5): 1, Daily(at="04:00"): 1})
        begun = partial(_begun, world, desk, text, key, event_id)

        def of_a_key(work: OpenStore) -> Plan[Any]:
            request = TurnRequest(work.world, text, **options)
            return start_turn(work, key, request, reset=reset)

        world.call(desk, begun, of_a_key, desk.works, flies=LATE)
    return True


def one_event(world: SoakWorld, share: float) -> str | None:
    """An event's id, in this share of all cases; few enough that they come again."""
    return f"event {world.dice.below(EVENTS)}" if world.dice.happens(share) else None


def one_friend(world: SoakWorld) -> str | None:
    """Somebody who is owed a reply, now and then."""
    return f"friend {world.dice.below(3)}" if world.dice.happens(0.3) else None


def _begun(
    world: SoakWorld,
    desk: Desk,
    text: str | None,
    scope: str,
    event_id: str | None,
    answer: Answer,
) -> None:
    if answer.error == "AlreadyAccepted":
        known_as(world, scope, event_id, answer.plain[1]["message_id"])
    if answer.values is not None:
        turn = HeldTurn(answer.values)
        desk.turns.append(turn)
        world.acknowledged.began(turn.id)
        if text is not None:
            world.acknowledged.said(turn.session, None, text, ordered=answer.at_once)


def known_as(world: SoakWorld, scope: str, event_id: str | None, id: str) -> None:
    """An event was acknowledged as this message."""
    if event_id is not None:
        world.acknowledged.event(scope, event_id, id)


def say(world: SoakWorld, desk: Desk) -> bool:
    text = world.word("say")

    def said(turn: HeldTurn, _: Any) -> None:
        world.acknowledged.said(turn.session, None, text)

    return _work(world, desk, lambda work: turn_messages.say(work, text), said)


def add(world: SoakWorld, desk: Desk) -> bool:
    """A finished message in the words of one provider or another, calls included."""
    text = world.word("add")
    call_id = f"made_{world.words}"
    format, payload = world.dice.pick(list(_messages(text, call_id)))

    def added(turn: HeldTurn, id: str) -> None:
        world.acknowledged.said(turn.session, id, None)
        # Not every shape of the message makes the call.
        if call_id in repr(payload):
            turn.calls.append(call_id)

    return _work(
        world, desk, lambda work: turn_messages.add(work, payload, format), added
    )


def _messages(text: str, call_id: str) -> Iterator[tuple[str, Payload]]:
    call = completions_call(call_id, "look", '{"at": 1}')
    said: Payload = {"role": "assistant", "content": text}
    yield "openai.chat", said
    yield "openai.chat", {**said, "tool_calls": [call]}
    block = {"type": "text", "text": text}
    use = {"type": "tool_use", "id": call_id, "name": "look", "input": {"at": 1}}
    yield "anthropic", {"role": "assistant", "content": [block]}
    yield "anthropic", {"role": "assistant", "content": [block, use]}
    words = [{"type": "output_text", "text": text, "annotations": []}]
    yield "openai.responses", {"type": "message", "role": "assistant", "content": words}
    yield "holdfast", {"role": "assistant", "parts": [block]}


def speak(world: SoakWorld, desk: Desk) -> bool:
    """A stream begins, goes on by a chunk, or is left before its end."""
    if not desk.turns:
        return False
    turn = world.dice.pick(desk.turns)
    # Mostly one that is under way goes on; two at once are seldom, and must work.
    if turn.streams and world.dice.happens(0.9):
        stream = world.dice.pick(turn.streams)
        if world.dice.happens(0.05):
            turn.streams.remove(stream)
            world.ask(lambda delivery: delivery.close(), stream.deliveries)
            return True
    else:
        format = world.dice.pick(["text", "openai.chat"])
        chunks, calls = _chunks(world, format)
        disk, reference = (face.deliver(chunks, format=format) for face in turn.faces)
        stream = HeldStream((disk, reference), calls)
        turn.streams.append(stream)
    _next_chunk(world, desk, turn, stream)
    return True


def _next_chunk(
    world: SoakWorld, desk: Desk, turn: HeldTurn, stream: HeldStream
) -> None:
    """Hands on one more chunk; after the last one the message is stored."""
    answer = world.ask(lambda delivery: next(delivery, None), stream.deliveries)
    if answer.error is not None:
        desk.drop(turn)
    elif answer.plain is not None:
        # A message has its id from its first chunk on.
        if not stream.id:
            # From the reference, whose ids are those of the disk: both worlds come from
            # one seed.
            stream.id = turn.works[1]._streams[-1].id.hex()
        world.acknowledged.shown(turn.id, stream.id, answer.plain)
    else:
        turn.streams.remove(stream)
        _delivered(world, turn, stream)


def _delivered(world: SoakWorld, turn: HeldTurn, stream: HeldStream) -> None:
    """A stream has come to its end; one without a word has left nothing."""
    if stream.id:
        # Its turn may have been over for long, and the message made by whoever ended it.
        world.acknowledged.said(turn.session, stream.id, None, ordered=False)
        turn.calls += stream.calls


def _chunks(world: SoakWorld, format: str) -> tuple[list[Any], list[str]]:
    """A stream of some chunks; one of a provider may want its last, and then its end."""
    words = [f"<{world.word('tell')}>" for _ in range(world.dice.below(5))]
    if format == "text":
        return words, []
    deltas: list[Payload] = [{"role": "assistant"}]
    deltas += [{"content": word} for word in words]
    calls = [f"told_{world.words}_{number}" for number in range(world.dice.below(3))]
    for index, call_id in enumerate(calls):
        deltas += call_deltas(index, call_id, "look", ('{"at":', "1}"))
    if world.dice.happens(0.8):
        finish = "tool_calls" if calls else "stop"
        return list(completions_chunks(deltas, finish, id="c")), calls
    # Calls of a stream that broke off are nobody's to answer.
    return list(completions_chunks(deltas, None, id="c")), []


def use_a_tool(world: SoakWorld, desk: Desk) -> bool:
    """A call is stored: a new one, one that the model made, or one that was asked for before."""
    if not desk.turns:
        return False
    dice = world.dice
    turn = dice.pick(desk.turns)
    name = dice.pick(["look", "pay"])
    arguments = {"at": dice.below(9)}
    call_id = None
    asks = dice.happens(0.2)
    asked = [call for call in world.asked if call[0] == turn.session]
    if asked and dice.happens(0.4):
        _, call_id, name, arguments = dice.pick(asked)
    elif turn.calls and dice.happens(0.3):
        call_id = dice.pick(turn.calls)

    def called(turn: HeldTurn, id: Any) -> None:
        turn.calls.append(str(id))
        if call_id is None:
            world.acknowledged.called(turn.id, str(id))
            if asks:
                world.asked.append((turn.session, str(id), name, arguments))

    def plan(work: RunningTurn) -> Plan[Any]:
        return turn_tools.call(
            work, name, arguments, call_id=call_id, needs_approval=asks
        )

    return _work(world, desk, plan, called, turn)


def answer_a_call(world: SoakWorld, desk: Desk) -> bool:
    """A tool's outcome, of a call of this turn, or now and then of one that nobody made."""
    # Of calls that were made in it, or told by a stream of it.
    turns = [turn for turn in desk.turns if turn.calls]
    if not turns:
        return False
    turn = world.dice.pick(turns)
    text = world.word("found")
    call_id = "nobody made it"
    if world.dice.happens(0.95):
        call_id = world.dice.pick(turn.calls)
    failed = world.dice.happens(0.2)

    def answered(turn: HeldTurn, id: str) -> None:
        world.acknowledged.said(turn.session, id, None)

    def plan(work: RunningTurn) -> Plan[Any]:
        return turn_tools.result(work, call_id, text, error=failed)

    return _work(world, desk, plan, answered, turn)


def take_from_the_inbox(world: SoakWorld, desk: Desk) -> bool:
    return _work(world, desk, turn_messages.inbox)


def retract(world: SoakWorld, desk: Desk) -> bool:
    return _work(world, desk, lambda work: turn_messages.retract(work, "wrong"))


def look(world: SoakWorld, desk: Desk) -> bool:
    """What the model would be sent, and whether there is any use in going on."""
    format = world.dice.pick(FORMATS)

    def looked(turn: HeldTurn, is_over: bool) -> None:
        if is_over:
            desk.drop(turn)

    is_there = _work(world, desk, lambda work: turn_messages.context(work, format))
    return is_there and _work(world, desk, turn_messages.stopped, looked)


def leave(world: SoakWorld, desk: Desk) -> bool:
    """A turn ends, one way or another; its streams go no further."""
    if not desk.turns:
        return False
    turn = world.dice.pick(desk.turns)
    end = world.dice.weighted(ENDS)
    desk.drop(turn)
    reference = turn.works[1]
    # Looked at now: by the time it is answered, another may have ended it.
    was_over = reference.ended
    how = reference.clean_end.end if end == "completed" else end

    def plan(work: RunningTurn) -> Plan[None]:
        if end == "completed":
            return work.leave(work.clean_end)
        if end == "interrupted":
            return work.finish(Ending(end, "so it was", None))
        return work.finish(Ending(end, None, "no"))

    def left(answer: Answer) -> None:
        if answer.error is None and not was_over:
            world.acknowledged.ended(turn.id, how)

    world.call(desk, left, plan, turn.works, flies=LATE)
    return True


def forget(world: SoakWorld, desk: Desk) -> bool:
    """A turn is dropped without an end: the keeper of its desk finds out, or its lease runs out."""
    if not desk.turns:
        return False
    desk.drop(world.dice.pick(desk.turns))
    return True


def _work(
    world: SoakWorld,
    desk: Desk,
    plan: Callable[[RunningTurn], Plan[Any]],
    then: Callable[[HeldTurn, Any], None] | None = None,
    turn: HeldTurn | None = None,
) -> bool:
    """Something is done in a turn, at once. If the turn is over by then, it is out of its owner's
    hands.
    """
    if turn is None:
        if not desk.turns:
            return False
        turn = world.dice.pick(desk.turns)
    held = turn

    def done(answer: Answer) -> None:
        # It was stopped, overtaken, or its lease ran out: whoever wrote is told, and leaves.
        if answer.error == "TurnInterrupted":
            desk.drop(held)
        if answer.error is None and then is not None:
            then(held, answer.value)

    world.call(desk, done, plan, held.works)
    return True
