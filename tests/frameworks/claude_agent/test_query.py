"""`query` on Holdfast, with the SDK's real release and the Claude Code that comes with it, against a
scripted API.
"""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from player import ask, options
from scripted_api import HOLD, Api, serving

import holdfast
from holdfast.adapters.claude_agent import HoldfastSessionStore
from holdfast.adapters.framework import sessions_under
from holdfast.errors import AlreadyAccepted
from holdfast.testing.providers import anthropic_problems

PLAYER = Path(__file__).parent / "player.py"


def words(request: dict[str, Any]) -> list[tuple[str, str]]:
    """The roles and words of what the model was told, without Claude Code's reminders."""
    found = []
    for message in request["messages"]:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for block in content:
            said = block.get("text") or str(block.get("content") or block.get("input") or "")
            if "<system-reminder>" not in said:
                found.append((message["role"], said))
    return found


def start(
    where: str, home: Path, api: Api, session: str, mode: str, prompt: str, *event_id: str
) -> Any:
    line = [sys.executable, str(PLAYER), where, str(home), api.address, session, mode, prompt]
    line += event_id
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True)


def kill(process: Any) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def transcript(store: holdfast.Store) -> list[tuple[str, str]]:
    [state] = sessions_under(store, "claude")
    said = []
    for message in store.get(state.id).transcript():
        if message.labels.get("visible_to_model") is not False:
            said.append((message.role, message.text))
    return said


def test_a_session_goes_on_where_it_was_left(where: str, tmp_path: Path) -> None:
    with (
        holdfast.open(where) as store,
        serving(["Row 3 ", "is dry."], ["I ", "said row 3."]) as api,
    ):
        kept = HoldfastSessionStore(store)
        id = str(uuid.uuid4())
        first = options(tmp_path / "a", api.address, session_id=id)
        assert asyncio.run(ask(kept, "Which row is dry?", first)) == "Row 3 is dry."
        # Nothing of the first is on this disk any more but what the store has.
        (tmp_path / "a" / "config").rename(tmp_path / "gone")
        second = options(tmp_path / "a", api.address, resume=id)
        assert asyncio.run(ask(kept, "Which one?", second)) == "I said row 3."
        assert words(api.requests[1]) == [
            ("user", "Which row is dry?"),
            ("assistant", "Row 3 is dry."),
            ("user", "Which one?"),
        ]
        assert transcript(store)[-4:] == [
            ("user", "Which row is dry?"),
            ("assistant", "Row 3 is dry."),
            ("user", "Which one?"),
            ("assistant", "I said row 3."),
        ]
        assert list(sessions_under(store, "claude.shown")) == []


def test_what_was_shown_when_the_process_was_killed_is_told_to_the_model(
    where: str, tmp_path: Path
) -> None:
    id = str(uuid.uuid4())
    with serving(["Row 3 ", "is dr", HOLD], ["Row 3, as I said."]) as api:
        process = start(where, tmp_path, api, id, "NEW", "Which row is dry?")
        assert process.stdout.readline() + process.stdout.readline() == "Row 3 \nis dr\n"
        kill(process)
        again = start(where, tmp_path, api, id, "RESUME", "Go on.")
        assert again.stdout.read() == "Row 3, as I said.\n"
        assert again.wait() == 0
        assert words(api.requests[1]) == [
            ("user", "Which row is dry?"),
            ("assistant", "Row 3 is dr"),
            ("user", "Go on."),
        ]
    with holdfast.open(where) as store:
        assert [text for _, text in transcript(store)] == [
            "Which row is dry?",
            "Row 3 is dr",
            "Go on.",
            "Row 3, as I said.",
        ]


def test_a_call_that_was_running_when_the_process_was_killed_is_closed(
    where: str, tmp_path: Path
) -> None:
    id = str(uuid.uuid4())
    (tmp_path / "work").mkdir()
    mark = tmp_path / "work" / "mark"
    run = {"id": "toolu_1", "name": "Bash", "input": {"command": f"touch {mark}; sleep 60"}}
    with serving(["I water it.", run], ["It may be wet."]) as api:
        process = start(where, tmp_path, api, id, "NEW", "Water row 3.")
        assert process.stdout.readline() == "I water it.\n"
        while not mark.exists():
            assert process.poll() is None
        kill(process)
        again = start(where, tmp_path, api, id, "RESUME", "Is it wet?")
        assert again.stdout.read() == "It may be wet.\n"
        request = api.requests[1]
        assert anthropic_problems(public(request["messages"])) == []
        said = words(request)
        assert ("user", "[interrupted: the outcome of this call is unknown]") in said
        assert ("assistant", "I water it.") in said
        assert said[-1] == ("user", "Is it wet?")


