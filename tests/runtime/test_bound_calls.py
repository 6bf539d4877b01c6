"""A call id that somebody was asked about is bound: it runs once, as it was approved, or not at all
(I-22).
"""

import asyncio
import contextlib
import threading

import pytest

import holdfast
from holdfast.domain.approval import digests_of, judge_call
from holdfast.domain.turn import Ask
from holdfast.errors import BadArgument, NotApproved, NotFound
from looking import other_handle
from procs import child
from thorough import few_on_postgres

pytestmark = few_on_postgres("which call an approval is for is decided in `domain`")


@pytest.fixture
def store(where):
    with holdfast.open(where, durability="process") as opened:
        yield opened


@pytest.fixture
def session(store):
    return store.session("k")


def pay(turn, euros=80, **options):
    return turn.call("pay", {"euros": euros}, call_id="c1", **options)


def asked(session, euros=80):
    with session.turn("Pay.") as turn:
        assert pay(turn, euros, needs_approval=True).waiting


def denied_and_compacted(session):
    """A session whose summary covers a call that was denied."""
    asked(session)
    session.decide("c1", False, by="ann")
    for number in range(3):
        with session.turn(f"Question {number}.") as turn:
            turn.say("Answer.")
    assert session.compact("All of it.", keep_turns=1) is not None


def rewound(session, *, approved):
    """A session whose view went back to before a call that was asked about and decided."""
    with session.turn("Hi.") as turn:
        turn.say("Hello.")
    before = list(session.transcript())[-1].id
    asked(session)
    session.decide("c1", approved, by="ann")
    session.rewind(before)


def refused(turn, euros=80):
    """Why this call does not run; it must not."""
    head = turn._work.session.state().head
    with pytest.raises(NotApproved) as told:
        pay(turn, euros)
    assert told.value.call_id == "c1"
    assert turn._work.session.state().head == head, "nothing was written"
    return told.value.why


def made(*calls, name="pay"):
    """An assistant's message with these calls, each an id and its arguments."""
    tool_calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
        for id, text in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def test_a_denied_call_never_runs(session):
    asked(session)
    session.decide("c1", False, by="ann")
    with session.turn("Pay anyway.") as turn:
        assert "denied" in refused(turn)
        assert "other arguments" in refused(turn, 9999)


def test_an_approval_is_for_its_own_arguments(session):
    asked(session)
    with session.turn("More.") as turn:
        assert "other arguments" in refused(turn, 9999), "nor while it waits"
    session.decide("c1", True, by="ann")
    with session.turn("More.") as turn:
        assert "other arguments" in refused(turn, 9999)
        with pytest.raises(NotApproved):
            turn.call("refund", {"euros": 80}, call_id="c1")
        assert not pay(turn).waiting, "and is still there for those"


def test_an_approval_is_used_once(session):
    asked(session)
    session.decide("c1", True, by="ann")
    with session.turn("Go on.") as turn:
        assert not pay(turn).waiting
        assert "used" in refused(turn)
        turn.result("c1", "paid")
        assert "done" in refused(turn)
    with session.turn("Again.") as turn:
        assert "done" in refused(turn)


@pytest.mark.slow
def test_the_approval_of_an_abandoned_turn_stays_used(session, where):
    asked(session)
    session.decide("c1", True, by="ann")
    script = """
        import holdfast
        turn = holdfast.open(sys.argv[1]).session("k").turn("Go on.")
        turn.call("pay", {"euros": 80}, call_id="c1")
        say("started")
        hear()
    """
    with child(script, where) as other:
        other.wait_for("started")
        other.kill()
    session.stop()
    with session.turn("And?") as turn:
        assert "used" in refused(turn)
        assert [call.state for call in session.calls()] == ["unknown"]


@pytest.mark.slow
def test_the_question_of_an_abandoned_turn_stands(session, where):
    script = """
        import holdfast
        turn = holdfast.open(sys.argv[1]).session("k").turn("Pay.")
        turn.call("pay", {"euros": 80}, call_id="c1", needs_approval=True)
        say("asked")
        hear()
    """
    with child(script, where) as other:
        other.wait_for("asked")
        other.kill()
    session.stop()
    with session.turn("And?") as turn:
        assert pay(turn).waiting
        assert "other arguments" in refused(turn, 9999)


