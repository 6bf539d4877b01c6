"""A turn for pages of the AI SDK and of AG-UI: the same however it was met, and never what their clients
refuse.
"""

import pytest

import holdfast
from holdfast.errors import HoldfastError
from holdfast.server.streams.ag_ui import AgUiRun, snapshot
from holdfast.server.streams.occurrence import from_seq
from holdfast.server.streams.spoken_turn import SpokenTurn
from holdfast.server.streams.ui_history import ui_history
from holdfast.server.streams.ui_messages import UiMessageStream
from page_readers import ag_ui_messages, ui_message

WHERE = '{"city": "Rome"}'


def _delta(finish=None, **delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _call(arguments, **more):
    function = {"arguments": arguments, **more.pop("function", {})}
    return _delta(tool_calls=[{"index": 0, "function": function, **more}])


ASKING = [
    _delta(role="assistant", reasoning_content="Let me "),
    _delta(reasoning_content="see. "),
    _delta(content="I will "),
    _delta(content="look."),
    _call("", id="c1", type="function", function={"name": "weather"}),
    _call('{"city": '),
    _call('"Rome"}'),
    _delta(finish="tool_calls"),
]
CLAUDE = [
    {"type": "message_start", "message": {"id": "msg", "role": "assistant", "content": []}},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "Let me see. "},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "text_delta", "text": "I will look."},
    },
    {"type": "content_block_stop", "index": 1},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "c1", "name": "weather", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": WHERE},
    },
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    {"type": "message_stop"},
]


def _told_by(turn, format, chunks):
    """A whole turn, one step at a time: a call, its result, an answer."""
    stream = turn.stream(format)
    for chunk in chunks:
        stream.push(chunk)
        yield
    stream.close()
    yield
    turn.result("c1", "Sunny.")
    yield
    turn.add("It is sunny.")
    yield


class _Page:
    """A page that looks at a session at moments of its own."""

    def __init__(self, session, turn):
        [start] = [each.seq for each in session.entries() if each.kind == "turn"]
        self.follower = from_seq(session._log, start)
        self.turn = SpokenTurn(int(turn.id.rpartition(":")[2]))
        before = snapshot(each for each in session.transcript() if each.seq <= start)
        self.ui, self.run = UiMessageStream(), AgUiRun(session=session.id, turn=turn.id)
        self.parts, self.events = [], self.run.start(before)

    def look(self):
        for occurrence in self.follower.occurrences():
            for part in self.turn.take(occurrence):
                self.parts += self.ui.take(part)
                self.events += self.run.take(part)


@pytest.fixture
def store(tmp_path):
    with holdfast.open(tmp_path / "s.db", durability="process") as store:
        yield store


@pytest.fixture
def session(store):
    return store.session("k")


@pytest.mark.parametrize(
    "format, chunks", [("openai.chat", ASKING), ("anthropic", CLAUDE)], ids=["openai", "anthropic"]
)
def test_a_page_shows_the_same_whenever_it_came(session, format, chunks):
    pages = []
    with session.turn("How is the weather?") as turn:
        for _ in _told_by(turn, format, chunks):
            pages.append(_Page(session, turn))
            for page in pages:
                page.look()
    pages.append(_Page(session, turn))
    for page in pages:
        page.look()
    asked, answer = [each for each in session.transcript() if each.role == "assistant"]
    result = next(each for each in session.transcript() if each.role == "tool" or each.seq == 5)
    for page in pages:
        shown = ui_message(page.parts)
        assert shown["id"] == asked.id
        assert shown["end"] == {"type": "finish", "finishReason": "stop"}
        step, thought, text, tool, second, last = shown["parts"]
        assert step == second == {"type": "step-start"}
        assert thought == {"type": "reasoning", "text": "Let me see. "}
        assert text == {"type": "text", "text": "I will look."}
        assert (tool["state"], tool["input"]) == ("output-available", {"city": "Rome"})
        assert tool["output"] == "Sunny." and eval(tool["said"]) == {"city": "Rome"}
        assert last == {"type": "text", "text": "It is sunny."}
        messages, ended = ag_ui_messages(page.events)
        assert ended["type"] == "RUN_FINISHED" and "outcome" not in ended
        user, thinking, asking, tool, last = messages
        assert (user["role"], user["content"]) == ("user", "How is the weather?")
        assert thinking["content"] == "Let me see. "
        assert (asking["id"], asking["content"]) == (asked.id, "I will look.")
        assert eval(asking["toolCalls"][0]["function"]["arguments"]) == {"city": "Rome"}
        assert (tool["id"], tool["content"]) == (f"{result.id}:c1", "Sunny.")
        assert (last["id"], last["content"]) == (answer.id, "It is sunny.")