def public(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the marks of the cache, which Claude Code puts on its messages."""
    for message in messages:
        if isinstance(message["content"], list):
            for block in message["content"]:
                block.pop("cache_control", None)
    return messages


def test_a_query_that_is_left_keeps_what_it_has_shown(where: str, tmp_path: Path) -> None:
    async def left() -> None:
        given = options(tmp_path, api.address, session_id=id)
        asked = kept.query(prompt="Which row is dry?", options=given)
        async for message in asked:
            if getattr(message, "event", {}).get("delta", {}).get("text"):
                break
        await asked.aclose()

    id = str(uuid.uuid4())
    with holdfast.open(where) as store, serving(["Row 3 ", HOLD], ["Row 3."]) as api:
        kept = HoldfastSessionStore(store)
        asyncio.run(left())
        assert transcript(store) == [("user", "Which row is dry?"), ("assistant", "Row 3 ")]
        assert list(sessions_under(store, "claude.shown")) == []
        asyncio.run(ask(kept, "Go on.", options(tmp_path, api.address, resume=id)))
        assert words(api.requests[1])[1] == ("assistant", "Row 3 ")


def test_two_processes_take_turns_in_one_session(where: str, tmp_path: Path) -> None:
    id = str(uuid.uuid4())
    with serving(["one"], ["two ", HOLD], ["three"]) as api:
        process = start(where, tmp_path, api, id, "NEW", "First.")
        assert process.stdout.read() == "one\n"
        second = start(where, tmp_path, api, id, "RESUME", "Second.")
        assert second.stdout.readline() == "two \n"
        third = start(where, tmp_path, api, id, "RESUME", "Third.")
        with holdfast.open(where) as store:
            [state] = sessions_under(store, "claude")
            assert store.get(state.id).info().state == "running"
        api.let_go.set()
        assert third.stdout.read() == "three\n"
        assert second.wait() == 0
        said = [text for _, text in words(api.requests[2])]
        assert said == ["First.", "one", "Second.", "two ", "Third."]


def test_the_same_request_is_made_once(where: str, tmp_path: Path) -> None:
    id = str(uuid.uuid4())
    with holdfast.open(where) as store, serving(["Row 3."], ["Row 4."]) as api:
        kept = HoldfastSessionStore(store)
        for given in ({"session_id": id}, {"resume": id}):
            asked = options(tmp_path, api.address, **given)
            with suppress(AlreadyAccepted):
                asyncio.run(ask(kept, "Which row is dry?", asked, event_id=7))
        assert len(api.requests) == 1
        other = options(tmp_path, api.address, resume=id)
        asyncio.run(ask(kept, "Which row is dry?", other, event_id=8))
        assert [text for _, text in transcript(store)] == [
            "Which row is dry?",
            "Row 3.",
            "Which row is dry?",
            "Row 4.",
        ]
        [state] = sessions_under(store, "claude")
        assert anthropic_problems(list(store.get(state.id).context("anthropic"))) == []


def test_a_request_whose_process_was_killed_is_known(where: str, tmp_path: Path) -> None:
    id = str(uuid.uuid4())
    with serving(["Row 3 ", HOLD]) as api:
        process = start(where, tmp_path, api, id, "NEW", "Which row is dry?", "request-1")
        assert process.stdout.readline() == "Row 3 \n"
        kill(process)
        with holdfast.open(where) as store:
            kept = HoldfastSessionStore(store)
            asked = options(tmp_path, api.address, resume=id)
            with pytest.raises(AlreadyAccepted):
                asyncio.run(ask(kept, "Which row is dry?", asked, event_id="request-1"))
            assert transcript(store) == [("user", "Which row is dry?"), ("assistant", "Row 3 ")]
            assert len(api.requests) == 1
