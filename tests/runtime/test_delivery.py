"""Delivery: a chunk is durable before it is handed on, delivered is a prefix of stored, always
(I-5).

Fault classes A1 and A3 of FAULTS.md. The streams of real clients are in `test_delivery_sdk`.
"""

import asyncio
import contextlib
import itertools
import json
import threading

import pytest

import holdfast
from holdfast.errors import StoreUnavailable, TurnInterrupted
from holdfast.runtime.plans.chunk_source import AHEAD_MAX
from holdfast.testing.providers import check
from looking import end_notes, ends, journal_rows, journaled, other_handle, patient, told
from procs import child
from sse_server import anthropic_script, chat_script, responses_script
from thorough import few_cases

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
TEXTS = ["Hel", "lo, ", "wor", "ld."]
CALLS = [("call_1", "look", ['{"at":', ' "sky"}']), ("call_2", "wait", ["{}"])]
LEAD_MAX = 3 * AHEAD_MAX
"""How far a source may be ahead of what was handed on: what is read ahead, what is being stored,
and the next batch.
"""


def chunks(script):
    """The events of a script as dicts, as a client without an SDK would read them."""
    return [data for _, data in script if isinstance(data, dict)]


STREAMS = {
    "text": TEXTS,
    "openai.chat": chunks(chat_script(TEXTS)),
    "openai.responses": chunks(responses_script(TEXTS)),
    "anthropic": chunks(anthropic_script(TEXTS)),
}


@pytest.fixture
def where(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def store(where):
    with holdfast.open(where) as opened:
        yield opened


@pytest.mark.parametrize("format", STREAMS)
def test_each_text_is_durable_before_it_is_handed_on(store, where, format):
    """I-5, FAULTS A1: at the moment of each yield, a handle of its own reads that text, and more,
    from the store.
    """
    session = store.session("k")
    shown = ""
    with other_handle(where) as eye, session.turn("Hi") as turn:
        for text in turn.deliver(iter(STREAMS[format]), format=format):
            shown += text
            assert journaled(eye, session.id).startswith(shown)
        assert told(eye.session("k"))[-1] == ("assistant", shown, "complete")
    assert shown == "Hello, world."
    assert ends(store, session.id) == {1: ["completed"]}
    for target in FORMATS:
        assert check(target, session.context(target)) == []


def test_each_text_is_seen_by_another_process_when_it_is_handed_on(store, where):
    """I-5: asked over a pipe, inside the loop."""
    script = """
        import holdfast
        from looking import journaled
        store = holdfast.open(sys.argv[1])
        while id := hear():
            say(journaled(store, id))
    """
    session = store.session("k")
    shown = ""
    with child(script, where) as eye, session.turn("Hi") as turn:
        for text in turn.deliver(f"w{number} " for number in range(30)):
            shown += text
            eye.tell(session.id)
            assert eye.line().startswith(shown.rstrip())


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 40])
def test_a_producer_that_kills_its_own_process_loses_nothing_that_was_handed_on(
    store, where, count
):
    """I-5, I-6, FAULTS A1: SIGKILL from inside the source, after so many chunks; those before it
    are stored.
    """
    script = """
        import holdfast, os, signal
        def source():
            for number in range(int(sys.argv[2])):
                yield f"w{number} "
            os.kill(os.getpid(), signal.SIGKILL)
        with holdfast.open(sys.argv[1]).turn("k", "Hi") as turn:
            for text in turn.deliver(source()):
                say("shown", text)
    """
    with child(script, where, count) as writer:
        shown = "".join(line.removeprefix("shown ") for line in writer.end(code=-9))
    session = store.session("k")
    [answer] = [message for message in session.transcript() if message.role == "assistant"]
    assert answer.state == "partial" and answer.text.startswith(shown)
    # While the source is asked one by one, all it gave before the kill was stored before it was
    # asked again.
    assert count > 8 or answer.text == "".join(f"w{number} " for number in range(count))
    assert list(ends(store, session.id).values()) == [["abandoned"]]


