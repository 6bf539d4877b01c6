"""One follower for all readers of a session: what is kept, who reads the store, and who falls behind."""

import threading

import pytest

import holdfast
import procs
from event_reader import EventReader, words
from holdfast.engine.sqlite.reads import SqliteReads
from holdfast.runtime.live.follow import PAGE
from holdfast.runtime.plans.plan import News
from holdfast.server.streams import shared_follower
from holdfast.server.streams.occurrence import (
    Occurrence,
    OccurrenceFollower,
    from_seq,
    resumed,
)
from holdfast.server.streams.shared_follower import (
    KeptOccurrences,
    pace_s,
)
from questions import Questions
from wire_server import ask, in_thread


def _chunk(position, cursor, text="x"):
    return Occurrence("chunk", cursor, position, message_id="m", text=text)


def test_a_reader_joins_where_the_follower_has_stood():
    kept = KeptOccurrences()
    kept.add((), (0, "start"))
    kept.add([_chunk(1, "a"), _chunk(2, "b")], (2, "b"))
    assert kept.number_at((0, "start")) == 0
    assert [each.cursor for each in kept.since(0)] == ["a", "b"]
    assert [each.cursor for each in kept.since(kept.number_at((1, "a")))] == ["b"]
    assert kept.since(2) == []
    assert kept.number_at((1, "b")) is None, "the same cursor at another row is another place"


def test_what_leads_nowhere_new_is_passed_by_who_joins_behind_it():
    kept = KeptOccurrences()
    # A thought: it moves neither the words that a cursor counts nor, told twice, the row.
    kept.add([_chunk(1, "a"), _chunk(1, "a", text="")], (1, "a"))
    assert kept.since(kept.number_at((1, "a"))) == []


def test_what_is_kept_is_bounded_and_who_is_behind_it_is_told(monkeypatch):
    monkeypatch.setattr(shared_follower, "KEPT_MAX", 3)
    kept = KeptOccurrences()
    kept.add((), (0, "start"))
    for number in range(1, 10):
        kept.add([_chunk(number, str(number))], (number, str(number)))
    assert kept.since(0) is None and kept.number_at((0, "start")) is None
    assert [each.cursor for each in kept.since(6)] == ["7", "8", "9"]
    places = [(number, str(number)) for number in range(5, 10)]
    assert [kept.number_at(place) for place in places] == [None, 6, 7, 8, 9]
    monkeypatch.setattr(shared_follower, "KEPT_BYTES_MAX", 1000)
    kept.add([_chunk(10, "10", text="long" * 1000)], (10, "10"))
    assert kept.since(9) is None and kept.since(10) == []


def test_a_batch_ends_when_it_is_large_enough(monkeypatch):
    monkeypatch.setattr(shared_follower, "BATCH_BYTES", 1000)
    kept = KeptOccurrences()
    kept.add([_chunk(number, str(number)) for number in range(10)], (9, "9"))
    assert 1 < len(kept.since(0)) < 10
    assert len(kept.since(9)) == 1


def test_many_readers_are_looked_after_less_often_and_few_at_once():
    assert pace_s(1) == pace_s(2) == 0.005
    assert 0.1 < pace_s(1000) <= pace_s(100_000) == 0.25


def test_a_session_is_looked_after_while_a_turn_runs(tmp_path):
    with holdfast.open(tmp_path / "s.db") as store:
        session = store.session("k")
        follower = OccurrenceFollower(session._log, None)
        follower.occurrences()
        assert not follower.is_running
        with session.turn("Hello."):
            follower.occurrences()
            assert follower.is_running and from_seq(session._log, session.head()).is_running
            follower.occurrences()
            assert follower.is_running
        follower.occurrences()
        assert not follower.is_running
        assert not from_seq(session._log, session.head()).is_running


