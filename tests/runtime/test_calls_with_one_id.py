"""Calls that share an id: models count from `call_0` in every answer, and in one answer as well
(FAULTS E4). A start, an outcome and a decision each belong to one call, and never to another (I-10,
I-22).
"""

import asyncio
import copy
import itertools
import json
import pickle

import pytest

import holdfast
from holdfast import CallId
from holdfast.errors import BadArgument, NotApproved, NotFound
from holdfast.testing.oracle import judge
from thorough import few_cases, few_on_postgres

pytestmark = few_on_postgres("which call an id means is decided in `domain`", every=5)


@pytest.fixture
def store(where):
    with holdfast.open(where, durability="process") as opened:
        yield opened


@pytest.fixture
def session(store):
    return store.session("k")


def made(*euros):
    """An answer of the model that pays each of these, all calls with one id."""
    calls = []
    for each in euros:
        function = {"name": "pay", "arguments": json.dumps({"euros": each})}
        calls.append({"id": "c", "type": "function", "function": function})
    return {"role": "assistant", "content": None, "tool_calls": calls}


def pay(turn, euros, call_id="c", **options):
    return turn.call("pay", {"euros": euros}, call_id=call_id, **options)


def told(session):
    """What was paid, and what the tool is said to have answered, by the log and to the model."""
    words = {message.id: message.text for message in session.transcript()}
    found = []
    for call in session.calls():
        found.append((json.loads(call.arguments)["euros"], words.get(call.outcome)))
    shown, euros = [], []
    for payload in session.context("openai.chat"):
        for call in payload.get("tool_calls", ()):
            euros.append(json.loads(call["function"]["arguments"])["euros"])
        if payload["role"] == "tool":
            shown.append((euros.pop(0), payload["content"]))
    answered = [pair for pair in found if pair[1] is not None]
    assert [pair for pair in shown if not pair[1].startswith("[")] == answered
    return found


def entries(turn):
    return turn._work.session.state().head


def asked(session, messages):
    """The model has made these calls, and each waits for approval."""
    for message in messages:
        with session.turn("Pay.") as turn:
            turn.add(made(*message))
            for euros in message:
                assert pay(turn, euros, needs_approval=True).waiting


SHAPES = [((1,), (2,), (3,)), ((1, 2, 3),), ((1, 2), (3,))]


@few_cases(every=3)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[1:])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outcomes_of_calls_that_were_approved_reach_them_in_any_order(store, session, shape, order):
    asked(session, shape)
    for call in session.calls():
        session.decide("c", True, by="ann", message=call.message, index=call.index)
    with session.turn() as turn:
        todo = turn.calls()
        assert [call.arguments["euros"] for call in todo] == [1, 2, 3]
        for call in todo:
            assert not turn.call(call.name, call.arguments, call_id=call.call_id).waiting
        assert turn.calls() == []
        for each in order:
            turn.result(todo[each].call_id, f"paid {todo[each].arguments['euros']}")
    assert told(session) == [(1, "paid 1"), (2, "paid 2"), (3, "paid 3")]
    assert judge(store) == []


