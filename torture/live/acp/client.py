"""A client of the Agent Client Protocol, as an editor is one: it asks, is shown what happens, and
answers when it is asked for a permission.

Its end of the wire is a process of its own (`relay.py`): `kill` takes that away in the middle of
things. `shown` are the updates, in order.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torture.systems.judging import Trouble

RELAY = Path(__file__).with_name("relay.py")
LIMIT_S = 180
CAPABILITIES = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
Json = dict[str, Any]


class Client:
    """One connection. `permission` is the kind of option that it picks when it is asked; None
    leaves the question open, and `asked` has it.
    """

    def __init__(
        self, command: list[str], settings: dict[str, str], folder: Path, ledger: Path
    ) -> None:
        self.permission: str | None = "allow_once"
        self.shown: list[Json] = []
        self.asked: list[Json] = []
        self._ledger = ledger
        self._answers: dict[int, queue.Queue[Json]] = {}
        self._numbers = 0
        self._news = threading.Condition()
        self._complaints = open(f"{ledger}.stderr", "ab")  # noqa: SIM115
        self._pid_file = Path(f"{ledger}.pid")
        self._pid_file.unlink(missing_ok=True)
        self._relay = subprocess.Popen(
            [sys.executable, str(RELAY), str(ledger), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            cwd=folder,
            env=settings,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._folder = folder

    # What a client does.

    def hello(self) -> Json:
        version = {"protocolVersion": 1, "clientCapabilities": CAPABILITIES}
        return self.call("initialize", {**version, "clientInfo": {"name": "live", "version": "1"}})

    def new(self) -> str:
        told = self.call("session/new", {"cwd": str(self._folder), "mcpServers": []})
        return str(told["sessionId"])

    def load(self, session: str) -> Json:
        where = {"sessionId": session, "cwd": str(self._folder), "mcpServers": []}
        return self.call("session/load", where)

    def prompt(self, session: str, words: str) -> "queue.Queue[Json]":
        """Says something; what comes of it will be in the queue."""
        blocks = [{"type": "text", "text": words}]
        return self._send("session/prompt", {"sessionId": session, "prompt": blocks})

    def say(self, session: str, words: str) -> Json:
        """A whole turn."""
        return answered(self.prompt(session, words), "session/prompt")

    def cancel(self, session: str) -> None:
        """Cancels the turn; what the protocol asks of a client is answered too."""
        self._write({"method": "session/cancel", "params": {"sessionId": session}})
        for request in self.asked:
            self._write({"id": request["id"], "result": {"outcome": {"outcome": "cancelled"}}})
        self.asked.clear()

    def call(self, method: str, params: Json) -> Json:
        return answered(self._send(method, params), method)

    # What becomes of it.

    def wait(self, seen: Callable[[], bool], what: str) -> None:
        """Waits until something was shown."""
        until = time.monotonic() + LIMIT_S
        with self._news:
            while not seen():
                left = until - time.monotonic()
                if left <= 0 or (self._relay.poll() is not None and not self._reader.is_alive()):
                    raise Trouble(f"{what} was never shown")
                self._news.wait(min(left, 0.2))

    def updates(self, kind: str, since: int = 0) -> Iterator[Json]:
        """Updates of this kind."""
        for message in self.shown[since:]:
            update = message.get("params", {}).get("update", {})
            if update.get("sessionUpdate") == kind:
                yield update

    def peer(self) -> int:
        """The process that it talks to: the recorder, or without one the agent."""
        self.wait(lambda: bool(_text(self._pid_file)), "the agent's process")
        return int(_text(self._pid_file))

    # How it ends.

    def kill(self) -> None:
        """kill -9 of the client."""
        peer = self.peer()
        self._relay.kill()
        self._relay.wait()
        wait_for_end(peer)

    def hang_up(self) -> None:
        """The end of input; the other side ends when it has read it."""
        peer = self.peer()
        assert self._relay.stdin is not None
        self._relay.stdin.close()
        self._end(peer)

    def lost(self) -> None:
        """The other side is gone."""
        self._end(self.peer())

    def give_up(self) -> None:
        """Leaves nothing behind, however the row went."""
        if self._relay.poll() is None:
            pids = family(self._relay.pid)
            kill_all(pids)
            self._relay.wait()
        self._complaints.close()

    def _end(self, peer: int) -> None:
        try:
            self._relay.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._relay.kill()
        wait_for_end(peer)
        self._reader.join(LIMIT_S)
        self._complaints.close()

    def _send(self, method: str, params: Json) -> "queue.Queue[Json]":
        number = self._numbers
        self._numbers += 1
        self._answers[number] = queue.Queue()
        self._write({"id": number, "method": method, "params": params})
        return self._answers[number]

    def _write(self, message: Json) -> None:
        assert self._relay.stdin is not None
        try:
            self._relay.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._relay.stdin.flush()
        except (BrokenPipeError, ValueError):
            return  # whoever waits for an answer is told of the end

    def _read(self) -> None:
        assert self._relay.stdout is not None
        for line in self._relay.stdout:
            message = json.loads(line)
            with self._news:
                if "method" not in message:
                    self._answers[message["id"]].put(message)
                elif "id" in message:
                    self._serve(message)
                else:
                    self.shown.append(message)
                self._news.notify_all()
        for waiting in self._answers.values():
            waiting.put({"ended": True})
        with self._news:
            self._news.notify_all()

    def _serve(self, request: Json) -> None:
        if request["method"] != "session/request_permission":
            error = {"code": -32601, "message": "Method not found"}
            self._write({"id": request["id"], "error": error})
            return
        if self.permission is None:
            self.asked.append(request)
            return
        options = request["params"]["options"]
        picked = next((one for one in options if one["kind"] == self.permission), options[0])
        outcome = {"outcome": "selected", "optionId": picked["optionId"]}
        self._write({"id": request["id"], "result": {"outcome": outcome}})


def answered(waiting: "queue.Queue[Json]", what: str, limit_s: float = LIMIT_S) -> Json:
    """The result of a request."""
    try:
        told = waiting.get(timeout=limit_s)
    except queue.Empty:
        raise Trouble(f"{what} was not answered") from None
    if "result" not in told:
        raise Trouble(f"{what} was answered with {json.dumps(told.get('error', told))[:300]}")
    return told["result"]  # type: ignore[no-any-return]


def family(pid: int) -> list[int]:
    """A process and all that it started, the youngest first."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*"):
            found += [int(child) for child in _text(task / "children").split()]
    return found[::-1]


def children(pid: int) -> list[int]:
    """The processes that this one started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        found += [int(child) for child in _text(task / "children").split()]
    return found


def kill_all(pids: list[int]) -> None:
    """kill -9 of these; one that is gone already is no matter."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def wait_for_end(pid: int, limit_s: float = 30) -> None:
    """Waits until a process and what it started are gone; what stays after the limit is killed."""
    pids = family(pid)
    until = time.monotonic() + limit_s
    while any(_is_running(each) for each in pids) and time.monotonic() < until:
        time.sleep(0.05)
    kill_all([each for each in pids if _is_running(each)])


def _is_running(pid: int) -> bool:
    # A zombie has ended; somebody else has not asked about it yet.
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return bool(fields) and fields[0] != "Z"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
