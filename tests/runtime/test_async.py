"""The asyncio face: the same store, the same laws, and what only an event loop can do to a turn
(I-3, I-5, I-6).

Fault classes A1, A3, F7, I7, I8 of FAULTS.md.
"""

import asyncio
import gc
import threading

import pytest

import holdfast
from holdfast.errors import AlreadyAccepted, BadArgument, SessionBusy, TurnInterrupted
from holdfast.testing.providers import check
from looking import end_notes, ends, journaled, told
from procs import child

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
LIMIT_S = 60


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def eye(where):
    """A sync handle on the same store, to look with."""
    with holdfast.open(where) as store:
        yield store


def play(scene):
    """Runs a scene on a fresh event loop."""
    return asyncio.run(asyncio.wait_for(scene, LIMIT_S))


def test_the_ten_lines_awaited(where, eye):
    """I-4, I-5: durable before the model is called, durable before each text."""

    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("Hi", event_id="evt-1") as turn:
                assert told(eye.session("k")) == [("user", "Hi", "complete")]
                assert await turn.context("openai.chat") == [{"role": "user", "content": "Hi"}]
                shown = ""
                async for text in turn.deliver(words("Hel", "lo.")):
                    shown += text
                    assert journaled(eye, session.id).startswith(shown)
            assert [message.text async for message in session.transcript()] == ["Hi", "Hello."]
            assert (await session.info()).state == "open"
            with pytest.raises(AlreadyAccepted):
                await session.turn("Hi", event_id="evt-1")
            return session.id

    assert ends(eye, play(scene())) == {1: ["completed"]}


async def words(*texts, gate=None):
    for text in texts:
        yield text
    if gate is not None:
        await gate.wait()


def test_a_store_can_be_awaited_or_entered(where):
    async def scene():
        store = await holdfast.open_async(where)
        turn = await store.turn("k", "Hi")
        await turn.say("Hello.")
        await turn.interrupt()
        await store.close()
        async with holdfast.open_async(where) as again:
            session = await again.session("k", create=False)
            return [message.text async for message in session.transcript()]

    assert play(scene()) == ["Hi", "Hello."]


@pytest.mark.parametrize(
    "error, end",
    [
        (ValueError("broke"), "failed"),
        (TimeoutError(), "interrupted"),
        (asyncio.CancelledError(), "interrupted"),
    ],
    ids=["failed", "timeout", "cancelled"],
)
def test_an_exception_ends_the_turn_once_and_is_raised_on(where, eye, error, end):
    """I-6, FAULTS A1, A3."""

    async def scene():
        async with holdfast.open_async(where) as store:
            with pytest.raises(type(error)):
                async with store.turn("k", "Hi") as turn:
                    await turn.say("One moment.")
                    raise error

    play(scene())
    session = eye.session("k")
    assert ends(eye, session.id) == {1: [end]}
    assert told(session) == [("user", "Hi", "complete"), ("assistant", "One moment.", "complete")]


def test_a_task_cancelled_in_the_middle_of_a_stream_keeps_what_was_shown(where, eye):
    """I-5, I-6, FAULTS A1: the task waits for its source; the source is told, and closed in its own
    task.
    """
    shown, closed = [], []

    async def source():
        try:
            yield "One "
            yield "two "
            await asyncio.Event().wait()
        finally:
            closed.append(asyncio.current_task())

    async def scene():
        async with holdfast.open_async(where) as store:
            stuck = asyncio.Event()

            async def agent():
                async with store.turn("k", "Count.") as turn:
                    async for text in turn.deliver(source()):
                        shown.append(text)
                        if text == "two ":
                            stuck.set()

            task = asyncio.create_task(agent())
            await stuck.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(closed) == 1

    play(scene())
    session = eye.session("k")
    assert told(session) == [
        ("user", "Count.", "complete"),
        ("assistant", "".join(shown), "partial"),
    ]
    assert ends(eye, session.id) == {1: ["interrupted"]}
    [note] = end_notes(eye, session.id)
    assert note.reason == "CancelledError"


@pytest.mark.parametrize("instant", range(0, 40, 3))
def test_a_task_cancelled_at_any_instant_leaves_one_end_and_a_prefix(where, eye, instant):
    """I-5, I-6: however many steps of the loop it had; the turn is not left running, and the
    session is free.
    """
    shown = []

    async def agent(store):
        async with store.turn("k", "Count.", event_id="evt") as turn:
            async for text in turn.deliver(words("One ", "two ", "three ")):
                shown.append(text)
            await turn.result(await turn.call("look", {}), "seen")
            await turn.say("Four.")

    async def scene():
        async with holdfast.open_async(where) as store:
            task = asyncio.create_task(agent(store))
            for _ in range(instant):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            async with store.turn("k", "Next", on_busy="refuse") as turn:
                await turn.say("Yes.")

    play(scene())
    session = eye.session("k")
    assert [len(each) for each in ends(eye, session.id).values()] in ([1], [1, 1])
    said = "".join(text for role, text, _ in told(session) if role == "assistant")
    assert said.startswith("".join(shown)) and said.endswith("Yes.")
    for format in FORMATS:
        assert check(format, session.context(format)) == []


