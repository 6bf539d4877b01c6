"""OpenViking's own server under the client of Holdfast, and under one that retries as most do.

Without Holdfast, a message is posted, and posted again while no answer comes: the server has no
idempotency keys, so that is all that a client without a record of its own can do. A gateway stands
between the two and loses answers when told; kill -9 is really sent, to the server and to clients.
"""

import atexit
import contextlib
import http.client
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import holdfast  # noqa: E402
from holdfast.adapters.openviking import Client  # noqa: E402
from torture.live.table import Outcome, Row  # noqa: E402
from torture.systems.openviking import SESSIONS, Model, Server  # noqa: E402

LIMIT_S = 180.0


def rows(environment: Path) -> list[Row]:
    """The rows of the client. They share a server: it takes most of a minute to start."""
    shared = RunningServer(environment)
    plays = {
        "client: an add whose answer is lost is retried": _lost_answer,
        "client: a commit whose answer is lost is retried": _lost_commit,
        "client: kill -9 of the client before it has noted the answer": _killed_client,
        "client: kill -9 of the server wipes the session": _wiped,
        "client: two commits at once": _two_commits,
        "client: a commit while a message arrives": _commit_and_message,
        "client: a message that is refused among others": _refused,
        "client: the extraction of a commit fails": _failed_commit,
        "client: kill -9 of the server, again and again": _killed_server,
    }

    def row(name: str, play: Callable[["Setting"], Outcome]) -> Row:
        def played(folder: Path, served: bool) -> Outcome:
            with Setting(shared, folder, served) as setting:
                try:
                    return play(setting)
                except TimeoutError as error:
                    return Outcome(f"{setting.said} said", "unknown", None, False, str(error))

        return Row(name, played)

    return [row(name, play) for name, play in plays.items()]


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
        return _texts(self.files() / "messages.jsonl"), [_texts(file) for file in archives]

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


class RetryingClient:
    """Posts, and posts again until an answer comes."""

    def __init__(self, url: str, folder: Path, id: str) -> None:
        self._url, self._id = url, id

    def add(self, text: str) -> None:
        self._insist("/messages", {"role": "user", "content": text})

    def commit(self, **options: Any) -> str:
        task = self._insist("/commit", options).get("task_id")
        return self.task_end(task) if task else "skipped"

    def task_end(self, task: str) -> str:
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            state = _ask(self._url, "GET", f"/api/v1/tasks/{task}")["status"]
            if state in ("completed", "failed", "cancelled"):
                return state
            time.sleep(0.2)
        return "unknown"

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _insist(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                return _ask(self._url, "POST", f"/api/v1/sessions/{self._id}{path}", body)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return {}
            except (OSError, http.client.HTTPException):
                pass
            if time.monotonic() > until:
                raise TimeoutError(f"no answer to {path}")
            time.sleep(0.2)


class HoldfastClient:
    """The same calls on Holdfast's client."""

    def __init__(self, url: str, folder: Path, id: str) -> None:
        self._id = id
        self.client = Client(url, store=folder / "agent.db", grace_s=2, timeout_s=60)

    def add(self, text: str) -> None:
        self.client.add_message(self._id, "user", text)

    def commit(self, **options: Any) -> str:
        return self.client.commit(self._id, **options).wait(LIMIT_S).state

    def settle(self) -> None:
        if not self.client.flush(LIMIT_S):
            raise TimeoutError(f"not sent: {self.client.report(self._id).problem}")

    def close(self) -> None:
        self.client.close()


def _lost_answer(setting: Setting) -> Outcome:
    setting.say(2)
    setting.client.settle()
    setting.gateway.lose_next()
    setting.say()
    setting.client.settle()
    setting.say()
    setting.client.settle()
    return setting.outcome([], [1, 2, 3, 4])


def _lost_commit(setting: Setting) -> Outcome:
    """The answer to a commit is lost; before it is tried again, another message arrives."""
    setting.say(3)
    setting.client.settle()
    setting.gateway.lose_next(then=lambda: _someone_says(setting, "Message 4."))
    setting.client.commit(enable_working_memory=True)
    setting.said += 1
    setting.client.settle()
    return setting.outcome([[1, 2, 3]], [4])


def _someone_says(setting: Setting, text: str) -> None:
    """Another client of the same session: it does not go through Holdfast."""
    url = f"http://127.0.0.1:{setting.server.port}"
    _ask(url, "POST", f"/api/v1/sessions/{setting.id}/messages", {"role": "user", "content": text})


KILLED = """
import sys
from torture.live import openviking_client as live
kind = live.HoldfastClient if sys.argv[1] == "with" else live.RetryingClient
client = kind(sys.argv[2], live.Path(sys.argv[3]), sys.argv[4])
for number in range(int(sys.argv[5]), int(sys.argv[6]) + 1):
    client.add(f"Message {number}.")
    client.settle()
    print(number, flush=True)
"""


def _killed_client(setting: Setting) -> Outcome:
    """The client is killed while its answer is on the way. The next one begins with what the one
    before it had not yet told its caller; Holdfast's with what its store has.
    """
    setting.said = 4
    done = 0
    while done < 4:
        first = done + 1
        if setting.served:
            # The message was durable: its caller knows that, and does not say it again.
            first = _said_to_holdfast(setting) + 1
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, "with" if setting.served else "without"]
            + [setting.gateway.url, str(setting.folder), setting.id, str(first), "4"],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        if done == 0:
            setting.gateway.lose_next(then=partial(child.send_signal, signal.SIGKILL), skip=1)
        assert child.stdout is not None
        for line in child.stdout:
            done = int(line)
        child.wait()
        if setting.served and done < 4 and _said_to_holdfast(setting) == 4:
            break
    setting.client.settle()
    return setting.outcome([], [1, 2, 3, 4])


