"""Inside one's own turn: a compaction goes through and the turn goes on; nobody waits for itself
(I-11).
"""

import asyncio
import threading

import pytest

import holdfast
from holdfast.errors import BadArgument, SessionBusy
from holdfast.testing.providers import check
from looking import other_handle
from procs import child
from thorough import few_on_postgres

pytestmark = few_on_postgres("who waits for whom is decided in `runtime/turns`")

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
LIMIT_S = 60.0


@pytest.fixture
def store(where):
    with holdfast.open(where, durability="process") as opened:
        yield opened


@pytest.fixture
def session(store):
    return store.session("k")


def made(id):
    function = {"name": "look", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


def talk(session, count):
    for number in range(count):
        with session.turn(f"question {number}") as turn:
            turn.say(f"answer {number}")


def contents(context):
    return [payload.get("content") for payload in context]


def test_a_compaction_inside_ones_own_turn_covers_earlier_turns_and_the_turn_goes_on(
    session, where
):
    talk(session, 6)
    with session.turn("Go on.") as turn:
        turn.say("Working.")
        done = session.compact("All of it.", keep_turns=2)
        assert done is not None and len(done.covered) == 10
        shown = contents(turn.context(prefill=True))
        # neighbours of one role are one message
        assert "All of it." in shown[0] and shown[0].endswith("question 5")
        assert shown[1:] == ["answer 5", "Go on.", "Working."]
        turn.say("Done.")
    assert contents(session.context())[-2:] == ["Go on.", "Working.\n\nDone."]
    with holdfast.open(where) as other:
        assert other.session("k").context() == session.context()
    assert [turn.end for turn in session.turns()][-1] == "completed"


def test_a_turn_that_overflows_is_cut_before_its_open_calls(session, where):
    """A coding agent: one turn, many calls, some of them still open."""
    talk(session, 1)
    with session.turn("Fix it all.") as turn:
        for number in range(5):
            turn.add(made(f"c{number}"))
            turn.result(f"c{number}", f"seen {number}")
        turn.add(made("open_1"))
        turn.call("look", "{}", call_id="open_1")
        covered = []
        done = session.compact(
            lambda messages: covered.extend(messages) or "So far so good.", keep_turns=0
        )
        assert done is not None
        assert [message.text for message in covered if message.role == "user"] == [
            "question 0",
            "Fix it all.",
        ]
        for format in FORMATS:
            assert check(format, turn.context(format)) == [], format
        assert [call.call_id for call in turn.calls()] == []
        shown = turn.context()
        assert (
            "So far so good." in shown[0]["content"] and shown[1]["tool_calls"][0]["id"] == "open_1"
        )
        turn.result("open_1", "seen at last")
        turn.add(made("c9"))
        turn.result("c9", "seen 9")
        turn.say("Fixed.")
        with holdfast.open(where) as other:
            assert other.session("k").context() == turn.context()
    assert [payload["role"] for payload in session.context()] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    with holdfast.open(where) as other:
        assert other.session("k").context() == session.context()
        assert len(list(other.session("k").transcript())) == len(list(session.transcript()))
    assert session.calls()[-2].state == "done"


def test_it_can_be_compacted_again_and_again_inside_one_turn(session):
    with session.turn("Fix it all.") as turn:
        for number in range(4):
            turn.add(made(f"c{number}"))
            turn.result(f"c{number}", f"seen {number}")
            assert session.compact(f"summary {number}", keep_turns=0) is not None
            assert len(turn.context()) == 1 and f"summary {number}" in turn.context()[0]["content"]
        assert session.compact("nothing new", keep_turns=0) is None
        turn.say("Fixed.")
    assert contents(session.context())[-1] == "Fixed."


def test_a_turn_that_has_used_nothing_of_what_it_took_keeps_that_from_the_summary(session):
    """If it died now, its message would be given back, and be told twice."""
    talk(session, 2)
    with session.turn("And now?") as turn:
        assert session.compact("Before.", keep_turns=0) is not None
        [shown] = contents(turn.context())
        assert "Before." in shown and shown.endswith("And now?")
        turn.say("Now this.")


def test_a_call_that_waits_is_not_covered_inside_a_turn(session):
    with session.turn("Pay.") as turn:
        turn.add(made("c1"))
        turn.call("look", "{}", call_id="c1", needs_approval=True)
        turn.say("I wait.")
        session.compact("Asked.", keep_turns=0)
        assert "[waiting for approval]" in contents(turn.context())


def test_a_summary_that_is_computed_in_ones_own_turn_may_look_at_the_session(session):
    talk(session, 3)
    with session.turn("Go on.") as turn:
        turn.say("Working.")

        def summarise(messages):
            session.append("by the way")
            return f"{len(messages)} messages, {len(session.context())} in view"

        assert session.compact(summarise, keep_turns=1) is not None
        assert contents(turn.context())[-1] == "by the way", "what came meanwhile stays"


def test_asyncio_compacts_inside_its_own_turn(where):
    async def story():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            for number in range(3):
                async with session.turn(f"question {number}") as turn:
                    await turn.say(f"answer {number}")

            async def summarise(messages):
                await asyncio.sleep(0)
                return f"{len(messages)} messages"

            async with session.turn("Go on.") as turn:
                await turn.say("Working.")
                assert await session.compact(summarise, keep_turns=2) is not None
                await turn.say("Done.")
                assert (
                    await asyncio.wait_for(session.compact("All.", keep_turns=0), LIMIT_S)
                    is not None
                )
                await turn.say("Really.")
            return contents(await session.context())

    assert asyncio.run(story())[1:] == ["Really."]


@pytest.mark.slow
def test_a_compaction_waits_for_the_turn_of_another_process(session, where):
    talk(session, 3)
    script = """
        import holdfast
        with holdfast.open(sys.argv[1]).session("k").turn("Go.") as turn:
            say("running")
            hear()
            turn.say("Said before the summary.")
        say("over")
    """
    with child(script, where) as other:
        other.wait_for("running")
        compacted = threading.Thread(
            target=lambda: session.compact("All.", keep_turns=0), daemon=True
        )
        compacted.start()
        compacted.join(0.5)
        assert compacted.is_alive()
        other.tell("go on")
        other.wait_for("over")
        compacted.join(LIMIT_S)
        assert not compacted.is_alive()
        other.end()
    kinds = [entry.kind for entry in session.entries()]
    assert kinds.index("compaction") > max(at for at, kind in enumerate(kinds) if kind == "end")


@pytest.mark.parametrize("way", ["session", "store", "another handle"])
def test_a_turn_inside_ones_own_turn_raises_at_once(store, where, way):
    session = store.session("k")
    with other_handle(where) if way == "another handle" else store.session("k")._log.lock as other:
        ask = {
            "session": lambda: session.turn("second"),
            "store": lambda: store.turn("k", "second", event_id="e1"),
            "another handle": lambda: other.session("k").turn("second"),
        }[way]
        with session.turn("first") as turn:
            head = session.head()
            with pytest.raises(BadArgument) as told:
                ask()
            assert turn.id in str(told.value) and "wait" in str(told.value)
            assert session.head() == head, "nothing was written"
            turn.say("still here")
        with ask() as turn:
            turn.say("after it")
    assert [message.text for message in session.transcript()] == [
        "first",
        "still here",
        "second",
        "after it",
    ]


def test_a_turn_that_was_never_entered_is_held_by_the_one_that_started_it(session):
    turn = session.turn("first")
    with pytest.raises(BadArgument):
        session.turn("second")
    with pytest.raises(SessionBusy):
        session.turn("second", on_busy="refuse")
    with session.turn("second", on_busy="interrupt"):
        assert turn.stopped


@pytest.mark.slow
def test_a_task_that_would_wait_for_itself_is_told(where):
    async def story():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("first") as turn:
                with pytest.raises(BadArgument):
                    async with session.turn("second"):
                        pass
                waiting = asyncio.create_task(wait_for_its_turn(session))
                await asyncio.sleep(0.2)
                assert not waiting.done(), "another task waits"
                await turn.say("one")
            await asyncio.wait_for(waiting, LIMIT_S)
            return [message.text async for message in session.transcript()]

    async def wait_for_its_turn(session):
        async with session.turn("third") as turn:
            await turn.say("three")

    assert asyncio.run(story()) == ["first", "third", "one", "three"]


@pytest.mark.slow
def test_a_turn_in_another_thread_is_waited_for(session):
    entered, go_on = threading.Event(), threading.Event()
    turn = session.turn("first")

    def work():
        with turn:
            entered.set()
            assert go_on.wait(LIMIT_S)
            turn.say("one")

    worker = threading.Thread(target=work)
    worker.start()
    assert entered.wait(LIMIT_S)
    threading.Timer(0.2, go_on.set).start()
    with session.turn("second") as other:
        other.say("two")
    worker.join()
    assert [message.text for message in session.transcript()][-1] == "two"
