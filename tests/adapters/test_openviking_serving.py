"""`holdfast serve-openviking`: OpenViking's session endpoints over a log, in a real process that
gets killed.
"""

import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from commanding import command
from openviking_server import SESSIONS, HttpExtractorStub, Served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("served") / "served.db") as served:
        yield served


def test_a_session_is_made_listed_told_about_and_deleted(server):
    made = server.post("", {"session_id": "life"})
    assert made["uri"] == "viking://user/default/sessions/life"
    assert server.ask("POST", SESSIONS, {"session_id": "life"}).code == "ALREADY_EXISTS"
    server.say("life", "My card number is 4000-1234.")
    told = server.get("/life")
    assert (told["message_count"], told["total_message_count"], told["commit_count"]) == (1, 1, 0)
    assert "life" in [each["session_id"] for each in server.get("")]
    assert server.ask("DELETE", f"{SESSIONS}/life").result == {"session_id": "life"}
    assert server.ask("GET", f"{SESSIONS}/life").code == "NOT_FOUND"
    assert server.ask("DELETE", f"{SESSIONS}/life").code == "NOT_FOUND"
    server.say("life", "Somebody else.")
    assert server.live("life") == ["Somebody else."]


def test_a_commit_moves_messages_from_live_to_an_archive(server):
    for number in range(5):
        server.say("moved", f"Message {number}.")
    before = [each["id"] for each in server.get("/moved/context")["messages"]]
    done = server.post("/moved/commit", {"keep_recent_count": 2})
    assert (done["status"], done["archived"]) == ("accepted", True)
    archive = server.get("/moved/archives/archive_001")
    live = server.get("/moved/context")["messages"]
    assert [each["id"] for each in archive["messages"] + live] == before
    assert len(live) == 2
    task = server.ask("GET", f"/api/v1/tasks/{done['task_id']}").result
    assert (task["status"], task["resource_id"]) == ("completed", "moved")
    again = server.post("/moved/commit", {"keep_recent_count": 2})
    assert (again["status"], again["reason"]) == ("skipped", "no_messages")


def test_a_retried_add_is_one_message_and_equal_words_are_two(server):
    named = {"turn_id": "t1", "source_message_ids": ["m1"]}
    for _ in range(3):
        server.say("retried", "Hello.", **named)
    server.say("retried", "Hello.", turn_id="t1", source_message_ids=["m2"])
    server.say("retried", "Hello.")
    told = server.say("retried", "Hello.")
    assert told["message_count"] == 4
    batch = {"messages": [{"role": "user", "content": "Hello.", **named}, _named("New.", "m3")]}
    for _ in range(2):
        told = server.post("/retried/messages/batch", batch)
        assert (told["added"], told["message_count"]) == (2, 5)
    server.post("/retried/commit")
    told = server.say("retried", "Hello.", **named)
    assert told["message_count"] == 0, "it is archived, and comes again"


def _named(text, source):
    return {"role": "user", "content": text, "source_message_ids": [source]}


def test_two_commits_at_once_archive_each_message_once(server):
    said = [f"Message {number}." for number in range(20)]
    for text in said:
        server.say("at-once", text)
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: server.post("/at-once/commit"), range(8)))
    assert sorted(each["archived"] for each in done) == [False] * 7 + [True]
    assert server.archived("at-once") == said
    assert server.live("at-once") == []


def test_a_message_that_arrives_during_a_commit_is_live_or_archived_never_both(server):
    said = [[f"Writer {writer}, message {number}." for number in range(15)] for writer in range(3)]
    over = threading.Event()

    def commit():
        while not over.is_set():
            server.post("/meanwhile/commit", {"keep_recent_count": 1})

    server.say("meanwhile", "First.")
    committer = threading.Thread(target=commit)
    committer.start()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda texts: [server.say("meanwhile", text) for text in texts], said))
    over.set()
    committer.join()
    there = server.archived("meanwhile") + server.live("meanwhile")
    assert sorted(there) == sorted(["First.", *said[0], *said[1], *said[2]])
    for texts in said:
        assert [text for text in there if text in texts] == texts, "in order"