@pytest.mark.parametrize("named_by", ["id", "message and index"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outcomes_of_calls_that_nobody_was_asked_about_reach_them(session, shape, named_by):
    with session.turn("Pay.") as turn:
        for message in shape:
            turn.add(made(*message))
        todo = turn.calls()
        for call in todo:
            turn.call(call.name, call.arguments, call_id=call.call_id)
        for call in (todo[1], todo[2], todo[0]):
            words = f"paid {call.arguments['euros']}"
            if named_by == "id":
                turn.result(call.call_id, words)
            else:
                turn.result("c", words, message=call.message, index=call.index)
    assert told(session) == [(1, "paid 1"), (2, "paid 2"), (3, "paid 3")]


@pytest.mark.parametrize("shape", [((1,), (2,)), ((1, 2),)], ids=str)
def test_an_outcome_that_may_be_one_of_several_is_refused_and_nothing_is_stored(session, shape):
    """Tools run side by side: in which order they end, nobody knows."""
    with session.turn("Pay.") as turn:
        ids = [turn.add(made(*message)) for message in shape]
        started = [pay(turn, 1), pay(turn, 2)]
        before = entries(turn)
        parameter = "message" if len(ids) == 2 else "index"
        with pytest.raises(BadArgument, match="several calls 'c' have no outcome") as refused:
            turn.result("c", "paid 2")
        assert refused.value.parameter == parameter
        if parameter == "index":
            with pytest.raises(BadArgument) as refused:
                turn.result("c", "paid 2", message=ids[0])
            assert refused.value.parameter == "index"
        for wrong in ({"message": "nobody's"}, {"index": 7}):
            with pytest.raises(NotFound):
                turn.result("c", "paid 2", **wrong)
        assert entries(turn) == before
        turn.result(started[1], "paid 2")
        turn.result("c", "paid 1")  # the only one that is left
    assert told(session) == [(1, "paid 1"), (2, "paid 2")]


def test_a_call_is_started_that_has_these_arguments(session):
    with session.turn("Pay.") as turn:
        message = turn.add(made(1, 2, 3))
        started = pay(turn, 2)
        assert started == "c" and started.place == (message, 1)
        assert [call.arguments["euros"] for call in turn.calls()] == [1, 3]
        turn.result("c", "paid 2")
        before = entries(turn)
        with pytest.raises(BadArgument, match="none of them has these arguments"):
            pay(turn, 4)
        assert entries(turn) == before
        # An agent may put in what the model left out: it says which call that is.
        last = turn.calls()[-1]
        assert pay(turn, 33, last.call_id).place == (message, 2)
        turn.result(last.call_id, "paid 33")
        assert pay(turn, 11).place == (message, 0), "it is the only one that is left"
    assert told(session) == [(1, None), (2, "paid 2"), (3, "paid 33")]


@pytest.mark.parametrize("approved", [True, False])
def test_a_decision_is_for_one_of_two_calls_in_one_message(session, approved):
    asked(session, [(1, 2)])
    first, second = session.calls()
    head = session.head()
    for named in ({}, {"message": first.message}):
        with pytest.raises(BadArgument, match="several calls 'c' wait for approval") as refused:
            session.decide("c", approved, by="ann", **named)
        assert refused.value.parameter == "index"
    with pytest.raises(NotFound):
        session.decide("c", approved, by="ann", message=first.message, index=2)
    assert session.head() == head
    session.decide("c", approved, by="ann", message=second.message, index=second.index)
    decided = "approved" if approved else "denied"
    assert [call.state for call in session.calls()] == ["waiting", decided]
    with session.turn() as turn:
        assert [call.arguments["euros"] for call in turn.calls()] == ([2] if approved else [])
        assert pay(turn, 1).waiting
        if approved:
            assert not pay(turn, 2).waiting
            turn.result("c", "paid 2")
    session.decide("c", True, by="ann")  # the only one that is left
    with session.turn() as turn:
        [call] = turn.calls()
        pay(turn, 1, call.call_id)
        turn.result(call.call_id, "paid 1")
        with pytest.raises(NotApproved):
            pay(turn, 1)
    assert told(session)[0] == (1, "paid 1")


def test_the_id_that_a_call_was_given_says_which_one_is_decided(session):
    with session.turn("Pay.") as turn:
        turn.add(made(1, 2))
        pay(turn, 1, needs_approval=True)
        second = pay(turn, 2, needs_approval=True)
        again = pay(turn, 2)
        assert again.waiting and again.place == second.place
    session.decide(second, True, by="ann")
    assert [call.state for call in session.calls()] == ["waiting", "approved"]


def test_of_two_equal_calls_each_has_its_own_outcome(session):
    asked(session, [(1,), (1,)])
    for call in session.calls():
        session.decide("c", True, by="ann", message=call.message)
    with session.turn() as turn:
        for number, call in enumerate(turn.calls()):
            assert pay(turn, 1, call.call_id).place == (call.message, call.index)
            turn.result(call.call_id, f"paid, {number}")
    assert told(session) == [(1, "paid, 0"), (1, "paid, 1")]


def test_a_second_outcome_of_a_call_is_not_that_of_another(session):
    with session.turn("Pay.") as turn:
        turn.add(made(1, 2))
        first, _ = pay(turn, 1), pay(turn, 2)
        turn.result(first, "paid 1")
        turn.result(first, "paid 1, said twice")
        assert told(session) == [(1, "paid 1"), (2, None)]
        turn.result("c", "paid 2")
    assert told(session) == [(1, "paid 1"), (2, "paid 2")]


def test_outcomes_of_turns_that_are_over_reach_their_calls(session):
    """I-7: what they answered is known later, and a later turn stores it."""
    calls = []
    for euros in (1, 2, 3):
        with session.turn("Pay.") as turn:
            calls.append(pay(turn, euros))
    with session.turn("What came of it?") as turn:
        with pytest.raises(BadArgument, match="several calls"):
            turn.result("c", "paid 2")
        turn.result("c", "paid 2", message=session.calls()[1].message)
        turn.result(calls[0], "paid 1")
        turn.result("c", "paid 3")
    assert told(session) == [(1, "paid 1"), (2, "paid 2"), (3, "paid 3")]


def test_an_id_that_says_which_call_it_is_of_is_text_all_the_same(session):
    with session.turn("Pay.") as turn:
        given = pay(turn, 1, call_id=None)
    assert isinstance(given, CallId) and given.place == (session.calls()[0].message, 0)
    for other in (pickle.loads(pickle.dumps(given)), copy.deepcopy(given)):
        assert (other, other.place, other.waiting) == (given, given.place, False)
    assert json.dumps(given) == f'"{session.calls()[0].call_id}"'


def test_asyncio_names_the_call_alike(where):
    async def story():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("Pay.") as turn:
                await turn.add(made(1, 2))
                for euros in (1, 2):
                    await turn.call("pay", {"euros": euros}, call_id="c", needs_approval=True)
            calls = await session.calls()
            with pytest.raises(BadArgument, match="several"):
                await session.decide("c", True, by="ann")
            for call in calls:
                await session.decide("c", True, by="ann", message=call.message, index=call.index)
            async with session.turn() as turn:
                todo = await turn.calls()
                for call in todo:
                    await turn.call(call.name, call.arguments, call_id=call.call_id)
                with pytest.raises(BadArgument, match="several"):
                    await turn.result("c", "paid 2")
                await turn.result("c", "paid 2", message=todo[1].message, index=1)
                await turn.result(todo[0].call_id, "paid 1")

    asyncio.run(story())
    with holdfast.open(where) as store:
        assert told(store.session("k")) == [(1, "paid 1"), (2, "paid 2")]
