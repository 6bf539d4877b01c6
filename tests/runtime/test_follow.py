"""Following: the log, then live, chunks included, each once, from wherever a reader comes back
(I-15, FAULTS I2-I6).
"""

import asyncio
import json
import random
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
import procs
from holdfast import Event, Session, Store
from holdfast.domain import cursor as cursors
from holdfast.domain.cursor import Cursor
from holdfast.engine.protocol import Write
from holdfast.errors import CursorExpired, TurnInterrupted
from holdfast.runtime.live.follow import PAGE, Follower
from holdfast.runtime.plans.plan import ROWS_KEPT_MAX, Listen, News, Plan, run
from holdfast.runtime.plans.plan_asyncio import arun
from thorough import examples, few_cases

LIMIT_S = 60


def drain(session: Session, after: str | None = None) -> list[Event]:
    """All that can be had now, without waiting."""
    follower = Follower(session._log, after)
    events: list[Event] = []
    idle = 0
    # a page that held only what was seen before gives nothing, and the next one may
    while idle < 3:
        more = follower.step()
        events += more
        idle = 0 if more else idle + 1
    return events


def texts(events: list[Event]) -> dict[str, str]:
    """What the events say, joined by message id."""
    joined: dict[str, str] = {}
    for event in events:
        if event.message_id is not None:
            joined[event.message_id] = joined.get(event.message_id, "") + event.text
    return joined


def seqs(events: list[Event]) -> list[int]:
    return [event.entry.seq for event in events if event.entry is not None]


def truth(session: Session) -> dict[str, str]:
    return {message.id: message.text for message in session.transcript()}


def assert_each_once(session: Session, events: list[Event]) -> None:
    """The events of one reader, over however many connections, are the log and every message's
    words, once.
    """
    assert seqs(events) == [entry.seq for entry in session.entries()]
    assert texts(events) == truth(session)


def tell(session: Session, question: str, pieces: Iterable[str]) -> None:
    with session.turn(question) as turn:
        for _ in turn.deliver(iter(pieces)):
            pass


def told(session: Session) -> list[Event]:
    """A session with a finished answer, a cut one and one still being spoken, followed
    all along.
    """
    follower = Follower(session._log, None)
    events: list[Event] = []

    def look() -> None:
        while more := follower.step():
            events.extend(more)

    look()
    for question, pieces, end in (
        ("one", ["Hel", "lo ", "you"], True),
        ("two", ["par", "tial"], False),
    ):
        turn = session.turn(question)
        look()
        stream = turn.deliver(iter(pieces))
        for _ in pieces:
            next(stream)
            look()
        if end:
            assert list(stream) == []
            turn.__exit__(None, None, None)
        else:
            stream.close()
            turn.interrupt("cut")
        look()
    return events


# Catch-up and live
# ---------------------------------------------------------------------------------------------------


def test_a_follower_is_told_the_log_and_then_what_happens(session: Session) -> None:
    tell(session, "before", ["be", "fore"])
    events: list[Event] = []
    caught_up, heard, over = threading.Event(), threading.Event(), threading.Event()

    def read() -> None:
        for event in session.follow():
            events.append(event)
            if event.entry is not None and event.entry.kind == "end":
                caught_up.set()
            if event.kind == "chunk":
                heard.set()
        over.set()

    def live() -> Iterator[str]:
        yield "li"
        assert heard.wait(LIMIT_S), "the chunk was not told while its message was being spoken"
        yield "ve"

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert caught_up.wait(LIMIT_S)
    tell(session, "live", live())
    session.end("done")
    assert over.wait(LIMIT_S)
    assert_each_once(session, events)


def test_chunks_are_told_before_their_message_is_finished_and_carry_its_id(
    session: Session,
) -> None:
    """I3: the id is fixed before the first chunk; nobody has to guess which message a chunk belongs
    to.
    """
    events = told(session)
    chunks = [event for event in events if event.kind == "chunk"]
    assert [event.text for event in chunks] == ["Hel", "lo ", "you", "par", "tial"]
    finished = [event.message_id for event in events if event.kind == "entry" and event.message_id]
    assert {event.message_id for event in chunks} <= set(finished)
    assert_each_once(session, events)


