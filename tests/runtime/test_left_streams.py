"""Streams that are left, and streams that can't be put together: what was shown is stored, in its
place (I-5).

A stream is left by a `break`, by an exception, by dropping it, by the end of its process. Whatever
comes after it in its turn stands after it, and a process that ends takes no turn along.
"""

import asyncio
import threading

import pytest

import holdfast
from holdfast.errors import TurnInterrupted
from holdfast.testing.oracle import judge
from holdfast.testing.providers import check
from looking import end_notes, ends, other_handle, told
from procs import child
from talking import FORMATS
from thorough import few_cases

LIMIT_S = 60


@pytest.fixture
def store(path):
    with holdfast.open(path) as opened:
        yield opened


def answers(session):
    return [(text, state) for role, text, state in told(session) if role == "assistant"]


# Left, and what comes after
# ------------------------------------------------------------------------------------------

AFTER = {
    "say": lambda turn: turn.say("after"),
    "add": lambda turn: turn.add({"role": "assistant", "content": "after"}),
    "deliver": lambda turn: list(turn.deliver(["after"])),
}


@pytest.mark.parametrize("after", AFTER)
def test_what_is_said_after_a_break_stands_after_it(store, after):
    session = store.session("k")
    with session.turn("Hi") as turn:
        for _ in turn.deliver(iter(["before", "never"])):
            break
        AFTER[after](turn)
    assert answers(session) == [("before", "partial"), ("after", "complete")]
    assert ends(store, session.id) == {1: ["completed"]}


@pytest.mark.parametrize("after", AFTER)
def test_what_is_said_after_a_break_stands_after_it_on_an_event_loop(path, after):
    """The loop has not turned since: nobody had a chance to tidy up."""

    async def scene():
        async with holdfast.open_async(path) as store:
            async with store.turn("k", "Hi") as turn:
                async for _ in turn.deliver(["before", "never"]):
                    break
                if after == "deliver":
                    assert [text async for text in turn.deliver(["after"])] == ["after"]
                else:
                    await AFTER[after](turn)

    asyncio.run(scene())
    with other_handle(path) as store:
        assert answers(store.session("k")) == [("before", "partial"), ("after", "complete")]


def test_a_stream_that_was_left_is_in_the_context_and_can_be_retracted(store):
    session = store.session("k")
    with session.turn("Hi") as turn:
        for _ in turn.deliver(iter(["first try", "never"])):
            break
        assert "first try" in str(turn.context())
        for _ in turn.deliver(iter(["second try", "never"])):
            break
        turn.retract()
        assert "try" not in str(turn.context())
        turn.say("third try")
    assert [text for text, _ in answers(session)] == ["first try", "second try", "third try"]


def test_a_call_is_stored_after_the_stream_that_was_left_before_it(store):
    session = store.session("k")
    with session.turn("Hi") as turn:
        for _ in turn.deliver(iter(["let me look", "never"])):
            break
        turn.result(turn.call("look", {}), "seen")
    assert [message.role for message in session.transcript()] == [
        "user",
        "assistant",
        "assistant",
        "tool",
    ]
    assert next(iter(answers(session))) == ("let me look", "partial")


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_stream_that_is_dropped_is_stored_and_its_source_closed_though_nothing_follows(
    path, face
):
    """By the keeper, while the turn goes on: the connection is let go of, and other readers see the
    message.
    """
    closed = threading.Event()

    def source():
        try:
            yield "shown"
            yield "never"
        finally:
            closed.set()

    async def async_source():
        try:
            yield "shown"
            yield "never"
        finally:
            closed.set()

    def follow(session):
        for event in session.follow():
            if event.kind == "entry" and event.entry.kind == "message":
                return

    async def scene():
        async with holdfast.open_async(path) as store, store.turn("k") as turn:
            async for _ in turn.deliver(async_source()):
                break
            assert await asyncio.to_thread(closed.wait, LIMIT_S)
            await asyncio.to_thread(follower.join, LIMIT_S)

    with other_handle(path) as eye:
        session = eye.session("k")
        follower = threading.Thread(target=follow, args=(session,), daemon=True)
        follower.start()
        if face == "async":
            asyncio.run(scene())
        else:
            with holdfast.open(path) as store, store.turn("k") as turn:
                for _ in turn.deliver(source()):
                    break
                assert closed.wait(LIMIT_S)
                follower.join(LIMIT_S)
        assert not follower.is_alive()
        assert answers(session) == [("shown", "partial")]


def test_two_streams_that_are_both_read_are_left_alone(store):
    session = store.session("k")
    with session.turn("Hi") as turn:
        one, two = turn.deliver(iter(["a", "b"])), turn.deliver(iter(["c", "d"]))
        assert (next(one), next(two)) == ("a", "c")
        turn.say("between")
        assert (list(one), list(two)) == (["b"], ["d"])
    assert answers(session) == [("between", "complete"), ("ab", "complete"), ("cd", "complete")]