def test_a_start_that_is_cancelled_while_it_is_being_committed_leaves_no_turn_running(where, eye):
    """I-6, FAULTS I8: the commit is seen through; nobody got the turn, so it is over, and its
    message is given back.
    """
    for fresh in (True, False):

        async def scene():
            async with holdfast.open_async(where) as store:
                with child(HOLDER, f"{where}-lock") as holder:
                    holder.wait_for("held")
                    task = asyncio.ensure_future(store.turn("k", "Hi")._start())
                    await submitted(store)
                    task.cancel()
                    holder.tell()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                async with store.turn("k", on_busy="refuse") as turn:
                    assert (await turn.context())[-1] == {"role": "user", "content": "Hi"}
                    await turn.say("Hello.")

        play(scene())
        session = eye.session("k")
        assert told(session)[-2:] == [
            ("user", "Hi", "complete"),
            ("assistant", "Hello.", "complete"),
        ], fresh
        assert [len(each) for each in ends(eye, session.id).values()] == [1] * (2 if fresh else 4)


HOLDER = """
    import fcntl, os
    lock = os.open(sys.argv[1], os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    say("held")
    hear()
"""


async def submitted(store):
    """Waits until the next commit of this store is on its way."""
    engine, under_way = store._work.engine, asyncio.Event()
    submit = engine.submit

    def noticed(commit):
        under_way.set()
        return submit(commit)

    engine.submit = noticed
    await asyncio.wait_for(under_way.wait(), LIMIT_S)
    engine.submit = submit


def test_an_async_generator_that_is_closed_ends_its_turn(where, eye):
    """I-6: an agent written as an async generator; its consumer leaves."""

    async def scene():
        async with holdfast.open_async(where) as store:

            async def agent():
                async with store.turn("k", "Hi") as turn:
                    async for text in turn.deliver(words("One ", "two ", "three")):
                        yield text

            running = agent()
            assert await anext(running) == "One "
            await running.aclose()

    play(scene())
    session = eye.session("k")
    assert [len(each) for each in ends(eye, session.id).values()] == [1]
    assert told(session) == [("user", "Hi", "complete"), ("assistant", "One ", "partial")]


def test_a_stream_left_with_break_is_partial(where, eye):
    """I-5: nobody closes the generator by hand; the turn's end settles it."""

    async def scene():
        async with holdfast.open_async(where) as store:
            async with store.turn("k", "Hi") as turn:
                async for text in turn.deliver(words("One ", "two ", "three")):
                    assert text == "One "
                    break

    play(scene())
    session = eye.session("k")
    assert told(session) == [("user", "Hi", "complete"), ("assistant", "One ", "partial")]
    assert ends(eye, session.id) == {1: ["interrupted"]}


@pytest.mark.slow
def test_a_dropped_async_turn_is_ended(where, eye):
    """I-6, FAULTS I8."""

    async def scene():
        async with holdfast.open_async(where) as store:
            turn = await store.turn("k", "Hi")
            await turn.say("Hello.")
            del turn
            gc.collect()
            async with store.turn("k", "Again") as second:
                await second.say("Yes.")

    play(scene())
    assert [len(each) for each in ends(eye, eye.session("k").id).values()] == [1, 1]


def test_a_sync_source_is_taken_too(where, eye):
    """A list, a generator, a string: read on the loop, a chunk at a time."""

    async def scene():
        async with holdfast.open_async(where) as store:
            async with store.turn("k", "Hi") as turn:
                for source in (["a", "b"], (text for text in "cd"), "ef"):
                    async for _ in turn.deliver(source):
                        pass

    play(scene())
    assert [text for _, text, _ in told(eye.session("k"))] == ["Hi", "ab", "cd", "ef"]


def test_a_fast_source_is_coalesced_on_a_loop_too(where, eye):
    """20 000 chunks that never wait; the text is whole, the commits are few."""
    texts = [f"{number} " for number in range(20_000)]

    async def scene():
        async with holdfast.open_async(where) as store:
            async with store.turn("k", "Hi") as turn:
                handed = [text async for text in turn.deliver(words(*texts))]
                assert "".join(handed) == "".join(texts) and len(handed) <= len(texts) / 10
            async with store.turn("k", "Hi") as turn:
                handed = [text async for text in turn.deliver(iter(texts))]
                assert "".join(handed) == "".join(texts) and len(handed) <= len(texts) / 10

    play(scene())


