"""Strands' `SnapshotSessionManager` on `HoldfastStorage`."""

import asyncio
from typing import Any

import pytest
from scripted import ScriptedModel, words_of
from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.session import SnapshotSessionManager
from strands.types.exceptions import StorageError

import holdfast
from holdfast.adapters.strands import HoldfastSessionManager, HoldfastStorage
from holdfast.errors import BadArgument, SessionEnded
from holdfast.testing.adapters.damage import spoil_last_message
from holdfast.testing.oracle import judge

LATEST = "session/chat/scopes/agent/a/snapshots/snapshot_latest.json"
KEY = "strands:chat:a"


def agent_on(storage: HoldfastStorage, *answers: Any, **more: Any) -> Agent:
    about = {"save_latest_on": more.pop("save_latest_on", "invocation")}
    trigger = more.pop("snapshot_trigger", None)
    manager = SnapshotSessionManager("chat", storage=storage, snapshot_trigger=trigger, **about)
    return Agent(
        model=ScriptedModel(*answers),
        session_manager=manager,
        agent_id="a",
        callback_handler=None,
        **more,
    )


def transcript(where: str) -> list[str]:
    session = holdfast.open(where).session(KEY, create=False)
    return [said.text for said in session.transcript()]


def test_values_come_back_byte_for_byte(where: str) -> None:
    async def main() -> None:
        storage = HoldfastStorage(where)
        values = {"a/b": b"{}", "a/\xe4 %:": b"\x00\xff", "a": b"", "b//c/": "ü\n".encode()}
        for key, value in values.items():
            await storage.write(key, b"before")
            await storage.write(key, value)
        other = HoldfastStorage(where)
        for key, value in values.items():
            assert await other.read(key) == value
        assert await other.list("") == sorted(["a/b", "a/\xe4 %:", "a", "b/c"])
        assert await other.list("a/") == ["a/b", "a/\xe4 %:"]
        assert await other.namespace("a").list() == ["b", "\xe4 %:"]
        await other.delete("a/b")
        await other.delete("a/b")
        assert await storage.read("a/b") is None and await storage.read("x") is None
        assert [hit.key for hit in await storage.namespace("b").search("ü")] in (["c"], [])
        for wrong in ("", "/", "../x", "a\\b"):
            with pytest.raises(StorageError):
                await storage.read(wrong)
        for call in (storage.read(7), storage.write("a", "text")):  # type: ignore[arg-type]
            with pytest.raises(BadArgument):
                await call
        assert judge(storage.store) == []

    asyncio.run(main())


def test_an_agent_goes_on_from_its_snapshot_and_each_message_is_stored_once(where: str) -> None:
    storage = HoldfastStorage(where)
    agent = agent_on(storage, save_latest_on="message", snapshot_trigger=lambda **_: True)
    for number in range(4):
        agent(f"question {number}")
    said = ["question 0", "Yes.", "question 1", "Yes.", "question 2", "Yes.", "question 3", "Yes."]
    assert transcript(where) == said
    other = agent_on(HoldfastStorage(where))
    assert other.messages == agent.messages and words_of(other.messages) == said
    manager = other._session_manager
    ids = asyncio.run(manager.list_snapshot_ids(other))
    assert len(ids) == 4
    assert asyncio.run(manager.restore_snapshot(other, snapshot_id=ids[1]))
    assert words_of(other.messages) == said[:4]
    assert judge(storage.store) == []


def test_what_a_window_drops_stays_in_the_transcript(where: str) -> None:
    storage = HoldfastStorage(where)
    agent = agent_on(storage, conversation_manager=SlidingWindowConversationManager(window_size=4))
    for number in range(5):
        agent(f"question {number}")
    window = SlidingWindowConversationManager(window_size=4)
    other = agent_on(HoldfastStorage(where), conversation_manager=window)
    assert other.messages == agent.messages and len(other.messages) == 4
    assert len(transcript(where)) == 10


def test_a_redacted_message_leaves_the_view(where: str) -> None:
    redact = {"redactContent": {"redactUserContentMessage": "[redacted]"}}
    agent = agent_on(HoldfastStorage(where), ["I can't.", redact], save_latest_on="message")
    agent("my card is 4000")
    assert words_of(agent_on(HoldfastStorage(where)).messages) == ["[redacted]", "I can't."]
    context = holdfast.open(where).session(KEY, create=False).context("openai.chat")
    assert "4000" not in str(list(context))


def test_a_message_that_cannot_be_read_takes_away_nothing_else(where: str) -> None:
    agent = agent_on(HoldfastStorage(where))
    agent("one")
    agent("two")
    spoil_last_message(where, KEY)
    texts = words_of(agent_on(HoldfastStorage(where)).messages)
    assert texts[:3] == ["one", "Yes.", "two"] and "can't be read" in texts[3]


def test_of_a_snapshot_that_cannot_be_read_the_one_before_counts(where: str) -> None:
    agent = agent_on(HoldfastStorage(where))
    agent("one")
    agent("two")
    from holdfast.adapters.framework import key_of

    spoil_last_message(where, key_of("strands.storage", LATEST))
    assert words_of(agent_on(HoldfastStorage(where)).messages) == ["one", "Yes."]


def test_a_deleted_session_is_gone_with_its_words(where: str) -> None:
    stale = agent_on(HoldfastStorage(where))
    stale("my card is 4000")
    other = agent_on(HoldfastStorage(where))
    asyncio.run(other._session_manager.delete_session())
    store = holdfast.open(where)
    assert store.search("4000") == [] and agent_on(HoldfastStorage(where)).messages == []
    agent_on(HoldfastStorage(where))("new")
    with pytest.raises(SessionEnded):
        stale("and on")
    assert words_of(agent_on(HoldfastStorage(where)).messages) == ["new", "Yes."]


def test_a_session_manager_of_ours_goes_on_from_snapshots(where: str) -> None:
    agent_on(HoldfastStorage(where))("one")
    manager = HoldfastSessionManager("chat", where)
    agent = Agent(model=ScriptedModel(), session_manager=manager, agent_id="a")
    agent("two")
    assert words_of(agent.model.asked[0]) == ["one", "Yes.", "two"]
    assert transcript(where) == ["one", "Yes.", "two", "Yes."]


def test_snapshots_of_a_long_session_grow_with_what_is_new(where: str) -> None:
    storage = HoldfastStorage(where)
    agent = agent_on(storage)
    for number in range(40):
        agent(f"question {number} " * 20)
    value = holdfast.open(where).session(_latest_key(), create=False)
    records = [len(str(message.payload)) for message in value.transcript()]
    assert max(records) < 2 * min(records)


def _latest_key() -> str:
    from holdfast.adapters.framework import key_of

    return key_of("strands.storage", LATEST)
