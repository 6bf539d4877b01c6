"""Both servers, OpenViking's and ours, and OpenViking's own Python client in front of either."""

import atexit
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

from torture.live.table import Outcome
from torture.systems.openviking import SESSIONS, Model, Server

DRIVER = Path(__file__).with_name("driver.py")
SOURCE = str(Path(__file__).resolve().parents[3] / "src")
LIMIT_S = 60.0


class Servers:
    """Both servers, each from its first use until the program ends."""

    def __init__(self, environment: Path) -> None:
        self.environment = environment
        self.model = _ScriptedModel()
        self._running: dict[bool, Any] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-live-")
        atexit.register(self.stop)

    def get(self, served: bool) -> Any:
        """The server of this kind, running."""
        if served not in self._running:
            folder = Path(self._folder.name)
            if served:
                server: Any = HoldfastServer(folder / "served.db", self.model.extractor_url)
            else:
                server = OpenVikingServer(self.environment, folder / "workspace", self.model)
            server.start()
            self._running[served] = server
        return self._running[served]

    def stop(self) -> None:
        for server in self._running.values():
            server.kill()
        self._running.clear()
        self._folder.cleanup()


class OpenVikingServer:
    """OpenViking's own server."""

    key = "none"

    def __init__(self, environment: Path, workspace: Path, model: "_ScriptedModel") -> None:
        self.workspace = workspace
        self._model = Model()
        answer = self._model.answer
        self._model.answer = lambda *asked: {} if model.fails else answer(*asked)  # type: ignore[method-assign]
        self._model.__enter__()
        self._server = Server(environment, workspace, self._model)
        self.url = f"http://127.0.0.1:{self._server._port}"

    def start(self) -> None:
        self._server.__enter__()

    def kill(self) -> None:
        self._server.kill()


class HoldfastServer:
    """`holdfast serve-openviking`."""

    def __init__(self, store: Path, extractor: str) -> None:
        self.store = store
        self._extractor = extractor
        self._port = 0
        self._keys = store.with_suffix(".keys")
        self.key = f"key-{uuid4().hex}"
        self._keys.write_text(self.key)
        self._keys.chmod(0o600)

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast.cli.main", "serve-openviking", str(self.store)]
        command += ["--json", "--port", str(self._port), "--token-file", str(self._keys)]
        command += ["--extract", self._extractor]
        line = self._first_line(command)
        # A soak kills at random, also a server that is just starting; the next one has to cope.
        while not line and self._process.wait() == -signal.SIGKILL:
            line = self._first_line(command)
        if not line:
            raise RuntimeError(f"the server ended with {self._process.returncode} as it started")
        self.url = json.loads(line)["address"]
        # The same one after a restart, as clients expect it.
        self._port = int(self.url.rpartition(":")[2])

    def _first_line(self, command: list[str]) -> str:
        """What a new process says first: its address, or nothing if it ends before that."""
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SOURCE}
        )
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def kill(self) -> None:
        # Named once: by the time that it is dead, another thread may have started the next one.
        process = self._process
        process.kill()
        process.wait()

    def is_gone(self) -> bool:
        return self._process.poll() is not None