def test_a_compaction_frees_no_call(session):
    denied_and_compacted(session)
    with session.turn("Pay.") as turn:
        assert "denied" in refused(turn)


def test_what_was_denied_says_so_after_a_compaction_to_a_handle_that_never_read_it(where, session):
    denied_and_compacted(session)
    with other_handle(where) as store, store.turn("k", "Pay.") as turn:
        assert refused(turn) == "it was denied"


@pytest.mark.parametrize("decided", [None, True, False])
def test_a_reset_frees_no_call(store, decided):
    session = store.session("k")
    asked(session)
    if decided is not None:
        session.decide("c1", decided, by="ann")
    store.reset("k")
    with store.turn("k", "Pay.") as turn:
        assert "reset" in refused(turn)
        assert pay(turn, needs_approval=True).waiting, "it can be asked about again"
    store.session("k").decide("c1", True, by="ann")
    with store.turn("k", "Now.") as turn:
        assert not pay(turn).waiting


def test_a_fork_uses_no_approval_of_its_parent(session):
    asked(session)
    session.decide("c1", True, by="ann")
    fork = session.fork()
    with fork.turn("Pay.") as turn:
        assert pay(turn).waiting, "it is asked about again"
    fork.decide("c1", True, by="bob")
    with fork.turn("Now.") as turn:
        assert not pay(turn).waiting
    with session.turn("Here, too.") as turn:
        assert not pay(turn).waiting, "the parent's own approval is its own"
        turn.result("c1", "paid")
    later = session.fork()
    with later.turn("Pay.") as turn:
        assert "done" in refused(turn)


def test_a_fork_of_what_was_compacted_and_reset_frees_no_call(store):
    asked(store.session("k"))
    store.session("k").decide("c1", False, by="ann")
    store.reset("k")
    with store.turn("k", "Hi.") as turn:
        turn.say("Hello.")
    fork = store.session("k").fork()
    with fork.turn("Pay.") as turn:
        assert refused(turn)


def test_a_rewind_frees_no_call(session):
    rewound(session, approved=False)
    with session.turn("Pay.") as turn:
        assert refused(turn)


def test_an_approval_that_the_view_went_back_from_is_not_used(session):
    rewound(session, approved=True)
    with session.turn("Pay.") as turn:
        assert turn.calls() == []
        assert "rewound" in refused(turn)


@pytest.mark.parametrize("decided", [False, True], ids=["waiting", "approved"])
def test_a_call_that_was_rewound_away_waits_for_nobody_until_it_is_brought_back(session, decided):
    with session.turn("Hi.") as turn:
        turn.say("Hello.")
    before = list(session.transcript())[-1].id
    asked(session)
    there = list(session.transcript())[-1].id
    if decided:
        session.decide("c1", True, by="ann")
    session.rewind(before)
    head = session.head()
    assert states(session) == [("pay", "rewound")]
    for named in ({}, {"message": there}):
        with pytest.raises(NotFound, match="rewound to before it"):
            session.decide("c1", True, by="ann", **named)
    assert session.head() == head
    session.rewind(there)
    assert states(session) == [("pay", "approved" if decided else "waiting")]
    if not decided:
        session.decide("c1", True, by="ann")
    with session.turn() as turn:
        [call] = turn.calls()
        assert not pay(turn).waiting
        turn.result(call.call_id, "paid")
    assert states(session) == [("pay", "done")]


def test_a_question_that_is_put_again_after_a_rewind_is_the_only_one(session):
    with session.turn("Hi.") as turn:
        turn.say("Hello.")
    before = list(session.transcript())[-1].id
    asked(session)
    session.rewind(before)
    asked(session)
    session.decide("c1", True, by="ann")
    assert states(session) == [("pay", "rewound"), ("pay", "approved")]


@pytest.mark.slow
def test_of_two_processes_that_use_one_approval_one_runs(session, where):
    asked(session)
    session.decide("c1", True, by="ann")
    script = """
        import holdfast
        from holdfast.errors import HoldfastError
        session = holdfast.open(sys.argv[1]).session("k")
        say("ready")
        hear()
        try:
            with session.turn("Go.", on_busy="interrupt") as turn:
                turn.call("pay", {"euros": 80}, call_id="c1")
                say("ran")
        except HoldfastError as error:
            say("did not", error.code)
        say("over")
    """
    with child(script, where) as one, child(script, where) as two:
        for each in (one, two):
            each.wait_for("ready")
        for each in (one, two):
            each.tell("go")
        for each in (one, two):
            each.wait_for("over")
            each.end()
    kinds = [entry.kind for entry in session.entries()]
    assert kinds.count("call") == 1