def test_the_snapshot_after_a_turn_is_what_its_run_told(session):
    with session.turn("How is the weather?") as turn:
        for _ in _told_by(turn, "openai.chat", ASKING):
            pass
    page = _Page(session, turn)
    page.look()
    messages, _ = ag_ui_messages(page.events)
    assert snapshot(session.transcript()) == messages


@pytest.mark.parametrize("format, chunks", [("openai.chat", ASKING), ("anthropic", CLAUDE)])
def test_what_a_page_begins_with_is_what_its_stream_tells(session, format, chunks):
    with session.turn("How is the weather?") as turn:
        for _ in _told_by(turn, format, chunks):
            pass
    page = _Page(session, turn)
    page.look()
    told = ui_message(page.parts)
    user, answer = ui_history(session.transcript())
    [said] = [each.id for each in session.transcript() if each.seq == 2]
    words = [{"type": "text", "text": "How is the weather?"}]
    assert user == {"id": said, "role": "user", "parts": words}
    assert answer["id"] == told["id"]
    for have, want in zip(answer["parts"], told["parts"], strict=True):
        if want["type"] == "tool":
            assert (have["type"], have["toolName"]) == ("dynamic-tool", want["name"])
            assert (have["input"], have["output"]) == (want["input"], want["output"])
            assert have["state"] == want["state"]
        else:
            assert {**want, "state": "done"} == {"state": "done", **have}


def test_a_page_begins_with_what_was_cut_off_or_failed(session):
    with pytest.raises(RuntimeError):
        with session.turn("How is the weather?") as turn:
            stream = turn.stream("openai.chat")
            for chunk in ASKING[:6]:
                stream.push(chunk)
            raise RuntimeError("no line")
    with session.turn("Look again.") as turn:
        turn.result(turn.call("look", {"at": "it"}), "It is dark.", error=True)
    _, cut, _, failed = ui_history(session.transcript())
    assert (cut["parts"][-1]["state"], cut["parts"][-1]["input"]) == ("output-error", '{"city": ')
    tool = failed["parts"][-1]
    assert (tool["state"], tool["errorText"], tool["input"]) == (
        "output-error",
        "It is dark.",
        {"at": "it"},
    )


