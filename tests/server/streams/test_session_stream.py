"""`GET …/stream`: each piece once, in order, whatever happens to the connection (I-15)."""

import http.client
import re
import socket
import threading

import apsw
import pytest

import holdfast
from event_reader import EventReader, Streamed, words
from holdfast.server import waiting
from holdfast.server.auth import Tokens
from holdfast.server.serving.slow_clients import TimedProtocol
from holdfast.server.streams import event_stream
from holdfast.server.streams.occurrence import Occurrence
from holdfast.server.streams.session_stream import begun
from holdfast.testing.wire.event_lines import EventLines
from servers import waiting_until
from wire_server import WireServer, ask, in_thread

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with WireServer(tmp_path_factory.mktemp("stream") / "s.db") as served:
        yield served


def _path(turn):
    return f"/v1/sessions/{turn['session_id']}/stream"


def _push(server, turn, message, index, *chunks, close=False):
    push = {"index": index, "chunks": chunks, "close": close}
    return server.ask("POST", f"/v1/turns/{turn['id']}/streams/{message}", push).done


def _reader(server, turn, **more):
    return EventReader(server.port, server.key, more.pop("path", _path(turn)), **more)


def _names(events):
    return [event.event for event in events]


def _is_end(event):
    return event.event == "entry" and event.data["kind"] == "end"


def _spoken(server, key):
    """A turn with a message in three chunks, and its end."""
    turn = server.turn(key, "Hello.")
    message = server.stream(turn["id"], "Hel")
    _push(server, turn, message, 1, "lo ")
    _push(server, turn, message, 2, "there.", close=True)
    server.end(turn["id"])
    return turn, message


def test_the_past_is_told_and_then_what_happens(server):
    turn = server.turn("told", "Hello.")
    with _reader(server, turn) as reader:
        assert reader.headers["content-type"].startswith("text/event-stream")
        assert reader.headers["x-accel-buffering"] == "no"
        past = reader.take(3)
        assert [event.data["kind"] for event in past] == ["opened", "message", "turn"]
        assert past[1].data["text"] == "Hello."
        message = server.stream(turn["id"], "Hel")
        opened, chunk = reader.take(2)
        assert (opened.event, opened.data) == ("open", {"message_id": message, "turn": 1})
        assert (chunk.event, chunk.data) == ("chunk", {"message_id": message, "text": "Hel"})
        _push(server, turn, message, 1, "lo.", close=True)
        server.end(turn["id"])
        rest = reader.until(_is_end)
    # The last words come as a chunk or with the message, whichever the follower met first.
    assert words([chunk, *rest]) == {message: "Hello."}
    assert rest[-2].data["body"] == {"role": "assistant", "content": "Hello."}


def test_a_reader_that_is_cut_off_anywhere_goes_on_where_it_was(server):
    turn, message = _spoken(server, "cut anywhere")
    with _reader(server, turn) as reader:
        whole = reader.until(_is_end)
        size = reader.bytes
    for cut in range(0, size, 23):
        with _reader(server, turn, cut_after=cut) as reader:
            seen = reader.all()
        with _reader(server, turn, last_id=reader.last_id) as reader:
            seen += reader.until(_is_end) if not seen or not _is_end(seen[-1]) else []
        assert seen == whole, f"cut after {cut} bytes"


