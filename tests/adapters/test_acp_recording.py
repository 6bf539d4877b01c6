"""What is stored of a connection between an ACP client and an agent: laws of single lines, without
processes.
"""

import json
from collections.abc import Callable, Iterator

import pytest

import holdfast
from acp_wire import Wire, insist_valid, line
from holdfast.adapters.acp.session_key import session_key
from holdfast.testing import temporary_store


@pytest.fixture
def store() -> Iterator[holdfast.Store]:
    with temporary_store() as store:
        yield store


@pytest.fixture
def wire(store: holdfast.Store) -> Wire:
    return Wire(store)


def test_a_prompt_and_its_answer_are_a_completed_turn(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.text("Hel", messageId="m1")
    wire.text("lo.", messageId="m1")
    wire.end()
    assert wire.told() == [("user", "Hi."), ("assistant", "Hello.")]
    [turn] = wire.session().turns()
    assert (turn.end, turn.messages) == ("completed", 2)
    insist_valid(wire.session())


def test_a_chunk_is_stored_before_it_is_passed_on(wire: Wire) -> None:
    wire.prompt("Hi.")
    for sent in wire.recorder.take("agent", [chunk("Hello", "m1")]):
        assert sent.forward
        assert (
            next(each for each in wire.session().follow() if each.kind == "chunk").text == "Hello"
        )


def chunk(words: str, id: str) -> bytes:
    update = {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": words},
        "messageId": id,
    }
    return line(method="session/update", params={"sessionId": "s", "update": update})


def test_bytes_are_passed_on_as_they_came(wire: Wire) -> None:
    odd = [
        b'{ "method" :"session/update",  "params":{"update":{"content":{"text":"a\\u0062","type":"text"},'
        b'"sessionUpdate":"agent_message_chunk"},"sessionId":"s"},"jsonrpc":"2.0"}\r\n',
        b"this is no JSON\n",
        b"\n",
        b"[1, 2]\n",
        b'"text"\n',
        b"null\n",
        b'{"jsonrpc":"2.0","method":17,"params":[]}\n',
        b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":null}}\n',
        b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"a":NaN}}}\n',
        b'{"jsonrpc":"2.0","id":99,"result":null}\n',
        b"\xff\xfe broken \xc3\n",
        b'{"a":' * 400 + b"1" + b"}" * 400 + b"\n",
        b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'
        + b'{"a":' * 400
        + b"1"
        + b"}" * 402
        + b"\n",
        b"no line break",
    ]
    wire.prompt("Hi.")
    assert wire.pass_on("agent", *odd) == b"".join(odd)
    assert wire.pass_on("client", *odd[1:]) == b"".join(odd[1:])
    assert wire.problems == []
    wire.end()
    assert wire.told() == [("user", "Hi."), ("assistant", "ab")]


