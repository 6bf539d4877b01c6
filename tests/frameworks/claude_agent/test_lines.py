"""Lines of Claude Code as messages of Holdfast."""

import asyncio
import threading
import uuid
from typing import Any

import pytest

import holdfast
from holdfast.adapters.claude_agent import HoldfastSessionStore
from holdfast.adapters.framework import key_of
from holdfast.errors import BadArgument, SessionEnded
from holdfast.testing.providers import anthropic_problems

KEY = {"project_key": "garden", "session_id": "s1"}


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content}
    return {"type": role, "message": message, "uuid": str(uuid.uuid4()), **more}


CALL = [
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"row": 3}},
]
RESULT = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "dry"}]


def test_a_line_is_a_message_with_words_calls_and_results(where: str) -> None:
    with holdfast.open(where) as store:
        lines = [
            {"type": "queue-operation", "operation": "enqueue"},
            said("user", "Which row is dry?"),
            said("assistant", CALL),
            said("user", RESULT),
            {"type": "system", "subtype": "info", "content": "42 hooks ran", "uuid": "h"},
            said("assistant", [{"type": "text", "text": "Row 3."}]),
        ]
        asyncio.run(HoldfastSessionStore(store).append(KEY, lines))
        session = store.session(key_of("claude", "garden", "s1"), create=False)
        roles = [message.role for message in session.transcript()]
        assert roles == ["system", "user", "assistant", "tool", "system", "assistant"]
        assert [call.state for call in session.calls()] == ["done"]
        assert [hit.role for hit in store.search("dry")] == ["tool", "user"]
        context = list(session.context("anthropic"))
        assert anthropic_problems(context) == []
        assert "42 hooks" not in str(context)
        assert [message["role"] for message in context] == ["user", "assistant"] * 2
        again = session.context("claude.code")
        assert [line["message"] for line in again] == context


def test_the_same_batch_twice_is_stored_once(where: str) -> None:
    kept = HoldfastSessionStore(where)
    lines = [said("user", "one"), said("assistant", "two")]
    asyncio.run(kept.append(KEY, lines))
    asyncio.run(kept.append(KEY, [*lines, lines[0], said("user", "three")]))
    loaded = asyncio.run(kept.load(KEY))
    assert [line["message"]["content"] for line in loaded] == ["one", "two", "three"]


def test_lines_without_a_uuid_are_never_taken_for_one_another(where: str) -> None:
    kept = HoldfastSessionStore(where)
    mark = {"type": "mode", "mode": "plan"}
    asyncio.run(kept.append(KEY, [mark, mark]))
    assert asyncio.run(kept.load(KEY)) == [mark, mark]


@pytest.mark.parametrize(
    "line",
    [
        {"type": "from-a-later-release", "deep": {"a": [1, None, {"b": 2.5}]}},
        {"no": "type"},
        {"type": "user", "message": "not a message"},
        {"type": "assistant", "message": {"role": "assistant", "content": [7]}},
        {"type": "user", "message": {"role": "user", "content": "x" * 3_000_000}},
        {"type": "user", "uuid": 7, "message": {"role": "user", "content": None}},
        {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "And row 4?"}},
    ],
)
def test_a_line_of_any_kind_comes_back_as_it_was(where: str, line: dict[str, Any]) -> None:
    kept = HoldfastSessionStore(where)
    asyncio.run(kept.append(KEY, [line]))
    assert asyncio.run(kept.load(KEY)) == [line]


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        (KEY, "text"),
        (KEY, [said("user", "fine"), "text"]),
        ({"project_key": "garden"}, []),
        ({**KEY, "session_id": ""}, []),
        ({**KEY, "subpath": ""}, []),
        ("garden/s1", []),
    ],
)
def test_what_is_no_line_or_no_key_is_refused_and_nothing_is_stored(
    where: str, key: Any, lines: Any
) -> None:
    kept = HoldfastSessionStore(where)
    with pytest.raises(BadArgument):
        asyncio.run(kept.append(key, lines))
    assert asyncio.run(kept.list_sessions("garden")) == []