@pytest.mark.parametrize("format", STREAMS)
def test_a_stream_cut_after_any_chunk_is_what_was_delivered_marked_partial(tmp_path, format):
    """I-5, FAULTS A1: left early after each of its chunks in turn; never a complete message."""
    with holdfast.open(tmp_path / "cuts.db") as store:
        whole = STREAMS[format]
        for length in range(len(whole) + 1):
            session = store.session(f"cut {length}")
            with session.turn("Hi") as turn:
                stream = turn.deliver(iter(whole), format=format)
                shown = "".join(itertools.islice(stream, length))
                stream.close()
            answers = [message for message in session.transcript() if message.role == "assistant"]
            assert "".join(message.text for message in answers).startswith(shown)
            if shown:
                [answer] = answers
                complete = answer.state == "complete"
                assert answer.text == shown and complete <= (length > len(TEXTS))
                assert ends(store, session.id) == {1: ["completed" if complete else "interrupted"]}
            for target in FORMATS:
                assert check(target, session.context(target)) == [], (length, target)


@pytest.mark.parametrize("format", [format for format in STREAMS if format != "text"])
def test_a_stream_that_ends_without_its_terminal_event_is_partial(store, format):
    """Every cut of the provider's stream short of its mark: a proxy closed the connection and
    nobody raised.
    """
    whole = STREAMS[format]
    marks = {
        "openai.chat": "stop",
        "openai.responses": "response.completed",
        "anthropic": "message_stop",
    }
    last = max(index for index, chunk in enumerate(whole) if marks[format] in str(chunk))
    for length in range(1, last + 1):
        session = store.session(f"{format} {length}")
        with session.turn("Hi") as turn:
            shown = "".join(turn.deliver(iter(whole[:length]), format=format))
        answers = [message for message in session.transcript() if message.role == "assistant"]
        assert [message.state for message in answers] == ["partial"] * len(answers)
        assert "".join(message.text for message in answers) == shown
        if shown:
            [note] = end_notes(store, session.id)
            assert note.end == "interrupted" and "cut off" in note.reason
        for target in FORMATS:
            assert check(target, session.context(target)) == [], (length, target)


def test_a_turn_that_says_something_after_a_cut_stream_completes(store):
    """DESIGN 4: unless the turn then says something else."""
    whole = STREAMS["openai.chat"]
    for number, after in enumerate(
        [
            lambda turn: turn.say("Sorry, again: hello."),
            lambda turn: list(turn.deliver(["Again: hello."])),
            lambda turn: turn.add({"role": "assistant", "content": "Again: hello."}),
        ]
    ):
        session = store.session(f"k{number}")
        with session.turn("Hi") as turn:
            list(turn.deliver(iter(whole[:3]), format="openai.chat"))
            after(turn)
        assert ends(store, session.id) == {1: ["completed"]}
        assert [state for _, _, state in told(session)] == ["complete", "partial", "complete"]
        for target in FORMATS:
            assert check(target, session.context(target)) == []


def test_a_source_that_raises_leaves_what_it_said_and_raises_on(store):
    """I-5, FAULTS A1: read one by one, or ahead: what came before the error was handed on and is
    stored.
    """
    for length in (3, 5000):
        session = store.session(f"k{length}")
        shown = []

        def source(length=length):
            for number in range(length):
                yield f"{number} "
            raise ConnectionError("reset by peer")

        with pytest.raises(ConnectionError):
            with session.turn("Hi") as turn:
                for text in turn.deliver(source()):
                    shown.append(text)
        assert told(session)[1] == ("assistant", "".join(shown), "partial")
        assert "".join(shown) == "".join(f"{number} " for number in range(length))
        [note] = end_notes(store, session.id)
        assert note.end == "failed" and note.error == "ConnectionError: reset by peer"


def test_a_consumer_that_raises_leaves_what_it_was_given(store):
    """I-5: the last text given to it may not have been shown, but it is stored: a prefix, never a
    suffix.
    """
    session = store.session("k")
    with pytest.raises(ZeroDivisionError):
        with session.turn("Hi") as turn:
            for text in turn.deliver(iter(TEXTS)):
                if text == "wor":
                    raise ZeroDivisionError
    assert told(session)[1] == ("assistant", "Hello, wor", "partial")
    assert ends(store, session.id) == {1: ["failed"]}


