"""A source that pushes: `Turn.stream`. Each piece is durable when `push` returns it (I-5), from
whichever thread it comes, and the message ends with `close`, or partial where its source was cut.
"""

import asyncio
import copy
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_delivery import STREAMS

import holdfast
from holdfast.errors import BadArgument, InvalidMessage, TurnInterrupted
from holdfast.testing.oracle import judge
from holdfast.testing.strategies import FORMATS, streams
from looking import ends, other_handle, told
from procs import child
from thorough import examples, few_on_postgres

pytestmark = few_on_postgres("how a pushed piece becomes an entry is decided in `runtime/turns`")

LIMIT_S = 60.0


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


@pytest.fixture(scope="module")
def store_for_many(tmp_path_factory):
    """One for all examples of a test."""
    path = tmp_path_factory.mktemp("many") / "agent.db"
    with holdfast.open(path, durability="process") as opened:
        yield opened


def answers(session):
    return [(text, state) for role, text, state in told(session) if role == "assistant"]


def test_each_piece_is_durable_when_it_is_handed_back(store, where):
    session = store.session("k")
    with session.turn("Hi") as turn:
        stream = turn.stream()
        assert stream.push("Good ") == "Good "
        with holdfast.open(where) as other:
            seen = [event.text for event in other_events(other, session.id)]
        assert "Good " in seen
        assert stream.push("morning.") == "morning."
        stream.close()
        assert answers(session) == [("Good morning.", "complete")]
    assert ends(store, session.id) == {1: ["completed"]}
    assert judge(store) == []


def other_events(store, session_id):
    events = []
    for event in store.get(session_id).follow():
        events.append(event)
        if event.kind == "chunk":
            return events
    return events


def test_a_stream_that_is_not_closed_is_cut_off(store):
    session = store.session("k")
    with session.turn("Hi") as turn:
        stream = turn.stream()
        stream.push("half of")
    assert answers(session) == [("half of", "partial")]
    assert ends(store, session.id) == {1: ["interrupted"]}
    with pytest.raises(TurnInterrupted):
        stream.push(" it")
    stream.close()
    assert answers(session) == [("half of", "partial")]


def test_a_stream_in_a_block_is_closed_by_it_and_cut_off_by_an_exception(store):
    session = store.session("k")
    with session.turn("Hi") as turn, turn.stream() as stream:
        stream.push("whole")
    with pytest.raises(RuntimeError), session.turn("Again") as turn, turn.stream() as stream:
        stream.push("torn")
        raise RuntimeError
    assert answers(session) == [("whole", "complete"), ("torn", "partial")]
    assert ends(store, session.id) == {1: ["completed"], 2: ["failed"]}


def test_closing_twice_is_closing_once_and_a_closed_stream_takes_nothing(store):
    session = store.session("k")
    with session.turn("Hi") as turn:
        stream = turn.stream()
        stream.push("said")
        stream.close()
        stream.close()
        with pytest.raises(BadArgument):
            stream.push("more")
    assert answers(session) == [("said", "complete")]


def test_a_stream_that_says_nothing_leaves_nothing(store):
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.stream().close()
        turn.say("after")
    assert answers(session) == [("after", "complete")]


def test_what_is_said_after_a_stream_stands_after_it(store):
    session = store.session("k")
    with session.turn("Hi") as turn:
        stream = turn.stream()
        stream.push("before")
        stream.close()
        turn.say("after")
    assert [text for text, _ in answers(session)] == ["before", "after"]


def test_a_stream_that_is_dropped_is_closed_where_it_stood(store):
    session = store.session("k")
    with session.turn("Hi") as turn:
        turn.stream().push("dropped")
        turn.say("after")
    assert answers(session) == [("dropped", "partial"), ("after", "complete")]


@pytest.mark.parametrize("format", STREAMS)
def test_chunks_of_a_provider_make_the_message_that_deliver_makes(store, format):
    chunks = STREAMS[format]
    one, two = store.session("one"), store.session("two")
    with one.turn("Hi") as turn:
        shown = "".join(turn.deliver(iter(chunks), format=format))
    with two.turn("Hi") as turn, turn.stream(format) as stream:
        assert "".join(map(stream.push, chunks)) == shown
    assert [m.payload for m in two.transcript()] == [m.payload for m in one.transcript()]
    assert two.context() == one.context()
    assert answers(two) == [(shown, "complete")]


def test_what_is_no_text_is_refused_and_the_stream_goes_on(store):
    session = store.session("k")
    with session.turn("Hi") as turn, turn.stream() as stream:
        stream.push("wo")
        with pytest.raises(InvalidMessage):
            stream.push({"delta": "?"})
        stream.push("rds")
    assert answers(session) == [("words", "complete")]


