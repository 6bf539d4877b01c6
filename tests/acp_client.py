"""A client of the Agent Client Protocol for tests: it starts an agent, or a recorder in front of
one, and speaks with it by lines.

    with Client(store, home) as client:        # `holdfast record … -- python tests/acp_agent.py HOME`
        session = client.new()
        answer = client.prompt(session, "Hi.", {"text": "Hello there."})
        client.shown(session)                  # what a person has seen, message by message
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commanding import surroundings

AGENT = Path(__file__).with_name("acp_agent.py")
LIMIT_S = 60


class Client:
    """A client with its agent. `permission` is the option it chooses, or "cancelled", or None:
    it never answers."""

    def __init__(
        self,
        store: Path | str,
        home: Path,
        *options: str,
        mode: str = "queue",
        permission: str | None = "yes",
        name: str = "toy",
        agent: tuple[object, ...] | None = None,
        **environment: str,
    ) -> None:
        home.mkdir(exist_ok=True)
        agent = agent or (sys.executable, AGENT, home, mode)
        recorder = [sys.executable, "-m", "holdfast.cli.main", "record", "--store", str(store)]
        named = ["--name", name] if name else []
        self.process = subprocess.Popen(
            [*recorder, *named, *options, "--", *map(str, agent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=surroundings(**environment),
        )
        self.permission = permission
        self.raw: list[bytes] = []
        self.updates: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.errors = b""
        self._answers: dict[Any, queue.Queue[dict[str, Any]]] = {}
        self._next = 0
        self._news = threading.Condition()
        self._ended = False
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._hear)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Client":
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _hear(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors += line

    def _read(self) -> None:
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            try:
                message = json.loads(raw)
            except ValueError:
                message = None
            with self._news:
                self.raw.append(raw)
                if isinstance(message, dict):
                    self._take(message)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()
        for waiting in self._answers.values():
            waiting.put({"eof": True})

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("method") == "session/update":
            self.updates.append(message["params"])
        elif message.get("method") == "session/request_permission":
            self.requests.append(message)
            self.answer(message["id"])
        elif "method" not in message and message.get("id") in self._answers:
            self._answers[message["id"]].put(message)

    def answer(self, id: Any) -> None:
        """Answers a request for permission the way this client does."""
        outcome: dict[str, Any] = {"outcome": "selected", "optionId": self.permission}
        if self.permission == "cancelled":
            outcome = {"outcome": "cancelled"}
        if self.permission is not None:
            self.write({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}})

    def write(self, message: dict[str, Any]) -> None:
        self.write_bytes(json.dumps(message).encode() + b"\n")

    def write_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def ask(self, method: str, params: dict[str, Any]) -> Callable[[], dict[str, Any]]:
        """Sends a request; what is returned waits for its answer."""
        id = self._next
        self._next += 1
        answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._answers[id] = answers
        self.write({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return lambda: answers.get(timeout=LIMIT_S)

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return self.ask(method, params)()

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def new(self) -> str:
        answer = self.call("session/new", {"cwd": "/w", "mcpServers": []})
        return answer["result"]["sessionId"]

    def load(self, session: str) -> dict[str, Any]:
        return self.call("session/load", {"sessionId": session, "cwd": "/w", "mcpServers": []})

    def begin(self, session: str, words: str, *steps: Any) -> Callable[[], dict[str, Any]]:
        """Gives a prompt; what is returned waits for its answer."""
        text = f"{words} DO: {json.dumps(steps)}" if steps else words
        block = {"type": "text", "text": text}
        return self.ask("session/prompt", {"sessionId": session, "prompt": [block]})

    def prompt(self, session: str, words: str, *steps: Any) -> dict[str, Any]:
        return self.begin(session, words, *steps)()

    def cancel(self, session: str) -> None:
        self.tell("session/cancel", {"sessionId": session})

    def wait(self, done: Callable[["Client"], Any]) -> None:
        """Until this is so."""
        with self._news:
            assert self._news.wait_for(lambda: done(self) or self._ended, LIMIT_S)
            assert done(self), f"the connection ended first: {self.errors.decode()}"

    def wait_for_text(self, words: str) -> None:
        """Until a person has been shown these words."""
        self.wait(lambda client: words in client.text())

    def text(self) -> str:
        """All that the agent has said, in one piece."""
        return "".join(
            each["update"]["content"].get("text", "")
            for each in self.updates
            if each["update"].get("sessionUpdate") == "agent_message_chunk"
        )

    def agent_pid(self) -> int:
        """The number of the agent's process."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid:
                return int(folder.name)
        raise AssertionError("there is no agent")

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.process.pid, number)
        self.process.wait(LIMIT_S)

    def close(self) -> int:
        """Ends the input, and waits until all of it has ended; the exit code."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            code = self.process.wait(LIMIT_S)
        finally:
            self.process.kill()
        for thread in self._threads:
            thread.join(LIMIT_S)
        return code
