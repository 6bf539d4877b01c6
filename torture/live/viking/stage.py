"""Where the client is played: a session of a real server, a gateway in front of it, and a client."""

import atexit
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from torture.live.table import Outcome
from torture.live.viking.clients import HoldfastClient, RetryingClient
from torture.live.viking.gateway import Gateway
from torture.systems.openviking import SESSIONS, Model, Server


class RunningServer:
    """OpenViking's server with a model and a gateway, from the first use until the program ends."""

    def __init__(self, environment: Path) -> None:
        self._environment = environment
        self._is_running = False
        self.model_fails = False

    def start(self) -> None:
        if self._is_running:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-live-")
        self.workspace = Path(self._folder.name, "workspace")
        model = Model()
        answer = model.answer
        model.answer = lambda *asked: {} if self.model_fails else answer(*asked)  # type: ignore[method-assign]
        model.__enter__()
        self._model = model
        self._server = Server(self._environment, self.workspace, model)
        self._server.__enter__()
        self.port = self._server._port
        self._is_running = True
        atexit.register(self.stop)

    def stop(self) -> None:
        if self._is_running:
            self._is_running = False
            self._server.__exit__()
            self._model.__exit__()
            self._folder.cleanup()

    def restart(self, damage: Callable[[], object] = lambda: None) -> None:
        """kill -9, and another server on the same workspace and port."""
        self._server.kill()
        damage()
        self._server.__enter__()


class Setting:
    """A session of the server, a gateway in front of it, and a client of either kind."""

    def __init__(self, server: RunningServer, folder: Path, served: bool) -> None:
        self.folder, self.served, self.server = folder, served, server
        server.start()
        self.id = f"orchard-{uuid4().hex[:8]}"
        self.gateway = Gateway(server.port)
        self.said = 0
        self._client: Any = None

    @property
    def client(self) -> Any:
        """What the program uses; made anew after `forget`."""
        if self._client is None:
            kind = HoldfastClient if self.served else RetryingClient
            self._client = kind(self.gateway.url, self.folder, self.id)
        return self._client

    def forget(self) -> None:
        """The program is gone, with all that it had in memory."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def say(self, count: int = 1) -> None:
        for _ in range(count):
            self.said += 1
            self.client.add(f"Message {self.said}.")

    def files(self) -> Path:
        return self.server.workspace / SESSIONS / self.id

    def stored(self) -> tuple[list[str], list[list[str]]]:
        """What OpenViking has: the live messages, and those of each archive, from its own files."""
        archives = sorted(self.files().glob("history/archive_*/messages.jsonl"))
        return texts(self.files() / "messages.jsonl"), [texts(file) for file in archives]

    def outcome(self, archives: list[list[int]], live: list[int], why: str = "") -> Outcome:
        """What is there against what has to be."""
        told, kept = self.stored()
        wanted = [[f"Message {number}." for number in archive] for archive in archives]
        expected = [f"Message {number}." for number in live]
        there = [text for archive in kept for text in archive] + told
        all_wanted = [text for archive in wanted for text in archive] + expected
        lost = len(set(all_wanted) - set(there))
        doubled = len(there) - len(set(there))
        right = (told, kept) == (expected, wanted) and not why
        problem = why or f"{lost} lost, {doubled} doubled; live {told}, archives {kept}"
        stored = f"{len(set(there))} of {len(all_wanted)}, {doubled} doubled"
        return Outcome(f"{self.said} said", stored, None, right, "" if right else problem)

    def __enter__(self) -> "Setting":
        return self

    def __exit__(self, *error: object) -> None:
        self.forget()
        self.gateway.close()
        self.server.model_fails = False


def texts(file: Path) -> list[str]:
    if not file.exists():
        return []
    found = []
    for line in file.read_text().split("\n"):
        if line:
            message = json.loads(line)
            found.append("".join(part.get("text", "") for part in message["parts"]))
    return found
