"""`holdfast record` as it is run: a client, a recorder and an agent, each a process, each killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from acp_client import LIMIT_S, Client
from acp_wire import insist_valid, told
from commanding import command, surroundings
from remote_server import TOKEN, KilledServer
from thorough import SWEEP, few_cases

pytestmark = pytest.mark.slow

LONG = {"text": " ".join(f"word{number}" for number in range(400)), "slow": 0.01}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


class Found:
    """A session as it is in the store when all turns are over."""

    def __init__(self, db: Path, session: str, **more: str) -> None:
        with holdfast.open(db, **more) as store:
            found = store.session(f"acp:toy:{session}", create=False)
            insist_valid(found)
            self.messages = list(found.transcript())
            self.turns = found.turns()
            self.calls = found.calls()
            self.pending = found.pending()
            self.told = told(found)
            self.context = list(found.context("openai.chat"))
            assert store.check() == []
        assert all(turn.end is not None for turn in self.turns)


def insist_shown_is_stored(client: Client, found: Found) -> None:
    """What a person has seen is the beginning of what is in the store, word by word; calls too."""
    words = "".join(each.text for each in found.messages if each.role == "assistant")
    assert words.startswith(client.text())
    shown = []
    for each in client.updates:
        if each["update"]["sessionUpdate"] == "tool_call":
            shown.append(each["update"]["toolCallId"])
    assert sorted(call.call_id for call in found.calls) == sorted(shown)


def kill_agent(client: Client) -> None:
    os.kill(client.agent_pid(), signal.SIGKILL)


def kill_recorder(client: Client) -> None:
    client.kill()


def kill_client(client: Client) -> None:
    """Its ends of both pipes are gone at once."""
    assert client.process.stdin is not None
    client.process.stdin.close()


def cancel(client: Client) -> None:
    client.cancel(client.updates[-1]["sessionId"])


FAULTS = [kill_agent, kill_recorder, kill_client, cancel]


@few_cases(every=3)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
def test_a_fault_while_text_streams_keeps_what_was_shown(db: Path, home: Path, fault) -> None:
    with Client(db, home) as client:
        session = client.new()
        client.prompt(session, "One.", {"text": "First answer."})
        steps = ({"text": "Look:"}, {"call": "c1"}, {"result": "c1"}, LONG)
        waiting = client.begin(session, "Two.", *steps)
        client.wait_for_text("word7")
        fault(client)
        answer = waiting()
    assert answer.get("eof") or answer["result"]["stopReason"] == "cancelled"
    found = Found(db, session)
    insist_shown_is_stored(client, found)
    first, second = found.turns
    assert first.end == "completed" and second.end in ("interrupted", "abandoned")
    assert [call.state for call in found.calls] == ["done"]
    assert [role for role, _ in found.told].count("user") == 2
    assert "word7" in str(found.context)


@few_cases(every=2)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each.__name__)
def test_a_fault_while_a_tool_runs_closes_the_pair_and_a_reconnection_goes_on(
    db: Path, home: Path, fault
) -> None:
    """goose #7785, #11909: of such a turn goose keeps the prompt alone."""
    with Client(db, home) as client:
        session = client.new()
        steps = ({"text": "Look:"}, {"call": "c1"}, {"call": "c2"}, {"result": "c2"})
        waiting = client.begin(session, "One.", *steps, {"progress": "c1", "out": "…"}, {"hang": 1})
        client.wait(lambda each: "live_output" in str(each.updates))
        fault(client)
        waiting()
    found = Found(db, session)
    insist_shown_is_stored(client, found)
    assert {call.call_id: call.state for call in found.calls} == {"c1": "unknown", "c2": "done"}
    results = {
        each["tool_call_id"]: each["content"] for each in found.context if each["role"] == "tool"
    }
    assert "interrupted" in results["c1"] and results["c2"] == "done"
    before = found.told
    with Client(db, home) as client:
        assert "result" in client.load(session)
        answer = client.prompt(session, "Go on.", {"text": "Yes."})
        assert answer["result"]["stopReason"] == "end_turn"
    after = Found(db, session).told
    assert [each for each in after if each[0] != "user"][-1] == ("assistant", "Yes. ")
    assert [each for each in after if each in before] == before
    assert len(after) == len(before) + 2


