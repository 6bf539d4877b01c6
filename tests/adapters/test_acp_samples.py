"""What real agents sent, recorded: all that was shown is stored, once, and stays so when it is
loaded.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from acp_wire import SAMPLES, Wire, insist_valid
from holdfast.engine.protocol import writes_in
from holdfast.testing import temporary_store

PAIRS = [("goose-plain", "goose-load"), ("goose-perm", "goose-killload")]
PAIRS += [("claude-main", "claude-load"), ("codex-main", "codex-load")]
SPOKEN = {"agent_message_chunk": "text", "agent_thought_chunk": "thinking"}


@pytest.fixture
def store() -> Iterator[holdfast.Store]:
    with temporary_store() as store:
        yield store


def play(store: holdfast.Store, name: str) -> Wire:
    """A connection, line by line; it ends as the agent's output did."""
    wire = Wire(store, meet=False)
    for each in (SAMPLES / f"{name}.jsonl").read_text().splitlines():
        raw = each[1:].encode() + b"\n"
        assert wire.pass_on("client" if each[0] == ">" else "agent", raw) == raw
    wire.recorder.end("the agent is gone")
    assert wire.problems == []
    return wire


def shown(name: str) -> dict[str, dict[Any, str]]:
    """What was said in each session, by the ids of messages."""
    out: dict[str, dict[Any, str]] = {}
    for each in (SAMPLES / f"{name}.jsonl").read_text().splitlines():
        params = json.loads(each[1:]).get("params") or {}
        update = params.get("update") or {}
        if update.get("sessionUpdate") not in SPOKEN:
            continue
        words = out.setdefault(params["sessionId"], {})
        key = update.get("messageId"), SPOKEN[update["sessionUpdate"]]
        words[key] = words.get(key, "") + update["content"]["text"]
    return out


def calls_in(name: str) -> list[str]:
    found: dict[str, None] = {}
    for each in (SAMPLES / f"{name}.jsonl").read_text().splitlines():
        update = (json.loads(each[1:]).get("params") or {}).get("update") or {}
        if update.get("sessionUpdate") == "tool_call":
            found[update["toolCallId"]] = None
    return sorted(found)


def stored(session: holdfast.Session) -> dict[Any, str]:
    words: dict[Any, str] = {}
    for message in session.transcript():
        if message.role != "assistant":
            continue
        id = message.payload["_acp"].get("messageId")
        for part in message.payload["parts"]:
            if part["type"] in ("text", "thinking"):
                words[id, part["type"]] = words.get((id, part["type"]), "") + part["text"]
    return words


@pytest.mark.parametrize("first, again", PAIRS)
def test_all_that_was_shown_is_stored_once(store: holdfast.Store, first: str, again: str) -> None:
    wire = play(store, first)
    said = shown(first)
    assert said
    for id, words in said.items():
        session = wire.session(id)
        kept = stored(session)
        assert {key: text for key, text in words.items() if text} == kept
        insist_valid(session)
        assert all(turn.end is not None for turn in session.turns())
    kept_calls = sorted(call.call_id for id in said for call in wire.session(id).calls())
    assert kept_calls == calls_in(first)


@pytest.mark.parametrize("first, again", PAIRS)
def test_a_load_doubles_nothing_and_loses_nothing(
    store: holdfast.Store, first: str, again: str
) -> None:
    [id] = shown(first)
    before = play(store, first).told(id)
    wire = play(store, again)
    after = wire.told(id)
    assert after[: len(before)] == before
    insist_valid(wire.session(id))
    ids = [message.id for message in wire.session(id).transcript() if message.calls]
    assert len(ids) == len({call.call_id for call in wire.session(id).calls()})
    asked = [words for role, words in before if role == "user"]
    assert all(
        [words for role, words in after if role == "user"].count(each) == 1 for each in asked
    )


def test_the_samples_are_small() -> None:
    assert sum(path.stat().st_size for path in Path(SAMPLES).iterdir()) < 200_000


@pytest.mark.parametrize("name", ["goose-plain", "goose-perm", "claude-main", "codex-main"])
def test_each_line_of_a_real_agent_waits_for_one_commit(store: holdfast.Store, name: str) -> None:
    made: list[Any] = []
    engine: Any = store._work.engine._engine
    transact = engine._transact

    def counted(commits: Any) -> Any:
        # A lease that is renewed meanwhile is nothing that a line waits for.
        if any(write.drafts or write.chunk for write in writes_in(commits)):
            made.append(commits)
        return transact(commits)

    engine._transact = counted
    wire = Wire(store, meet=False)
    waited = set()
    for each in (SAMPLES / f"{name}.jsonl").read_text().splitlines():
        made.clear()
        for sent in wire.recorder.take(
            "client" if each[0] == ">" else "agent", [each[1:].encode()]
        ):
            waited.add(len(made))
            wire.recorder.settle(sent)
    assert waited == {0, 1}