def test_a_finished_message_adds_nothing_to_chunks_that_were_seen_and_everything_to_none(
    session: Session,
) -> None:
    events = told(session)
    answers = {event.message_id for event in events if event.kind == "chunk"}
    assert [
        event.text for event in events if event.kind == "entry" and event.message_id in answers
    ] == ["", ""]
    late = drain(session)
    assert [event.text for event in late if event.message_id in answers] == ["Hello you", "partial"]
    assert_each_once(session, late)


FOLLOWER = """
    import holdfast, json
    with holdfast.open(sys.argv[1], durability="process") as store:
        session = store.get(sys.argv[2])
        for event in session.follow(sys.argv[3] if len(sys.argv) > 3 else None):
            seq = event.entry.seq if event.entry else None
            say("event", json.dumps([event.cursor, event.kind, seq, event.message_id, event.text]))
"""


def test_a_follower_in_another_process_is_told_each_thing_once(
    session: Session, path: Path
) -> None:
    """I4: catch-up and live meet without a gap, also where only looking tells of news."""
    tell(session, "before", ["be", "fore"])
    joined: dict[str, str] = {}
    seen: list[int] = []
    with procs.child(FOLLOWER, path, session.id) as other:
        turn = session.turn("live")
        for piece in turn.deliver(iter(["a", "b", "c"])):
            while True:
                _, kind, seq, message, text = json.loads(other.wait_for("event"))
                if seq:
                    seen.append(seq)
                if message:
                    joined[message] = joined.get(message, "") + text
                if kind == "chunk" and piece in text:
                    break
        turn.__exit__(None, None, None)
        session.end("done")
        for line in other.end():
            _, kind, seq, message, text = json.loads(line.partition(" ")[2])
            if seq:
                seen.append(seq)
            if message:
                joined[message] = joined.get(message, "") + text
    assert seen == [entry.seq for entry in session.entries()]
    assert joined == truth(session)


SPEAKER = """
    import holdfast
    store = holdfast.open(sys.argv[1], durability="process")
    session = store.get(sys.argv[2])
    turn = session.turn("speak")
    def words():
        for n in range(1000):
            if n:
                hear()
            yield f"word{n} "
    for text in turn.deliver(words()):
        say("spoke", text)
"""


def test_a_reader_in_the_middle_of_a_message_whose_writer_is_killed_gets_the_rest_of_what_was_stored(
    session: Session, path: Path
) -> None:
    """I-5, I-6: what was delivered was stored; the settled message ends where its chunks ended."""
    events: list[Event] = []
    with procs.child(SPEAKER, path, session.id) as speaker:
        spoken = speaker.wait_for("spoke")
        reader = session.follow()
        while "word0" not in "".join(event.text for event in events if event.kind == "chunk"):
            events.append(next(reader))
        for _ in range(3):
            speaker.tell()
            spoken += " " + speaker.wait_for("spoke")
        speaker.kill()
    assert spoken.split() == ["word0", "word1", "word2", "word3"]
    assert session.info().state == "open"  # whoever looks settles it
    resumed = drain(session, events[-1].cursor)
    assert_each_once(session, events + resumed)
    message = list(session.transcript())[-1]
    assert message.state == "partial"
    assert message.text.split()[:4] == spoken.split()


def test_a_reader_in_the_middle_of_a_message_that_is_stopped_gets_it_once(session: Session) -> None:
    """I-7: settled by another, under the reader's eyes."""
    turn = session.turn("speak")
    stream = turn.deliver(iter(["one ", "two ", "three "]))
    first = next(stream)
    events = drain(session)
    assert texts(events)[events[-1].message_id or ""] == first
    assert session.stop()
    resumed = drain(session, events[-1].cursor)
    assert_each_once(session, events + resumed)
    assert events[-1].message_id == list(session.transcript())[-1].id
    with pytest.raises(TurnInterrupted):
        list(stream)


# Coming back
# ---------------------------------------------------------------------------------------------------------


def test_resuming_from_every_cursor_gives_exactly_the_rest(session: Session) -> None:
    """I2, I4: whatever a reader had seen, and whatever was finished meanwhile."""
    events = told(session)
    for index, event in enumerate(events):
        rest = drain(session, event.cursor)
        assert_each_once(session, events[: index + 1] + rest)
        for again in rest:
            assert_each_once(
                session,
                events[: index + 1] + rest[: rest.index(again) + 1] + drain(session, again.cursor),
            )