def _said_to_holdfast(setting: Setting) -> int:
    with holdfast.open(setting.folder / "agent.db") as store:
        return sum(1 for _ in store.session(setting.id).transcript())


def _wiped(setting: Setting) -> Outcome:
    """What kill -9 in the middle of an append leaves: the file of live messages is empty."""
    setting.say(5)
    setting.client.settle()
    setting.server.restart(lambda: (setting.files() / "messages.jsonl").write_bytes(b""))
    setting.say()
    setting.client.settle()
    return setting.outcome([], [1, 2, 3, 4, 5, 6])


def _two_commits(setting: Setting) -> Outcome:
    setting.say(4)
    setting.client.settle()
    states: list[str] = []
    threads = []
    for _ in range(2):
        made = lambda: states.append(setting.client.commit(enable_working_memory=True))  # noqa: E731
        threads.append(threading.Thread(target=made))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    why = "" if sorted(states) == ["completed", "skipped"] else f"they ended as {states}"
    return setting.outcome([[1, 2, 3, 4]], [], why)


def _commit_and_message(setting: Setting) -> Outcome:
    """A message is said right after a commit was asked for, while that is under way."""
    setting.say(3)
    setting.client.settle()
    commit = threading.Thread(target=lambda: setting.client.commit(enable_working_memory=True))
    commit.start()
    setting.gateway.wait_for("/commit")
    setting.say()
    commit.join()
    setting.client.settle()
    return setting.outcome([[1, 2, 3]], [4])


def _refused(setting: Setting) -> Outcome:
    """One message of a hundred is none that OpenViking takes."""
    setting.say(2)
    parts = [{"type": "context", "uri": "viking://nowhere/../..", "abstract": "x"}]
    if setting.served:
        setting.client.client.add_messages(setting.id, [{"role": "user", "parts": parts}])
    else:
        setting.client._insist("/messages", {"role": "user", "parts": parts})
    setting.say(2)
    setting.client.settle()
    why = ""
    if setting.served and len(setting.client.client.report(setting.id).refused) != 1:
        why = "the refused message was not reported"
    return setting.outcome([], [1, 2, 3, 4], why)


def _failed_commit(setting: Setting) -> Outcome:
    """The model answers nonsense: the archive fails, and its messages leave every context."""
    setting.say(3)
    setting.client.settle()
    setting.server.model_fails = True
    state = setting.client.commit(enable_working_memory=True)
    setting.server.model_fails = False
    setting.say()
    setting.client.settle()
    kept = len(setting.stored()[0])
    if setting.served:
        kept = _said_to_holdfast(setting)
    right = state == "failed" and kept == 4
    why = "" if right else f"the commit ended as {state}, {kept} of 4 messages can be read"
    return Outcome("4 said", f"{kept} of 4 can be read", None, right, why)


def _killed_server(setting: Setting, messages: int = 30, kills: int = 3) -> Outcome:
    stop = threading.Event()
    dice = random.Random(7)

    def kill() -> None:
        for _ in range(kills):
            if stop.wait(dice.uniform(0.2, 1.5)):
                return
            setting.server.restart()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        for _ in range(messages):
            setting.say()
            time.sleep(dice.uniform(0, 0.1))
        killer.join()
        setting.client.settle()
    finally:
        stop.set()
        killer.join()
    return setting.outcome([], list(range(1, messages + 1)))


def soak(environment: Path, messages: int) -> Iterator[str]:
    """So many messages through Holdfast's client, with commits, lost answers, and kill -9 of the client
    and of the server; a sentence for each thing that is wrong.
    """
    dice = random.Random(messages)
    server = RunningServer(environment)
    with tempfile.TemporaryDirectory(prefix="holdfast-live-") as folder:
        with Setting(server, Path(folder), served=True) as setting:
            client = KillableClient(setting)
            for number in range(1, messages + 1):
                _trouble(setting, client, dice, messages)
                client.say(f"add {number}")
                if dice.random() < 0.03:
                    client.say(f"commit {number}")
                if number % 50 == 0:
                    print(f"{number} messages", file=sys.stderr, flush=True)
            client.say("settle")
            client.kill()
            yield from _wrong(setting, messages)