def test_a_long_output_is_shown_in_part_and_read_whole(server):
    output = "".join(f"line {number}\n" for number in range(4000))
    part = {"type": "tool", "tool_id": "c1", "tool_name": "shell", "tool_status": "completed"}
    body = {"role": "assistant", "parts": [{**part, "tool_output": output}]}
    server.post("/outputs/messages", body)
    server.post("/outputs/commit")
    server.post("/outputs/messages", body)
    [message] = server.get("/outputs/context")["messages"]
    [shown] = message["parts"]
    assert shown["tool_output_truncated"] and len(shown["tool_output"]) < 3000
    live, archived = server.get("/outputs/tool-results")["tool_results"]
    assert shown["tool_output_ref"].endswith(live["tool_result_id"])
    for each in (live, archived):
        place = f"/outputs/tool-results/{each['tool_result_id']}"
        whole = server.get(f"{place}?limit=-1")
        assert whole["content"] == output and not whole["has_more"]
        assert server.get(f"{place}?offset=7&limit=6&include_metadata=false")["content"] == "line 1"
        found = server.get(f"{place}/search?q=line+3999&context_chars=3")["matches"]
        assert [each["snippet"] for each in found] == ["98\nline 3999\n"]
    assert server.ask("GET", f"{SESSIONS}/outputs/tool-results/tr_1_0").code == "NOT_FOUND"


def test_a_session_commits_by_itself_when_it_is_set_so(server):
    server.post("", {"session_id": "alone"})
    policy = {"message_count_threshold": 3, "keep_recent_count": 1}
    changed = server.ask("PATCH", f"{SESSIONS}/alone/config", {"auto_commit_policy": policy}).result
    assert changed["auto_commit_policy"]["pending_token_threshold"] == 150_000
    counts = [server.say("alone", f"Message {number}.")["message_count"] for number in range(6)]
    assert counts == [1, 2, 3, 1, 2, 3]
    server.ask("PATCH", f"{SESSIONS}/alone/config", {"auto_commit_policy": None})
    assert server.say("alone", "Message 6.")["message_count"] == 4
    assert server.get("/alone")["auto_commit_policy"] is None


@pytest.mark.parametrize(
    "body",
    [
        b"{bad",
        b"[]",
        b'"text"',
        b'{"content": "no role"}',
        b'{"role": "user"}',
        b'{"role": 5, "content": "x"}',
        b'{"role": "nobody", "content": "x"}',
        b'{"role": "user", "content": 5}',
        b'{"role": "user", "parts": ["text"]}',
        b'{"role": "user", "parts": [{"type": "text", "text": 5}]}',
        b'{"role": "user", "parts": [{"type": "context", "uri": "viking://nowhere"}]}',
        b'{"role": "user", "content": "x", "source_message_ids": "m1"}',
        b'{"role": "user", "content": "x", "source_message_ids": [1]}',
        b'{"role": "user", "content": "x", "message_kind": "other"}',
        b'{"role": "user", "content": "x", "peer_id": "a b"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_refused_and_not_stored(server, body):
    server.post("/refused/messages", {"role": "user", "content": "The only one."})
    before = server.get("/refused")["total_message_count"]
    answer = server.ask("POST", f"{SESSIONS}/refused/messages", raw=body)
    assert answer.status == 400 and answer.code in ("INVALID_ARGUMENT", "INVALID_URI")
    batch = b'{"messages": [{"role": "user", "content": "Good."}, ' + body + b"]}"
    assert server.ask("POST", f"{SESSIONS}/refused/messages/batch", raw=batch).status == 400
    assert server.get("/refused")["total_message_count"] == before


def test_half_of_a_character_is_kept(server):
    server.ask("POST", f"{SESSIONS}/halves/messages", raw=b'{"role":"user","content":"a\\ud800"}')
    named = _named("b\udc00", "c\ud800")
    for _ in range(2):
        server.post("/halves/messages/batch", {"messages": [named]})
    assert server.live("halves") == ["a\ud800", "b\udc00"]
    server.post("/halves/commit")
    assert server.archived("halves") == ["a\ud800", "b\udc00"]


@pytest.mark.parametrize(
    "raw, why",
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"role": "user", "content": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"role": "user", "content": "\xff"}', "not JSON in UTF-8"),
    ],
)
def test_what_is_wrong_with_a_body_is_told(server, raw, why):
    answer = server.ask("POST", f"{SESSIONS}/told/messages", raw=raw)
    assert answer.status == 400 and why in answer.body["error"]["message"]