def test_resuming_in_the_middle_of_a_running_message_gives_the_rest_of_it(session: Session) -> None:
    turn = session.turn("speak")
    stream = turn.deliver(iter(["a", "b", "c", "d"]))
    seen: list[Event] = []
    for _ in range(4):
        try:
            next(stream)
        except StopIteration:
            break
        seen += drain(session, seen[-1].cursor if seen else None)
        assert texts(seen).get(seen[-1].message_id or "") is not None
    before = list(seen)
    list(stream)
    turn.__exit__(None, None, None)
    for index, event in enumerate(before):
        assert_each_once(session, before[: index + 1] + drain(session, event.cursor))


def test_a_character_that_comes_in_two_halves_is_counted_as_what_was_seen_of_it(
    session: Session,
) -> None:
    """Servers cut text by UTF-16 units; wherever a reader comes back, the halves are one character."""
    with session.turn("Hi") as turn:
        stream = turn.stream("text")
        seen = [drain(session)]
        for text in ("\ud83d", "\ude00", "🦀é\ud83d", "\ude00a"):
            stream.push(text)
            seen.append(drain(session))
        follower = Follower(session._log, None)
        live = follower.step()
        stream.push("bc")
        stream.close()
    live += follower.step()
    whole = "😀🦀é😀abc"
    for events in (live, *([*told, *drain(session, told[-1].cursor)] for told in seen)):
        said = texts(events)[stream.message_id]
        assert said.encode("utf-16-le", "surrogatepass").decode("utf-16-le") == whole


