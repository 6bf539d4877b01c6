"""Sums and pages: usage by message, turn and session, and memory that does not grow with the
history (I-24, J2, J3).
"""

import asyncio
import tracemalloc

import pytest

import holdfast
from looking import other_handle
from procs import child
from thorough import SWEEP, few_on_postgres

pytestmark = few_on_postgres("sums and pages are made in `runtime/live`", every=3)

LONG = 30_000 if SWEEP else 12_000

ANSWER = {"role": "assistant", "content": "yes"}


def chunks(text, *, input, output):
    """A streamed answer as OpenAI sends it, with what it cost at the end."""
    yield {
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
        ]
    }
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    yield {
        "choices": [],
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": 0},
    }


def spend(session, *, input, output):
    with session.turn("go") as turn:
        list(turn.deliver(chunks("done", input=input, output=output), format="openai.chat"))
    return turn.id


def test_usage_is_told_by_message_by_turn_and_by_session(session):
    first = spend(session, input=10, output=1)
    with session.turn("twice") as turn:
        for _ in range(2):
            list(turn.deliver(chunks("x", input=100, output=5), format="openai.chat"))
    by_message = [message.usage.input for message in session.transcript() if message.usage]
    assert by_message == [10, 100, 100]
    assert [
        (turn.id == first, turn.usage.input, turn.usage.output) for turn in session.turns()
    ] == [
        (True, 10, 1),
        (False, 200, 10),
    ]
    assert (session.info().usage.input, session.info().usage.output) == (210, 11)


def test_usage_is_counted_once_however_often_a_session_is_forked(store, session):
    spend(session, input=10, output=1)
    forks = [session.fork() for _ in range(5)]
    spend(forks[0], input=7, output=0)
    assert [fork.info().usage.input for fork in forks] == [7, 0, 0, 0, 0]
    assert session.info().usage.input == 10
    assert forks[0].info().messages == 4


def test_turns_tell_how_each_ended(session):
    spend(session, input=1, output=1)
    with pytest.raises(RuntimeError), session.turn("fail"):
        raise RuntimeError("no")
    running = session.turn("long")
    told = session.turns()
    assert [turn.end for turn in told] == ["completed", "failed", None]
    assert told[1].error == "RuntimeError: no" and told[2].id == running.id
    assert [turn.messages for turn in told] == [2, 1, 1]
    assert [turn.number for turn in session.turns(after=told[0].number, limit=1)] == [
        told[1].number
    ]
    running.interrupt("enough")
    assert session.turns()[-1].reason == "enough"


def test_a_turn_that_was_running_when_its_session_was_forked_has_an_end_in_the_fork(store, session):
    """It goes on in the one session and not in the other."""
    with session.turn("hello") as turn:
        turn.say("Half of it.")
        branch = session.fork()
        turn.say("All of it.")
    with branch.turn("and here?") as other:
        other.say("Yes.")
    assert [(told.end, told.reason) for told in session.turns()] == [("completed", None)]
    assert [(told.end, told.reason) for told in branch.turns()] == [
        ("interrupted", "the session was forked"),
        ("completed", None),
    ]
    assert [told.ended_at is None for told in branch.turns()] == [False, False]
    assert [told.number for told in branch.turns(after=1)] == [other._work.number]


def test_sums_follow_what_another_process_writes(session, path):
    spend(session, input=1, output=1)
    assert session.info().messages == 2
    with other_handle(path) as far:
        spend(far.get(session.id), input=1, output=1)
    assert (session.info().messages, session.info().turns, session.info().usage.input) == (4, 2, 2)


def test_a_message_says_which_turn_took_it_wherever_a_page_begins(store, session):
    """Taken at once, and taken much later by a turn that was interrupted."""
    store.accept("k", "one")
    with session.turn() as first:
        first.say("a")
    store.accept("k", "two")
    for number in range(300):
        session.append(f"{number}")
    stopped = session.turn()
    stopped.interrupt()
    with session.turn() as third:
        third.say("b")
    store.accept("k", "three")
    whole = {message.text: (message.turn, message.state) for message in session.transcript()}
    assert whole["one"] == (first.id, "complete")
    assert whole["two"] == (stopped.id, "complete"), (
        "who interrupts a turn has dealt with what it took"
    )
    assert whole["three"] == (None, "pending")
    for after in range(0, session.info().head):
        [message] = list(session.transcript(after=after, limit=1))[:1] or [None]
        if message is not None:
            assert (message.turn, message.state) == whole[message.text]