def test_two_followers_at_one_place_have_the_same_cursor(tmp_path):
    with holdfast.open(tmp_path / "s.db") as store:
        session = store.session("k")
        with session.turn("Hello.") as turn:
            streams = [turn.stream("text"), turn.stream("text")]
            for stream in (*streams, *reversed(streams)):
                stream.push("word ")
            whole, problem = resumed(session._log, None)
            assert problem is None
            told = whole.occurrences()
            late = from_seq(session._log, told[2].entry.seq)
            late.occurrences()
            assert late.place == whole.place
            for place in told:
                again = OccurrenceFollower(session._log, place.cursor)
                rest = again.occurrences()
                assert again.place == whole.place
                behind = told[told.index(place) + 1 :]
                assert [(each.cursor, each.text) for each in rest if each.text] == [
                    (each.cursor, each.text) for each in behind if each.text
                ]
            for stream in streams:
                stream.close()


def test_a_message_that_was_begun_and_never_spoken_leaves_nothing_in_cursors(tmp_path):
    with holdfast.open(tmp_path / "s.db") as store:
        session = store.session("k")
        with session.turn("Hello.") as turn:
            stream = turn.stream("openai.chat")
            stream.push({"choices": [{"delta": {"role": "assistant"}}], "model": "m"})
            follower = OccurrenceFollower(session._log, None)
            kinds = [each.kind for each in follower.occurrences()]
        assert kinds[-1] == "chunk" and "open" in kinds
        with session.turn("Again."):
            follower.occurrences()
            assert follower.cursor == from_seq(session._log, session.head()).cursor


class _Spy:
    """Which followers read the store, and how often a session was watched."""

    def __init__(self, monkeypatch):
        self.readers, self.reads, self.watched = set(), [], 0
        read, watch = OccurrenceFollower.occurrences, News.__init__

        def reading(follower):
            self.readers.add(follower)
            self.reads.append(follower)
            return read(follower)

        def watching(news, *args):
            self.watched += 1
            watch(news, *args)

        monkeypatch.setattr(OccurrenceFollower, "occurrences", reading)
        monkeypatch.setattr(News, "__init__", watching)


@pytest.mark.slow
def test_readers_of_one_session_share_one_watcher_and_one_reading(tmp_path, monkeypatch):
    with in_thread(tmp_path / "s.db") as (port, token):
        turn = ask(port, token, "POST", "/v1/turns", {"key": "k", "message": "Hi"}).done
        path = f"/v1/sessions/{turn['session_id']}/stream"
        messages = f"/v1/turns/{turn['id']}/messages"
        spy = _Spy(monkeypatch)
        readers = [EventReader(port, token, path) for _ in range(20)]
        for reader in readers:
            reader.take(3)
        # Those that have just come read by themselves until the first news.
        ask(port, token, "POST", messages, {"message": "One."}).done  # noqa: B018
        for reader in readers:
            assert reader.take(1)[0].data["text"] == "One."
        spy.readers.clear()
        for number in range(20):
            ask(port, token, "POST", messages, {"message": f"{number}."}).done  # noqa: B018
        for reader in readers:
            assert [each.data["text"] for each in reader.take(20)] == [f"{n}." for n in range(20)]
            reader.close()
        assert len(spy.readers) == 1, "somebody read by itself"
        assert spy.watched == 1


@pytest.mark.slow
def test_what_this_server_stores_is_handed_on_and_not_read_back(tmp_path, monkeypatch):
    with in_thread(tmp_path / "s.db") as (port, token):
        turn = ask(port, token, "POST", "/v1/turns", {"key": "k", "message": "Hi"}).done
        path = f"/v1/turns/{turn['id']}/streams"
        message = ask(port, token, "POST", path, {}).done["message_id"]
        stream = f"/v1/sessions/{turn['session_id']}/stream"
        readers = [EventReader(port, token, stream) for _ in range(2)]

        def say(number):
            said = {"index": number, "chunks": [f"{number} "]}
            ask(port, token, "POST", f"{path}/{message}", said).done  # noqa: B018

        for reader in readers:
            reader.take(3)
        say(0)
        for reader in readers:
            assert [each.event for each in reader.take(2)] == ["open", "chunk"]
        spy = _Spy(monkeypatch)
        for number in range(1, 20):
            say(number)
            for reader in readers:
                assert reader.take(1)[0].data["text"] == f"{number} "
        # Whoever looks whether the turn is still alive does so once a second.
        assert len(spy.reads) < 10, "it was read back"
        for reader in readers:
            reader.close()