def test_what_is_thought_and_said_under_one_id_is_one_message(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.chunk("agent_thought_chunk", "Hm.", messageId="m1")
    wire.text("Hello.", messageId="m1")
    wire.end()
    *_, said = wire.session().transcript()
    assert [type(part).__name__ for part in said.parts] == ["Thinking", "Text"]
    assert said.payload["_acp"]["messageId"] == "m1"


def test_fields_that_nobody_knows_are_kept(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.text("Hel", messageId="m1", _meta={"goose": {"created": 1}})
    wire.text("lo.", messageId="m1", _meta={"goose": {"created": 1}})
    wire.text("", messageId="m1", _meta={"goose": {"created": 2}}, mood="glad")
    wire.call("c1", _meta={"x": {"y": 1}}, odd=True)
    wire.end()
    _, said, call = wire.session().transcript()
    assert [each["_meta"] for each in said.payload["_acp"]["updates"]] == [
        {"goose": {"created": 1}},
        {"goose": {"created": 2}},
    ]
    assert said.payload["_acp"]["updates"][1]["mood"] == "glad"
    assert call.payload["_acp"]["updates"][0]["odd"] is True


def test_a_warning_without_an_id_is_a_message_of_its_own(wire: Wire) -> None:
    """Codex warns before each turn, in words that are not its model's."""
    for id in (1, 2):
        wire.prompt("Hi.", id=id)
        wire.text("Warning: no metadata.\n\n")
        wire.text("Hello.", messageId=f"m{id}")
        wire.end(id)
    said = [("assistant", "Warning: no metadata.\n\n"), ("assistant", "Hello.")]
    assert wire.told() == [("user", "Hi."), *said] * 2
    assert [each["content"] for each in wire.session().context("openai.chat")] == [
        "Hi.",
        "Hello.",
    ] * 2


def test_an_agent_without_ids_is_heard(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.chunk("agent_thought_chunk", "Hm.")
    wire.text("Hel")
    wire.text("lo.")
    wire.end()
    assert [each["content"] for each in wire.session().context("openai.chat")] == ["Hi.", "Hello."]


def test_a_line_waits_for_one_commit_and_so_does_the_end_of_a_turn(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    wire.prompt("Hi.", id=1)
    engine = wire.session()._log.engine
    submit = engine.submit
    monkeypatch.setattr(engine, "submit", lambda commit: (made.append(commit), submit(commit))[1])
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "c1"}
    for said in (
        {"sessionUpdate": "plan", "entries": []},
        {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "Hm."}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "b"}},
        {"sessionUpdate": "tool_call", "toolCallId": "c1", "rawInput": {"a": 1}},
        {**update, "status": "in_progress"},
        {**update, "status": "completed"},
    ):
        params = {"sessionId": "s", "update": said}
        assert commits(wire, made, line(method="session/update", params=params)) == 1
    many = [chunk(f"word{number} ", "m1") for number in range(50)]
    assert commits(wire, made, *many) == 1
    asked = {"sessionId": "s", "toolCall": {"toolCallId": "c2", "rawInput": {"a": 2}}}
    request = line(method="session/request_permission", id=0, params=asked)
    assert commits(wire, made, request) == 1
    # A message that is still growing is stored with the end.
    assert commits(wire, made, chunk("The end.", "m2")) == 1
    assert commits(wire, made, line(id=1, result={"stopReason": "end_turn"})) == 1
    assert wire.session().turns()[0].end == "completed"
    states = [message.state for message in wire.session().transcript()]
    assert "partial" not in states


def commits(wire: Wire, made: list[object], *raws: bytes) -> int:
    """How many commits were waited for before these lines were passed on."""
    made.clear()
    [sent] = wire.recorder.take("agent", raws)
    assert sent.forward == b"".join(raws)
    count = len(made)
    wire.recorder.settle(sent)
    return count


def test_an_empty_chunk_makes_no_message_and_cuts_no_turn_off(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.text("", messageId="m1")
    wire.end()
    assert wire.told() == [("user", "Hi.")]
    assert wire.session().turns()[0].end == "completed"


@pytest.mark.parametrize(
    "updates, arguments",
    [
        # goose, Claude, Codex, and a tool that takes nothing
        ([{"rawInput": {"command": "ls"}}], {"command": "ls"}),
        (
            [
                {"rawInput": {}, "status": "pending"},
                {"rawInput": {"command": "ls"}, "title": "ls"},
                {"_meta": {"claudeCode": {"toolResponse": {"stdout": "a"}}}},
            ],
            {"command": "ls"},
        ),
        ([{"status": "in_progress", "rawInput": {"cmd": "ls"}}], {"cmd": "ls"}),
        ([{"rawInput": {}, "status": "pending"}], {}),
        ([{}], {}),
        # told when the tool is at work, and told anew
        ([{"rawInput": {}}, {"status": "in_progress"}, {"rawInput": {"cmd": "ls"}}], {"cmd": "ls"}),
        ([{"rawInput": {"cmd": "l"}}, {"rawInput": {"cmd": "ls"}}], {"cmd": "ls"}),
        (
            [{"rawInput": {"cmd": "l"}, "status": "in_progress"}, {"title": "ls"}]
            + [{"rawInput": {"cmd": "ls"}}],
            {"cmd": "ls"},
        ),
    ],
)
def test_a_call_has_the_arguments_that_came_and_one_outcome(
    wire: Wire, updates: list[dict[str, object]], arguments: dict[str, str]
) -> None:
    wire.prompt("Hi.")
    wire.text("Look:", messageId="m1")
    first, *more = updates
    wire.update(sessionUpdate="tool_call", toolCallId="c1", title="ls", **first)
    for update in more:
        wire.update(sessionUpdate="tool_call_update", toolCallId="c1", **update)
    wire.result("c1", "a b")
    wire.text("There.", messageId="m2")
    wire.end()
    assert wire.told()[1:] == [
        ("assistant", "Look:"),
        ("assistant", "c1"),
        ("tool", "a b"),
        ("assistant", "There."),
    ]
    [call] = wire.session().calls()
    assert (json.loads(call.arguments), call.state) == (arguments, "done")
    insist_valid(wire.session())


def test_parallel_calls_are_answered_in_any_order(wire: Wire) -> None:
    wire.prompt("Hi.")
    for id in ("c1", "c2", "c3"):
        wire.call(id)
    wire.update(sessionUpdate="tool_call_update", toolCallId="c2", status="in_progress")
    for id, status in (("c3", "failed"), ("c1", "completed"), ("c2", "completed")):
        wire.result(id, f"of {id}", status)
    wire.end()
    assert {call.call_id: call.state for call in wire.session().calls()} == {
        "c1": "done",
        "c2": "done",
        "c3": "failed",
    }
    results = {
        each["tool_call_id"]: each["content"]
        for each in wire.session().context("openai.chat")
        if each["role"] == "tool"
    }
    assert results == {"c1": "of c1", "c2": "of c2", "c3": "of c3"}
    insist_valid(wire.session())


def test_an_output_that_is_in_meta_alone_is_the_outcome(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.call("c1", status="in_progress", content=[{"type": "terminal", "terminalId": "c1"}])
    for words in ("as", "ked\n"):
        delta = {"terminal_output_delta": {"data": words, "terminal_id": "c1"}}
        wire.update(sessionUpdate="tool_call_update", toolCallId="c1", _meta=delta)
    wire.update(sessionUpdate="tool_call_update", toolCallId="c1", status="completed")
    wire.end()
    assert wire.told()[-1] == ("tool", "asked\n")


@pytest.mark.parametrize("reason", ["cancelled", None])
def test_a_cut_keeps_what_was_shown_and_closes_pairs(wire: Wire, reason: str | None) -> None:
    """goose #7785: after a cancel goose itself keeps the prompt alone."""
    wire.prompt("Hi.")
    wire.text("Let me look.", messageId="m1")
    wire.call("c1")
    output = {"toolNotification": {"output": "half"}}
    progress = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "in_progress"}
    wire.update(**progress, _meta=output)
    wire.text("And so", messageId="m2")
    if reason:
        wire.client("session/cancel", {"sessionId": "s"})
        wire.end(reason=reason)
    else:
        wire.recorder.end("the agent is gone")
    assert [each for each in wire.told() if each[0] != "tool"] == [
        ("user", "Hi."),
        ("assistant", "Let me look."),
        ("assistant", "c1"),
        ("assistant", "And so"),
    ]
    session = wire.session()
    assert session.turns()[0].end == "interrupted"
    states = {message.text: message.state for message in session.transcript()}
    assert states["And so"] == "partial" and states["Let me look."] == "complete"
    *_, last = [each for each in session.context("openai.chat") if each["role"] == "tool"]
    assert last["tool_call_id"] == "c1" and "interrupted" in last["content"]
    insist_valid(session)


def test_permission_is_kept_with_its_call(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.call("c1")
    wire.call("c2")
    for id, call in ((0, "c1"), (1, "c2")):
        params = {"sessionId": "s", "toolCall": {"toolCallId": call}, "options": []}
        assert wire.agent("session/request_permission", params, id=id)
    # Ids of the two sides are the same, and mean different requests.
    chosen = {"outcome": {"outcome": "selected", "optionId": "yes"}}
    assert wire.pass_on("client", line(id=1, result=chosen))
    wire.end(reason="cancelled")
    calls = {each.calls[0].call_id: each for each in wire.session().transcript() if each.calls}
    assert calls["c2"].labels["acp.permission_answer"] == chosen
    assert "acp.permission" in calls["c1"].labels
    assert "acp.permission_answer" not in calls["c1"].labels
    insist_valid(wire.session())


def test_a_call_that_is_first_heard_of_when_permission_is_asked_is_stored(wire: Wire) -> None:
    wire.prompt("Hi.")
    call = {"toolCallId": "c1", "title": "ls", "rawInput": {"command": "ls"}}
    params = {"sessionId": "s", "toolCall": call, "options": []}
    wire.agent("session/request_permission", params, id="u1")
    wire.result("c1")
    wire.end()
    assert wire.told()[1:] == [("assistant", "c1"), ("tool", "done")]


def test_arguments_that_are_told_where_permission_is_asked_are_the_calls(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.call("c1", rawInput={})
    asked = {"toolCallId": "c1", "rawInput": {"command": "ls -a"}}
    params = {"sessionId": "s", "toolCall": asked, "options": []}
    wire.agent("session/request_permission", params, id=0)
    wire.result("c1")
    wire.end()
    [call] = wire.session().calls()
    assert json.loads(call.arguments) == {"command": "ls -a"}
    [message] = [each for each in wire.session().transcript() if each.calls]
    assert message.labels["acp.permission"]["toolCall"] == asked


def test_a_call_whose_id_was_cut_off_in_an_earlier_turn_is_another_call(wire: Wire) -> None:
    """Some agents number the calls of each turn anew."""
    wire.prompt("One.", id=1)
    wire.call("call_0", rawInput={"cmd": "date"})
    wire.end(1, reason="cancelled")
    wire.prompt("Two.", id=2)
    wire.call("call_0", rawInput={"cmd": "ls"})
    wire.result("call_0", "files")
    wire.end(2)
    calls = [(json.loads(call.arguments)["cmd"], call.state) for call in wire.session().calls()]
    assert calls == [("date", "unknown"), ("ls", "done")]
    insist_valid(wire.session())


def test_calls_that_are_cut_off_were_made(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.call("c1", rawInput={"cmd": "date"})
    wire.call("c2", rawInput={}, status="in_progress")
    wire.end(reason="cancelled")
    _, *calls = wire.session().transcript()
    states = {each.calls[0].call_id: each.state for each in calls}
    assert states == {"c1": "complete", "c2": "complete"}


def test_a_queued_prompt_has_the_turn_after_the_one_before(wire: Wire) -> None:
    wire.prompt("One.", id=1)
    wire.text("First ", messageId="m1")
    wire.prompt("Two.", id=2)
    assert [each.text for each in wire.session().pending()] == ["Two."]
    wire.text("answer.", messageId="m1")
    wire.end(1)
    wire.text("Second.", messageId="m2")
    wire.end(2)
    session = wire.session()
    assert session.pending() == []
    assert [(turn.end, turn.messages) for turn in session.turns()] == [("completed", 2)] * 2
    assert [each["content"] for each in session.context("openai.chat")] == [
        "One.",
        "First answer.",
        "Two.",
        "Second.",
    ]


def test_a_refused_prompt_is_no_turn_and_no_model_sees_it(wire: Wire) -> None:
    wire.prompt("One.", id=1)
    wire.prompt("Two.", id=2)
    refusal = {"code": -32602, "message": "session already has active run `run_1`"}
    assert wire.pass_on("agent", line(id=2, error=refusal))
    wire.text("First.", messageId="m1")
    wire.end(1)
    session = wire.session()
    assert session.pending() == []
    assert len(session.turns()) == 1
    [refused] = [each for each in session.transcript() if each.text == "Two."]
    assert refused.labels == {"visible_to_model": False, "acp.answer": {"error": refusal}}
    assert [each["content"] for each in session.context("openai.chat")] == ["One.", "First."]


def test_a_refused_prompt_among_queued_ones_is_taken_along_by_the_next_turn(wire: Wire) -> None:
    for id, words in ((1, "One."), (2, "Two."), (3, "Three.")):
        wire.prompt(words, id=id)
    wire.pass_on("agent", line(id=2, error={"code": -32602, "message": "no"}))
    wire.end(1)
    wire.text("Third.", messageId="m3")
    wire.end(3)
    session = wire.session()
    assert session.pending() == []
    shown = "\n".join(str(each["content"]) for each in session.context("openai.chat"))
    assert "Two." not in shown and "Three." in shown


def test_a_prompt_that_is_answered_with_an_error_is_a_failed_turn(wire: Wire) -> None:
    wire.prompt("Hi.")
    wire.pass_on("agent", line(id=1, error={"code": -32000, "message": "Log in first."}))
    [turn] = wire.session().turns()
    assert (turn.end, turn.error) == ("failed", "Log in first.")
    wire.prompt("Again.", id=2)
    wire.end(2)
    assert [turn.end for turn in wire.session().turns()] == ["failed", "completed"]


def test_two_sessions_of_one_connection_do_not_mix(wire: Wire) -> None:
    wire.prompt("A.", id=1, session="a")
    wire.prompt("B.", id=2, session="b")
    for number in range(3):
        wire.text(f"a{number} ", session="a", messageId="m1")
        wire.text(f"b{number} ", session="b", messageId="m1")
    wire.end(2)
    wire.end(1)
    assert wire.told("a") == [("user", "A."), ("assistant", "a0 a1 a2 ")]
    assert wire.told("b") == [("user", "B."), ("assistant", "b0 b1 b2 ")]


def test_what_is_no_message_is_a_label_on_the_last_one(wire: Wire) -> None:
    wire.client("session/new", {"cwd": "/w", "mcpServers": [{"env": "SECRET"}]}, id=1)
    wire.answer(1, {"sessionId": "s", "modes": {"currentModeId": "auto"}})
    wire.update(sessionUpdate="available_commands_update", availableCommands=[])
    wire.prompt("Hi.", id=2)
    plan = [{"content": "Look", "priority": "high", "status": "pending"}]
    wire.update(sessionUpdate="plan", entries=plan)
    wire.update(sessionUpdate="mood_update", mood="glad")
    wire.end(2)
    first, asked = wire.session().transcript()
    assert first.labels == {
        "acp.available_commands_update": {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [],
        }
    }
    assert first.payload["_acp"]["cwd"] == "/w"
    assert "SECRET" not in str(first.payload)
    assert asked.labels["acp.plan"]["entries"] == plan
    assert asked.labels["acp.mood_update"]["mood"] == "glad"
    assert wire.session().context("openai.chat") == [{"role": "user", "content": "Hi."}]


def test_what_the_agent_says_unasked_is_a_turn_of_its_own(wire: Wire) -> None:
    wire.prompt("Hi.", id=1)
    wire.end(1)
    wire.text("By the way", messageId="m9")
    wire.prompt("Yes?", id=2)
    wire.text("Nothing.", messageId="m10")
    wire.end(2)
    assert [turn.end for turn in wire.session().turns()] == ["completed"] * 3
    assert wire.told() == [
        ("user", "Hi."),
        ("assistant", "By the way"),
        ("user", "Yes?"),
        ("assistant", "Nothing."),
    ]


def test_an_outcome_that_comes_after_its_turn_takes_its_place(wire: Wire) -> None:
    wire.prompt("Hi.", id=1)
    wire.call("c1")
    wire.end(1, reason="cancelled")
    wire.prompt("Well?", id=2)
    wire.result("c1", "late")
    wire.text("There.", messageId="m2")
    wire.end(2)
    results = [each for each in wire.session().context("openai.chat") if each["role"] == "tool"]
    assert [each["content"] for each in results] == ["late"]
    insist_valid(wire.session())


def test_a_prompt_that_the_agent_repeats_is_one_message(wire: Wire) -> None:
    wire.prompt("Hi there.")
    wire.chunk("user_message_chunk", "Hi there.", messageId="u1")
    wire.end()
    assert wire.told() == [("user", "Hi there.")]


def test_pictures_and_resources_of_a_prompt_are_kept(wire: Wire) -> None:
    blocks = [
        {"type": "text", "text": "See:", "annotations": {"audience": ["user"]}},
        {"type": "image", "data": "aGk=", "mimeType": "image/gif", "uri": "file:///a.gif"},
        {"type": "resource_link", "name": "a.py", "uri": "file:///a.py"},
        {"type": "resource", "resource": {"uri": "file:///b.py", "text": "print()"}},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "hologram", "depth": 3},
        17,
    ]
    wire.client("session/prompt", {"sessionId": "s", "prompt": blocks}, id=1)
    wire.end()
    [asked] = wire.session().transcript()
    assert asked.payload["_acp"]["prompt"] == blocks
    assert "print()" in asked.text and "file:///a.py" in asked.text
    assert wire.session().context("openai.chat")[0]["content"][1]["image_url"] == {
        "url": "data:image/gif;base64,aGk="
    }
    insist_valid(wire.session())


def test_a_version_that_nobody_knows_is_passed_on_and_kept_as_it_is(store: holdfast.Store) -> None:
    wire = Wire(store, meet=False)
    wire.client("initialize", {"protocolVersion": 2}, id=0)
    wire.answer(0, {"protocolVersion": 2})
    assert wire.prompt("Hi.", id=1)
    state = line(method="session/update", params={"sessionId": "s", "update": {"state": "idle"}})
    assert wire.pass_on("agent", state) == state
    assert wire.pass_on("agent", line(id=1, result={})) == line(id=1, result={})
    kept = [message.payload["_acp"] for message in wire.session().transcript()]
    assert [each["from"] for each in kept] == ["client", "agent", "agent"]
    assert kept[0]["line"]["params"]["prompt"][0]["text"] == "Hi."
    assert wire.session().context("openai.chat") == []


def test_labels_are_never_undone(wire: Wire) -> None:
    """goose #7413: hidden messages came back with the next round trip of a client."""
    wire.prompt("Hi.", id=1)
    wire.text("Hello.", messageId="m1")
    wire.end(1)
    session = wire.session()
    _, said = session.transcript()
    session.label(said.id, user_visible=True, agent_visible=False, visible_to_model=False)
    wire.load()
    wire.chunk("user_message_chunk", "Hi.", messageId="u1")
    wire.text("Hello.", messageId="m1")
    wire.answer("load", {})
    wire.prompt("Again.", id=2)
    wire.end(2)
    said = next(each for each in wire.session().transcript() if each.id == said.id)
    assert said.labels["agent_visible"] is False and said.labels["user_visible"] is True
    assert "Hello." not in str(session.context("openai.chat"))
    assert wire.told() == [("user", "Hi."), ("assistant", "Hello."), ("user", "Again.")]


def test_a_number_and_its_digits_are_two_ids(wire: Wire) -> None:
    wire.prompt("One.", id=1)
    wire.prompt("Two.", id="1")
    wire.text("First.", messageId="m1")
    wire.end(1)
    wire.text("Second.", messageId="m2")
    wire.end("1")
    said = [each["content"] for each in wire.session().context("openai.chat")]
    assert said == ["One.", "First.", "Two.", "Second."]
    assert [turn.end for turn in wire.session().turns()] == ["completed", "completed"]


@pytest.mark.parametrize("session", ["", "\x00", "a\nb", "\ud800", "x" * 5000, "../..", "🙂"])
def test_a_session_of_any_name_is_stored(store: holdfast.Store, session: str) -> None:
    wire = Wire(store, key_of=lambda id: session_key("toy\n", id, place="here"))
    assert wire.prompt("Hi.", session=session)
    assert wire.text("Hello.", session=session, messageId="m1")
    assert wire.end()
    assert wire.problems == []
    key = session_key("toy\n", session, place="here")
    assert key != session_key("toy\n", session + "x", place="here")
    said = [message.text for message in store.session(key, create=False).transcript()]
    assert said == ["Hi.", "Hello."]


def test_an_agent_that_dies_at_any_line_leaves_what_was_shown(store: holdfast.Store) -> None:
    call = {"sessionId": "d", "toolCall": {"toolCallId": "c1"}, "options": []}
    plays: list[Callable[[Wire], bytes]] = [
        lambda wire: wire.chunk("agent_thought_chunk", "Hm.", session="d", messageId="m1"),
        lambda wire: wire.text("I look.", session="d", messageId="m1"),
        lambda wire: wire.update("d", sessionUpdate="tool_call", toolCallId="c1", rawInput={}),
        lambda wire: wire.agent("session/request_permission", call, id="p"),
        lambda wire: wire.update(
            "d", sessionUpdate="tool_call_update", toolCallId="c1", status="completed"
        ),
        lambda wire: wire.text("Done.", session="d", messageId="m2"),
    ]
    for count in range(len(plays) + 1):
        wire = Wire(store, key_of=f"acp:{count}:{{}}".format)
        wire.prompt("Hi.", session="d")
        for play in plays[:count]:
            assert play(wire)
        wire.recorder.end("the agent is gone")
        session = store.session(f"acp:{count}:d", create=False)
        said = "".join(each.text for each in session.transcript() if each.role == "assistant")
        assert said == "I look." * (count > 1) + "Done." * (count > 5)
        assert [turn.end for turn in session.turns()] == ["interrupted"]
        insist_valid(session)
        assert wire.problems == []
