"""`Turn.calls`: the calls to be run now, each once, whatever the model speaks (I-22)."""

import asyncio

import pytest

import holdfast
from holdfast.errors import TurnInterrupted
from procs import child
from thorough import few_on_postgres

pytestmark = few_on_postgres("which calls are to be run is folded in `domain`")

ARGUMENTS = {"euros": 80, "to": {"name": "ann"}}
TEXT = '{"euros": 80, "to": {"name": "ann"}}'


def function(id, text=TEXT):
    return {"id": id, "type": "function", "function": {"name": "pay", "arguments": text}}


def chat(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


MADE = {
    "openai.chat": chat(function("c1")),
    "openai.responses": [
        {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": TEXT, "id": "fc_1"}
    ],
    "anthropic": {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "pay", "input": ARGUMENTS}],
    },
    "holdfast": {
        "role": "assistant",
        "parts": [{"type": "call", "id": "c1", "name": "pay", "arguments": TEXT}],
    },
    "goose": {
        "role": "assistant",
        "created": 0,
        "content": [
            {
                "type": "toolRequest",
                "id": "c1",
                "toolCall": {"status": "success", "value": {"name": "pay", "arguments": ARGUMENTS}},
            }
        ],
    },
}


@pytest.fixture
def session(where):
    with holdfast.open(where, durability="process") as store:
        yield store.session("k")


def ids(turn):
    return [call.call_id for call in turn.calls()]


@pytest.mark.slow
@pytest.mark.parametrize("format", MADE)
def test_a_call_is_given_in_every_format(session, format):
    with session.turn("Pay.", format=format) as turn:
        assert turn.calls() == []
        turn.add(MADE[format])
        [call] = turn.calls()
        assert (call.call_id, call.name, call.arguments) == ("c1", "pay", ARGUMENTS)
        turn.call(call.name, call.arguments, call_id=call.call_id)
        assert turn.calls() == [], "it runs"
        turn.result("c1", "paid")
        assert turn.calls() == []
    assert [call.state for call in session.calls()] == ["done"]


def loop(turn, answers, ran):
    """The loop of the guide; the model says each of these."""
    for answer in answers:
        if answer is not None:
            turn.add(answer)
        calls = turn.calls()
        if not calls:
            return
        for call in calls:
            ran.append(call.call_id)
            turn.call(call.name, call.arguments, call_id=call.call_id)
            turn.result(call.call_id, "paid")


def test_a_call_that_was_answered_elsewhere_is_not_given(session):
    with session.turn("Pay.") as turn:
        turn.add(chat(function("c1"), function("c2")))
        session.append({"role": "tool", "tool_call_id": "c1", "content": "paid"})
        assert ids(turn) == ["c2"]


def test_a_call_outside_the_turn_is_not_given(session):
    with session.turn("Pay.") as turn:
        session.append(chat(function("c1")))
        turn.add(chat(function("c2")))
        assert ids(turn) == ["c2"]


def test_a_model_that_says_nothing_runs_nothing_again(session):
    """The loop that looked at the last assistant message ran its calls again."""
    ran = []
    with session.turn("Pay.") as turn:
        loop(turn, [chat(function("c1")), None, None], ran)
    with session.turn("And?") as turn:
        loop(turn, [None, None], ran)
    assert ran == ["c1"]


@pytest.mark.slow
def test_an_unknown_call_of_a_killed_turn_is_not_given_again(session, where):
    script = f"""
        import holdfast
        turn = holdfast.open(sys.argv[1]).session("k").turn("Pay.")
        turn.add({chat(function("c1"))!r})
        turn.call("pay", {TEXT!r}, call_id="c1")
        say("started")
        hear()
    """
    with child(script, where) as other:
        other.wait_for("started")
        other.kill()
    session.stop()
    with session.turn("And?") as turn:
        assert turn.calls() == []
    assert [call.state for call in session.calls()] == ["unknown"]


def test_what_waits_or_was_denied_is_not_given_and_what_was_approved_is(session):
    with session.turn("Pay.") as turn:
        turn.add(chat(function("c1"), function("c2"), function("c3")))
        turn.call("pay", TEXT, call_id="c1", needs_approval=True)
        turn.call("pay", TEXT, call_id="c2", needs_approval=True)
        assert ids(turn) == ["c3"]
        session.decide("c1", True, by="ann")
        session.decide("c2", False, by="ann")
        assert ids(turn) == ["c1", "c3"]


def test_a_call_that_was_approved_is_given_to_a_later_turn_and_used_there_once(session):
    with session.turn("Pay.") as turn:
        turn.add(chat(function("c1")))
        turn.call("pay", TEXT, call_id="c1", needs_approval=True)
    with session.turn("And?") as turn:
        assert turn.calls() == []
    session.decide("c1", True, by="ann")
    ran = []
    with session.turn() as turn:
        loop(turn, [None, None], ran)
    with session.turn() as turn:
        loop(turn, [None], ran)
    assert ran == ["c1"]
    assert [call.state for call in session.calls()] == ["done"]


def test_a_call_that_was_retracted_or_cut_off_is_not_given(session):
    with session.turn("Pay.") as turn:
        turn.add(chat(function("c1")))
        turn.retract("empty answer")
        assert turn.calls() == []
        begun = {
            "index": 0,
            "id": "c2",
            "type": "function",
            "function": {"name": "pay", "arguments": '{"euros'},
        }
        list(
            turn.deliver(
                [{"choices": [{"index": 0, "delta": {"tool_calls": [begun]}}]}],
                format="openai.chat",
            )
        )
        assert turn.calls() == []
        turn.say("No.")


def test_arguments_that_are_not_json_are_given_as_they_were_said(session):
    with session.turn("Pay.") as turn:
        turn.add(chat(function("c1", "eighty"), function("c2", "")))
        assert [call.arguments for call in turn.calls()] == ["eighty", {}]


def test_ids_that_repeat_are_given_once_for_each_call(session):
    """FAULTS E4."""
    ran = []
    with session.turn("Pay.") as turn:
        loop(
            turn,
            [chat(function("call_0"), function("call_0")), chat(function("call_0")), None],
            ran,
        )
    assert ran == ["call_0"] * 3
    assert [call.state for call in session.calls()] == ["done"] * 3


def test_a_turn_that_is_over_has_nothing_to_run(session):
    turn = session.turn("Pay.")
    turn.add(chat(function("c1")))
    session.stop()
    assert turn.stopped
    with pytest.raises(TurnInterrupted):
        turn.calls()


def test_asyncio_gives_the_same(where):
    async def story():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("Pay.") as turn:
                await turn.add(chat(function("c1")))
                return await turn.calls()

    [call] = asyncio.run(story())
    assert (call.call_id, call.arguments) == ("c1", ARGUMENTS)