@pytest.mark.slow
def test_a_reader_that_falls_behind_what_is_kept_reads_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_follower, "KEPT_MAX", 2)
    monkeypatch.setattr(shared_follower, "BATCH_BYTES", 1)
    with in_thread(tmp_path / "s.db") as (port, token):
        turn = ask(port, token, "POST", "/v1/turns", {"key": "k", "message": "Hi"}).done
        path = f"/v1/turns/{turn['id']}/streams"
        message = ask(port, token, "POST", path).done["message_id"]
        seen = []

        def read():
            with EventReader(port, token, f"/v1/sessions/{turn['session_id']}/stream") as reader:
                seen.extend(reader.until(lambda event: event.data.get("kind") == "end"))

        reading = [threading.Thread(target=read)]
        reading[0].start()
        for index in range(0, 200, 10):
            chunks = [f"{number} " for number in range(index, index + 10)]
            push = {"index": index, "chunks": chunks, "close": index == 190}
            ask(port, token, "POST", f"{path}/{message}", push).done  # noqa: B018
        ask(port, token, "POST", f"/v1/turns/{turn['id']}/end").done  # noqa: B018
        reading[0].join(60)
        assert words(seen)[message] == "".join(f"{number} " for number in range(200))
        assert len({event.id for event in seen}) == len(seen)


@pytest.mark.slow
def test_a_fork_that_shares_the_closing_of_its_parent_goes_on(tmp_path):
    with holdfast.open(tmp_path / "s.db") as store:
        parent = store.session("k")
        # More than a reader is told first: what follows is told as it is found.
        parent.append_all([f"{number}" for number in range(PAGE)])
        parent.end("done")
        fork = parent.fork().id
    path = f"/v1/sessions/{fork}"
    with in_thread(tmp_path / "s.db") as (port, token):
        with EventReader(port, token, f"{path}/stream") as reader:
            shared = reader.take(PAGE + 3)
            assert [event.data["kind"] for event in shared[-2:]] == ["closed", "opened"]
            for number in range(3):
                said = {"message": f"after {number}"}
                ask(port, token, "POST", f"{path}/messages", said).done  # noqa: B018
                assert [event.data["text"] for event in reader.take(1)] == [said["message"]]
            ask(port, token, "POST", f"{path}/end", {"reason": "done"}).done  # noqa: B018
            assert [event.event for event in reader.all()][-1] == "end"


APPENDING = """
    import holdfast
    with holdfast.open(sys.argv[1], durability="process") as store:
        say("ready")
        while (key := hear()):
            store.session(key).append(f"to {key}")
"""


@pytest.mark.slow
def test_words_of_another_process_reach_the_readers_of_many_sessions(tmp_path, monkeypatch):
    """None of them is found by looking at each session in turn, and nobody looks while nothing
    happens.
    """
    monkeypatch.setattr(SqliteReads, "look_s", 1000.0)
    path, count = tmp_path / "s.db", 200
    with holdfast.open(path, durability="process") as store:
        ids = [store.session(f"k{number}").id for number in range(count)]
    with in_thread(path) as (port, token), procs.child(APPENDING, path) as other:
        readers = [EventReader(port, token, f"/v1/sessions/{id}/stream") for id in ids]
        for reader in readers:
            assert [event.data["kind"] for event in reader.take(1)] == ["opened"]
        questions = Questions(monkeypatch)
        questions.after_looks(10)
        questions.of_others()
        questions.after_looks(20)
        assert questions.of_others() == []
        other.wait_for("ready")
        for number in (0, count - 1, count // 2):
            other.tell(f"k{number}")
            assert [event.data["text"] for event in readers[number].take(1)] == [f"to k{number}"]
        for number in range(count):
            other.tell(f"k{number}")
        for number, reader in enumerate(readers):
            assert [event.data["text"] for event in reader.take(1)] == [f"to k{number}"]
            reader.close()