class Source:
    """An iterator that knows whether it was closed, as an SDK's stream is."""

    def __init__(self, items):
        self.items, self.closed = iter(items), threading.Event()

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.items)

    def close(self):
        self.closed.set()


@pytest.mark.parametrize("length", [3, 100_000], ids=["slow", "fast"])
def test_a_source_is_closed_when_it_is_left(store, length):
    """A connection is let go of at the end, when the consumer leaves, and when the turn is
    superseded.
    """
    for leaving in ("end", "break", "raise", "stop"):
        session = store.session(f"{leaving}")
        source = Source(str(number) for number in range(30 if leaving == "end" else length))
        with contextlib.suppress(ZeroDivisionError, TurnInterrupted):
            with session.turn("Hi") as turn:
                for _ in turn.deliver(source):
                    if leaving == "break":
                        break
                    if leaving == "raise":
                        raise ZeroDivisionError
                    if leaving == "stop":
                        store.session(leaving).stop()
        assert source.closed.wait(60), leaving


def test_a_fast_source_is_coalesced(store, where):
    """20 000 chunks are far fewer commits, and the text is whole; from a list and from an
    iterator.
    """
    session = store.session("k")
    texts = [f"{number} " for number in range(20_000)]
    with other_handle(where) as eye:
        for count, source in enumerate((texts, iter(texts), (text for text in texts))):
            before = journal_rows(eye, session.id)
            with session.turn("Hi") as turn:
                handed = list(turn.deliver(source))
                assert "".join(handed) == "".join(texts)
                rows = journal_rows(eye, session.id) - before
            assert 0 < rows <= len(texts) / 10, f"source {count} made {rows} commits"
            assert len(handed) == rows, "what is stored together is handed on together"


class Handed:
    """How much a consumer was handed, for its source to wait on."""

    def __init__(self):
        self.count, self.news = 0, threading.Condition()

    def add(self, text):
        with self.news:
            self.count += len(text)
            self.news.notify_all()

    def reaches(self, count):
        """Waits until all that was given so far was handed on: nothing is under way then."""
        with self.news:
            assert self.news.wait_for(lambda: self.count >= count, 60)


def test_all_that_came_while_a_commit_was_on_its_way_is_the_next_row(store, where):
    """No linger and no timer: a commit that is held up makes the next one larger."""
    session = store.session("k")
    with other_handle(where) as eye, child(HOLDER, f"{where}-lock") as holder:
        handed = Handed()

        def source():
            for number in range(2_000):
                if number == 1_000:
                    handed.reaches(1_000)
                    holder.tell()
                    holder.wait_for("held")
                if number == 1_500:
                    holder.tell()
                yield "x"

        sizes = []
        with session.turn("Hi") as turn:
            for text in turn.deliver(source()):
                sizes.append(len(text))
                handed.add(text)
            assert journal_rows(eye, session.id) == len(sizes)
    assert sum(sizes) == 2_000 and max(sizes) >= 250, (
        "500 chunks came during one commit: the rest of them is one row"
    )


HOLDER = """
    import fcntl, os
    lock = os.open(sys.argv[1], os.O_RDWR)
    hear()
    fcntl.flock(lock, fcntl.LOCK_EX)
    say("held")
    hear()
    os.close(lock)
    say("free")
    hear()
"""


def test_a_slow_disk_slows_the_source(store, where):
    """Back-pressure: while another process holds the store's lock, the source is read ahead to a
    limit.
    """
    session = store.session("k")
    handed, ahead, given = Handed(), threading.Event(), [0]
    with child(HOLDER, f"{where}-lock") as holder, other_handle(where) as eye:

        def source():
            for number in itertools.count():
                if number == 1_000:
                    handed.reaches(1_000)
                    holder.tell()
                    holder.wait_for("held")
                if number == 1_000 + AHEAD_MAX // 2:
                    ahead.set()
                given[0] = number
                yield "x"

        def release():
            assert ahead.wait(60)
            for _ in range(50):  # the source would run away now, if it could: reading takes no lock
                journal_rows(eye, session.id)
            given.append(given[0] - 1_000)
            holder.tell()

        thread = threading.Thread(target=release)
        thread.start()
        with session.turn("Hi") as turn:
            for text in turn.deliver(source()):
                handed.add(text)
                if handed.count > 10_000:
                    break
        thread.join()
    assert given[1] <= LEAD_MAX
    assert told(session)[1] == ("assistant", "x" * handed.count, "partial")


