"""The running turn for pages of the AI SDK and of AG-UI, over real connections."""

import signal

import pytest

from event_reader import EventReader
from page_readers import ag_ui_messages, ui_message
from wire_server import WireServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with WireServer(tmp_path_factory.mktemp("pages") / "s.db") as served:
        yield served


def _page(server, turn, kind):
    session = turn["session_id"]
    if kind == "ai-sdk":
        return EventReader(server.port, server.key, f"/v1/ai-sdk/{session}/stream")
    body = {"threadId": session, "runId": "r", "messages": [], "tools": [], "state": {}}
    path = f"/v1/ag-ui/{session}"
    return EventReader(server.port, server.key, path, method="POST", body=body)


def _data(reader):
    events = reader.all()
    assert {event.event for event in events} <= {"message"}, "they take every line for theirs"
    return [event.data for event in events]


def _say(server, turn, message, index, *chunks, close=False):
    push = {"index": index, "chunks": chunks, "close": close}
    server.ask("POST", f"/v1/turns/{turn['id']}/streams/{message}", push).done  # noqa: B018


def test_pages_that_come_at_any_time_show_the_answer_once_and_whole(server):
    turn = server.turn("pages", "Hello.")
    pages = [(kind, _page(server, turn, kind)) for kind in ("ai-sdk", "ag-ui")]
    message = server.stream(turn["id"], "Hel")
    pages += [(kind, _page(server, turn, kind)) for kind in ("ai-sdk", "ag-ui")]
    for _, page in pages:
        assert page.headers["content-type"].startswith("text/event-stream")
    _say(server, turn, message, 1, "lo ", "there", close=True)
    pages += [(kind, _page(server, turn, kind)) for kind in ("ai-sdk", "ag-ui")]
    server.end(turn["id"])
    for kind, page in pages:
        data = _data(page)
        if kind == "ai-sdk":
            assert page.headers["x-vercel-ai-ui-message-stream"] == "v1"
            assert data.pop() == "[DONE]"
            shown = ui_message(data)
            assert shown["id"] == message
            assert [part.get("text") for part in shown["parts"]] == [None, "Hello there"]
            assert shown["end"]["type"] == "finish"
        else:
            (user, said), ended = ag_ui_messages(data)
            assert (user["content"], said["content"]) == ("Hello.", "Hello there")
            assert said["id"] == message and ended["type"] == "RUN_FINISHED"
    with _page(server, turn, "ai-sdk") as page:
        assert page.status == 204
    with _page(server, turn, "ag-ui") as page:
        messages, ended = ag_ui_messages(_data(page))
        assert [each["content"] for each in messages] == ["Hello.", "Hello there"]


def test_the_cursor_of_a_page_is_one_of_the_sessions_own_stream(server):
    turn = server.turn("cursors", "Hello.")
    message = server.stream(turn["id"], "Hel")
    with _page(server, turn, "ai-sdk") as page:
        cursor = page.until(lambda event: event.data.get("delta") == "Hel")[-1].id
    _say(server, turn, message, 1, "lo", close=True)
    path = f"/v1/sessions/{turn['session_id']}/stream"
    with EventReader(server.port, server.key, path, last_id=cursor) as reader:
        assert reader.take(1)[0].data["text"] == "lo"
    server.end(turn["id"])


def test_arguments_that_are_nested_too_deeply_are_told_as_their_text(server):
    turn = server.turn("deep", "Hello.")
    said = "[" * 5000 + "]" * 5000
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": said}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    added = server.ask("POST", f"/v1/turns/{turn['id']}/messages", {"message": message})
    assert added.status == 201
    page = _page(server, turn, "ai-sdk")
    server.end(turn["id"])
    *data, done = _data(page)
    assert done == "[DONE]"
    [tool] = [part for part in ui_message(data)["parts"] if part["type"] == "tool"]
    assert tool["input"] == said
    listed = server.ask("GET", f"/v1/ai-sdk/{turn['session_id']}/messages").done["messages"]
    assert listed[-1]["parts"][-1]["input"] == said


def test_a_turn_whose_client_vanishes_ends_on_every_page(server):
    turn = server.turn("vanishes", "Hello.", lease_s=0.5)
    server.stream(turn["id"], "Half ")
    pages = [_page(server, turn, kind) for kind in ("ai-sdk", "ag-ui")]
    shown = ui_message(_data(pages[0])[:-1])
    assert shown["end"] == {"type": "abort", "reason": "its client's lease ran out"}
    assert shown["parts"][-1]["text"] == "Half "
    _, ended = ag_ui_messages(_data(pages[1]))
    assert (ended["type"], ended["code"]) == ("RUN_ERROR", "abandoned")


def test_a_server_that_is_told_to_end_ends_every_stream_at_once_and_says_so_to_pages(tmp_path):
    with WireServer(tmp_path / "s.db") as server:
        turn = server.turn("stopped", "Hello.")
        server.stream(turn["id"], "Half ")
        pages = [_page(server, turn, kind) for kind in ("ai-sdk", "ag-ui")]
        for page in pages:
            page.until(lambda event: event.data.get("delta") == "Half ")
        path = f"/v1/sessions/{turn['session_id']}/stream"
        own = EventReader(server.port, server.key, path)
        own.take(5)
        server.process.send_signal(signal.SIGTERM)
        *closing, error, done = _data(pages[0])
        assert [each["type"] for each in closing] == ["text-end"] and done == "[DONE]"
        assert error["type"] == "error" and "Resume" in error["errorText"]
        *_, error = _data(pages[1])
        assert (error["type"], error["code"]) == ("RUN_ERROR", "server_stopping")
        # Its own stream ends well, and does not say that the session is over.
        assert own.all() == []
        assert server.process.wait(60) == -signal.SIGTERM
        assert server.process.stderr.read() == ""