def test_a_message_is_frozen_before_the_first_wait(where, eye):
    """I-3, FAULTS F7: between the call and the await its owner changes it; what was given is what
    is stored.
    """

    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            message = {"role": "user", "content": "as it was"}
            starting = session.turn(message)
            message["content"] = "changed"
            async with starting as turn:
                answer = {"role": "assistant", "content": "as it was too"}
                adding = turn.add(answer)
                answer["content"] = "changed"
                await adding
            outside = {"role": "user", "content": "and this"}
            appending = session.append(outside)
            outside["content"] = "changed"
            await appending

    play(scene())
    assert [text for _, text, _ in told(eye.session("k"))] == [
        "as it was",
        "as it was too",
        "and this",
    ]


@pytest.mark.slow
def test_many_tasks_on_one_session_do_not_interleave(where, eye):
    """F1, F2: forty tasks, one session; each turn stands whole."""

    async def ask(store, number):
        async with store.turn("k", f"q{number}") as turn:
            async for _ in turn.deliver(words(f"a{number} ", "and ", "so on")):
                await asyncio.sleep(0)

    async def scene():
        async with holdfast.open_async(where) as store:
            await asyncio.gather(*(ask(store, number) for number in range(40)))

    play(scene())
    session = eye.session("k")
    context = [payload["content"] for payload in session.context()]
    assert sorted(context[::2]) == sorted(f"q{number}" for number in range(40))
    assert all(
        answer == f"a{question[1:]} and so on"
        for question, answer in zip(*[iter(context)] * 2, strict=True)
    )
    assert [each for each in ends(eye, session.id).values()] == [["completed"]] * 40


def test_refusing_and_taking_over_between_tasks(where, eye):
    """I-7, F1, F4."""

    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            old = await session.turn("one")
            with pytest.raises(SessionBusy):
                await session.turn("two", on_busy="refuse")
            async with session.turn("two", on_busy="interrupt") as new:
                assert await old.stopped is True and await new.stopped is False
                for refused in (old.say("x"), old.call("x", {}), old.inbox(), old.add("late")):
                    with pytest.raises(TurnInterrupted):
                        await refused
                with pytest.raises(TurnInterrupted):
                    async for _ in old.deliver(words("x")):
                        raise AssertionError("nothing more may be delivered")
                await new.say("Two.")

    play(scene())
    session = eye.session("k")
    assert list(ends(eye, session.id).values()) == [["interrupted"], ["completed"]]
    assert [(message.text, message.late) for message in session.transcript()][-2:] == [
        ("late", True),
        ("Two.", False),
    ]


def test_stop_from_a_thread_ends_an_async_turn(where, eye):
    """I-16: the writer is told at its next chunk, without being woken by anybody."""

    async def scene():
        async with holdfast.open_async(where) as store:
            gate = asyncio.Event()

            async def source():
                yield "One "
                await asyncio.get_running_loop().run_in_executor(
                    None, lambda: eye.session("k").stop("enough")
                )
                gate.set()
                yield "two"

            with pytest.raises(TurnInterrupted) as told_so:
                async with store.turn("k", "Hi") as turn:
                    async for text in turn.deliver(source()):
                        assert text == "One "
            assert gate.is_set() and "enough" in told_so.value.reason

    play(scene())
    assert told(eye.session("k")) == [("user", "Hi", "complete"), ("assistant", "One ", "partial")]


def test_the_loop_runs_on_while_a_commit_waits(where, eye):
    """One hop, no blocking: another process holds the lock, and other tasks are not held up by
    that.
    """

    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            with child(HOLDER, f"{where}-lock") as holder:
                holder.wait_for("held")
                task = asyncio.ensure_future(session.append({"role": "user", "content": "Hi"}))
                for _ in range(100):
                    await asyncio.sleep(0)
                assert not task.done()
                holder.tell()
                await task

    play(scene())
    assert told(eye.session("k")) == [("user", "Hi", "complete")]