def test_a_body_that_is_too_large_is_refused(server):
    raw = json.dumps({"role": "user", "content": "x" * (17 << 20)}).encode()
    assert server.ask("POST", f"{SESSIONS}/large/messages", raw=raw).status == 413
    assert server.ask("GET", f"{SESSIONS}/large").code == "NOT_FOUND"


@pytest.mark.parametrize("name", ["..", ".", "a%2Fb", "x" * 256, "%00"])
def test_a_name_that_can_not_be_a_session_makes_none(server, name):
    answer = server.ask("POST", f"{SESSIONS}/{name}/messages", {"role": "user", "content": "x"})
    assert answer.status in (400, 403, 404, 405, 501)


@pytest.mark.parametrize("name", ["..", "a/b", "x" * 256, "a\nb", "\x00", 7, None, ["a"]])
def test_a_session_is_made_under_no_such_name(server, name):
    answer = server.ask("POST", SESSIONS, {"session_id": name})
    if name is None:
        assert answer.status == 200, "OpenViking chooses one then"
    else:
        assert answer.status in (400, 403)


def test_who_has_no_key_is_told_nothing(server):
    server.say("secret", "Hello.")
    for headers in ({"X-API-Key": ""}, {"X-API-Key": "wrong"}, {"X-API-Key": server.key[:-1]}):
        answer = server.ask("GET", f"{SESSIONS}/secret", headers=headers)
        assert (answer.status, answer.code) == (401, "UNAUTHENTICATED")
    bearer = {"X-API-Key": "", "Authorization": f"Bearer {server.key}"}
    assert server.ask("GET", f"{SESSIONS}/secret", headers=bearer).status == 200
    assert server.ask("GET", "/health", headers={"X-API-Key": ""}).body["status"] == "ok"


def test_what_is_another_users_is_not_there(tmp_path):
    """I-19: neither the session nor its task, by whatever name."""
    keys = tmp_path / "keys"
    keys.write_text(
        "# key account user\nalices-long-secret acme alice\nbobs-long-secret acme bob\n"
    )
    keys.chmod(0o600)
    store = tmp_path / "tenants.db"
    with Served(store, "--token-file", keys, key="alices-long-secret") as server:
        server.say("mine", "Our figures are secret.")
        task = server.post("/mine/commit")["task_id"]
        assert server.ask("GET", f"/api/v1/tasks/{task}").status == 200
        server.key = "bobs-long-secret"
        for path in (f"{SESSIONS}/mine", f"{SESSIONS}/mine/context", f"/api/v1/tasks/{task}"):
            assert server.ask("GET", path).code == "NOT_FOUND"
        assert server.get("") == []
        as_alice = {"X-OpenViking-Account": "acme", "X-OpenViking-User": "alice"}
        answer = server.ask("GET", f"{SESSIONS}/mine", headers=as_alice)
        assert (answer.status, answer.code) == (403, "PERMISSION_DENIED")
        server.say("mine", "Bob's own.")
        assert server.live("mine") == ["Bob's own."]
    with holdfast.open(store, tenant="acme/alice") as alice:
        assert len(alice.search("figures")) == 1


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    """Adds and commits in flight when the server is killed: each acknowledged message is there once,
    live or archived.
    """
    server = Served(tmp_path / "killed.db").start()
    acknowledged = []
    enough = threading.Event()

    def speak():
        try:
            for number in range(10_000):
                server.say("s", f"Message {number}.", source_message_ids=[str(number)])
                acknowledged.append(f"Message {number}.")
                if number % 7 == 6:
                    server.post("/s/commit", {"keep_recent_count": 2})
                if number == 40:
                    enough.set()
        except OSError:
            enough.set()

    speaker = threading.Thread(target=speak)
    speaker.start()
    assert enough.wait(60)
    server.kill()
    speaker.join()
    with server.start():
        there = server.archived("s") + server.live("s")
        assert there[: len(acknowledged)] == acknowledged
        assert len(there) <= len(acknowledged) + 1, "one was on its way"
        last = len(acknowledged)
        server.say("s", f"Message {last}.", source_message_ids=[str(last)])
        there = server.archived("s") + server.live("s")
        assert there == [*acknowledged, f"Message {last}."], "sent again, it is there once"