class _ScriptedModel:
    """What makes overviews for our server; it fails while it is told to, as OpenViking's model
    does.
    """

    def __init__(self) -> None:
        self.fails = False
        self.fail_rate = 0.0
        self._dice = random.Random(11)
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                fails = model.fails or model._dice.random() < model.fail_rate
                self.send_response(500 if fails else 200)
                self.end_headers()
                self.wfile.write(b'{"overview": "All rows are watered."}')

            def log_message(self, *words: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.extractor_url = f"http://127.0.0.1:{server.server_address[1]}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()


class Driver:
    """OpenViking's Python client in a process of its own."""

    def __init__(self, environment: Path, url: str, key: str) -> None:
        self._process = subprocess.Popen(
            [environment / "bin" / "python", DRIVER, url, key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": tempfile.gettempdir()},
        )

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """What a method of the client gives; an error of it is raised."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments, options]) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        if "error" in told:
            raise ClientError(told["error"])
        return told["result"]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class ClientError(Exception):
    """What OpenViking's client raised."""


class Setting:
    """A session of one of the servers, and a client of it."""

    def __init__(self, servers: Servers, served: bool) -> None:
        self.servers, self.served = servers, served
        self.server = servers.get(served)
        self.id = f"orchard-{uuid4().hex[:8]}"
        self._drivers: list[Driver] = []
        self.client = self.another()
        self.said: list[str] = []

    def another(self) -> Driver:
        """One more client."""
        driver = Driver(self.servers.environment, self.server.url, self.server.key)
        self._drivers.append(driver)
        return driver

    def say(self, text: str | None = None) -> None:
        text = text or f"Message {len(self.said) + 1}."
        self.client.call("add_message", self.id, "user", content=text)
        self.said.append(text)

    def commit(self, driver: Driver | None = None, keep: int = 0) -> Any:
        return (driver or self.client).call(
            "commit_session",
            self.id,
            keep_recent_count=keep,
            options={"enable_working_memory": True},
        )

    def finished(self, commit: Any) -> str:
        """How the task of a commit ended."""
        until = time.monotonic() + LIMIT_S
        while commit.get("task_id") and time.monotonic() < until:
            state = self.client.call("get_task", commit["task_id"])["status"]
            if state in ("completed", "failed", "cancelled"):
                return str(state)
            time.sleep(0.2)
        return "none"

    def restart(self, damage: Callable[[], object] = lambda: None) -> None:
        """kill -9, and the server again."""
        self.server.kill()
        damage()
        self.server.start()

    def context(self) -> list[str]:
        """What a model would be shown."""
        return _words(self.client.call("get_session_context", self.id)["messages"])

    def files(self) -> Path:
        workspace: Path = self.server.workspace
        return workspace / SESSIONS / self.id

    def stored(self) -> tuple[list[str], list[str]]:
        """The live messages, and those of all archives."""
        if not self.served:
            archives = sorted(self.files().glob("history/archive_*/messages.jsonl"))
            archived = [text for file in archives for text in _lines(file)]
            return _lines(self.files() / "messages.jsonl"), archived
        told = self.client.call("get_session", self.id)
        archived = []
        for number in range(1, told["commit_count"] + 1):
            name = f"archive_{number:03d}"
            found = self.client.call("get_session_archive", self.id, name)["messages"]
            archived += _words(found)
        shown = self.context()
        return shown[len(shown) - told["message_count"] :], archived

    def outcome(self, why: str = "") -> Outcome:
        """Whether each message is there once, live or archived, in order."""
        live, archived = self.stored()
        there = archived + live
        lost = len(set(self.said) - set(there))
        doubled = len(there) - len(set(there))
        right = there == self.said and not why
        problem = why or f"{lost} lost, {doubled} doubled"
        if not why and not lost and not doubled:
            problem = "messages are out of order, or one is there that nobody sent"
        shown = f"{len(self.context())} in the context"
        stored = f"{len(set(there))} of {len(self.said)}, {doubled} doubled"
        return Outcome(shown, stored, None, right, "" if right else problem)

    def __enter__(self) -> "Setting":
        return self

    def __exit__(self, *error: object) -> None:
        self.servers.model.fails = False
        for driver in self._drivers:
            driver.close()


def _words(messages: list[dict[str, Any]]) -> list[str]:
    return [message["parts"][0]["text"] for message in messages]


def _lines(file: Path) -> list[str]:
    if not file.exists():
        return []
    messages = []
    for line in file.read_text(errors="replace").split("\n"):
        with suppress(ValueError):  # torn by the kill: what it said is lost
            messages.append(json.loads(line))
    return _words(messages)