@pytest.mark.parametrize("permission", ["yes", "no", "cancelled", None])
def test_permission_given_denied_cancelled_and_never_answered(
    db: Path, home: Path, permission: str | None
) -> None:
    with Client(db, home, permission=permission) as client:
        session = client.new()
        steps = ({"call": "c1", "late": True}, {"ask": "c1"}, {"result": "c1"}, {"text": "So."})
        if permission == "no":
            steps = (*steps[:2], steps[3])
        waiting = client.begin(session, "May you?", *steps)
        if permission is None:
            client.wait(lambda each: each.requests)
            client.cancel(session)
        waiting()
    found = Found(db, session)
    [call] = found.calls
    assert json.loads(call.arguments) == {"command": "ls"}
    states = {"yes": "done", "no": "failed", "cancelled": "unknown", None: "unknown"}
    assert call.state == states[permission]
    [message] = [each for each in found.messages if each.calls]
    given = message.labels.get("acp.permission_answer", {}).get("outcome", {})
    assert given.get("optionId", given.get("outcome")) == permission


def test_two_prompts_are_queued_or_refused_as_the_agent_does(db: Path, home: Path) -> None:
    for mode in ("queue", "refuse"):
        with Client(db, home, mode=mode) as client:
            session = client.new()
            first = client.begin(session, "One.", {"text": "a b c d e", "slow": 0.05})
            client.wait_for_text("b ")
            second = client.begin(session, "Two.", {"text": "f"})
            answers = second(), first()
        found = Found(db, session)
        assert found.pending == []
        if mode == "queue":
            assert all("result" in each for each in answers)
            assert [turn.end for turn in found.turns] == ["completed", "completed"]
        else:
            assert answers[0]["error"]["code"] == -32602
            assert len(found.turns) == 1
            assert "Two." not in str(found.context)


def test_bytes_pass_unchanged_however_long_and_odd_they_are(db: Path, home: Path) -> None:
    odd = [
        '{ "jsonrpc":"2.0" ,"method":"session/update", "params":{"update":'
        '{"content":{"text":"odd ","type":"text"},"sessionUpdate":"agent_message_chunk"},'
        '"sessionId":"SESSION"}}\r\n',
        "no JSON at all\n",
        "\n",
    ]
    size = 20_000_000 if SWEEP else 5_000_000
    with Client(db, home) as client:
        session = client.new()
        before = len(client.raw)
        steps = [{"raw": each} for each in odd]
        client.write_bytes(b"not for the agent\r\n")
        client.wait(lambda each: any(raw.startswith(b"heard: ") for raw in each.raw))
        assert client.raw[-1] == b"heard: not for the agent\r\n"
        client.prompt(session, "x" * size, *steps, {"call": "c1"}, {"big": size, "call": "c1"})
        lines = client.raw[before + 1 :]
    assert lines[:3] == [each.replace("SESSION", session).encode() for each in odd]
    assert max(map(len, lines)) > size
    found = Found(db, session)
    assert [role for role, _ in found.told] == ["user", "assistant", "assistant", "tool"]
    assert [len(words) >= size for _, words in found.told] == [True, False, False, True]


def test_the_exit_code_and_the_environment_are_the_agents(db: Path, tmp_path: Path) -> None:
    script = "import os, sys; sys.stderr.write(os.environ['ODD_ONE']); sys.exit(7)"
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "record", "--store", db, "--"]
        + [sys.executable, "-c", script],
        input=b"",
        capture_output=True,
        env=surroundings(ODD_ONE="whole"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, b"", b"whole")