def test_what_is_sent_for_a_plain_answer(session):
    """The bytes that pages are known to take: `./dev streams` shows them to the clients."""
    with session.turn("Hi") as turn:
        page = _Page(session, turn)
        stream = turn.stream("text")
        id = stream.message_id
        for text in ("Hel", "lo"):
            stream.push(text)
            page.look()
        stream.close()
    page.look()
    assert page.parts == [
        {"type": "start", "messageId": id},
        {"type": "start-step"},
        {"type": "text-start", "id": "text-1"},
        {"type": "text-delta", "id": "text-1", "delta": "Hel"},
        {"type": "text-delta", "id": "text-1", "delta": "lo"},
        {"type": "text-end", "id": "text-1"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop"},
    ]
    run = {"threadId": session.id, "runId": turn.id}
    [said] = [each.id for each in session.transcript() if each.role == "user"]
    assert page.events == [
        {"type": "RUN_STARTED", **run},
        {
            "type": "MESSAGES_SNAPSHOT",
            "messages": [{"id": said, "role": "user", "content": "Hi"}],
        },
        {"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": "Hel"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": "lo"},
        {"type": "TEXT_MESSAGE_END", "messageId": id},
        {"type": "RUN_FINISHED", **run},
    ]


@pytest.mark.parametrize("cut", (1, 4, 5, 7))
def test_a_turn_that_is_cut_off_anywhere_ends_what_is_open(session, cut):
    with pytest.raises(RuntimeError):
        with session.turn("How is the weather?") as turn:
            page = _Page(session, turn)
            stream = turn.stream("openai.chat")
            for chunk in ASKING[:cut]:
                stream.push(chunk)
                page.look()
            raise RuntimeError("no line")
    late = _Page(session, turn)
    for each in (page, late):
        each.look()
        shown = ui_message(each.parts)
        assert shown["end"] == {"type": "error", "errorText": "RuntimeError: no line"}
        messages, ended = ag_ui_messages(each.events)
        assert (ended["type"], ended["code"]) == ("RUN_ERROR", "failed")
        tools = [part for part in shown["parts"] if part["type"] == "tool"]
        assert all(tool["state"] == "input-error" for tool in tools)
        said = "".join(part["text"] for part in shown["parts"] if part["type"] == "text")
        kept = [message for message in session.transcript() if message.role == "assistant"]
        assert said == "".join(message.text for message in kept)
        told = [message for message in messages if message["role"] == "assistant"]
        assert "".join(message["content"] for message in told) == said


def test_a_turn_that_is_stopped_is_an_abort_and_a_cancelled_run(session):
    try:
        with session.turn("Hi") as turn:
            page = _Page(session, turn)
            turn.stream("text").push("Half")
            page.look()
            session.stop("enough")
            turn.add("late")
    except HoldfastError:
        pass
    page.look()
    assert ui_message(page.parts)["end"] == {"type": "abort", "reason": "stopped: enough"}
    _, ended = ag_ui_messages(page.events)
    assert ended["outcome"] == {"type": "cancelled"}


def test_what_is_no_part_of_the_turn_stands_in_no_way(session):
    with session.turn("Hi") as turn:
        page = _Page(session, turn)
        session.instructions("Be kind.")
        turn.say("Hello.")
        [*_, said] = session.transcript()
        session.label(said.id, shown=True)
        session.append("By the way.")
    page.look()
    assert ui_message(page.parts)["end"]["type"] == "finish"
    assert ag_ui_messages(page.events)[1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize(
    ("why", "code"), [("stopping", "server_stopping"), ("revoked", "unauthenticated")]
)
def test_a_server_that_tells_no_more_says_so_and_leaves_nothing_open(session, why, code):
    with session.turn("Hi") as turn:
        page = _Page(session, turn)
        stream = turn.stream("text")
        stream.push("Half")
        page.look()
        parts = page.parts + page.ui.cut(why)
        events = page.events + page.run.cut(why)
        stream.close()
    assert ui_message(parts)["end"]["type"] == "error"
    assert ag_ui_messages(events)[1]["code"] == code


def test_two_messages_that_are_spoken_at_once_are_kept_apart(session):
    with session.turn("Hi") as turn:
        page = _Page(session, turn)
        streams = [turn.stream("text"), turn.stream("text")]
        for number in range(3):
            for name, stream in zip("ab", streams, strict=True):
                stream.push(f"{name}{number} ")
                page.look()
        for stream in streams:
            stream.close()
    page.look()
    messages, _ = ag_ui_messages(page.events)
    assert [each["content"] for each in messages[1:]] == ["a0 a1 a2 ", "b0 b1 b2 "]
    texts = [part["text"] for part in ui_message(page.parts)["parts"] if part["type"] == "text"]
    assert sorted("".join(texts).split()) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_call_that_waits_is_asked_for_and_one_that_is_denied_says_so(session):
    with session.turn("Delete it.") as turn:
        page = _Page(session, turn)
        turn.call("rm", {"path": "/"}, "c1", needs_approval=True)
        page.look()
        assert ui_message(page.parts)["parts"][-1]["state"] == "approval-request"
        session.decide("c1", approved=False, by="me")
    page.look()
    assert ui_message(page.parts)["parts"][-1]["state"] == "output-denied"
    names = [event.get("name") for event in page.events if event["type"] == "CUSTOM"]
    assert names == ["holdfast.approval_asked", "holdfast.approval_denied"]


def test_a_tool_that_fails_is_an_error_of_its_output(session):
    with session.turn("Look.") as turn:
        page = _Page(session, turn)
        call = turn.call("look", {})
        turn.result(call, "It is dark.", error=True)
    page.look()
    tool = ui_message(page.parts)["parts"][-1]
    assert (tool["state"], tool["output"]) == ("output-error", "It is dark.")


def test_what_a_user_says_meanwhile_is_in_the_run(store, session):
    with session.turn("One.") as turn:
        page = _Page(session, turn)
        store.accept("k", "Two.")
        turn.inbox()
        turn.add("Both.")
    page.look()
    messages, _ = ag_ui_messages(page.events)
    assert [(each["role"], each["content"]) for each in messages] == [
        ("user", "One."),
        ("user", "Two."),
        ("assistant", "Both."),
    ]
    assert [part["text"] for part in ui_message(page.parts)["parts"] if "text" in part] == ["Both."]
