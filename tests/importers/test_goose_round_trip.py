"""A session goes from goose to Holdfast and back as it was, and what others said goes to goose with
all that goose can hold: pairs, flags, cut answers, signed thinking, images.
"""

import json

import apsw
import pytest

import holdfast
from commanding import command
from goose_stores import HEALTHY, built, call, reused_ids, text, thinking
from holdfast.domain.repair import INTERRUPTED

PIXEL = "iVBORw0KGgo="
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
GOOSE_PICTURE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def session(path):
    with holdfast.open(path) as store:
        yield store.session("k")


def exported(path, name="key:k"):
    return command("export", name, "--as", "goose-json", "--store", path).json["conversation"]


def flags(message):
    return message["metadata"]["userVisible"], message["metadata"]["agentVisible"]


def rows(path):
    """Messages as goose itself reads them."""
    columns = "message_id, role, created_timestamp, content_json, metadata_json"
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = []
    for id, role, created, content, metadata in database.execute(
        f"SELECT {columns} FROM messages ORDER BY created_timestamp, id"
    ):
        known = {"id": id, "role": role, "created": created}
        found.append({**known, "content": json.loads(content), "metadata": json.loads(metadata)})
    return found


AS_IT_WAS = [case for case in HEALTHY if case is not reused_ids]


@pytest.mark.parametrize("case", AS_IT_WAS, ids=lambda case: case.__name__)
def test_what_goose_stored_comes_back_as_it_was_and_is_imported_again(case, tmp_path, path):
    source = built(tmp_path / "sessions.db", case)
    command("import", source, "--into", path)
    assert exported(path, "@latest") == rows(source)
    out = tmp_path / "session.json"
    command("export", "@latest", "--as", "goose-json", "--out", out, "--store", path)
    command("import", out, "--into", tmp_path / "again.db")
    assert told(tmp_path / "again.db") == told(path)


def told(path):
    """All that was said in the one session of a store, and what its model sees of it."""
    with holdfast.open(path) as store:
        [info] = store.sessions()
        session = store.get(info.id)
        said = [(each.role, each.text, each.state) for each in session.transcript()]
        return said, list(session.context("openai.chat"))


def test_calls_that_share_an_id_are_told_apart_for_goose(tmp_path, path):
    command("import", built(tmp_path / "sessions.db", reused_ids), "--into", path)
    ids = []
    for message in exported(path, "@latest"):
        ids += [block["id"] for block in message["content"] if "id" in block]
    assert ids == ["call_0", "call_0", "call_0-2", "call_0-2"]


def test_a_label_holds_against_the_flags_that_goose_stored(path, session):
    """I-13."""
    for shown in ((True, True), (True, False), (False, False), (False, True)):
        metadata = dict(zip(("userVisible", "agentVisible"), shown, strict=True))
        stored = {"id": f"m{shown}", "role": "user", "created": 1790010001}
        said = session.append(
            {**stored, "content": [text(str(shown))], "metadata": metadata}, format="goose"
        )
        session.label(said, visible_to_model=shown[1])
    assert [flags(message) for message in exported(path)] == [
        (True, True), (True, False), (False, False), (False, True),
    ]  # fmt: skip
    for message in session.transcript():
        session.label(message.id, visible_to_model=True, visible_to_user=True)
    assert {flags(message) for message in exported(path)} == {(True, True)}
    for message in session.transcript():
        session.label(message.id, visible_to_model=False, visible_to_user=False)
    assert {flags(message) for message in exported(path)} == {(False, False)}


def test_what_was_cut_off_goes_with_its_mark_and_comes_back_with_it(tmp_path, path, session):
    with pytest.raises(KeyboardInterrupt), session.turn("How many pear trees?") as turn:
        turn.stream().push("There are 4")
        raise KeyboardInterrupt
    out = tmp_path / "k.json"
    command("export", "key:k", "--as", "goose-json", "--out", out, "--store", path)
    command("import", out, "--into", tmp_path / "again.db")
    said, _ = told(tmp_path / "again.db")
    assert said == [
        ("user", "How many pear trees?", "complete"), ("assistant", "There are 4", "partial"),
    ]  # fmt: skip


def test_a_call_without_an_outcome_is_closed_for_goose_and_marked(path, session):
    with pytest.raises(KeyboardInterrupt), session.turn("Look.") as turn:
        turn.call("shell", {"command": "ls"}, call_id="c1")
        raise KeyboardInterrupt
    _, called, answered = exported(path)
    assert called["content"] == [call("c1")]
    [block] = answered["content"]
    value = {"content": [text(INTERRUPTED)], "isError": True}
    assert block["id"] == "c1" and block["toolResult"]["value"] == value
    assert answered["metadata"]["holdfast"] == {"synthetic": True}


def test_signed_thinking_and_images_of_the_messages_api_go_along(path, session):
    """I-14."""
    used = {"type": "tool_use", "id": "c1", "name": "shell", "input": {"command": "ls"}}
    hidden = {"type": "redacted_thinking", "data": "sealed"}
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": [text("saw"), PICTURE]}
    with session.turn({"role": "user", "content": [PICTURE]}, format="anthropic") as turn:
        thought = [thinking("Hm.", "signed"), hidden]
        turn.add({"role": "assistant", "content": [*thought, used]}, format="anthropic")
        turn.add({"role": "user", "content": [answer]}, format="anthropic")
    asked, called, answered = exported(path)
    assert asked["content"] == [GOOSE_PICTURE]
    sealed = {"type": "redactedThinking", "data": "sealed"}
    assert called["content"] == [thinking("Hm.", "signed"), sealed, call("c1")]
    [result] = answered["content"]
    assert GOOSE_PICTURE in result["toolResult"]["value"]["content"]


def test_thinking_that_is_not_all_signed_stays_here(path, session):
    """I-14."""
    thought = [thinking("Hm.", "signed"), thinking("Half a th", "")]
    with session.turn("Look.") as turn:
        turn.add({"role": "assistant", "content": [*thought, text("A saw.")]}, format="anthropic")
    assert exported(path)[-1]["content"] == [text("A saw.")]


def test_what_waits_is_for_gooses_model_to_answer(path, session):
    with session.turn("Look.") as turn:
        turn.say("A saw.")
    with holdfast.open(path) as store:
        store.accept("k", "And in the barn?")
    waiting = exported(path)[-1]
    assert waiting["content"] == [text("And in the barn?")] and flags(waiting) == (True, True)


def test_a_recorded_session_has_its_place_and_nothing_without_words(path, session):
    opened = {"method": "session/new", "cwd": "/farm"}
    session.append({"role": "system", "parts": [], "_acp": opened}, format="holdfast")
    with session.turn("Look.") as turn:
        turn.say("A saw.")
    whole = command("export", "key:k", "--as", "goose-json", "--store", path).json
    assert whole["working_dir"] == "/farm"
    assert [message["role"] for message in whole["conversation"]] == ["user", "assistant"]