def test_a_long_session_is_resumed_without_a_repeat(session: Session) -> None:
    """I2: chunks of messages finished long before the cursor are still in the journal, and stay
    untold.
    """
    for n in range(PAGE // 3):
        tell(session, f"question {n}", [f"answer {n}"])
    events = drain(session)
    assert len(seqs(events)) > PAGE
    for index in (0, 1, PAGE // 2, PAGE - 1, PAGE, PAGE + 1, len(events) - 2, len(events) - 1):
        rest = drain(session, events[index].cursor)
        assert seqs(rest) == seqs(events[index + 1 :])
        assert_each_once(session, events[: index + 1] + rest)


def test_a_long_message_is_resumed_without_a_repeat(session: Session) -> None:
    """I2: more journal rows than one page, and an entry that comes between two pages."""
    turn = session.turn("speak")
    pieces: SimpleQueue[str] = SimpleQueue()
    stream = turn.deliver(iter(pieces.get, ""))
    follower = Follower(session._log, None)
    events: list[Event] = []
    for n in range(PAGE + 50):  # each piece a row of its own
        pieces.put(f"{n} ")
        next(stream)
        events += follower.step()
    assert drain(session, events[-1].cursor) == []
    resumed = Follower(session._log, events[-1].cursor)
    events += resumed.step()
    turn._work.session.submit(
        Write(
            turn._work.session.id,
            drafts=(turn._work.session.draft("label", holdfast.domain.entry.Labelled("x")),),
        )
    ).result()
    events += resumed.step()
    events += drain(session, events[-1].cursor)
    stream.close()
    turn.interrupt("enough")
    pieces.put("")
    assert_each_once(session, events + drain(session, events[-1].cursor))


def test_a_reader_that_comes_back_after_the_journal_was_emptied_gets_the_rest(path: Path) -> None:
    """I5: closing the store empties the journal; the words are in the message."""
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        turn = session.turn("speak")
        stream = turn.deliver(iter(["one ", "two ", "three "]))
        next(stream)
        events = drain(session)
        list(stream)
        turn.__exit__(None, None, None)
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        assert_each_once(session, events + drain(session, events[-1].cursor))


def test_what_is_told_while_a_follower_reads_is_heard_when_it_listens(session: Session) -> None:
    """Else it would sleep through it, until it looks by itself."""
    session_log = session._log
    with News(session_log.engine, session_log.id) as news:
        for wait in (lambda: run(waiting(news)), lambda: asyncio.run(arun(waiting(news)))):
            news.told.clear()
            session.append("between the reading and the listening")
            waiter = threading.Thread(target=wait, daemon=True)
            waiter.start()
            waiter.join(LIMIT_S)
            assert not waiter.is_alive()


def waiting(news: News) -> Plan[None]:
    yield Listen(news, 10 * LIMIT_S)


KILLED = """
import holdfast
with holdfast.open(sys.argv[1], durability="process") as store:
    with store.session("k").turn("question") as turn:
        for piece in turn.deliver(["one ", "two ", "three"]):
            if piece == "two ":
                say("shown")
                hear()
"""


@pytest.mark.slow
@pytest.mark.parametrize("begins", ["before", "after"])
def test_who_follows_is_told_the_end_of_a_turn_whose_process_was_killed(
    path: Path, begins: str
) -> None:
    """Nobody else reads the session: it would wait for ever."""
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        events: list[Event] = []
        over = threading.Event()

        def read() -> None:
            for event in session.follow():
                events.append(event)
                if event.entry is not None and event.entry.kind == "end":
                    return over.set()

        reader = threading.Thread(target=read, daemon=True)
        with procs.child(KILLED, path) as speaker:
            if begins == "before":
                reader.start()
            speaker.wait_for("shown")
            speaker.kill()
        if begins == "after":
            reader.start()
        assert over.wait(LIMIT_S)
        assert_each_once(session, events)


def test_the_log_that_is_read_has_the_end_of_a_turn_whose_process_was_killed(path: Path) -> None:
    with procs.child(KILLED, path) as speaker:
        speaker.wait_for("shown")
        speaker.kill()
    with holdfast.open(path, durability="process") as store:
        kinds = [entry.kind for entry in store.session("k").entries()]
        assert kinds[-2:] == ["message", "end"]


@pytest.mark.parametrize("resumes", [False, True])
def test_following_ends_with_a_session_that_is_erased(
    store: Store, session: Session, resumes: bool
) -> None:
    tell(session, "question", ["ans", "wer"])
    store.erase(session.id)
    events = list(session.follow())
    assert [event.entry.kind for event in events if event.entry is not None][-1] == "erased"
    if resumes:
        assert list(session.follow(after=events[-1].cursor)) == []


def test_rows_of_a_turn_whose_start_was_not_told_are_looked_up(session: Session) -> None:
    """I-15: of two commits, the news of the second may come first."""
    log = session._log
    follower = Follower(log, None)
    events = follower.step()
    with session.turn("question") as turn, turn.stream() as stream:
        stream.push("Hello")
        rows = log.engine.journal(session.id, after=0, limit=10)
        assert not follower.behind
        assert follower.hear(rows) == [] and follower.behind
        events += follower.step()
        assert [event.text for event in events if event.text] == ["question", "Hello"]


def test_news_that_nobody_takes_are_not_kept_without_end(session: Session) -> None:
    log = session._log
    with session.turn("question") as turn, turn.stream() as stream:
        with News(log.engine, log.id) as news:
            for _ in range(ROWS_KEPT_MAX + 10):
                stream.push("a")
            news.told.wait(LIMIT_S)
            assert len(news._rows) <= ROWS_KEPT_MAX
            assert news.clear() is None, "some of them are gone: it has to look"


@few_cases(every=3)
@pytest.mark.parametrize("seed", range(12))
def test_who_is_told_what_is_new_need_not_look_and_misses_nothing(
    session: Session, seed: int
) -> None:
    """Rows that this process stores come with the news. Whoever hears some of them, and reads the
    others or reads them again, has each once.
    """
    dice = random.Random(seed)
    log = session._log
    follower = Follower(log, None)
    events: list[Event] = []
    heard = 0

    def look(news: News) -> None:
        nonlocal heard
        # now and then it has read what it is told of
        if dice.random() < 0.3:
            events.extend(follower.step())
        rows = news.clear() if dice.random() < 0.8 else None
        if rows and not follower.behind:
            heard += len(rows)
            events.extend(follower.hear(rows))
        else:
            events.extend(follower.step())

    with News(log.engine, log.id) as news:
        for number in range(4):
            with session.turn(f"question {number}") as turn:
                if dice.random() < 0.7:
                    look(news)
                with turn.stream() as one, turn.stream() as other:
                    for piece in ("Hel", "lo ", "you", "."):
                        dice.choice((one, other)).push(piece)
                        if dice.random() < 0.7:
                            news.told.wait(LIMIT_S)
                            look(news)
            if dice.random() < 0.5:
                session.append("meanwhile")
            look(news)
        while more := follower.step():
            events.extend(more)
    assert_each_once(session, events)
    assert seed or heard


def test_a_chunk_is_not_told_before_the_start_of_its_turn(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-15: the turn starts, and speaks, between a follower's look at the log and its look at the
    journal.
    """
    session.append("before")
    session_log = session._log
    follower, page, spoken = Follower(session_log, None), session_log.page, []

    def late(after: int, limit: int = PAGE, *, bodies: bool = True) -> list[Any]:
        found = page(after, limit, bodies=bodies)
        if not spoken:
            turn = session.turn("Hi")
            stream = turn.deliver(iter(["Hel", "lo"]))
            spoken.extend([turn, stream, next(stream)])
        return found

    monkeypatch.setattr(session_log, "page", late)
    events = follower.step()
    assert [event.kind for event in events] == ["entry"] * len(events)
    events += follower.step()
    kinds = [event.entry.kind if event.entry is not None else "chunk" for event in events]
    assert kinds.index("turn") < kinds.index("chunk")
    assert spoken[2] == "Hel" and "Hel" in texts(events).values()


def test_two_followers_do_not_disturb_each_other(session: Session) -> None:
    """I2, I4: each has its own cursor; a reconnection in parallel takes nothing from the other."""
    tell(session, "one", ["a", "b"])
    one, two = Follower(session._log, None), Follower(session._log, None)
    first, second = one.step(), []
    tell(session, "two", ["c", "d"])
    second += two.step()
    first += one.step()
    tell(session, "three", ["e"])
    for events, follower in ((first, one), (second, two)):
        while more := follower.step():
            events += more
        assert_each_once(session, events)


def test_a_follower_that_goes_away_stops_nothing(session: Session) -> None:
    """I-16, I7: leaving is not stopping."""
    turn = session.turn("speak")
    reader = session.follow()
    next(reader)
    stream = turn.deliver(iter(["one ", "two"]))
    next(stream)
    reader.close()  # type: ignore[attr-defined]
    assert not turn.stopped
    list(stream)
    turn.__exit__(None, None, None)
    assert [message.text for message in session.transcript()] == ["speak", "one two"]
    assert [entry.kind for entry in session.entries()][-1] == "end"


def test_a_follower_of_an_ended_session_comes_to_an_end(session: Session) -> None:
    tell(session, "one", ["a"])
    session.end("done")
    events = list(session.follow())
    assert_each_once(session, events)
    assert list(session.follow(events[-1].cursor)) == []
    assert list(session.follow(events[-2].cursor)) == events[-1:]


def test_an_async_follower_sees_the_same(path: Path) -> None:
    async def follow() -> tuple[list[Event], list[int], dict[str, str]]:
        async with holdfast.open_async(path, durability="process") as store:
            session = await store.session("k")
            events: list[Event] = []

            async def read() -> None:
                async for event in session.follow():
                    events.append(event)

            reader = asyncio.create_task(read())
            for n in range(3):
                async with session.turn(f"question {n}") as turn:
                    async for _ in turn.deliver(iter(["an", "swer"])):
                        pass
            await session.end("done")
            await asyncio.wait_for(reader, LIMIT_S)
            resumed = [event async for event in session.follow(events[3].cursor)]
            assert seqs(events[:4] + resumed) == seqs(events)
            assert texts(events[:4] + resumed) == texts(events)
            told = {message.id: message.text async for message in session.transcript()}
            return events, [entry.seq async for entry in session.entries()], told

    events, expected, told = asyncio.run(follow())
    assert seqs(events) == expected
    assert texts(events) == told


# Cursors that can't be served
# ----------------------------------------------------------------------------------------


def bad_cursors(session: Session, other: Session) -> dict[str, str]:
    head = session.info().head
    return {
        "the future": cursors.write(Cursor(session.id, head + 1)),
        "far in the future": cursors.write(Cursor(session.id, 10**15)),
        "before the beginning": cursors.write(Cursor(session.id, -1)),
        "another session": cursors.write(Cursor(other.id, 1)),
        "less than nothing seen": cursors.write(Cursor(session.id, 1, {"00" * 16: -1})),
        "garbage": "garbage!",
        "a number": "-1",
        "not ASCII": "🦀",
        "not a cursor": "eyJhIjogMX0",
        "half a cursor": cursors.write(Cursor(session.id, 1))[:-5],
        "a line break": cursors.write(Cursor(session.id, 1)) + "\n\n!",
    }


@pytest.mark.parametrize(
    "name",
    [
        "the future", "far in the future", "before the "
                                           "beginning", "another session", "less than nothing seen",
        "garbage", "a number", "not ASCII", "not a cursor", "half a cursor", "a line break",
    ],
)  # fmt: skip
def test_a_cursor_that_can_not_be_served_is_answered_at_once(
    store: Store, session: Session, name: str
) -> None:
    """I6: never silence, never a replay of all; what is wrong, and where to start again."""
    tell(session, "one", ["a"])
    text = bad_cursors(session, store.session("other"))[name]
    with pytest.raises(CursorExpired) as caught:
        session.follow(text)
    assert caught.value.code == "cursor_expired"
    assert caught.value.session_id == session.id

    async def follow() -> None:
        async with holdfast.open_async(session._log.engine.where, durability="process") as again:
            async for _ in (await again.get(session.id)).follow(text):
                raise AssertionError("an event for a bad cursor")

    with pytest.raises(CursorExpired):
        asyncio.run(follow())


# Any interleaving
# ----------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.just("")),
        st.tuples(st.just("speak"), st.text("abc🦀\n", min_size=1, max_size=4)),
        st.tuples(st.just("speak"), st.text("abc🦀\n", min_size=1, max_size=4)),
        st.tuples(st.just("say"), st.text("xyz", min_size=1, max_size=4)),
        st.tuples(st.sampled_from(["finish", "cut", "stop", "append"]), st.just("")),
        st.tuples(
            st.sampled_from(["read", "reconnect", "reconnect", "reconnect elsewhere"]), st.just("")
        ),
    ),
    max_size=40,
)


class Speaking:
    """A turn with at most two streams open, fed piece by piece."""

    def __init__(self, session: Session) -> None:
        self.turn = session.turn("speak", lease_s=1e6)
        self.streams: list[tuple[SimpleQueue[str], Iterator[str]]] = []

    def speak(self, text: str) -> None:
        if len(self.streams) < 2:
            pieces: SimpleQueue[str] = SimpleQueue()
            self.streams.append((pieces, self.turn.deliver(iter(pieces.get, ""))))
        pieces, stream = self.streams[len(text) % len(self.streams)]
        pieces.put(text)
        next(stream)

    def leave(self) -> None:
        for pieces, stream in self.streams:
            with suppress(TurnInterrupted):  # it was stopped, and is told so
                stream.close()  # type: ignore[attr-defined]
            pieces.put("")
        self.streams.clear()


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_any_interleaving_of_writes_and_reconnections_tells_each_thing_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("follow") / "agent.db"
    with (
        holdfast.open(path, durability="process") as store,
        holdfast.open(path, durability="process") as elsewhere,
    ):
        session = store.session("k")
        reader = session
        follower = Follower(session._log, None)
        events: list[Event] = []
        speaking: Speaking | None = None
        for step, text in steps:
            if step == "start" and speaking is None:
                speaking = Speaking(session)
            elif step == "speak" and speaking is not None:
                speaking.speak(text)
            elif step == "say" and speaking is not None:
                speaking.turn.say(text)
            elif step in ("finish", "cut") and speaking is not None:
                speaking.leave()
                speaking.turn.interrupt("cut") if step == "cut" else speaking.turn.__exit__(
                    None, None, None
                )
                speaking = None
            elif step == "stop" and speaking is not None:
                assert elsewhere.session("k").stop()
                speaking.leave()
                speaking = None
            elif step == "append":
                session.append("aside")
            elif step.startswith("reconnect"):
                reader = elsewhere.session("k") if step.endswith("elsewhere") else session
                follower = Follower(reader._log, events[-1].cursor if events else None)
            events += follower.step() if step == "read" else []
        if speaking is not None:
            speaking.leave()
            speaking.turn.__exit__(None, None, None)
        while more := follower.step():
            events += more
        assert_each_once(session, events)
        if events:
            middle = events[len(events) // 2]
            rest = drain(session, middle.cursor)
            assert_each_once(session, events[: len(events) // 2 + 1] + rest)