def test_pieces_pushed_by_many_threads_are_each_stored_once(store):
    session = store.session("k")
    pieces = [[f"<{name}{i}>" for i in range(25)] for name in "abcd"]
    with session.turn("Hi") as turn:
        stream = turn.stream()
        threads = [
            threading.Thread(target=lambda own=own: [stream.push(p) for p in own]) for own in pieces
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        stream.close()
    ((text, state),) = answers(session)
    assert state == "complete"
    assert sorted(text.replace("><", ">|<").split("|")) == sorted(p for own in pieces for p in own)
    for own in pieces:
        assert [text.index(piece) for piece in own] == sorted(text.index(p) for p in own)


def test_what_was_handed_back_while_the_turn_ended_is_in_the_transcript(store):
    """The block is left while another thread still pushes: what that thread was given to show is
    stored, and what it was not given it was told of.
    """
    for _ in range(20):
        session = store.session("k")
        shown, begun = [], threading.Event()
        with session.turn("Hi") as turn:
            stream = turn.stream()

            def pushing(stream=stream, shown=shown, begun=begun):
                try:
                    for number in range(100_000):
                        shown.append(stream.push(f"<{number}>"))
                        begun.set()
                except TurnInterrupted:
                    return

            thread = threading.Thread(target=pushing)
            thread.start()
            begun.wait(LIMIT_S)
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        assert answers(session)[-1] == ("".join(shown), "partial")


def test_what_comes_after_the_message_is_made_is_not_shown(store):
    """Between the making of its last message and the commit of its end, a turn takes nothing."""
    session = store.session("k")
    turn = session.turn("Hi")
    refused = []
    with turn:
        stream = turn.stream()
        stream.push("in it")
        submit_end = turn._work._submit_end

        def late(*args):
            # Several threads may push: each is told the same.
            for _ in range(2):
                with pytest.raises(TurnInterrupted) as error:
                    stream.push("too late")
                refused.append(error.value.reason)
            return submit_end(*args)

        turn._work._submit_end = late
    assert refused == ["it is ending"] * 2
    assert answers(session) == [("in it", "partial")]


def test_a_stopped_turn_takes_nothing_more(store, where):
    session = store.session("k")
    with pytest.raises(TurnInterrupted), session.turn("Hi") as turn:
        stream = turn.stream()
        stream.push("said")
        with other_handle(where) as other:
            other.get(session.id).stop()
        stream.push("never")
    assert answers(session) == [("said", "partial")]


def test_pushing_on_an_event_loop(where):
    async def scene():
        async with holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("Hi") as turn:
                async with turn.stream() as stream:
                    assert await stream.push("Good ") == "Good "
                    await asyncio.gather(stream.push("mor"), stream.push("ning"))
                with pytest.raises(BadArgument):
                    await stream.push("more")
                await stream.close()
                cut = turn.stream()
                await cut.push("half")
            return [(m.text, m.state) async for m in session.transcript() if m.role == "assistant"]

    said = asyncio.run(scene())
    assert said == [("Good morning", "complete"), ("half", "partial")]


KILLED = """
import holdfast
session = holdfast.open(sys.argv[1]).session("k")
turn = session.turn("Hi")
turn.__enter__()
stream = turn.stream()
for piece in ("one ", "two ", "three "):
    say("shown", stream.push(piece))
hear()
"""


def test_a_killed_process_leaves_what_it_was_handed_back(store, where):
    session = store.session("k")
    with child(KILLED, where) as other:
        for piece in ("one", "two", "three"):
            assert other.wait_for("shown").split() == [piece]
        other.kill()
    with session.turn("Again") as turn:
        turn.say("here")
    assert answers(session) == [("one two three ", "partial"), ("here", "complete")]


def wreck(value):
    """Changes all that can be changed in it."""
    if isinstance(value, dict):
        for each in list(value.values()):
            wreck(each)
        for name in list(value):
            if not isinstance(value[name], dict | list):
                value[name] = "WRECKED"
        value["wrecked"] = True
    elif isinstance(value, list):
        for each in value:
            wreck(each)
        value.append("WRECKED")


@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("format", FORMATS)
def test_what_a_caller_does_with_a_chunk_afterwards_changes_no_message(
    store_for_many, format, data
):
    """I-3: a caller that puts the chunks together itself goes on with their lists and objects."""
    chunks = data.draw(streams(format))
    said = []
    for is_wrecked in (False, True):
        store_for_many.reset(format)
        session = store_for_many.session(format)
        with session.turn("Hi") as turn:
            stream = turn.stream(format)
            # one by one: they share objects
            for chunk in map(copy.deepcopy, chunks):
                stream.push(chunk)
                if is_wrecked:
                    wreck(chunk)
            stream.close()
        said.append([message.payload for message in session.transcript()][1:])
    assert said[0] == said[1]


def test_keys_that_no_format_knows_are_the_chunks_own_too(store):
    session = store.session("k")
    delta = {"role": "assistant", "content": "hey", "extra": {"a": ["b"]}}
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}]
    with session.turn("Hi") as turn:
        for _ in turn.deliver(chunks, format="openai.chat"):
            wreck(delta)
    [_, said] = session.transcript()
    assert said.payload == {"role": "assistant", "content": "hey", "extra": {"a": ["b"]}}