def test_two_loops_on_two_threads_share_a_store_file(where, eye):
    """F8: each with a store of its own, the same session."""

    async def ask(name):
        async with holdfast.open_async(where) as store:
            for number in range(10):
                async with store.turn("k", f"{name}{number}") as turn:
                    await turn.say(f"to {name}{number}")

    threads = [threading.Thread(target=lambda name=name: asyncio.run(ask(name))) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    context = [payload["content"] for payload in eye.session("k").context()]
    assert len(context) == 40 and all(
        said == f"to {asked}" for asked, said in zip(*[iter(context)] * 2, strict=True)
    )


def test_a_source_that_raises_is_raised_on(where, eye):
    """I-5: what it said before is handed on and stored, in order, and then its error comes."""

    async def source():
        for number in range(2_000):
            yield f"{number} "
        raise ConnectionError("reset by peer")

    async def scene():
        shown = []
        async with holdfast.open_async(where) as store:
            with pytest.raises(ConnectionError):
                async with store.turn("k", "Hi") as turn:
                    async for text in turn.deliver(source()):
                        shown.append(text)
        return "".join(shown)

    shown = play(scene())
    assert shown == "".join(f"{number} " for number in range(2_000))
    assert told(eye.session("k"))[1] == ("assistant", shown, "partial")
    [note] = end_notes(eye, eye.session("k").id)
    assert (note.end, note.error) == ("failed", "ConnectionError: reset by peer")


def test_a_plain_function_that_sums_up_does_not_stop_the_loop(path):
    """It may ask a model, for minutes; a coroutine function is awaited on the loop as ever."""
    threads = []

    def plain(messages):
        threads.append(threading.get_ident())
        return "plain"

    async def awaited(messages):
        threads.append(threading.get_ident())
        return "awaited"

    class Callable:
        async def __call__(self, messages):
            return await awaited(messages)

    async def scene():
        async with holdfast.open_async(path) as store:
            session = await store.session("k")
            for summarise in (plain, awaited, Callable()):
                for _ in range(2):
                    async with session.turn("Hi.") as turn:
                        await turn.say("Hello.")
                assert await session.compact(summarise, keep_turns=1) is not None
        return threading.get_ident()

    loop = asyncio.run(scene())
    assert [thread == loop for thread in threads] == [False, True, True]


def test_a_source_that_is_cancelled_on_its_own_has_not_ended(where, eye):
    """I-6: its text is partial and its turn interrupted, and the caller is told: a request that
    somebody else cancelled, or shutdown code that cancels all tasks but its own.
    """

    async def its_own_request():
        yield "Casa Lola has "
        request = asyncio.create_task(asyncio.sleep(LIMIT_S, "a table."))
        asyncio.get_running_loop().call_soon(request.cancel)
        yield await request

    async def slow():
        yield "Casa Lola has "
        await asyncio.sleep(LIMIT_S)
        yield "a table."

    async def scene(key, source, *, cancels):
        async with holdfast.open_async(where) as store:
            session = await store.session(key)
            with pytest.raises(asyncio.CancelledError):
                async with session.turn("Book.", reply_to=42) as turn:
                    async for _ in turn.deliver(source):
                        for task in asyncio.all_tasks() if cancels else ():
                            if task is not asyncio.current_task():
                                task.cancel()

    async def all_but_its_own():
        await scene("b", slow(), cancels=True)

    asyncio.run(scene("a", its_own_request(), cancels=False))
    asyncio.run(all_but_its_own())
    for key in "ab":
        assert told(eye.session(key))[1:] == [("assistant", "Casa Lola has ", "partial")]
        assert list(ends(eye, eye.session(key).id).values()) == [["interrupted"]]


def test_a_plain_summariser_that_finds_nothing_is_told_and_changes_nothing(where, eye):
    """A future takes no StopIteration: `next(…)` without a default hung the loop's task."""

    def summarise(messages):
        return next(message.text for message in messages if message.role == "assistant")

    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            for number in range(3):
                await session.append(f"{number}")
            with pytest.raises(RuntimeError, match="StopIteration"):
                await session.compact(summarise, keep_turns=0)
            return await session.context("openai.chat")

    assert [message["content"] for message in play(scene())] == ["0\n\n1\n\n2"]


def test_what_is_used_twice_on_a_loop_is_refused_and_disturbs_nobody(where, eye):
    """One call of `turn` is one turn; one delivery has one reader."""

    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            starting = session.turn("Hi")
            async with starting as turn:
                await turn.say("Hello.")
            for again in (starting, starting.__aenter__()):
                with pytest.raises(BadArgument):
                    await again
            async with session.turn("Go on.") as turn:
                delivery = turn.deliver(words("a", "b", "c"))

                async def read():
                    return "".join([text async for text in delivery])

                return await asyncio.gather(read(), read(), return_exceptions=True)

    first, second = play(scene())
    assert first == "abc"
    assert isinstance(second, ValueError)
    assert told(eye.session("k"))[-1] == ("assistant", "abc", "complete")


def test_a_turn_in_the_source_of_the_one_before_does_not_wait_for_itself(where):
    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")

            async def source():
                yield "a"
                async with session.turn("inner"):
                    yield "b"

            with pytest.raises(BadArgument, match="on_busy"):
                async with session.turn("outer") as turn:
                    async for _ in turn.deliver(source()):
                        pass

    play(scene())
