"""What a turn does while it speaks: takes back, confirms, is stopped, meets a full disk. Of each
word it is said once whether it stands, and to whom it is owed.
"""

import asyncio
import threading

import pytest

import holdfast
from holdfast.errors import BadArgument, InvalidMessage, TurnInterrupted
from holdfast.formats import registry
from holdfast.testing.oracle import judge
from looking import ends, told
from procs import child
from thorough import few_cases, few_on_postgres

pytestmark = few_on_postgres("what stands of a stream is decided in `runtime/turns`")


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


def answers(session):
    return [(text, state) for role, text, state in told(session) if role == "assistant"]


def seen_by_the_model(session):
    return [message["content"] for message in session.context() if message["role"] == "assistant"]


def test_retracting_takes_back_what_a_pushed_stream_is_saying(store):
    session = store.session("k")
    with session.turn("Hi", reply_to="ann") as turn:
        wrong = turn.stream()
        wrong.push("wrong")
        turn.retract("another try")
        with pytest.raises(BadArgument, match="taken back by `retract`"):
            wrong.push(" more")
        with turn.stream() as right:
            right.push("right")
        wrong.close()
    assert answers(session) == [("wrong", "partial"), ("right", "complete")]
    assert seen_by_the_model(session) == ["right"]
    assert [owed.text for owed in store.outbox()] == ["right"]
    assert ends(store, session.id) == {1: ["completed"]}
    assert judge(store) == []


def test_retracting_ends_the_delivery_that_is_being_read(store):
    session = store.session("k")
    shown = []
    with session.turn("Hi") as turn:
        for text in turn.deliver(["wrong", " and", " more"]):
            shown.append(text)
            turn.retract("another try")
        turn.say("right")
    assert answers(session) == [("".join(shown), "partial"), ("right", "complete")]
    assert seen_by_the_model(session) == ["right"]
    assert ends(store, session.id) == {1: ["completed"]}


def test_retracting_ends_a_delivery_on_an_event_loop(where):
    async def main():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("Hi") as turn:
                async for _ in turn.deliver(slowly("wrong", " and", " more")):
                    await turn.retract("another try")
                await turn.say("right")
            return [message["content"] for message in await session.context()]

    async def slowly(*texts):
        for text in texts:
            yield text
            await asyncio.sleep(0)

    assert asyncio.run(main()) == ["Hi", "right"]


def test_what_arrived_while_it_was_spoken_is_not_owed_again(store):
    with store.session("k").turn("When?", reply_to="ann") as turn, turn.stream() as stream:
        stream.push("At eight.")
        turn.sent("message-1")
    assert store.outbox() == []
    assert judge(store) == []


def test_what_is_said_after_the_confirmation_is_owed_without_what_arrived(store):
    with store.session("k").turn("When?", reply_to="ann") as turn, turn.stream() as stream:
        stream.push("At eight, ")
        turn.sent("message-1")
        stream.push("by the window.")
    assert [owed.text for owed in store.outbox()] == ["by the window."]
    assert judge(store) == []


@pytest.mark.parametrize("format", ["openai.chat", "openai.responses", "anthropic"])
def test_what_can_be_no_chunk_of_a_provider_is_refused(store, format):
    session = store.session("k")
    with session.turn("Hi") as turn:
        stream = turn.stream(format)
        for chunk in ("words", b"words", 5, 1.5, True):
            with pytest.raises(InvalidMessage, match="not "):
                stream.push(chunk)
        turn.say("done")
    assert answers(session) == [("done", "complete")]


def said(words):
    return {"choices": [{"index": 0, "delta": {"content": words}}]}


def test_text_in_the_stream_of_a_provider_is_kept_and_cuts_its_turn_off(store):
    """A source can't be asked for another chunk, and words are shown: what is no chunk is kept as it
    came.
    """
    session = store.session("k")
    with session.turn("Hi") as turn:
        shown = "".join(turn.deliver([said("one "), "words", said("three")], "openai.chat"))
    assert shown == "one three"
    [message] = [each for each in session.transcript() if each.role == "assistant"]
    assert (message.text, message.state) == ("one three", "partial")
    assert "words" in str(message.payload)
    assert ends(store, session.id) == {1: ["interrupted"]}


@few_cases(every=3)
@pytest.mark.parametrize("format", registry.known())
def test_a_stream_that_begins_with_no_chunk_of_its_format_is_refused(store, format):
    """Nobody has seen anything of it: the caller has named the wrong format, and is told so."""
    session = store.session("k")
    for first in ("words", b"words", 5, None):
        with pytest.raises(InvalidMessage, match='for plain text the format is "text"'):
            with session.turn("Hi") as turn:
                list(turn.deliver([first, "more"], format))
    assert answers(session) == []
    assert {turn.end for turn in session.turns()} == {"failed"}


def test_asyncio_refuses_a_stream_that_begins_with_no_chunk(where):
    async def words():
        yield "words"

    async def story():
        async with holdfast.open_async(where) as store:
            session = await store.session("async")
            for source in (words(), ["words"]):
                with pytest.raises(InvalidMessage, match='the format is "text"'):
                    async with session.turn("Hi") as turn:
                        assert [text async for text in turn.deliver(source, "anthropic")] == []
            return [turn.end for turn in await session.turns()]

    assert asyncio.run(story()) == ["failed", "failed"]


def test_the_owner_is_told_though_another_thread_was_told_first(store, where):
    session = store.session("k")
    with pytest.raises(TurnInterrupted), session.turn("Hi") as turn:
        stream = turn.stream()
        stream.push("one")
        with holdfast.open(where) as other:
            other.get(session.id).stop()
        told_there = []

        def push():
            try:
                stream.push("two")
            except TurnInterrupted as error:
                told_there.append(error)

        thread = threading.Thread(target=push)
        thread.start()
        thread.join()
        assert told_there
    assert answers(session) == [("one", "partial")]


FULL = """
import resource
import holdfast
from holdfast.errors import StoreUnavailable

session = holdfast.open(sys.argv[1]).session("k")
pushes = sys.argv[2] == "push"
usual = resource.getrlimit(resource.RLIMIT_FSIZE)
with session.turn("Hi") as turn:
    pieces = turn.stream() if pushes else turn.deliver(["one ", "two "])
    assert (pieces.push("one ") if pushes else next(pieces)) == "one "
    # Python ignores SIGXFSZ: a write past the limit is an error, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, usual[1]))
    try:
        pieces.push("two ") if pushes else next(pieces)
        say("told: it was stored")
    except StoreUnavailable:
        pass
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    with turn.stream() as again:
        again.push("two ")
    if pushes:
        try:
            pieces.push("three")
        except holdfast.errors.BadArgument as error:
            assert "was cut off by an error" in str(error)
say("told:", [(message.state, message.text) for message in session.transcript()])
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["push", "deliver"])
def test_a_chunk_that_a_full_disk_refused_is_in_no_message(tmp_path, way):
    with child(FULL, tmp_path / "agent.db", way) as other:
        said = other.wait_for("told:").strip()
    assert said == "[('complete', 'Hi'), ('partial', 'one '), ('complete', 'two ')]"