def test_of_many_threads_of_a_turn_one_uses_the_approval(session):
    asked(session)
    session.decide("c1", True, by="ann")
    ran, gate = [], threading.Barrier(8)
    with session.turn("Go.") as turn:

        def work():
            gate.wait()
            try:
                ran.append(pay(turn).waiting)
            except NotApproved as error:
                assert "used" in error.why

        workers = [threading.Thread(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert ran == [False]


def test_of_many_threads_of_a_turn_one_starts_a_call_that_nobody_was_asked_about(session):
    ran, gate = [], threading.Barrier(8)
    with session.turn("Go.") as turn:

        def work():
            gate.wait()
            with contextlib.suppress(NotApproved):
                ran.append(pay(turn))

        workers = [threading.Thread(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert ran == ["c1"]
        turn.result("c1", "paid")
        assert "done" in refused(turn)
    with session.turn("Once more.") as turn:
        assert not pay(turn).waiting, (
            "ids are reused from turn to turn, and nobody was ever asked about this one"
        )


@pytest.mark.parametrize("spoken", ["added", "streamed"])
def test_a_call_that_the_model_makes_is_bound_like_any_other(session, spoken):
    def make(turn, text):
        if spoken == "added":
            turn.add(made(("c1", text)))
            return
        function = {
            "index": 0,
            "id": "c1",
            "type": "function",
            "function": {"name": "pay", "arguments": text},
        }
        chunks = [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [function]}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        ]
        list(turn.deliver(chunks, format="openai.chat"))

    with session.turn("Pay.") as turn:
        make(turn, '{"euros":  80}')
        assert pay(turn, needs_approval=True).waiting
        session.decide("c1", True, by="ann")
        assert "other arguments" in refused(turn, 9999)
        assert not pay(turn).waiting, "spaces in the arguments change nothing"
        assert "used" in refused(turn)
        turn.result("c1", "paid")
        make(turn, '{"euros": 9999}')
        assert pay(turn, 9999).waiting, "an id that comes again is asked about again"
    session.decide("c1", False, by="ann")
    with session.turn("Go on.") as turn:
        assert "denied" in refused(turn, 9999)


def states(session):
    return [(call.name, call.state) for call in session.calls()]


def test_a_call_that_was_answered_waits_no_more(session):
    """What somebody answered in place of the tool is its outcome: nobody can approve it, and nobody
    is given it to run.
    """
    with session.turn("Pay.") as turn:
        pay(turn, needs_approval=True)
        turn.result("c1", "The user said: leave it.")
        assert "done" in refused(turn)
    with pytest.raises(NotFound, match="it was answered"):
        session.decide("c1", True, by="ann")
    assert states(session) == [("pay", "done")]
    with session.turn() as turn:
        assert turn.calls() == []
        assert "done" in refused(turn)
    assert session.compact("All of it.", keep_turns=0) is not None, "nothing waits"
    with session.turn("Pay.") as turn:
        assert "done" in refused(turn)


@pytest.mark.parametrize("answered_in", ["its own turn", "a later turn"])
def test_a_call_that_was_approved_and_then_answered_is_not_run(session, answered_in):
    with session.turn("Pay.") as turn:
        pay(turn, needs_approval=True)
        session.decide("c1", True, by="ann")
        if answered_in == "its own turn":
            turn.result("c1", "Paid by hand.")
    with session.turn("Did it.") as turn:
        if answered_in == "a later turn":
            turn.result("c1", "Paid by hand.")
        assert turn.calls() == []
        assert "done" in refused(turn)
    with session.turn() as turn:
        assert turn.calls() == []
    assert states(session) == [("pay", "done")]
    with session.fork().turn() as turn:
        assert "done" in refused(turn)


@pytest.mark.parametrize("needs_approval", [False, True])
def test_a_call_that_the_model_makes_while_another_of_its_id_waits_is_a_new_question(
    session, needs_approval
):
    """FAULTS E4: models that count from call_0 in every answer."""
    with session.turn("Pay.") as turn:
        turn.add(made(("c1", '{"euros": 80}')))
        assert pay(turn, needs_approval=True).waiting
    with session.turn("And the weather?") as turn:
        turn.add(made(("c1", '{"city": "Rome"}'), name="weather"))
        [call] = turn.calls()
        asked = turn.call(call.name, call.arguments, call_id="c1", needs_approval=needs_approval)
        assert asked.waiting
        assert turn.calls() == []
        assert pay(turn).waiting, "the first question stands"
        assert "other arguments" in refused(turn, 9999)
        with pytest.raises(BadArgument, match="several calls"):
            session.decide("c1", True, by="ann")
        session.decide("c1", True, by="ann", message=call.message)
        assert not turn.call(call.name, call.arguments, call_id="c1").waiting
        turn.result("c1", "Sunny.")
    assert states(session) == [("pay", "waiting"), ("weather", "done")]
    session.decide("c1", True, by="ann")
    with session.turn() as turn:
        [call] = turn.calls()
        assert call.name == "pay"
        assert not pay(turn).waiting
        turn.result("c1", "paid")
    assert states(session) == [("pay", "done"), ("weather", "done")]


def test_the_same_call_made_again_while_it_waits_is_asked_about_by_itself(session):
    for _ in range(2):
        with session.turn("Pay.") as turn:
            turn.add(made(("c1", '{"euros": 80}')))
            assert pay(turn, needs_approval=True).waiting
            assert turn.calls() == []
            assert pay(turn).waiting
    assert states(session) == [("pay", "waiting")] * 2
    first, second = (call.message for call in session.calls())
    session.decide("c1", False, by="ann", message=first)
    with pytest.raises(NotFound, match="denied"):
        session.decide("c1", True, by="ann", message=first)
    assert states(session) == [("pay", "denied"), ("pay", "waiting")]
    session.decide("c1", True, by="ann", message=second)
    with session.turn() as turn:
        assert not pay(turn).waiting
        assert "used" in refused(turn)


def test_a_question_is_about_the_call_that_has_its_arguments(session):
    """Tools run side by side: of two calls with one id, the second may be asked about first."""
    with session.turn("Pay both.") as turn:
        turn.add(made(("c1", '{"euros": 1}'), ("c1", '{"euros": 2}')))
        assert pay(turn, 2, needs_approval=True).waiting
        assert [call.state for call in session.calls()] == ["open", "waiting"]
        assert pay(turn, 1, needs_approval=True).waiting
        assert [call.state for call in session.calls()] == ["waiting", "waiting"]


def test_asyncio_decides_about_the_call_of_one_message(where):
    async def story():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            for _ in range(2):
                async with session.turn("Pay.") as turn:
                    await turn.add(made(("c1", "{}")))
                    await turn.call("pay", {}, call_id="c1", needs_approval=True)
            first = (await session.calls())[0].message
            await session.decide("c1", True, by="ann", message=first)
            return [call.state for call in await session.calls()]

    assert asyncio.run(story()) == ["approved", "waiting"]


def test_asyncio_refuses_alike(where):
    async def story():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("Pay.") as turn:
                await turn.call("pay", {}, call_id="c1", needs_approval=True)
            await session.decide("c1", False, by="ann")
            async with session.turn("Now.") as turn:
                with pytest.raises(NotApproved):
                    await turn.call("pay", {}, call_id="c1")

    asyncio.run(story())


def test_arguments_that_can_be_read_in_two_ways_are_taken_as_text():
    twice = '{"euros": 80, "euros": 9999}'
    assert digests_of("pay", twice)[0] not in digests_of("pay", '{"euros": 9999}')
    assert digests_of("pay", '{"a": 1}')[0] == digests_of("pay", '{"a":1}')[0]
    assert digests_of("pay", '{"a": 1}')[0] != digests_of("pay", '{"a": 1.0}')[0]
    assert digests_of("pay", "{cut off")[0] == digests_of("pay", "{cut off")[1]


def test_an_approval_that_an_older_release_noted_is_still_good():
    ask = Ask("c1", "m", 0, digests_of("pay", '{"euros": 80}')[1], approved=True)
    assert judge_call([ask], digests_of("pay", '{"euros": 80}'), needs_approval=False).act == "use"
