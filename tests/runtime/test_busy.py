"""Two who want the same session: waiting, taking over, refusing, stopping; from threads and from
processes (I-7, I-16).

Fault classes F1, F4, A8, I7 of FAULTS.md.
"""

import asyncio
import threading
import time

import pytest

import holdfast
from holdfast.errors import AlreadyAccepted, SessionBusy, TurnInterrupted
from holdfast.testing.providers import check
from looking import end_notes, ends, other_handle, told, waiters, when
from procs import child

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
CALL = {"id": "call_9", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


def valid_everywhere(session):
    for format in FORMATS:
        assert check(format, session.context(format)) == [], format


def in_thread(work):
    """Runs this on a thread; gives a function that waits for it and returns what it returned, or
    raises.
    """
    box = {}

    def run():
        try:
            box["value"] = work()
        except BaseException as error:
            box["error"] = error

    thread = threading.Thread(target=run)
    thread.start()

    def joined():
        thread.join(60)
        assert not thread.is_alive()
        if "error" in box:
            raise box["error"]
        return box["value"]

    return joined


async def given_up(starting, session):
    """Waits for a turn until its message is in the inbox, and no longer."""
    task = asyncio.ensure_future(starting._start())
    while not await session.pending():
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# Waiting.


def test_who_waits_gets_its_own_turn_after_the_running_one(store):
    """F1: the message is in the inbox meanwhile (I-4), for everybody to see, and turns do not
    interleave.
    """
    session = store.session("k")
    first = session.turn("one")

    def second():
        with store.session("k").turn("two", event_id="evt-2") as turn:
            turn.say("Two.")
        return turn.id

    waiting = in_thread(second)
    when(session, lambda: session.pending())
    [pending] = session.pending()
    assert (pending.text, pending.state, pending.turn) == ("two", "pending", None)
    assert first.context() == [{"role": "user", "content": "one"}], (
        "what waits is not in the running turn's context"
    )
    with first:
        first.say("One.")
    assert waiting() != first.id
    assert [payload["content"] for payload in session.context()] == ["one", "One.", "two", "Two."]
    assert session.pending() == []


def test_a_waiter_keeps_its_message_from_the_inbox_of_the_running_turn(store):
    session = store.session("k")

    def second():
        with store.session("k").turn("two") as turn:
            turn.say("Two.")

    with session.turn("one") as first:
        waiting = in_thread(second)
        when(session, lambda: session.pending())
        assert first.inbox() == []
        store.accept("k", "three")
        assert [message.text for message in first.inbox()] == ["three"], "nobody waits with it"
        first.say("One.")
    waiting()
    assert [payload["content"] for payload in session.context()][-2:] == ["two", "Two."]


def test_a_waiter_in_another_process_gets_its_turn(store, where):
    """F1."""
    script = """
        import holdfast
        session = holdfast.open(sys.argv[1]).session("k")
        say("ready")
        with session.turn("two") as turn:
            say("started")
            turn.say("Two.")
        say("ended")
    """
    session = store.session("k")
    with session.turn("one") as turn, child(script, where) as other:
        other.wait_for("ready")
        when(session, lambda: session.pending())
        turn.say("One.")
        turn.interrupt()
        other.wait_for("ended")
    assert [payload["content"] for payload in session.context()] == ["one", "One.", "two", "Two."]


def test_many_waiters_each_get_one_turn_with_their_own_message(store):
    """F1, I-4: nothing is lost, nothing is answered twice, no turn takes the message of another's
    living caller.
    """
    session = store.session("k")
    blocker = session.turn("first")

    def ask(number):
        with store.session("k").turn(f"question {number}") as turn:
            asked = turn.context()[-1]["content"]
            turn.say(f"answer to {asked}")

    waiting = [in_thread(lambda number=number: ask(number)) for number in range(6)]
    when(session, lambda: len(session.pending()) == 6)
    blocker.say("go on")
    blocker.interrupt()
    for each in waiting:
        each()
    context = [payload["content"] for payload in session.context()][2:]
    assert sorted(context[::2]) == [f"question {number}" for number in range(6)]
    assert all(
        answer == f"answer to {question}"
        for question, answer in zip(context[::2], context[1::2], strict=True)
    )
    assert [len(each) for each in ends(store, session.id).values()] == [1] * 7


def test_a_waiter_that_is_cancelled_leaves_its_message_in_the_inbox(store, where):
    """I-4: it was accepted; the next turn takes it, whoever starts that."""

    async def scene():
        async with holdfast.open_async(where) as mine:
            session = await mine.session("k")
            async with session.turn("one") as turn:
                await given_up(session.turn("two", event_id="evt-2"), session)
                assert [message.text for message in await session.pending()] == ["two"]
                await turn.say("One.")
            with pytest.raises(AlreadyAccepted):
                await session.turn("two", event_id="evt-2")
            async with session.turn("three") as turn:
                assert (await turn.context())[-1]["content"] == "two\n\nthree"

    asyncio.run(scene())


@pytest.mark.parametrize("instant", range(12))
def test_a_waiter_that_is_cancelled_at_any_instant_leaves_its_message_free(where, instant):
    """I-4, FAULTS A8: wherever the cancellation lands, nobody is left waiting with a message that
    no turn may take.
    """

    async def scene():
        async with holdfast.open_async(where) as mine:
            session = await mine.session("k")
            turn = await session.turn("one")
            task = asyncio.ensure_future(session.turn("two")._start())
            for _ in range(instant):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await turn.say("One.")
            await turn.interrupt()
            waiting = [message.text for message in await session.pending()]
            async with session.turn("three", on_busy="refuse") as turn:
                assert [message.text for message in await session.pending()] == []
                assert (await turn.context())[-1]["content"] == "\n\n".join([*waiting, "three"])

    asyncio.run(scene())


def test_a_waiter_that_is_cancelled_while_its_message_is_being_accepted_leaves_it_free(
    store, where
):
    """I-4, FAULTS A8: the commit is seen through, and the message is the next turn's."""

    async def scene():
        async with holdfast.open_async(where) as mine:
            session = await mine.session("k")
            turn = await session.turn("one")
            with child(HOLDER, f"{where}-lock") as holder:
                holder.wait_for("held")
                task = asyncio.ensure_future(session.turn("two")._start())
                await submitted(mine)
                task.cancel()
                holder.tell()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert [message.text for message in await session.pending()] == ["two"]
            await turn.interrupt()
            async with session.turn("three", on_busy="refuse"):
                assert await session.pending() == []

    asyncio.run(scene())


async def submitted(store):
    """Waits until the next commit of this store is on its way."""
    engine, under_way = store._work.engine, asyncio.Event()
    submit = engine.submit

    def noticed(commit):
        under_way.set()
        return submit(commit)

    engine.submit = noticed
    await asyncio.wait_for(under_way.wait(), 60)
    engine.submit = submit


HOLDER = """
    import fcntl, os
    lock = os.open(sys.argv[1], os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    say("held")
    hear()
"""


def test_ctrl_c_while_waiting_leaves_the_message_in_the_inbox(store, where):
    """I-4: the caller goes, its process lives on, the message is anybody's."""
    script = """
        import holdfast
        session = holdfast.open(sys.argv[1]).session("k")
        try:
            session.turn("two")
        except KeyboardInterrupt:
            say("left")
        hear()
    """
    session = store.session("k")
    with session.turn("one") as turn, child(script, where) as other:
        when(session, lambda: session.pending())
        other.interrupt()
        other.wait_for("left")
        turn.say("One.")
        turn.interrupt()
        when(session, lambda: waiters(store, session.id) == [None])
        with session.turn(on_busy="refuse") as next_turn:
            assert next_turn.context()[-1]["content"] == "two"


def test_a_waiter_whose_process_is_killed_leaves_its_message_to_the_next_turn(store, where):
    """I-4."""
    script = """
        import holdfast
        holdfast.open(sys.argv[1]).session("k").turn("two", event_id="evt-2")
    """
    session = store.session("k")
    with session.turn("one") as turn:
        with child(script, where) as other:
            when(session, lambda: session.pending())
            other.kill()
        turn.say("One.")
    with session.turn(on_busy="refuse") as next_turn:
        assert next_turn.context()[-1]["content"] == "two"
    with pytest.raises(AlreadyAccepted) as told_so:
        session.turn("two", event_id="evt-2")
    assert told_so.value.turn_id == next_turn.id


def test_the_same_event_is_known_while_its_first_caller_still_waits(store):
    """I-2, FAULTS A6: the webhook is repeated while the first copy is in the inbox."""
    session = store.session("k")
    running = session.turn("one")
    waiting = in_thread(lambda: store.session("k").turn("two", event_id="evt-2"))
    when(session, lambda: session.pending())
    for rule in ("wait", "refuse", "interrupt"):
        with pytest.raises(AlreadyAccepted) as told_so:
            session.turn("two", event_id="evt-2", on_busy=rule)
        assert told_so.value.turn_id is None and told_so.value.session_id == session.id
    assert session.info().running == running.id, "a repetition must not interrupt anybody"
    running.interrupt()
    waiting().interrupt()
    assert [text for _, text, _ in told(session)] == ["one", "two"]


def test_what_waits_in_the_inbox_goes_on_in_the_key_s_next_session(store, where):
    """I-4, I-8: its caller has gone, then the key is reset; the next turn takes it, and the event
    names where.
    """

    async def leave_a_message():
        async with holdfast.open_async(where) as mine:
            await given_up(mine.turn("k", "two", event_id="evt-2"), await mine.session("k"))

    old = store.session("k")
    with old.turn("one") as running:
        asyncio.run(leave_a_message())
        running.say("One.")
    new = store.reset("k")
    assert old.pending() == [] and [message.text for message in new.pending()] == ["two"]
    with store.turn("k") as turn:
        assert turn.context() == [{"role": "user", "content": "two"}]
        turn.say("Two.")
    assert told(new) == [("user", "two", "complete"), ("assistant", "Two.", "complete")]
    with pytest.raises(AlreadyAccepted) as told_so:
        store.turn("k", "two", event_id="evt-2")
    assert (told_so.value.session_id, told_so.value.turn_id) == (new.id, turn.id)


def test_who_waits_through_a_reset_gets_its_turn_in_the_new_session(store):
    """I-4, I-8: a running turn and its session end in one transaction; no turn slips in to be ended
    at once.
    """
    for number in range(10):
        key = f"k{number}"
        old = store.session(key)
        running = old.turn("one")
        waiting = [
            in_thread(lambda key=key, text=text: answered(store, key, text))
            for text in ("two", "three")
        ]
        when(old, lambda old=old: len(old.pending()) == 2)
        new = store.reset(key)
        assert running.stopped is True
        for each in waiting:
            each()
        assert told(old) == [
            ("user", "one", "complete"),
            *[("user", text, "complete") for text in moved(old)],
        ]
        assert list(ends(store, old.id).values()) == [["interrupted"]]
        assert sorted(text for _, text, _ in told(new)) == ["three", "to three", "to two", "two"]
        assert list(ends(store, new.id).values()) == [["completed"], ["completed"]]


def answered(store, key, text):
    with store.turn(key, text, event_id=text) as turn:
        turn.say(f"to {text}")


def moved(session):
    """What waited in a session when it was reset: it stays in that session's transcript, and goes
    on in the next.
    """
    return [message.text for message in session.transcript() if message.text != "one"]


# Refusing.


def test_who_refuses_to_wait_is_told_which_turn_runs(store, where):
    """F1: nothing of the refused message is stored."""
    session = store.session("k")
    with session.turn("one") as turn:
        with pytest.raises(SessionBusy) as busy:
            session.turn("two", on_busy="refuse", event_id="evt-2")
        assert (busy.value.session_id, busy.value.turn_id) == (session.id, turn.id)
        with other_handle(where) as other, pytest.raises(SessionBusy):
            other.turn("k", "two", on_busy="refuse", event_id="evt-2")
        assert [text for _, text, _ in told(session)] == ["one"] and session.pending() == []
    with session.turn("two", on_busy="refuse", event_id="evt-2"):
        pass


# Taking over.

TOLD = {
    "deliver": lambda turn: list(turn.deliver(["more"])),
    "say": lambda turn: turn.say("more"),
    "add": lambda turn: turn.add({"role": "assistant", "content": "more"}),
    "call": lambda turn: turn.call("look", {}),
    "result": lambda turn: turn.result("call_9", "found"),
    "inbox": lambda turn: turn.inbox(),
    "retract": lambda turn: turn.retract(),
    "interrupt": lambda turn: turn.interrupt(),
    "fail": lambda turn: turn.fail("x"),
}


@pytest.mark.parametrize("call", TOLD)
def test_a_superseded_writer_is_told_at_its_next_call(store, where, call):
    """I-7, FAULTS F1, F4: whatever that call is, it raises, and the turn that took over is
    untouched.
    """
    session = store.session("k")
    old = session.turn("one")
    old.add({"role": "assistant", "content": "On it.", "tool_calls": [CALL]})
    with other_handle(where) as other:
        new = other.session("k").turn("two", on_busy="interrupt")
        with pytest.raises(TurnInterrupted) as told_so:
            TOLD[call](old)
        assert told_so.value.turn_id == old.id and "took over" in told_so.value.reason
        assert old.stopped is True and new.stopped is False
        with new:
            new.say("Two.")
        found = list(ends(other, session.id).values())
        assert found == [["interrupted"], ["completed"]]
        valid_everywhere(session)
        kept = [message for message in session.transcript() if message.late]
        assert [message.turn for message in kept] == [old.id] * (call in ("add", "result"))


def test_a_superseded_writer_delivers_nothing_more(store, where):
    """I-5, I-7, FAULTS F4: in the middle of its stream; what was shown is kept, under its own turn,
    as partial.
    """
    session = store.session("k")
    shown, asked = [], []

    def source():
        for number in range(100):
            asked.append(number)
            yield f"{number} "
            if number == 2:
                with (
                    other_handle(where) as other,
                    other.session("k").turn("two", on_busy="interrupt") as new,
                ):
                    new.say("Two.")

    with pytest.raises(TurnInterrupted):
        with session.turn("one") as turn:
            for text in turn.deliver(source()):
                shown.append(text)
    assert shown == ["0 ", "1 ", "2 "]
    assert [payload["content"] for payload in session.context()] == ["one", "0 1 2 ", "two", "Two."]
    partial = next(message for message in session.transcript() if message.text == "0 1 2 ")
    assert (partial.state, partial.turn, partial.late) == ("partial", turn.id, False)
    valid_everywhere(session)


def test_a_writer_that_another_handle_has_stopped_delivers_nothing_more(store, where):
    """I-7: the chunk is judged by the session as it is now, not by what its engine
    remembers of it.
    """
    session = store.session("k")
    with pytest.raises(TurnInterrupted), session.turn("Hi") as turn:
        stream = turn.deliver(iter(["shown", "never"]))
        assert next(stream) == "shown"
        with other_handle(where) as other:
            other.session("k").stop("enough")
        assert next(stream, None) is None
    assert [message.text for message in session.transcript()] == ["Hi", "shown"]


def test_what_a_superseded_writer_had_finished_is_kept_late_and_takes_its_place(store):
    """I-7, I-10, FAULTS F4, E1: the tool's outcome and a finished message stand in their own turn,
    marked late.
    """
    session = store.session("k")
    old = session.turn("one")
    call = old.call("look", {"at": "sky"})
    with session.turn("two", on_busy="interrupt") as new:
        new.say("Two.")
    assert "interrupted" in session.context()[2]["content"]
    with pytest.raises(TurnInterrupted):
        old.result(call, "blue")
    with pytest.raises(TurnInterrupted):
        old.add({"role": "assistant", "content": "It is blue."})
    roles = [(payload["role"], payload.get("content")) for payload in session.context()]
    assert roles == [
        ("user", "one"),
        ("assistant", None),
        ("tool", "blue"),
        ("assistant", "It is blue."),
        ("user", "two"),
        ("assistant", "Two."),
    ]
    late = [message for message in session.transcript() if message.late]
    assert [(message.role, message.turn) for message in late] == [
        ("tool", old.id),
        ("assistant", old.id),
    ]
    assert list(ends(store, session.id).values()) == [["interrupted"], ["completed"]]
    valid_everywhere(session)


def test_a_late_outcome_is_kept_in_a_session_that_has_ended(store):
    """I-7: the session is over, the tool's effect is not undone by that."""
    session = store.session("k")
    old = session.turn("one")
    call = old.call("pay", {"sum": 5})
    store.reset("k")
    with pytest.raises(TurnInterrupted):
        old.result(call, "paid")
    assert [tool.state for tool in session.calls()] == ["done"]
    valid_everywhere(session)


def test_taking_over_from_another_process_tells_the_old_one(store, where):
    """I-7, FAULTS F1: two real processes, one session; the old one hears of it at its
    next chunk.
    """
    script = """
        import holdfast
        from holdfast.errors import TurnInterrupted
        def source():
            yield "mine "
            say("paused")
            hear()
            yield "still mine?"
        try:
            with holdfast.open(sys.argv[1]).turn("k", "one") as turn:
                for text in turn.deliver(source()):
                    say("shown", text)
        except TurnInterrupted as error:
            say("told", error.reason)
    """
    with child(script, where) as old:
        old.wait_for("paused")
        session = store.session("k")
        with session.turn("two", on_busy="interrupt") as turn:
            turn.say("Two.")
        old.tell()
        assert "took over" in old.wait_for("told")
        assert old.end() == []
    assert [payload["content"] for payload in session.context()] == ["one", "mine ", "two", "Two."]


def test_of_many_who_take_over_at_once_each_turn_ends_once_and_the_last_one_wins(store, where):
    """I-6, I-7, F1: eight threads on two handles."""
    session = store.session("k")
    gate = threading.Barrier(8)
    with other_handle(where) as other:

        def grab(number):
            mine = (store, other)[number % 2].session("k")
            gate.wait()
            try:
                with mine.turn(f"q{number}", on_busy="interrupt") as turn:
                    turn.say(f"a{number}")
                return "completed"
            except TurnInterrupted:
                return "interrupted"

        outcomes = [
            each()
            for each in [in_thread(lambda number=number: grab(number)) for number in range(8)]
        ]
    found = list(ends(store, session.id).values())
    assert [len(each) for each in found] == [1] * 8
    assert sorted(each[0] for each in found) == sorted(outcomes)
    assert found[-1] == ["completed"], "nobody took over from the last"
    texts = [text for _, text, _ in told(session)]
    assert sorted(text for text in texts if text.startswith("q")) == [
        f"q{number}" for number in range(8)
    ]
    valid_everywhere(session)


# Stopping, and readers that leave.


def test_stop_from_another_process_ends_the_turn(store, where):
    """I-16, FAULTS I7: an explicit act, told to the writer at its next call, with the reason in the
    record.
    """
    session = store.session("k")
    turn = session.turn("one")
    stream = turn.deliver(iter(["a ", "b ", "c "]))
    assert next(stream) == "a "
    script = """
        import holdfast
        session = holdfast.open(sys.argv[1]).session("k")
        say("stopped", session.stop("enough"), session.stop("enough"))
    """
    with child(script, where) as other:
        assert other.wait_for("stopped") == "True False"
    assert turn.stopped is True
    with pytest.raises(TurnInterrupted) as told_so:
        next(stream)
    assert "enough" in told_so.value.reason
    assert told(session) == [("user", "one", "complete"), ("assistant", "a ", "partial")]
    [note] = end_notes(store, session.id)
    assert note.end == "interrupted" and "enough" in note.reason


@pytest.mark.slow
def test_a_stop_is_a_stop_whoever_looks_meanwhile(store, where):
    """I-6, I-16: others look all the time; none of them takes the stopped turn for one whose writer
    has died.
    """
    done = threading.Event()
    session = store.session("k")

    def look(mine):
        while not done.is_set():
            mine.session("k").info()

    with other_handle(where) as other:
        looking = [in_thread(lambda mine=mine: look(mine)) for mine in (store, store, other, other)]
        for number in range(20):
            turn = session.turn(f"q{number}")
            assert store.session("k").stop() is True
            assert turn.stopped is True
        done.set()
        for each in looking:
            each()
    assert list(ends(store, session.id).values()) == [["interrupted"]] * 20
    assert session.pending() == []


def test_a_reader_that_goes_away_stops_nothing(store, where):
    """I-16, FAULTS I7: followers are killed or closed in mid-stream; the turn completes."""
    script = """
        import holdfast
        for event in holdfast.open(sys.argv[1]).session("k").follow():
            say(event.kind, event.text)
    """
    session = store.session("k")
    with child(script, where) as reader:
        follower = store.session("k").follow()

        def source():
            yield "a "
            reader.wait_for("chunk")
            while next(follower).kind != "chunk":
                pass
            yield "b "
            reader.kill()
            follower.close()
            yield "c "

        with session.turn("one") as turn:
            assert "".join(turn.deliver(source())) == "a b c "
    assert told(session) == [("user", "one", "complete"), ("assistant", "a b c ", "complete")]
    assert ends(store, session.id) == {1: ["completed"]}


def test_stop_ends_only_the_session_it_names(store):
    """I-16."""
    with store.turn("a", "one") as kept:
        stopped = store.session("b").turn("two")
        assert store.session("b").stop() is True and stopped.stopped
        assert kept.stopped is False
        kept.say("One.")
    assert ends(store, store.session("a").id) == {1: ["completed"]}


def test_a_running_turn_takes_what_came_in_meanwhile(store, where):
    """I-4, FAULTS A8, E5: steering; a caller that does not wait leaves its message for
    `inbox()`.
    """
    session = store.session("k")

    async def leave_a_message():
        async with holdfast.open_async(where) as mine:
            await given_up(mine.turn("k", "and a window seat"), await mine.session("k"))

    with session.turn("Book a table.") as turn:
        assert turn.inbox() == []
        call = turn.call("book", {})
        asyncio.run(leave_a_message())
        [steer] = turn.inbox()
        assert (steer.text, steer.turn) == ("and a window seat", turn.id)
        assert session.pending() == [] and turn.inbox() == []
        turn.result(call, "done")
        assert [payload["role"] for payload in turn.context()] == [
            "user",
            "assistant",
            "tool",
            "user",
        ]
        turn.say("Done, by the window.")
    valid_everywhere(session)


def test_a_waiter_is_not_told_of_its_own_message_when_another_one_was_taken(path):
    """Between its look at the inbox and its start, a turn came and went that took what waited
    beside its message.
    """
    with holdfast.open(path) as first, holdfast.open(path) as second, holdfast.open(path) as third:
        running = first.session("k").turn("running")
        first.accept("k", "beside")
        engine, submit, met = second._work.engine, second._work.engine.submit, []

        def submit_late(commit):
            if commit[-1].start is not None and not met:
                met.append(commit)
                with third.session("k").turn() as turn:
                    turn.say("I took the other one.")
            return submit(commit)

        started = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "submit", submit_late)
            waiter = threading.Thread(
                target=lambda: started.append(second.session("k").turn("mine"))
            )
            waiter.start()
            while len(first.session("k").pending()) < 2:
                time.sleep(0.01)
            running.interrupt("enough")
            waiter.join(60)
        assert met and len(started) == 1
        started[0].interrupt("enough")
        texts = [message.text for message in first.session("k").transcript()]
        assert texts.count("mine") == texts.count("beside") == 1