def test_two_readers_of_a_running_turn_that_reconnect_all_the_time_see_each_piece_once(server):
    """Two tabs: each is cut after a few more bytes every time, while chunks come."""
    turn = server.turn("two tabs", "Count.")
    message = server.ask("POST", f"/v1/turns/{turn['id']}/streams").done["message_id"]
    seen = [[], []]

    def read(tab):
        last_id, cut = "", 100 + 37 * tab
        while not (seen[tab] and _is_end(seen[tab][-1])):
            with _reader(server, turn, last_id=last_id, cut_after=cut) as reader:
                seen[tab] += reader.until(_is_end)
                last_id = reader.last_id
            cut = (cut * 7 + 13) % 900 + 60

    tabs = [threading.Thread(target=read, args=(tab,)) for tab in (0, 1)]
    for tab in tabs:
        tab.start()
    spoken = [f"{number} " for number in range(25)]
    for index, text in enumerate(spoken):
        _push(server, turn, message, index, text, close=index == len(spoken) - 1)
    server.end(turn["id"])
    for tab in tabs:
        tab.join(60)
    for events in seen:
        ids = [event.id for event in events]
        assert len(ids) == len(set(ids)), "something was told twice"
        assert words(events)[message] == "".join(spoken)
        assert _names(events).count("open") == 1
        seqs = [event.data["seq"] for event in events if event.event == "entry"]
        assert seqs == list(range(1, len(seqs) + 1))


def test_the_header_wins_over_the_address_and_now_leaves_out_the_past(server):
    turn, _ = _spoken(server, "header wins")
    with _reader(server, turn) as reader:
        events = reader.until(_is_end)
    path = f"{_path(turn)}?after={events[0].id}"
    with _reader(server, turn, path=path) as reader:
        assert reader.take(1) == [events[1]]
    with _reader(server, turn, path=path, last_id=events[2].id) as reader:
        assert reader.take(1) == [events[3]]
    with _reader(server, turn, path=f"{_path(turn)}?after=now") as reader:
        server.ask("POST", f"/v1/sessions/{turn['session_id']}/messages", {"message": "New."})
        [event] = reader.take(1)
        assert event.data["text"] == "New."


def test_now_tells_what_is_being_said_from_its_beginning(server):
    turn = server.turn("now", "Hello.")
    message = server.stream(turn["id"], "Half ")
    with _reader(server, turn, path=f"{_path(turn)}?after=now") as reader:
        assert _names(reader.take(2)) == ["open", "chunk"]
        _push(server, turn, message, 1, "of it")
        assert reader.take(1)[0].data["text"] == "of it"
    server.end(turn["id"])


@pytest.mark.parametrize("cursor", ["garbage", "-1", "of another session", "beyond the end"])
def test_a_cursor_that_cant_be_served_is_a_reset_and_then_the_whole_log(server, cursor):
    turn, _ = _spoken(server, f"reset {cursor}")
    other, _ = _spoken(server, f"other {cursor}")
    if cursor == "of another session":
        with _reader(server, other) as reader:
            cursor = reader.take(2)[-1].id
    elif cursor == "beyond the end":
        from holdfast.domain.cursor import Cursor, write

        cursor = write(Cursor(turn["session_id"], 1000))
    with _reader(server, turn) as reader:
        whole = reader.until(_is_end)
    with _reader(server, turn, last_id=cursor) as reader:
        [reset] = reader.take(1)
        assert reset.event == "reset" and reset.data["reason"]
    # Cut off right after it, the reader is not told to forget once more.
    with _reader(server, turn, last_id=reset.id) as reader:
        assert reader.until(_is_end) == whole


def _begun(log, after):
    """What a reader is told first."""
    _, source = begun(log, after)
    return source.first + source.written(source.found)


def test_entries_that_are_missing_in_the_store_are_a_gap(tmp_path):
    with holdfast.open(tmp_path / "s.db") as store:
        session = store.session("k")
        session.append_all(["one", "two", "three"])
    with apsw.Connection(str(tmp_path / "s.db")) as file:
        file.execute("delete from entry where seq in (2, 3)")
    with holdfast.open(tmp_path / "s.db") as store:
        log = store.get(session.id)._log
        told = _streamed(_begun(log, None))
        assert _names(told) == ["entry", "gap", "entry"]
        assert told[1].data == {"from": 2, "to": 3}
        assert told[2].data["seq"] == 4
        assert _streamed(_begun(log, told[1].id)) == told[2:]