def _wrong(setting: Setting, messages: int) -> Iterator[str]:
    live, archives = setting.stored()
    there = [text for archive in archives for text in archive] + live
    wanted = [f"Message {number}." for number in range(1, messages + 1)]
    for text in wanted:
        if there.count(text) != 1:
            yield f"{text} is there {there.count(text)} times"
    if list(dict.fromkeys(there)) != wanted:
        yield "messages are out of order"


def _trouble(
    setting: Setting, client: "KillableClient", dice: random.Random, messages: int
) -> None:
    # A start of the server takes long, whatever the number of messages: there are about eight.
    often = 8 / messages
    chance = dice.random()
    if chance < often / 2:
        setting.server.restart()
    elif chance < often:
        setting.server.restart(lambda: _wipe(setting))
    elif chance < often + 0.05:
        setting.gateway.lose_next()
    elif chance < often + 0.08:
        client.kill()
    elif chance < often + 0.10:
        setting.gateway.lose_next(then=client.kill)


def _wipe(setting: Setting) -> None:
    file = setting.files() / "messages.jsonl"
    if file.exists():
        file.write_bytes(b"")


SPOKEN_TO = """
import sys
from torture.live import openviking_client as live
client = live.HoldfastClient(sys.argv[1], live.Path(sys.argv[2]), sys.argv[3]).client
for line in sys.stdin:
    word, _, number = line.strip().partition(" ")
    if word == "add":
        client.add_message(sys.argv[3], "user", f"Message {number}.", event_id=number)
    elif word == "commit":
        client.commit(sys.argv[3], event_id=f"commit {number}")
    elif not client.flush(600):
        print(client.report(sys.argv[3]).problem, flush=True)
        continue
    print("done", flush=True)
"""


class KillableClient:
    """Holdfast's client in a process of its own. What it did not confirm is said again to the next
    one, with the same event id, as a caller would.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._child: subprocess.Popen[str] | None = None

    def say(self, line: str) -> None:
        for _ in range(20):
            child = self._running()
            assert child.stdin is not None and child.stdout is not None
            try:
                child.stdin.write(line + "\n")
                child.stdin.flush()
                answer = child.stdout.readline().strip()
            except BrokenPipeError:
                answer = ""
            if answer == "done":
                return
            if answer:
                raise TimeoutError(f"{line}: {answer}")
        raise RuntimeError(f"the client ends whenever it is told to {line}")

    def kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    def _running(self) -> "subprocess.Popen[str]":
        if self._child is None or self._child.poll() is not None:
            setting = self._setting
            self._child = subprocess.Popen(
                [sys.executable, "-c", SPOKEN_TO, setting.gateway.url]
                + [str(setting.folder), setting.id],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                text=True,
            )
        return self._child


class Gateway:
    """Stands before the server, and loses answers when told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lose: list[tuple[int, Callable[[], Any]]] = []
        self._seen = threading.Condition()
        self._paths: list[str] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                gateway._pass(self)

            do_POST = do_GET

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def lose_next(self, then: Callable[[], Any] = lambda: None, skip: int = 0) -> None:
        """Has the answer to the next write lost; `then` is called when it was done. `skip`: after so
        many others.
        """
        self._lose.append((skip, then))

    def wait_for(self, end: str) -> None:
        """Waits until a request to such a path has come."""
        with self._seen:
            self._seen.wait_for(lambda: any(path.endswith(end) for path in self._paths), LIMIT_S)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _pass(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("content-length") or 0)
        body = request.rfile.read(length) if length else None
        with self._seen:
            self._paths.append(request.path)
            self._seen.notify_all()
        lost = self._take() if request.command == "POST" else None
        try:
            status, content = self._forward(request, body)
        except (OSError, http.client.HTTPException):
            # The server is dead: so is the connection to it, and the client sees that.
            request.close_connection = True
            return
        if lost is not None:
            lost()
            request.close_connection = True
            return
        with contextlib.suppress(ConnectionError):  # the client was killed
            request.send_response(status)
            request.send_header("content-type", "application/json")
            request.send_header("content-length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes | None) -> tuple[int, bytes]:
        # One connection to the server for each of the client's: when the server dies, it is told.
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT_S)
        headers = {"content-type": "application/json"}
        connection.request(request.command, request.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    def _take(self) -> Callable[[], Any] | None:
        if not self._lose:
            return None
        skip, then = self._lose[0]
        if skip:
            self._lose[0] = (skip - 1, then)
            return None
        del self._lose[0]
        return then


def _texts(file: Path) -> list[str]:
    if not file.exists():
        return []
    found = []
    for line in file.read_text().split("\n"):
        if line:
            message = json.loads(line)
            found.append("".join(part.get("text", "") for part in message["parts"]))
    return found


def _ask(url: str, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, method=method)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.load(answer)["result"]