def test_labels_are_told_on_every_page_and_a_fork_has_those_of_its_past(session):
    ids = [session.append(f"{number}") for number in range(5)]
    session.label(ids[0], colour="red")
    session.label(ids[0], size=3)
    fork = session.fork()
    session.label(ids[0], colour="blue")
    fork.label(ids[1], colour="green")
    assert [message.labels for message in session.transcript(limit=2)] == [
        {"colour": "blue", "size": 3},
        {},
    ]
    theirs = [message.labels for message in fork.transcript(limit=2)]
    assert theirs == [{"colour": "red", "size": 3}, {"colour": "green"}]


@pytest.mark.slow
def test_looking_at_a_long_session_takes_no_more_memory_than_a_page(path):
    """A transcript's tail, its list, its sums: none of them folds the history."""
    with holdfast.open(path, durability="process") as store:
        session = store.session("long")
        for _ in range(LONG // 1500):
            asyncio.run(_fill(path, 1500))
    with holdfast.open(path, durability="process") as store:
        session = store.session("long")
        tracemalloc.start()
        head = store.sessions()[0].head
        assert len(list(session.transcript(after=head - 20))) == 20
        assert session.info().messages == LONG
        session.label(next(session.transcript(after=100)).id, seen=True)
        assert sum(1 for _ in session.transcript()) == LONG
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4_000_000, f"{peak / 1e6:.0f} MB"


async def _fill(path, count):
    async with holdfast.open_async(path, durability="process") as store:
        session = await store.session("long")
        await asyncio.gather(
            *(session.append(f"{number} and some words more") for number in range(count))
        )


def test_a_turn_tells_whom_it_answers(where):
    """Its own address, or that of the first message it took: what a gateway needs after a kill."""
    with holdfast.open(where) as store:
        session = store.session("k")
        with session.turn("one", reply_to="r1"):
            pass
        store.accept("k", "two", reply_to="r2")
        store.accept("k", "three", reply_to="r3")
        with session.turn():
            pass
        with session.turn("four"):
            pass
        with session.turn("five") as turn:
            store.accept("k", "six", reply_to="r6")
            turn.inbox()
        assert [turn.reply_to for turn in session.turns()] == ["r1", "r2", None, "r6"]
        assert [turn.reply_to for turn in session.turns(after=1)] == ["r2", None, "r6"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["accept", "turn"])
def test_a_turn_that_takes_what_a_killed_one_gave_back_tells_whom_it_answers(where, how):
    script = """
        import holdfast, os
        store = holdfast.open(sys.argv[1])
        if sys.argv[2] == "accept":
            store.accept("k", "hello", reply_to="ann")
            turn = store.turn("k", lease_s=1)
        else:
            turn = store.turn("k", "hello", reply_to="ann", lease_s=1)
        turn.__enter__()
        os._exit(1)
    """
    with child(script, where, how) as writer:
        writer.end(code=1)
    with holdfast.open(where) as store:
        session = store.session("k")
        with session.turn() as turn:
            turn.say("yes")
        with session.turn("bob") as turn:
            turn.say("and you")
        addresses = ["ann", "ann", None]
        assert [turn.reply_to for turn in session.turns()] == addresses
        first = session.turns()[0].number
        assert [turn.reply_to for turn in session.turns(after=first)] == addresses[1:]
        assert [owed.reply_to for owed in store.outbox()] == ["ann"]


@pytest.mark.slow
def test_turns_that_were_cut_by_a_kill_are_listed_as_running_until_somebody_looks(where):
    """What a gateway asks first after a restart, without walking all sessions: what was cut, how
    much of it was shown, and whom it answers.
    """
    script = """
        import holdfast, os
        store = holdfast.open(sys.argv[1])
        with store.turn("fine", "Hello", reply_to="r1") as turn:
            turn.say("whole")
        turn = store.turn("cut", "Hi", reply_to="r2", lease_s=1)
        def source():
            yield "half an "
            os._exit(1)
        for text in turn.deliver(source()):
            say(text)
    """
    with child(script, where) as writer:
        assert writer.end(code=1) == ["half an "]
    with holdfast.open(where) as store:
        assert [listed.key for listed in store.sessions(state="running")] == ["cut"]
        session = store.session("cut")
        *_, said = session.transcript()
        [turn] = session.turns()
        assert (said.text, said.state, turn.end, turn.reply_to) == (
            "half an ",
            "partial",
            "abandoned",
            "r2",
        )
        assert list(store.sessions(state="running")) == []