def test_a_transcript_that_was_deleted_elsewhere_is_not_begun_anew(where: str) -> None:
    mine, other = HoldfastSessionStore(where), HoldfastSessionStore(where)
    asyncio.run(mine.append(KEY, [said("user", "one")]))
    asyncio.run(other.delete(KEY))
    with pytest.raises(SessionEnded):
        asyncio.run(mine.append(KEY, [said("user", "two")]))
    assert asyncio.run(mine.list_sessions("garden")) == []
    asyncio.run(other.append(KEY, [said("user", "another session")]))
    with pytest.raises(SessionEnded):
        asyncio.run(mine.append(KEY, [said("user", "two")]))
    # Whoever loads it knows what is there now.
    assert len(asyncio.run(mine.load(KEY)) or ()) == 1
    asyncio.run(mine.append(KEY, [said("user", "two")]))
    assert len(asyncio.run(other.load(KEY)) or ()) == 2


def test_what_was_deleted_can_be_stored_again(where: str) -> None:
    kept = HoldfastSessionStore(where)
    lines = [said("user", "one")]
    asyncio.run(kept.append(KEY, lines))
    asyncio.run(kept.delete(KEY))
    asyncio.run(kept.append(KEY, lines))
    assert asyncio.run(kept.load(KEY)) == lines


@pytest.mark.parametrize("beside", [{}, {"subpath": "subagents/agent-1"}])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_was_deleted_and_looked_for_since_can_be_stored_again(
    where: str, beside: dict[str, str], elsewhere: bool
) -> None:
    """A reader who was told that there is nothing has no session that could be over."""
    kept, key = HoldfastSessionStore(where), KEY | beside
    lines = [said("user", "one")]
    asyncio.run(kept.append(key, lines))
    deleting = HoldfastSessionStore(where) if elsewhere else kept
    asyncio.run(deleting.delete(key))
    assert asyncio.run(kept.load(key)) is None
    asyncio.run(kept.append(key, lines))
    assert asyncio.run(kept.load(key)) == lines
    asyncio.run(kept.append(key, more := [said("user", "two")]))
    assert asyncio.run(kept.load(key)) == lines + more


def test_summaries_are_those_of_all_who_write_at_once(where: str) -> None:
    """Two stores fold into one summary: no batch is left out of it."""

    def write(number: int) -> None:
        kept = HoldfastSessionStore(where)
        for each in range(10):
            title = {"type": "custom-title", "customTitle": f"{number}/{each}"}
            asyncio.run(kept.append(KEY, [title]))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = HoldfastSessionStore(where)
    loaded = asyncio.run(kept.load(KEY)) or []
    assert len(loaded) == 40
    [summary] = asyncio.run(kept.list_session_summaries("garden"))
    assert summary["data"]["custom_title"] == loaded[-1]["customTitle"]


def test_a_damaged_line_takes_away_nothing_but_itself(tmp_path: Any) -> None:
    import sqlite3

    place = str(tmp_path / "agents.db")
    with holdfast.open(place) as store:
        lines = [said("user", "one"), said("assistant", "damage me"), said("user", "three")]
        asyncio.run(HoldfastSessionStore(store).append(KEY, lines))
    database = sqlite3.connect(place)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
    changed = database.execute(
        "UPDATE entry SET body = X'7B226E' WHERE instr(CAST(body AS TEXT), 'damage me')"
    ).rowcount
    database.commit()
    database.close()
    assert changed == 1, tables
    loaded = asyncio.run(HoldfastSessionStore(place).load(KEY))
    assert [line["type"] for line in loaded] == ["user", "system", "user"]
    assert loaded[0] == lines[0] and loaded[2] == lines[2]
    assert "can't be read" in loaded[1]["content"]