def test_a_slow_consumer_slows_an_endless_source(store, where):
    """Memory stays bounded: an endless, fast source is never far ahead of what was handed on."""
    session = store.session("k")
    largest = handed = 0
    given = itertools.count()

    def source():
        nonlocal largest
        while True:
            largest = max(largest, next(given) - handed)
            yield "x"

    with other_handle(where) as eye, session.turn("Hi") as turn:
        for rounds, text in enumerate(turn.deliver(source())):
            handed += len(text)
            for _ in range(5):
                journal_rows(eye, session.id)  # what a slow consumer does: something else
            if rounds >= 60:
                break
    assert largest <= LEAD_MAX
    assert told(session)[1] == ("assistant", "x" * handed, "partial")


def test_an_endless_async_source_is_slowed_too(where):
    """The same on an event loop, where source and consumer share one thread."""
    largest = handed = 0

    async def scene():
        nonlocal largest, handed
        given = itertools.count()

        async def source():
            nonlocal largest
            while True:
                largest = max(largest, next(given) - handed)
                yield "x"

        async with holdfast.open_async(where) as store:
            async with store.turn("k", "Hi") as turn:
                rounds = 0
                async for text in turn.deliver(source()):
                    handed += len(text)
                    rounds += 1
                    if rounds >= 60:
                        break

    asyncio.run(scene())
    assert largest <= LEAD_MAX
    with holdfast.open(where) as store:
        [_, answer] = store.session("k").transcript()
        assert answer.state == "partial" and answer.text == "x" * handed


@pytest.mark.slow
def test_a_store_that_cannot_write_hands_nothing_on(where, monkeypatch):
    """I-3, I-5, FAULTS A11, F8: the lock is held beyond all patience; the caller gets a typed
    error, not the text.
    """
    monkeypatch.setattr("holdfast.runtime.open_store.open_engine", patient(0.2))
    shown = []
    with holdfast.open(where) as store, child(HOLDER, f"{where}-lock") as holder:
        session = store.session("k")

        def source():
            yield "stored "
            holder.tell()
            holder.wait_for("held")
            yield "not stored"

        with pytest.raises(StoreUnavailable):
            with session.turn("Hi") as turn:
                for text in turn.deliver(source()):
                    shown.append(text)
        assert shown == ["stored "]
        holder.tell()
        holder.wait_for("free")
        with other_handle(where) as other:
            assert other.session("k").stop() in (True, False)
            [_, answer] = other.session("k").transcript()
            assert answer.text == "stored " and answer.state == "partial"
            assert [len(each) for each in ends(other, session.id).values()] == [1]


RICH = {
    "openai.chat": chat_script(TEXTS, calls=CALLS, reasoning=["Hm", "m."], finish="tool_calls"),
    "openai.responses": responses_script(TEXTS, calls=CALLS, reasoning=["Hm", "m."]),
    "anthropic": anthropic_script(TEXTS, calls=CALLS, thinking=["Hm", "m."], finish="tool_use"),
}


@pytest.mark.parametrize("format", RICH)
def test_reasoning_parallel_calls_usage_and_finish_are_kept(store, where, format):
    """One model response is one message with ordered parts (FAULTS E6), and comes back from the
    store whole.
    """
    session = store.session("k")
    with session.turn("Hi", format=format) as turn:
        assert "".join(turn.deliver(iter(chunks(RICH[format])), format=format)) == "Hello, world."
        for call_id, answer in (("call_2", "waited"), ("call_1", "blue")):
            turn.result(call_id, answer)
    with other_handle(where) as other:
        kept = other.session("k")
        [answer] = [message for message in kept.transcript() if message.role == "assistant"]
        kinds = [type(part).__name__ for part in answer.parts]
        assert kinds == ["Thinking", "Text", "Call", "Call"]
        assert [(part.id, part.name, json.loads(part.arguments)) for part in answer.parts[2:]] == [
            ("call_1", "look", {"at": "sky"}),
            ("call_2", "wait", {}),
        ]
        assert answer.parts[0].text == "Hmm." and answer.state == "complete"
        assert (answer.usage.input, answer.usage.output) in (
            (11, 7),
            (15, 7),
        ) and answer.usage.cached == 4
        assert answer.finish and answer.model and answer.format == format
        assert [(call.call_id, call.state) for call in kept.calls()] == [
            ("call_1", "done"),
            ("call_2", "done"),
        ]
        for target in FORMATS:
            assert check(target, kept.context(target)) == []
        assert kept.info().usage.output == 7