# The end of a process
# ------------------------------------------------------------------------------------------------

LEAVINGS = {
    "a delivery": "turn = store.turn('k', 'Hi'); held = turn.deliver(iter(['shown ', 'never'])); "
    "next(held)",
    "a delivery in its block": """
with store.turn('k', 'Hi') as turn:
    held = turn.deliver(iter(['shown ', 'never']))
    next(held)
""",
    "a source that never ends": """
import itertools, time
def source():
    yield 'shown '
    yield from itertools.repeat('x ')
turn = store.turn('k', 'Hi')
held = turn.deliver(source())
for text, _ in zip(held, range(40)):
    pass
""",
    "a turn": "turn = store.turn('k', 'Hi'); turn.say('shown ')",
    "an async delivery": """
import asyncio
async def main():
    global kept
    other = await holdfast.open_async(sys.argv[1])
    turn = await other.turn('k', 'Hi')
    held = turn.deliver(['shown ', 'never'])
    await anext(held)
    kept = other, turn, held
asyncio.run(main())
""",
}


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("what", LEAVINGS)
def test_a_script_that_leaves_it_behind_exits_and_its_turn_is_interrupted(path, what):
    with child(
        f"import holdfast\nstore = holdfast.open(sys.argv[1])\n{LEAVINGS[what]}\nsay('last')", path
    ) as script:
        assert script.end() == ["last"]
    with other_handle(path) as store:
        session = store.session("k")
        assert list(ends(store, session.id).values()) == [["interrupted"]], (
            "settled before anybody looked"
        )
        [(text, state)] = answers(session)
        assert text.startswith("shown ") and state == (
            "complete" if what == "a turn" else "partial"
        )
        assert judge(store) == []


def test_a_forked_child_that_exits_ends_no_turn_of_its_parent(path):
    script = """
        import holdfast, os
        store = holdfast.open(sys.argv[1])
        turn = store.turn("k", "Hi")
        turn.say("one")
        if (number := os.fork()) == 0:
            sys.exit(0)
        os.waitpid(number, 0)
        turn.say("two")
        turn.interrupt("enough")
        say(*[told.reason for told in store.session("k").turns()])
    """
    with child(script, path) as one:
        assert one.end() == ["enough"]


# What can't be put together
# ------------------------------------------------------------------------------------------


def text(words):
    return {"choices": [{"index": 0, "delta": {"content": words}}]}


END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
OLLAMA = {"choices": [{"index": 0, "delta": {"tool_calls": [
    {"index": 0, "id": "c1", "function": {"name": "pay", "arguments": {"sum": 80}}}]}}]}  # fmt: skip
ODD = {
    "choices that are a number": {"choices": 5},
    "a choice that is a word": {"choices": ["stop"]},
    "usage that is a word": {"choices": [], "usage": "much"},
    "a model that is a list": {"model": ["a", "b"], "choices": []},
    "a call id that is an object": {
        "choices": [
            {
                "index": 0,
                "delta": {
                    "tool_calls": [
                        {"index": 0, "id": {"a": 1}, "function": {"name": "pay", "arguments": "{}"}}
                    ]
                },
            }
        ]
    },
    "a call whose name is a number": {
        "choices": [
            {
                "index": 0,
                "delta": {
                    "tool_calls": [
                        {"index": 0, "id": "c1", "function": {"name": 7, "arguments": "{}"}}
                    ]
                },
            }
        ]
    },
    "calls that are a number": {"choices": [{"index": 0, "delta": {"tool_calls": 3}}]},
    "something that is no data": {"choices": [{"index": 0, "delta": {"tool_calls": [object()]}}]},
    "an object of somebody's own": object(),
    "an object that raises": type(
        "Hostile", (), {"__getattr__": lambda self, name: 1 // 0, "model_dump": 5}
    )(),
}


@pytest.mark.parametrize("odd", [*ODD, "arguments that are an object"])
def test_shown_words_outlive_a_chunk_that_nobody_expected(store, odd):
    """I-5: the stream goes on, all that was shown is stored, and contexts are valid in every
    format.
    """
    session = store.session("k")
    chunks = [text("Hello"), ODD.get(odd, OLLAMA), text(", world"), END]
    with session.turn("Hi") as turn:
        shown = "".join(turn.deliver(iter(chunks), format="openai.chat"))
    assert shown == "Hello, world"
    [(stored, _)] = answers(session)
    assert stored == shown
    for format in FORMATS:
        assert check(format, session.context(format)) == []
    assert judge(store) == []


class Torn:
    """An assembly that breaks down at the end, as one with a fault in it would."""

    def __init__(self, whole):
        self._whole = whole

    def __getattr__(self, name):
        return getattr(self._whole, name)

    def message(self):
        raise RuntimeError("a fault of ours")


def break_assemblies(monkeypatch):
    from holdfast.runtime.turns import message_stream

    whole = message_stream._assembly
    monkeypatch.setattr(message_stream, "_assembly", lambda format, into: Torn(whole(format, into)))


def test_what_cannot_be_put_together_is_stored_as_it_was_shown_and_the_turn_is_told(
    store, monkeypatch
):
    """The raw chunks are kept beside the words."""
    break_assemblies(monkeypatch)
    session = store.session("k")
    with session.turn("Hi") as turn:
        assert list(turn.deliver(iter([text("Hello"), END]), format="openai.chat")) == ["Hello"]
    [_, answer] = session.transcript()
    assert (answer.text, answer.state, answer.format) == ("Hello", "partial", "holdfast")
    assert answer.payload["parts"][1]["type"] == "unread"
    assert ["text", 0, "Hello"] in answer.payload["parts"][1]["chunks"]
    [note] = end_notes(store, session.id)
    assert (note.end, note.reason) == ("interrupted", "its last message could not be read")
    for format in FORMATS:
        assert check(format, session.context(format)) == []
        assert "Hello" in str(session.context(format))


@pytest.mark.parametrize("way", ["break", "drop", "end", "raise"])
def test_however_it_is_left_it_is_stored_as_it_was_shown(store, monkeypatch, way):
    break_assemblies(monkeypatch)
    session = store.session("k")
    try:
        with session.turn("Hi") as turn:
            held = turn.deliver(iter([text("Hello"), text(", world"), END]), format="openai.chat")
            assert next(held) == "Hello"
            if way == "break":
                held.close()
            elif way == "drop":
                del held
                turn.say("after")
            elif way == "raise":
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert answers(session)[0] == ("Hello", "partial")


def test_a_server_that_sums_up_with_less_than_was_shown_takes_no_word_away(store):
    """Its last event repeats the response, and is what is stored; unless something of it is
    missing.
    """
    words = {"type": "output_text", "text": "Hello", "annotations": []}
    item = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [words],
    }
    chunks = [
        {
            "type": "response.output_text.delta",
            "output_index": 0,
            "content_index": 0,
            "delta": "Hello, world",
        },
        {"type": "response.completed", "response": {"status": "completed", "output": [item]}},
    ]
    session = store.session("k")
    with session.turn("Hi") as turn:
        assert "".join(turn.deliver(iter(chunks), format="openai.responses")) == "Hello, world"
    assert [text for text, _ in answers(session)] == ["Hello, world"]