def _streamed(content):
    return [Streamed(**event) for event in EventLines().feed(content)]


def test_a_session_that_is_over_ends_the_stream_and_is_not_asked_again(server):
    turn, _ = _spoken(server, "over")
    with _reader(server, turn) as reader:
        reader.until(_is_end)
        server.ask("POST", f"/v1/sessions/{turn['session_id']}/end", {"reason": "enough"}).done  # noqa: B018
        rest = reader.all()
    assert _names(rest) == ["entry", "end"]
    assert rest[0].data["kind"] == "closed"
    # A browser that is answered 204 comes back no more.
    with _reader(server, turn, last_id=reader.last_id) as reader:
        assert reader.status == 204
    with _reader(server, turn) as reader:
        assert _names(reader.all())[-2:] == ["entry", "end"]


def test_a_reader_is_told_across_a_kill_of_the_server_and_finds_what_was_said(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        turn = server.turn("killed", "Hello.", lease_s=1)
        message = server.stream(turn["id"], "Half of ")
        with _reader(server, turn) as reader:
            seen = reader.until(lambda event: event.event == "chunk")
            server.kill()
        server.start()
        with _reader(server, turn, last_id=seen[-1].id) as reader:
            seen += reader.until(_is_end)
    assert words(seen)[message] == "Half of "
    ends = [event.data["note"] for event in seen if _is_end(event)]
    assert ends[0]["end"] == "abandoned"
    assert len({event.id for event in seen}) == len(seen)


def test_a_stream_that_is_silent_shows_that_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.05)
    with in_thread(tmp_path / "s.db") as (port, token):
        turn = _started(port, token)
        with EventReader(port, token, _path(turn)) as reader:
            reader.take(3)
            assert reader.lines.retry_ms == 1000
            while reader.lines.comments < 3:
                assert reader.read_on() == []


def _started(port, token):
    return ask(port, token, "POST", "/v1/turns", {"key": "k", "message": "Hi"}).done