@pytest.mark.parametrize("format", ["openai.chat", "openai.responses"])
def test_a_refusal_is_shown_and_kept(store, format):
    """What the model declined with is speech to the user."""
    make = {"openai.chat": chat_script, "openai.responses": responses_script}[format]
    session = store.session("k")
    with session.turn("Hi") as turn:
        shown = "".join(
            turn.deliver(iter(chunks(make([], refusal=["I ", "won't."]))), format=format)
        )
    assert shown == "I won't."
    assert told(session)[1] == ("assistant", "I won't.", "complete")
    for target in FORMATS:
        assert check(target, session.context(target)) == []


@pytest.mark.parametrize("format", RICH)
def test_a_stream_killed_inside_its_calls_leaves_a_valid_context(tmp_path, format):
    """I-9, I-10, FAULTS E1: cut after every chunk; calls whose arguments were not all said are not
    shown.
    """
    with holdfast.open(tmp_path / "cuts.db") as store:
        events = chunks(RICH[format])
        for length in range(1, len(events)):
            session = store.session(f"cut {length}")
            with session.turn("Hi", format=format) as turn:
                list(turn.deliver(iter(events[:length]), format=format))
            with session.turn("And?", format=format) as turn:
                turn.say("Well.")
            for target in FORMATS:
                assert check(target, session.context(target)) == [], (length, target)


def test_two_streams_in_one_turn_are_two_messages(store):
    """I-2: equal texts, and even interleaved; each has an id of its own, fixed before its first
    chunk.
    """
    session = store.session("k")
    with session.turn("Hi") as turn:
        one, two = turn.deliver(iter(["a", "b"])), turn.deliver(iter(["a", "b"]))
        assert [next(one), next(two), next(one), next(two)] == ["a", "a", "b", "b"]
        assert list(one) == list(two) == []
    first, second = [message for message in session.transcript() if message.role == "assistant"]
    assert first.text == second.text == "ab" and first.id != second.id
    assert first.state == second.state == "complete"


def test_a_string_is_one_chunk(store):
    """Plain text given whole is not taken apart letter by letter."""
    with store.turn("k", "Hi") as turn:
        assert list(turn.deliver("Hello.")) == ["Hello."]
    assert told(store.session("k"))[1] == ("assistant", "Hello.", "complete")


def test_text_of_any_unicode_is_handed_on_and_stored_as_it_came(store):
    """FAULTS H7: a lone surrogate half, NUL, an emoji torn between two chunks."""
    pieces = ["nul \x00", "half \ud83d", "\ude00 other half", "😀"]
    with store.turn("k", "Hi") as turn:
        assert list(turn.deliver(iter(pieces))) == pieces
    [_, answer] = store.session("k").transcript()
    # where the torn emoji and the whole one are the same
    utf_16 = answer.text.encode("utf-16-le", "surrogatepass")
    assert utf_16 == "".join(pieces).encode("utf-16-le", "surrogatepass")


def test_a_turn_left_with_an_open_stream_keeps_what_was_handed_on(store):
    """I-6: somebody still holds the generator when the block is left."""
    session = store.session("k")
    with session.turn("Hi") as turn:
        stream = turn.deliver(iter(TEXTS))
        assert next(stream) == "Hel"
    assert told(session)[1] == ("assistant", "Hel", "partial")
    assert ends(store, session.id) == {1: ["interrupted"]}
    with pytest.raises(TurnInterrupted):
        next(stream)
    assert told(session)[1:] == [("assistant", "Hel", "partial")]
