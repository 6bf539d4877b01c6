"""The Claude Agent SDK: Claude Code, which comes with it, on `HoldfastSessionStore`, beside the files
that Claude Code keeps by itself.

Claude Code asks its model more than the conversation (for titles, say), and names the tools of a
program after their server. `relay` stands between it and the kit's provider: it answers such
questions itself, and translates the tool's name.

Its speed is not measured: the SDK has a store in memory alone to set beside ours, and Claude Code writes its own
files by itself.
"""

import asyncio
import json
import os
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from holdfast.testing.adapters import Show, Task

INSTALL = ["claude-agent-sdk>=0.2.182", "trio"]
TESTS = ["tests/frameworks/claude_agent"]
STORE_CODE = "claude_agent_sdk/_internal/session"
TOOL = "mcp__rows__water"


async def ask(task: Task, show: Show) -> None:
    from holdfast.errors import AlreadyAccepted

    with relay(task.url) as api:
        options = _options(task, api)
        if task.is_own:
            from claude_agent_sdk import query

            messages = query(prompt=task.prompt, options=options)
        else:
            asked = {"prompt": task.prompt, "options": options, "event_id": task.request_id}
            messages = _store(task).query(**asked)
        try:
            async for message in messages:
                show(_text_of(message))
        except AlreadyAccepted:
            show("answered before")


async def clear(task: Task) -> None:
    from claude_agent_sdk import delete_session, delete_session_via_store

    if task.is_own:
        os.environ["CLAUDE_CONFIG_DIR"] = str(_config(task))
        delete_session(_id(task), directory=str(_work(task)))
        return
    await delete_session_via_store(_store(task), _id(task), directory=str(_work(task)))


def spoil(task: Task) -> None:
    [lines] = _config(task).glob(f"projects/*/{_id(task)}.jsonl")
    kept = lines.read_text().rstrip()
    lines.write_text(kept[: len(kept) - 40])


def _store(task: Task) -> Any:
    from holdfast.adapters.claude_agent import HoldfastSessionStore

    return HoldfastSessionStore(task.where)


def _options(task: Task, api: str) -> Any:
    from claude_agent_sdk import ClaudeAgentOptions

    env = {
        "HOME": str(Path(task.folder) / "home"),
        "CLAUDE_CONFIG_DIR": str(_config(task)),
        "ANTHROPIC_BASE_URL": api,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        # Else the names of tools are told in a message.
        "ENABLE_TOOL_SEARCH": "false",
    }
    return ClaudeAgentOptions(
        cwd=_work(task),
        env=env,
        model="claude-sonnet-4-5",  # newer ones are told reminders in a role that the kit does not know
        mcp_servers={"rows": _rows(task)},
        allowed_tools=[TOOL],
        setting_sources=[],
        include_partial_messages=True,
        **_named(task),
    )


def _rows(task: Task) -> Any:
    from claude_agent_sdk import create_sdk_mcp_server, tool

    @tool("water", "Waters a row.", {"row": int})
    async def water(given: dict[str, Any]) -> dict[str, Any]:
        # On a thread: the SDK's own work goes on meanwhile.
        words = await asyncio.to_thread(task.water, given["row"])
        return {"content": [{"type": "text", "text": words}]}

    return create_sdk_mcp_server("rows", tools=[water])


def _named(task: Task) -> dict[str, str]:
    """A session that is there is resumed; another one begins under its name."""
    if task.is_own:
        is_there = any(_config(task).glob(f"projects/*/{_id(task)}.jsonl"))
    else:
        from claude_agent_sdk import project_key_for_directory

        project = project_key_for_directory(_work(task))
        key = {"project_key": project, "session_id": _id(task)}
        # On a loop of its own, since this is called on one.
        loading = threading.Thread(target=lambda: found.append(asyncio.run(_store(task).load(key))))
        found: list[Any] = []
        loading.start()
        loading.join()
        is_there = bool(found[0])
    return {"resume" if is_there else "session_id": _id(task)}


def _id(task: Task) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, task.session))


def _config(task: Task) -> Path:
    # Of ours each process has a disk of its own: nothing but the store tells of the session.
    return Path(task.folder) / ("config" if task.is_own else f"config-{os.getpid()}")


def _work(task: Task) -> Path:
    place = Path(task.folder) / "work"
    place.mkdir(exist_ok=True)
    return place


def _text_of(message: Any) -> str:
    event = getattr(message, "event", None) or {}
    return str((event.get("delta") or {}).get("text") or "")


@contextmanager
def relay(url: str) -> Iterator[str]:
    """The address of what stands between Claude Code and the provider at this one."""
    server = _Server(("127.0.0.1", 0), _Relay)
    server.provider = url
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    provider = ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a program that is killed leaves connections behind."""


class _Relay(BaseHTTPRequestHandler):
    server: _Server

    def do_HEAD(self) -> None:
        self._answer(200, b"{}")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        asked = json.loads(raw)
        if "count_tokens" in self.path or not asked.get("tools"):
            self._answer(200, json.dumps(_aside()).encode())
            return
        for message in asked["messages"]:
            _without_marks(message)
        address = f"{self.server.provider}/v1/messages"
        try:
            with urllib.request.urlopen(address, json.dumps(asked).encode()) as answer:
                self._passed_on(answer)
        except urllib.error.HTTPError as refused:
            self._answer(refused.code, refused.read())

    def _passed_on(self, answer: Any) -> None:
        self.send_response(200)
        self.send_header("content-type", answer.headers["content-type"])
        self.end_headers()
        for line in answer:
            self.wfile.write(line.replace(b'"name": "water"', f'"name": "{TOOL}"'.encode()))
            self.wfile.flush()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what a run prints is its own."""


def _without_marks(message: dict[str, Any]) -> None:
    """Takes out where Claude Code wants the provider to cache: no part of what is said."""
    if isinstance(message["content"], list):
        for block in message["content"]:
            block.pop("cache_control", None)


def _aside() -> dict[str, Any]:
    """The answer to a question that is not the conversation's own."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    said = {"content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn"}
    message = {"id": "msg_aside", "type": "message", "role": "assistant", "model": "aside"}
    return {**message, **said, "stop_sequence": None, "usage": usage, "input_tokens": 1}
