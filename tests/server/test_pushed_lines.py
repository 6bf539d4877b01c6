"""A message pushed line by line in a request that is held open: each line is answered when it is durable,
and stored once however often its client was cut off (I-5).
"""

import pytest

import holdfast
from line_pusher import Line, LinePusher
from wire_server import WireServer, in_thread

TEXT = "The kelp holds fast. "


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with in_thread(tmp_path_factory.mktemp("lines") / "s.db", bytes_max=4096) as served:
        yield served


def test_each_line_is_answered_before_the_request_ends(server):
    line = Line(server)
    with line.pusher() as pusher:
        pusher.say(0, "Half ", "of ")
        assert pusher.answer() == {"text": "Half of ", "index": 2}
        pusher.say(2, "it.")
        assert pusher.answer() == {"text": "it.", "index": 3}
        pusher.say(3, close=True)
        assert pusher.answer() == {"text": "", "index": 3}
        pusher.finish()
        assert pusher.answer() is None
    assert line.ask("POST", f"{line.path}/end").done["end"] == "completed"
    assert line.said() == [("Half of it.", "complete")]


def test_a_client_that_is_cut_off_goes_on_with_what_was_answered_and_nothing_is_doubled(server):
    """Cut behind any byte of a line: what the client was told, and what it is told when it sends all
    the rest again, are the message.
    """
    whole = b'{"index": 1, "chunks": ["b", "c"]}\n'
    for cut in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
        line = Line(server)
        with line.pusher() as pusher:
            pusher.say(0, "a")
            assert pusher.answer() == {"text": "a", "index": 1}
            pusher.line(whole[:cut] or b" ")
            pusher.cut()
        with line.pusher() as pusher:
            pusher.say(1, "b", "c")
            pusher.say(3, "d", close=True)
            pusher.finish()
            told = pusher.answers()
        assert "".join(each["text"] for each in told) == "bcd", f"cut after {cut} bytes"
        line.ask("POST", f"{line.path}/end").done  # noqa: B018
        assert line.said() == [("abcd", "complete")]


def test_an_answer_that_was_lost_is_given_again_by_either_way_of_asking(server):
    line = Line(server)
    with line.pusher() as pusher:
        for index, chunk in enumerate("abc"):
            pusher.say(index, chunk)
            assert pusher.answer()["text"] == chunk
    path = f"{line.path}/streams/{line.message}"
    told = line.ask("POST", path, {"index": 1, "chunks": ["b", "c", "d"]}).done
    assert told == {"text": "bcd", "index": 4}


def test_an_open_request_is_no_sign_of_life_and_a_line_is(server):
    """I-6: a client that is gone without a word lets the lease run out."""
    line = Line(server, lease_s=0.6)
    with line.pusher() as pusher:
        pusher.say(0, TEXT)
        assert pusher.answer()["index"] == 1
        for _ in range(4):
            # Nothing in it, and a sign of life all the same.
            pusher.line(b"\n")
            shown = line.ask("GET", line.path).done
            assert shown["end"] is None
        [told] = pusher.answers()
    assert told["problem"]["code"] == "turn_interrupted"
    assert told["problem"]["reason"] == "its client's lease ran out"
    assert line.said() == [(TEXT, "partial")]


def test_a_line_that_is_refused_is_the_last_and_those_before_it_are_stored(server):
    line = Line(server)
    with line.pusher() as pusher:
        # In one piece: they come together, and are told apart all the same.
        pusher.line(b'{"index": 0, "chunks": ["a"]}\n{"index": 5, "chunks": ["f"]}\n{"index": 1}\n')
        *stored, last = pusher.answers()
    assert stored == [{"text": "a", "index": 1}]
    assert (last["problem"]["code"], last["problem"]["index"]) == ("conflict", 1)
    with line.pusher() as pusher:
        pusher.line(b"no JSON\n")
        [last] = pusher.answers()
    assert last["problem"]["code"] == "bad_argument"


def test_a_request_for_what_is_not_there_is_refused_as_any_other(server):
    line = Line(server)
    token = server[1]
    for path, status in (("/v1/turns/none:1/streams/x", 404), (f"{line.path}/streams/x", 404)):
        with LinePusher(server[0], token, path) as pusher:
            pusher.say(0, "a")
            assert pusher.answer()["status"] == status
    with LinePusher(server[0], "hf_wrong", f"{line.path}/streams/{line.message}") as pusher:
        assert pusher.answer()["code"] == "unauthenticated"


def test_a_line_may_be_as_long_as_a_body_and_all_of_them_longer(server):
    line = Line(server)
    with line.pusher() as pusher:
        for index in range(4):
            pusher.say(index, "x" * 2000)
            assert pusher.answer()["index"] == index + 1
        pusher.line(b'{"index": 4, "chunks": ["' + b"x" * 5000)
        [last] = pusher.answers()
    assert last["problem"]["code"] == "too_large"


def test_a_client_that_says_everything_before_it_listens_stops_nothing(server):
    """Its answers are gathered while it takes none: they are the whole text all the same."""
    line = Line(server)
    count, words = 600, TEXT * 100
    with line.pusher() as pusher:
        for index in range(count):
            pusher.say(index, words)
        pusher.say(count, close=True)
        pusher.finish()
        told = pusher.answers()
    assert told[-1]["index"] == count
    assert "".join(each["text"] for each in told) == words * count


def test_a_server_that_ends_tells_those_who_push(tmp_path):
    with in_thread(tmp_path / "s.db") as served:
        line = Line(served)
        pusher = line.pusher()
        pusher.say(0, TEXT)
        assert pusher.answer()["text"] == TEXT
    [last] = pusher.answers()
    assert last["problem"]["code"] == "store_unavailable"
    pusher.cut()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["end", "stop"])
def test_whoever_goes_on_talking_when_the_turn_ends_is_told_all_that_is_stored(server, way):
    line = Line(server)
    with line.pusher() as pusher:
        session = f"/v1/sessions/{line.turn['session_id']}"
        path = line.path if way == "end" else session
        told = pusher.talked(lambda: line.ask("POST", f"{path}/{way}").done)
    _insist_told(told, "turn_interrupted", line.said())


@pytest.mark.slow
def test_whoever_goes_on_talking_when_the_server_ends_is_told_all_that_is_stored(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        line = Line((server.port, server.key))
        with line.pusher() as pusher:
            told = pusher.talked(server.process.terminate)
        assert server.end()[1] == ""
    with holdfast.open(tmp_path / "s.db") as store:
        [_, said] = store.get(line.turn["session_id"]).transcript()
    _insist_told(told, "store_unavailable", [(said.text, said.state)])


def _insist_told(told, code, said):
    assert told[-1]["problem"]["code"] == code
    words = "".join(each["text"] for each in told[:-1])
    assert words == "".join(f"{number} " for number in range(told[-2]["index"]))
    assert [text for text, _ in said] == [words]


def test_a_server_that_ends_does_not_wait_for_one_who_pushes_and_does_not_listen(tmp_path):
    words, count = TEXT * 1000, 300
    with WireServer(tmp_path / "s.db") as server:
        line = Line((server.port, server.key))
        with line.pusher() as pusher:
            for index in range(count):
                pusher.say(index, words)
            # All of it was sent, so most of it was taken; its answer is more than lines hold.
            _, told = server.end()
            assert told == ""
    with holdfast.open(tmp_path / "s.db") as store:
        [_, said] = store.get(line.turn["session_id"]).transcript()
        assert len(said.text) > len(words)
        assert (words * count).startswith(said.text)
