"""OpenViking 0.5.2: its own server, and `holdfast serve-openviking` in its place, under the same
faults.

All rows go through OpenViking's own Python client, which runs unchanged in OpenViking's
environment. Without Holdfast it speaks with OpenViking's server, with Holdfast with ours. Servers
are really killed. What is stored is told by OpenViking's files, and by our endpoints.
"""

import atexit
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from torture.live import openviking_client  # noqa: E402
from torture.live.table import Outcome, Row  # noqa: E402
from torture.systems.openviking import INSTALL, SESSIONS, Model, Server  # noqa: E402

__all__ = ["INSTALL", "prepare", "rows", "soak"]
DRIVER = Path(__file__).with_name("openviking_driver.py")
LIMIT_S = 60.0
FRAME = 24 + 4096
"""A frame of SQLite's log: its head, and a page."""


def prepare(environment: Path) -> None:
    """Everything comes from pip."""


def rows(environment: Path) -> list[Row]:
    """The rows of the server, then those of the client."""
    shared = Servers(environment)
    plays: dict[str, Callable[[Setting], Outcome]] = {
        "server: the clear of a commit is lost (#1487, #2604)": _lost_clear,
        "server: kill -9 between archive and clear": _killed_in_commit,
        "server: two commits at once": _two_commits,
        "server: a commit while messages arrive": _commit_and_messages,
        "server: an add is sent again": _retried_add,
        "server: kill -9 while messages are added": _killed_while_adding,
        "server: the extraction of a commit fails": _failed_extraction,
    }

    def row(name: str, play: Callable[["Setting"], Outcome]) -> Row:
        def played(folder: Path, served: bool) -> Outcome:
            with Setting(shared, served) as setting:
                return play(setting)

        return Row(name, played)

    def after(other: Row) -> Row:
        def played(folder: Path, served: bool) -> Outcome:
            shared.stop()  # one server of OpenViking's at a time: each takes a core
            return other.play(folder, served)

        return Row(other.name, played, other.curable)

    own = [row(name, play) for name, play in plays.items()]
    return own + [after(other) for other in openviking_client.rows(environment)]


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
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": SOURCE}
        )
        assert self._process.stdout is not None
        self.url = json.loads(self._process.stdout.readline())["address"]
        # The same one after a restart, as clients expect it.
        self._port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def is_gone(self) -> bool:
        return self._process.poll() is not None


SOURCE = str(ROOT / "src")


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


def _lost_clear(setting: Setting) -> Outcome:
    """The commit is answered, and its last writes are not on the disk.

    OpenViking: the archive is there, the live file is the old one. Ours has one write: with each
    beginning of SQLite's log that the commit has added to, every message is there once.
    """
    for _ in range(4):
        setting.say()
    if not setting.served:
        before = (setting.files() / "messages.jsonl").read_bytes()
        setting.finished(setting.commit())
        setting.restart(lambda: (setting.files() / "messages.jsonl").write_bytes(before))
        setting.say()
        setting.finished(setting.commit())
        return setting.outcome()
    log = Path(f"{setting.server.store}-wal")
    size = log.stat().st_size
    setting.finished(setting.commit())
    setting.server.kill()
    kept = setting.server.store.with_suffix(".kept")
    _copy(setting.server.store, kept)
    cuts = range(size, log.stat().st_size + 1, FRAME)
    wrong = ""
    for cut in cuts:
        _copy(kept, setting.server.store)
        os.truncate(log, cut)
        setting.server.start()
        outcome = setting.outcome()
        setting.server.kill()
        wrong = wrong or outcome.why
    _copy(kept, setting.server.store)
    setting.server.start()
    setting.say()
    setting.finished(setting.commit())
    if len(cuts) < 2:
        wrong = "the commit has added nothing to the log"
    return setting.outcome(wrong)


def _copy(store: Path, to: Path) -> None:
    for end in ("", "-wal"):
        source = Path(f"{store}{end}")
        if source.exists():
            shutil.copyfile(source, f"{to}{end}")
    # Shared memory is derived from the log: an old one must not be taken for the new log's.
    Path(f"{to}-shm").unlink(missing_ok=True)


def _killed_in_commit(setting: Setting) -> Outcome:
    """OpenViking is killed when the archive is seen on the disk, ours at a random moment of the
    commit; then it goes on with a message and a commit.
    """
    rounds = 1
    dice = random.Random(5)
    if setting.served:
        rounds = 5
    for number in range(rounds):
        _fill(setting, number)
        driver = setting.another()
        commit = threading.Thread(target=_try_to_commit, args=(setting, driver))
        commit.start()
        if setting.served:
            time.sleep(dice.uniform(0, 0.02))
        else:
            file = setting.files() / "history" / "archive_001" / "messages.jsonl"
            until = time.monotonic() + LIMIT_S
            while not file.exists() and time.monotonic() < until:
                pass
        setting.server.kill()
        commit.join()
        setting.server.start()
    setting.say()
    setting.finished(setting.commit())
    return setting.outcome()


def _fill(setting: Setting, round: int) -> None:
    """Enough for a commit to take a while."""
    batch = []
    for number in range(100):
        batch.append(f"Round {round}, message {number}. {'Water the trees. ' * 100}")
    messages = [{"role": "user", "content": text} for text in batch]
    setting.client.call("batch_add_messages", setting.id, messages)
    setting.said += batch


def _try_to_commit(setting: Setting, driver: Driver) -> None:
    with suppress(ClientError):  # its server is killed
        setting.commit(driver)


