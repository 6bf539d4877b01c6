"""Lines that come again, are too long, or close a message that somebody else has ended: what is stored is
told, and what is told is stored.
"""

import json
import threading

import pytest

from line_pusher import Line
from wire_server import WireServer, in_thread

TEXTS = ["Casa ", "Lola ", "has ", "a ", "table."]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with in_thread(tmp_path_factory.mktemp("again") / "s.db", bytes_max=4096) as served:
        yield served


def _together(pusher, *batches):
    """All of these lines in one piece, so that they are stored in one commit."""
    lines = [{"index": index, "chunks": chunks} for index, chunks in batches]
    pusher.line(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def test_lines_that_were_stored_together_are_told_again_one_by_one(server):
    line = Line(server)
    with line.pusher() as pusher:
        _together(pusher, *((index, [text]) for index, text in enumerate(TEXTS)))
        assert pusher.answer() == {"text": "".join(TEXTS), "index": 5}
        pusher.cut()
    with line.pusher() as pusher:
        for index, text in enumerate(TEXTS):
            pusher.say(index, text)
            assert pusher.answer() == {"text": text, "index": index + 1}
    line.ask("POST", f"{line.path}/end")
    assert [text for text, _ in line.said()] == ["".join(TEXTS)]


@pytest.mark.parametrize("told_in", ["lines", "requests"])
def test_whoever_goes_on_from_the_index_it_was_told_is_told_each_word_once(server, told_in):
    """All was stored in one commit whose answer was lost, and the line is cut after each answer."""
    line = Line(server)
    with line.pusher() as pusher:
        _together(pusher, *((index, [text]) for index, text in enumerate(TEXTS)))
        assert pusher.answer()["index"] == len(TEXTS)
        pusher.cut()
    shown, index = "", 0
    while index < len(TEXTS):
        batch = {"index": index, "chunks": TEXTS[index : index + 2]}
        if told_in == "requests":
            told = line.ask("POST", f"{line.path}/streams/{line.message}", batch).done
        else:
            with line.pusher() as pusher:
                _together(pusher, (index, batch["chunks"]))
                told = pusher.answer()
                pusher.cut()
        shown, index = shown + told["text"], told["index"]
    assert shown == "".join(TEXTS)


def test_chunks_that_were_stored_one_by_one_are_told_again_in_any_batches(server):
    line = Line(server)
    with line.pusher() as pusher:
        for index, text in enumerate(TEXTS[:4]):
            pusher.say(index, text)
            assert pusher.answer()["text"] == text
        # Some of it is known, and some new.
        pusher.say(1, *TEXTS[1:])
        assert pusher.answer() == {"text": "".join(TEXTS[1:]), "index": 5}
        _together(pusher, (3, TEXTS[3:]), (0, TEXTS[:2]))
        assert pusher.answer() == {"text": "".join(TEXTS[3:] + TEXTS[:2]), "index": 5}
    line.ask("POST", f"{line.path}/end")
    assert [text for text, _ in line.said()] == ["".join(TEXTS)]


def test_each_chunk_of_a_provider_is_told_again_by_itself(server):
    line = Line(server)
    line.message = line.ask("POST", f"{line.path}/streams", {"format": "openai.chat"}).done[
        "message_id"
    ]
    chunks = []
    for text in TEXTS:
        chunks.append({"choices": [{"index": 0, "delta": {"content": text}}]})
    chunks.insert(2, {"choices": []})
    with line.pusher() as pusher:
        pusher.say(0, *chunks)
        assert pusher.answer() == {"text": "".join(TEXTS), "index": 6}
    told = []
    with line.pusher() as pusher:
        for index, chunk in enumerate(chunks):
            pusher.say(index, chunk)
            told.append(pusher.answer()["text"])
    assert told == [*TEXTS[:2], "", *TEXTS[2:]]


def test_a_line_that_is_too_long_is_refused_however_it_comes_and_those_before_it_are_stored(server):
    for is_dribbled in (False, True):
        line = Line(server)
        with line.pusher() as pusher:
            data = json.dumps({"index": 1, "chunks": ["x" * 5000]}).encode() + b"\n"
            after = json.dumps({"index": 2, "chunks": ["No."]}).encode() + b"\n"
            first = json.dumps({"index": 0, "chunks": ["Yes."]}).encode() + b"\n"
            if is_dribbled:
                pusher.line(first)
                for start in range(0, len(data), 1000):
                    pusher.line(data[start : start + 1000])
            else:
                pusher.line(first + data + after)
            told = pusher.answers()
        assert told[0] == {"text": "Yes.", "index": 1}
        assert told[1]["problem"]["code"] == "too_large" and len(told) == 2
        line.ask("POST", f"{line.path}/end")
        assert [text for text, _ in line.said()] == ["Yes."]


def test_a_message_that_was_taken_back_cannot_be_closed(server):
    for batch in ({"index": 1, "chunks": [], "close": True}, {"index": 0, "chunks": ["Casa "]}):
        line = Line(server)
        with line.pusher() as pusher:
            pusher.say(0, "Casa ")
            assert pusher.answer()["index"] == 1
        line.ask("POST", f"{line.path}/retract", {}).done  # noqa: B018
        path = f"{line.path}/streams/{line.message}"
        told = line.ask("POST", path, {**batch, "close": True})
        assert told.status == 409 and told.body["code"] == "conflict", told.body
        line.ask("POST", f"{line.path}/end")


@pytest.mark.slow
def test_a_message_whose_closing_was_told_is_whole(server):
    """However a turn's end comes in between."""
    for _ in range(40):
        line = Line(server)
        ending = threading.Thread(
            target=lambda at=line: at.ask("POST", f"{at.path}/end", {"end": "failed"})
        )
        with line.pusher() as pusher:
            pusher.say(0, "Casa ")
            pusher.answer()
            ending.start()
            pusher.say(1, "Lola.", close=True)
            told = pusher.answer()
        ending.join()
        if "problem" not in told:
            assert line.said() == [("Casa Lola.", "complete")]


def test_nothing_is_said_on_stderr_by_requests_that_end_as_they_are_refused(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        for _ in range(10):
            line = Line((server.port, server.key))
            with line.pusher() as pusher:
                data = b"no JSON\n"
                pusher.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
                assert "problem" in pusher.answers()[-1]
            with line.pusher() as pusher:
                pusher.say(0, "x")
                pusher.answer()
                line.ask("POST", f"/v1/sessions/{line.turn['session_id']}/stop")
                pusher.send(b"0\r\n\r\n")
                pusher.answers()
        assert server.end()[1] == ""


@pytest.mark.parametrize("way", ["stop", "end", "reset", "overtaken", "erase"])
def test_whoever_holds_a_request_open_is_told_at_once_that_others_have_ended_its_turn(server, way):
    """Its lease is of ten minutes: nobody would notice for three."""
    line = Line(server, lease_s=600)
    session = f"/v1/sessions/{line.turn['session_id']}"
    with line.pusher() as pusher:
        pusher.say(0, "Casa ")
        assert pusher.answer()["index"] == 1
        asked = {
            "stop": (f"{session}/stop", {}),
            "end": (f"{session}/end", {"reason": "over"}),
            "overtaken": ("/v1/turns", {"key": line.key, "message": "No.", "on_busy": "interrupt"}),
            "reset": ("/v1/reset", {"key": line.key}),
            "erase": (f"{session}/erase", {"preview": False}),
        }
        line.ask("POST", *asked[way]).done  # noqa: B018
        told = pusher.answer()
    assert told["problem"]["code"] in ("turn_interrupted", "session_ended")


def test_a_client_that_comes_as_its_lease_runs_out_is_not_sent_elsewhere(server):
    """There is no other server: the turn is over, or it is not."""
    for _ in range(20):
        line = Line(server)
        line.ask("POST", f"{line.path}/renew", {"lease_s": 0.05}).done  # noqa: B018
        while (told := line.ask("POST", f"{line.path}/renew")).status == 200:
            threading.Event().wait(0.048)
        assert told.body["code"] == "turn_interrupted", told.body


def test_whoever_pushes_as_its_lease_runs_out_is_told_that_it_did(server):
    """The end of its turn is stored in two commits, and it hears of the first."""
    for _ in range(20):
        line = Line(server)
        with line.pusher() as pusher:
            pusher.say(0, "Casa ")
            assert pusher.answer()["index"] == 1
            line.ask("POST", f"{line.path}/renew", {"lease_s": 0.05}).done  # noqa: B018
            told = pusher.answers()[-1]
        assert told["problem"]["reason"] == "its client's lease ran out", told
