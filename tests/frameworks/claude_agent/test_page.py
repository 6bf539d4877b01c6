"""What docs/claude-agent.md says of the SDK's own functions, and of its mirror without `query` of ours."""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    InMemorySessionStore,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    query,
)
from pages import example
from player import ask, options, text_of
from scripted_api import HOLD, serving
from test_query import kill, start, words

import holdfast
from holdfast.adapters.claude_agent import HoldfastSessionStore


async def said_by_the_sdk(prompt: str, options: Any) -> str:
    """What the SDK's own `query` shows."""
    shown = ""
    async for message in query(prompt=prompt, options=options):
        shown += text_of(message)
    return shown


def test_a_session_of_claude_codes_own_disk_is_taken_over_as_the_page_says(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = str(uuid.uuid4())
    with serving(["Row 3."], ["As I said: row 3."]) as api:
        own = options(tmp_path, api.address, session_id=id)
        assert asyncio.run(said_by_the_sdk("Which row is dry?", own)) == "Row 3."
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
        monkeypatch.chdir(tmp_path / "work")
        kept = HoldfastSessionStore(where)
        code = example("claude-agent.md", "import_session_to_store").replace("<session id>", id)
        for _ in range(2):
            exec(code, {"store": kept, "asyncio": asyncio})
        (tmp_path / "config").rename(tmp_path / "gone")
        asked = options(tmp_path, api.address, resume=id)
        asyncio.run(ask(kept, "Which one?", asked))
        assert words(api.requests[1]) == [
            ("user", "Which row is dry?"),
            ("assistant", "Row 3."),
            ("user", "Which one?"),
        ]


def test_the_sdks_functions_for_stores_work_with_ours(where: str, tmp_path: Path) -> None:
    id = str(uuid.uuid4())
    work = tmp_path / "work"
    with serving(["Row 3."], ["In the fork: row 3."], ["Still row 3."]) as api:
        kept = HoldfastSessionStore(where)
        asyncio.run(ask(kept, "Which row is dry?", options(tmp_path, api.address, session_id=id)))
        fork = asyncio.run(fork_session_via_store(kept, id, directory=str(work))).session_id
        listed = asyncio.run(list_sessions_from_store(kept, directory=str(work)))
        assert {each.session_id for each in listed} == {id, fork}
        asyncio.run(ask(kept, "Which one?", options(tmp_path, api.address, resume=fork)))
        asyncio.run(ask(kept, "And now?", options(tmp_path, api.address, resume=id)))
        assert [text for _, text in words(api.requests[2])] == [
            "Which row is dry?",
            "Row 3.",
            "And now?",
        ]
        told = asyncio.run(get_session_messages_from_store(kept, fork, directory=str(work)))
        assert [message.type for message in told] == ["user", "assistant"] * 2


def test_continue_conversation_goes_on_with_the_newest_session(where: str, tmp_path: Path) -> None:
    with serving(["one"], ["two"], ["three"]) as api:
        kept = HoldfastSessionStore(where)
        for prompt in ("First.", "Second."):
            id = str(uuid.uuid4())
            asyncio.run(ask(kept, prompt, options(tmp_path, api.address, session_id=id)))
        asked = options(tmp_path, api.address, continue_conversation=True)
        asyncio.run(ask(kept, "Third.", asked))
        assert [text for _, text in words(api.requests[2])] == ["Second.", "two", "Third."]


@pytest.mark.parametrize("in_a_tool", [False, True])
def test_the_mirror_alone_has_nothing_of_an_answer_that_was_cut(
    where: str, in_a_tool: bool, tmp_path: Path
) -> None:
    """What the page's table says of it."""
    id = str(uuid.uuid4())
    (tmp_path / "work").mkdir()
    mark = tmp_path / "work" / "mark"
    run = {"id": "toolu_1", "name": "Bash", "input": {"command": f"touch {mark}; sleep 60"}}
    with serving(["Row 3 ", run if in_a_tool else HOLD]) as api:
        process = start(where, tmp_path, api, id, "MIRROR", "Which row is dry?")
        assert process.stdout.readline() == "Row 3 \n"
        while in_a_tool and not mark.exists():
            assert process.poll() is None
        kill(process)
    key = {"project_key": project_key_for_directory(tmp_path / "work"), "session_id": id}
    loaded = json.dumps(asyncio.run(HoldfastSessionStore(where).load(key)))
    assert "Row 3" not in loaded and "Which row" not in loaded


def test_a_store_of_theirs_begins_a_deleted_session_anew() -> None:
    key = {"project_key": "garden", "session_id": "s1"}
    theirs = InMemorySessionStore()
    for text in ("one", "two"):
        asyncio.run(theirs.append(key, [{"type": "user", "text": text}]))
        if text == "one":
            asyncio.run(theirs.delete(key))
    assert [line["text"] for line in asyncio.run(theirs.load(key)) or ()] == ["two"]


def test_another_store_is_copied_with_its_own_methods(where: str) -> None:
    key = {"project_key": "garden", "session_id": "s1"}
    theirs = InMemorySessionStore()
    line = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Hello."}}
    asyncio.run(theirs.append(key, [line]))
    with holdfast.open(where) as store:
        kept = HoldfastSessionStore(store)
        for _ in range(2):
            asyncio.run(kept.append(key, asyncio.run(theirs.load(key))))
        assert asyncio.run(kept.load(key)) == [line]