def test_a_reader_that_takes_nothing_is_dropped_and_comes_back_with_its_cursor(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(TimedProtocol, "deaf_s", 0.2)
    with in_thread(tmp_path / "s.db") as (port, token):
        turn = _started(port, token)
        with EventReader(port, token, _path(turn)) as deaf:
            seen = deaf.take(3)
            body = {"messages": ["x" * 1_000_000] * 12}
            ask(port, token, "POST", f"/v1/turns/{turn['id']}/messages", body).done  # noqa: B018
            ask(port, token, "POST", f"/v1/turns/{turn['id']}/end").done  # noqa: B018
            wait_until_dropped(port)
            # What its machine had taken for it can still be read; then it is cut off.
            with pytest.raises((ConnectionError, http.client.IncompleteRead)):
                deaf.until(_is_end)
        # This one takes all of it, now and then later than the shortest while.
        monkeypatch.undo()
        with EventReader(port, token, _path(turn), last_id=seen[-1].id) as reader:
            rest = reader.until(_is_end)
    assert [len(event.data["text"]) for event in rest[:-1]] == [1_000_000] * 12


def wait_until_dropped(port):
    """Until the server has no connection left with anything to write."""
    import psutil

    for _ in waiting_until("the reader is dropped"):
        states = [
            each.status
            for each in psutil.Process().net_connections("tcp")
            if each.laddr.port == port
        ]
        if "ESTABLISHED" not in states:
            return


def test_head_asks_for_the_headers_alone(server):
    turn, _ = _spoken(server, "head")
    told = server.ask("HEAD", _path(turn))
    assert told.status == 200 and told.headers["content-type"].startswith("text/event-stream")


def test_a_token_that_was_taken_back_hears_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(waiting, "LOOK_S", 0.05)
    with in_thread(tmp_path / "s.db") as (port, token):
        turn = _started(port, token)
        with EventReader(port, token, _path(turn)) as reader:
            reader.take(3)
            assert reader.read_on() == []  # a heartbeat: now it waits
            monkeypatch.setattr(Tokens, "identity", lambda self, token: None)
            monkeypatch.setattr(Tokens, "version", lambda self: 1)
            assert reader.all() == []


def test_a_reader_goes_on_at_another_server_while_the_writers_is_killed(database):
    """Each has its own follower, and one cursor serves them all."""
    with (
        WireServer(database) as one,
        WireServer(database) as other,
    ):
        turn = one.turn("k", "Hello.", lease_s=2)
        message = one.stream(turn["id"], "Hel")
        with _reader(one, turn) as reader:
            seen = reader.take(5)
        with _reader(other, turn, last_id=seen[-1].id) as reader:
            _push(one, turn, message, 1, "lo ")
            _push(one, turn, message, 2, "there")
            while words(seen)[message] != "Hello there":
                seen += reader.take(1)
            one.kill()
            seen += reader.until(_is_end)
    assert words(seen)[message] == "Hello there"
    assert seen[-1].data["note"]["end"] == "abandoned"
    assert len({event.id for event in seen}) == len(seen)


def test_a_fork_tells_the_past_that_it_shares_and_then_its_own(server):
    turn, _ = _spoken(server, "forked")
    [said] = server.ask("GET", f"/v1/sessions/{turn['session_id']}/transcript?limit=1").done[
        "items"
    ]
    fork = server.ask("POST", f"/v1/sessions/{turn['session_id']}/fork", {"at": said["id"]}).done[
        "id"
    ]
    with _reader(server, turn, path=f"/v1/sessions/{fork}/stream") as reader:
        server.ask("POST", f"/v1/sessions/{fork}/messages", {"message": "Its own."}).done  # noqa: B018
        events = reader.until(lambda event: event.data.get("text") == "Its own.")
    assert _names(events) == ["entry"] * len(events)
    assert [event.data["seq"] for event in events] == list(range(1, len(events) + 1))
    assert "Hello." in [event.data["text"] for event in events]


def test_streams_are_counted_and_not_timed(server):
    turn, _ = _spoken(server, "metered")
    with _reader(server, turn) as reader:
        reader.take(1)
        assert "holdfast_streams_open 1\n" in server.ask("GET", "/metrics").body
    for _ in waiting_until("the reader has left"):
        told = server.ask("GET", "/metrics").body
        if "holdfast_streams_open 0\n" in told:
            break
    requests = re.findall(r'^holdfast_requests_total{.*path="(.*)",.*} (\d+)$', told, re.M)
    streamed = sum(int(count) for path, count in requests if path.endswith("/stream"))
    timed = int(re.search(r"^holdfast_request_seconds_count (\d+)$", told, re.M)[1])
    assert streamed > 0
    assert timed == sum(int(count) for _, count in requests) - streamed


def test_a_server_that_is_told_to_end_does_not_wait_for_who_does_not_listen(tmp_path):
    with holdfast.open(tmp_path / "s.db") as store:
        session = store.session("k")
        session.append_all(["x" * 100_000] * 100)
    with WireServer(tmp_path / "s.db") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as deaf:
            head = f"GET /v1/sessions/{session.id}/stream HTTP/1.1\r\nHost: x\r\n"
            deaf.sendall(f"{head}Authorization: Bearer {server.key}\r\n\r\n".encode())
            assert deaf.recv(1).startswith(b"H")
            for _ in waiting_until("the stream is open"):
                # this one, and the question itself
                if "holdfast_requests_under_way 2\n" in server.ask("GET", "/metrics").body:
                    break
            _, said = server.end()
            assert said == ""


def test_a_slow_reader_is_given_some_at_a_time():
    found = [Occurrence("chunk", str(number), number, text="x" * 50_000) for number in range(10)]
    batches = list(event_stream.in_batches(found))
    assert [each.cursor for batch in batches for each in batch] == list("0123456789")
    assert len(batches) == 5 and found == []