def _two_commits(setting: Setting) -> Outcome:
    for _ in range(6):
        setting.say()
    drivers = [setting.client, setting.another()]
    drivers[1].call("get_session", setting.id)
    commits: list[Any] = []
    threads = []
    for driver in drivers:
        commit = threading.Thread(target=lambda each=driver: commits.append(setting.commit(each)))
        threads.append(commit)
        commit.start()
    for thread in threads:
        thread.join()
    states = sorted(setting.finished(each) for each in commits)
    why = "" if states == ["completed", "none"] else f"they ended as {states}"
    return setting.outcome(why)


def _commit_and_messages(setting: Setting) -> Outcome:
    setting.say()
    driver = setting.another()
    over = threading.Event()

    def commit() -> None:
        while not over.is_set():
            setting.commit(driver, keep=1)

    committer = threading.Thread(target=commit)
    committer.start()
    for _ in range(30):
        setting.say()
    over.set()
    committer.join()
    setting.finished(setting.commit())
    return setting.outcome()


def _retried_add(setting: Setting) -> Outcome:
    """The answer to an add was lost, and the client sends it again, as it was."""
    setting.say()
    messages = []
    for number in (2, 3):
        message = {"role": "user", "content": f"Message {number}.", "turn_id": "t1"}
        messages.append({**message, "source_message_ids": [f"m{number}"]})
        setting.said.append(f"Message {number}.")
    for _ in range(2):
        setting.client.call("batch_add_messages", setting.id, messages)
    setting.finished(setting.commit())
    setting.client.call("batch_add_messages", setting.id, messages)
    return setting.outcome()


def _killed_while_adding(setting: Setting) -> Outcome:
    """OpenViking is killed in the moment in which its file is empty, ours at random."""
    for _ in range(5):
        setting.say()
    dice = random.Random(3)
    for _ in range(5 if setting.served else 1):
        over = threading.Event()
        speaker = threading.Thread(target=_speak, args=(setting, over))
        speaker.start()
        if setting.served:
            time.sleep(dice.uniform(0.05, 0.3))
        else:
            _wait_for_empty(setting.files() / "messages.jsonl")
        setting.server.kill()
        over.set()
        speaker.join()
        setting.server.start()
        _forget_unanswered(setting)
    return setting.outcome()


def _speak(setting: Setting, over: threading.Event) -> None:
    try:
        while not over.is_set():
            setting.say()
    except ClientError:
        pass  # its server was killed


def _forget_unanswered(setting: Setting) -> None:
    """One message was on its way and got no answer: it may be there or not."""
    live, archived = setting.stored()
    there = archived + live
    following = f"Message {len(setting.said) + 1}."
    if following in there:
        setting.said.append(following)


def _wait_for_empty(file: Path) -> None:
    until = time.monotonic() + 60
    path = str(file)
    while time.monotonic() < until:
        for _ in range(1000):
            if os.stat(path).st_size == 0:
                return


def _failed_extraction(setting: Setting) -> Outcome:
    """The model fails: what was archived has to stay in what a model is shown."""
    for _ in range(4):
        setting.say()
    setting.servers.model.fails = True
    commit = setting.commit()
    setting.finished(commit)
    setting.say()
    shown = setting.context()
    why = "" if shown == setting.said else f"{len(shown)} of 5 messages are shown"
    setting.servers.model.fails = False
    if setting.served and not why:
        until = time.monotonic() + LIMIT_S
        while setting.client.call("get_task", commit["task_id"])["status"] != "completed":
            if time.monotonic() > until:
                why = "it is not tried again"
                break
            time.sleep(0.5)
    outcome = setting.outcome(why)
    return Outcome(f"{len(shown)} of 5 in the context", outcome.stored, None, not why, why)


def soak(environment: Path, messages: int) -> Iterator[str]:
    """So many messages through OpenViking's client into our server, with commits, failing
    extractions and random kills of the server; then as many through our client into OpenViking's.
    """
    yield from _soak_server(environment, messages)
    yield from openviking_client.soak(environment, messages)


def _soak_server(environment: Path, messages: int) -> Iterator[str]:
    dice = random.Random(messages)
    servers = Servers(environment)
    servers.model.fail_rate = 0.3
    kills = 0
    with Setting(servers, served=True) as setting:
        for number in range(messages):
            text = f"Message {number}."
            message = {"role": "user", "content": text, "source_message_ids": [str(number)]}
            if dice.random() < 0.06:
                kills += 1
                threading.Timer(dice.uniform(0, 0.01), setting.server.kill).start()
            _insist(setting, lambda body=message: _add(setting, body))
            setting.said.append(text)
            if dice.random() < 0.05:
                keep = dice.choice([0, 0, 3])
                _insist(setting, lambda count=keep: setting.commit(keep=count))
            if number % 100 == 99:
                print(f"{number + 1} messages, {kills} kills", file=sys.stderr, flush=True)
        servers.model.fail_rate = 0.0
        setting.finished(_insist(setting, setting.commit))
        live, archived = setting.stored()
        there = archived + live
        for text in setting.said:
            if there.count(text) != 1:
                yield f"{text} is there {there.count(text)} times"
        if there != setting.said:
            yield "messages are out of order, or one is there that nobody sent"
        print(f"our server: {messages} messages, {kills} kills", file=sys.stderr, flush=True)
    servers.stop()


def _add(setting: Setting, message: dict[str, Any]) -> None:
    setting.client.call("batch_add_messages", setting.id, [message])


def _insist(setting: Setting, work: Callable[[], Any]) -> Any:
    """Until it is answered; a server that is gone is started again."""
    for _ in range(20):
        try:
            return work()
        except ClientError:
            if setting.server.is_gone():
                setting.server.start()
    raise RuntimeError("no answer after 20 tries")