def test_after_a_crash_too(path, monkeypatch):
    """The one who settles the turn can't put the message together either."""
    script = """
        import holdfast, os
        turn = holdfast.open(sys.argv[1]).turn("k", "Hi")
        stream = turn.deliver(iter([{"choices": [{"index": 0, "delta": {"content": "Hello"}}]}]), format="openai.chat")
        say(next(stream))
        os._exit(1)
    """
    with child(script, path) as writer:
        assert writer.end(code=1) == ["Hello"]
    break_assemblies(monkeypatch)
    with other_handle(path) as store:
        assert answers(store.session("k")) == [("Hello", "partial")]
        assert list(ends(store, store.session("k").id).values()) == [["abandoned"]]


def test_a_message_that_was_whole_in_the_journal_but_never_entered_is_partial(path):
    """I-6: nobody was told that it had ended, so nobody may take its calls for asked."""
    script = """
        import holdfast, os
        turn = holdfast.open(sys.argv[1]).turn("k", "Hi")
        call = {"index": 0, "id": "c1", "function": {"name": "pay", "arguments": "{}"}}
        chunks = [{"choices": [{"index": 0, "delta": {"content": "Hello"}}]},
                  {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}]
        def source():
            yield from chunks
            os._exit(1)
        for text in turn.deliver(source(), format="openai.chat"):
            say(text)
    """
    with child(script, path) as writer:
        assert writer.end(code=1) == ["Hello"]
    with other_handle(path) as store:
        assert answers(store.session("k")) == [("Hello", "partial")]
        assert list(ends(store, store.session("k").id).values()) == [["abandoned"]]


def test_a_chunk_of_the_wrong_kind_is_the_callers_mistake_and_what_came_before_it_stays(store):
    session = store.session("k")
    with pytest.raises(holdfast.errors.InvalidMessage):
        with session.turn("Hi") as turn:
            list(turn.deliver(iter(["Hello", {"choices": []}])))
    assert answers(session) == [("Hello", "partial")]


def test_a_store_that_is_closed_while_a_task_delivers_tells_the_task(path):
    """The end of the turn is no end of the stream: the loop does not go on as if all had
    been said.
    """

    async def chunks():
        for number in range(100):
            await asyncio.sleep(0.01)
            yield f"piece {number} "

    async def main():
        store = await holdfast.open_async(path)
        session = await store.session("k")

        async def deliver():
            async with session.turn("hello") as turn:
                async for _ in turn.deliver(chunks()):
                    shown.set()

        shown = asyncio.Event()
        task = asyncio.create_task(deliver())
        await shown.wait()
        await store.close()
        with pytest.raises(TurnInterrupted):
            await task

    asyncio.run(main())