def test_an_extraction_that_fails_hides_nothing_and_is_tried_again(tmp_path):
    with HttpExtractorStub(failures=2) as extractor:
        with Served(tmp_path / "failing.db", "--extract", extractor.url) as server:
            for number in range(4):
                server.say("s", f"Message {number}.")
            server.ask("POST", f"{SESSIONS}/s/messages", {"role": "Message", "content": "x"})
            task = server.post("/s/commit", {"keep_recent_count": 1})["task_id"]
            extractor.wait_for(1)
            context = server.get("/s/context")
            assert context["latest_archive_overview"] == "" and len(context["messages"]) == 4
            assert server.get("/s/archives/archive_001")["overview"] == ""
            server.say("s", "Meanwhile.")
            extractor.wait_for(3)
            _until_done(server, task)
            context = server.get("/s/context")
            assert context["latest_archive_overview"] == "Message 0. Message 1. Message 2."
            assert server.live("s") == ["Message 3.", "Meanwhile."]
            assert server.get("/s")["memories_extracted"] == {"events": 1, "total": 1}
            code, logged = server.end()
    assert code == -signal.SIGTERM
    assert "extraction failed" in logged and "Message" not in logged, "nothing that was said"
    [first, again, third] = extractor.calls
    assert first == again == third, "the same archive under the same task"


def test_an_extraction_that_was_cut_off_is_done_by_the_next_process(tmp_path):
    with HttpExtractorStub(failures=1000) as extractor:
        server = Served(tmp_path / "cut.db", "--extract", extractor.url).start()
        server.say("s", "One.")
        server.post("/s/commit")
        server.say("s", "Two.")
        task = server.post("/s/commit")["task_id"]
        extractor.wait_for(1)
        server.kill()
        extractor.failures = 0
        with server.start():
            _until_done(server, task)
            assert server.get("/s/context")["latest_archive_overview"] == "One. Two."
            assert server.live("s") == [] and server.archived("s") == ["One.", "Two."]


def _until_done(server, task):
    waiting = threading.Event()
    for _ in range(600):
        if server.ask("GET", f"/api/v1/tasks/{task}").result["status"] == "completed":
            return
        waiting.wait(0.1)
    raise AssertionError("the extraction is not done")


def test_an_address_that_others_can_reach_needs_a_file_of_keys(tmp_path):
    done = command("serve-openviking", tmp_path / "open.db", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2 and "loopback" in done.err
    keys = tmp_path / "keys"
    keys.write_text("a-long-enough-secret\n")
    os.chmod(keys, 0o644)
    done = command("serve-openviking", tmp_path / "open.db", "--token-file", keys)
    assert done.code == 2 and "chmod 600" in done.err
    assert "long-enough" not in done.err


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "holdfast.adapters.openviking.server.serve", raising=False)
    done = command("serve-openviking", tmp_path / "none.db")
    assert done.code == 2 and "pip install 'holdfast[server]'" in done.err
    assert list(tmp_path.iterdir()) == []