@few_cases(every=2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_agent_and_ends_both_alike(
    db: Path, home: Path, number: signal.Signals
) -> None:
    with Client(db, home) as client:
        session = client.new()
        waiting = client.begin(session, "One.", LONG)
        client.wait_for_text("word3")
        os.kill(client.process.pid, number)
        assert waiting().get("eof")
    assert client.process.returncode == -number
    found = Found(db, session)
    insist_shown_is_stored(client, found)
    assert found.turns[0].end == "interrupted"


def test_an_agent_whose_child_holds_its_output_is_not_waited_for(db: Path, home: Path) -> None:
    script = (
        "import os, subprocess, sys; subprocess.Popen(['sleep', '100']); print('{}', flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "record", "--store", db, "--"]
        + [sys.executable, "-c", f"{script}; sys.exit(3)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=surroundings(),
        timeout=LIMIT_S,
    )
    assert done.returncode == 3


def test_a_client_that_reads_no_more_is_gone_though_it_could_still_write(db: Path) -> None:
    script = """
import sys, threading
gone = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), gone.set()), daemon=True).start()
while not gone.wait(0.01):
    print("{}", flush=True)
sys.exit(4)
"""
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", "record", "--store", db, "--"]
        + [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=surroundings(),
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == b"{}\n"
        process.stdout.close()
        assert process.wait(timeout=LIMIT_S) == 4
    finally:
        process.stdin.close()
        process.kill()
        process.wait()


def test_an_agent_that_is_not_there_is_3_and_no_agent_is_2(db: Path) -> None:
    assert command("record", "--store", db, "--", "no-such-agent").code == 3
    done = command("record", "--store", db)
    assert (done.code, done.out) == (2, "")


def test_a_store_that_can_not_be_opened_starts_no_agent(tmp_path: Path) -> None:
    (tmp_path / "taken.db").mkdir()
    marker = tmp_path / "started"
    done = command("record", "--store", tmp_path / "taken.db", "--", "touch", marker)
    assert done.code == 5 and not marker.exists()


def test_ids_that_repeat_between_homes_are_two_sessions(db: Path, tmp_path: Path) -> None:
    for name in ("ada", "bob"):
        with Client(db, tmp_path / name, name="", HOME=str(tmp_path / name)) as client:
            assert client.new() == "20261115_1"
            client.prompt("20261115_1", f"I am {name}.", {"text": "Hello."})
    with holdfast.open(db) as store:
        keys = sorted(each.key or "" for each in store.sessions())
    assert len(keys) == 2 and keys[0] != keys[1]
    assert all(key.startswith("acp:toy@") and key.endswith(":20261115_1") for key in keys)


def test_a_session_can_be_loaded_from_the_store(db: Path, home: Path) -> None:
    with Client(db, home) as client:
        session = client.new()
        waiting = client.begin(session, "One.", {"text": "Look:"}, {"call": "c1"}, {"hang": 1})
        client.wait(lambda each: "tool_call" in str(each.updates))
        client.cancel(session)
        waiting()
        shown = client.text()
    with Client(db, home) as client:
        client.load(session)
        assert client.text() == ""  # the agent has forgotten it
    with Client(db, home, "--serve-load") as client:
        client.load(session)
        assert client.text() == shown
        assert "c1" in str(client.updates)
        client.prompt(session, "Go on.", {"text": "Yes."})
    assert [words for role, words in Found(db, session).told if role != "user"] == [
        "Look: ",
        "c1",
        "Yes. ",
    ]


def test_a_recorder_writes_into_a_servers_store_and_a_kill_of_either_keeps_what_was_shown(
    db: Path, home: Path
) -> None:
    with KilledServer(db) as server:
        with Client(server.url, home, HOLDFAST_TOKEN=TOKEN) as client:
            session = client.new()
            client.prompt(session, "One.", {"text": "First answer."})
            client.begin(session, "Two.", LONG)
            client.wait_for_text("word7")
            kill_recorder(client)
        insist_shown_is_stored(client, Found(db, session, tenant="red"))
        with Client(server.url, home, HOLDFAST_TOKEN=TOKEN) as client:
            assert "result" in client.load(session)
            before = client.text()
            waiting = client.begin(session, "Three.", LONG)
            client.wait(lambda each: "word7" in each.text()[len(before) :])
            server.kill()
            server.start()
            # What could not be stored for a moment was not shown, and then it is.
            assert waiting()["result"]["stopReason"] == "end_turn"
            shown = client.text()[len(before) :]
    found = Found(db, session, tenant="red")
    prompt, answer = found.messages[-2:]
    assert prompt.text.startswith("Three.") and answer.text == shown
    assert shown.strip() == LONG["text"] and found.turns[-1].end == "completed"
