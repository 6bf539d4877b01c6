"""OpenViking 0.5.2 over HTTP: what it made itself is healthy, the context that Holdfast makes of it
is the one that it gives itself, and what the doctor healed it loads and carries on.

The program is AGPL: it runs as a server of its own, from an environment of its own, and nothing of
it is imported. A scripted model on loopback answers it. Each row of the first kind is a session
that the server made; each of the second is a broken directory, healed, laid into the server's
workspace, read back with the messages that should be live, spoken to, committed, and examined
again. Between the two, the server is killed while it writes.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

import openviking_stores as stores  # noqa: E402
from torture.systems.judging import differences, imported  # noqa: E402

RELEASE = "0.5.2"
INSTALL = [f"openviking=={RELEASE}"]
SESSIONS = Path("viking/default/user/default/sessions")
OVERVIEW = (
    "# Working Memory\n\n## Session Title\nOrchard notes\n\n## Current State\nAll rows are "
    "watered.\n"
)
NO_MEMORIES = "sdk.commit()"
DEADLINE_S = 180

# What OpenViking should show as messages of each case after healing, with every question answered
# yes.
LIVE = {
    stores.lost_clear: (),
    stores.lost_clear_counter_in_step: (5,),
    stores.lost_clear_counter_behind: (),
    stores.append_crash_meta_behind: (1, 2, 3, 4, 5),
    stores.wiped_live: (),
    stores.wiped_live_counter_reset: (5,),
    stores.torn_tail: (1, 2, 3),
    stores.torn_tail_of_an_append: (1, 2, 3, 4),
    stores.torn_tail_of_archive: (5, 6),
    stores.torn_meta: (1, 2, 3, 4),
    stores.torn_meta_of_archive: (1, 3),
    stores.torn_done: (5, 6),
    stores.prepared_only: (1, 2, 3, 4),
    stores.prepared_only_in_the_middle: (3, 4, 5, 6),
    stores.failed_hides_messages: (1, 2, 3, 4, 5),
    stores.failed_hides_messages_in_the_middle: (3, 4, 7),
    stores.pending_forever: (1, 2, 3, 4, 5),
    stores.pending_forever_counter_old: (1, 2, 3, 4),
    stores.pending_forever_twice: (1, 2, 3, 4, 5, 6),
    stores.done_without_overview: (1, 2, 3, 4, 5, 6),
    stores.done_without_messages: (5, 6),
    stores.duplicate_ids: (1, 2, 3, 4),
    stores.replayed_batch: (1, 2, 3, 4, 5),
    stores.tool_never_finished: (1, 2, 3),
    stores.tool_result_missing: (1, 2, 3),
    stores.archive_gap: (),
    stores.stale_locks: (1, 2, 3, 4),
    stores.torn_lock: (1, 2, 3, 4),
    stores.unreadable_record: (1, 3, 4),
}


def run(environment: Path) -> tuple[int, int, list[str]]:
    """How many rows were right, of how many, and what was wrong with the others."""
    with tempfile.TemporaryDirectory() as folder, Model() as model:
        problems = _own_sessions(environment, Path(folder, "own"), model)
        problems += _killed(environment, Path(folder), model)
        problems += _healed(environment, Path(folder), model)
        problems += [("the model", problem) for problem in model.problems]
    rows = len(OWN) + len(KILLED) + len(LIVE) + 1
    wrong = {row for row, _ in problems}
    return rows - len(wrong), rows, [f"{row}: {problem}" for row, problem in problems]


# Sessions that the server makes.


def _live(server: "Server", id: str) -> None:
    for number in range(1, 6):
        server.say(id, number)


def _tools(server: "Server", id: str) -> None:
    part = {
        "type": "tool",
        "tool_id": "c1",
        "tool_name": "shell",
        "tool_status": "completed",
        "tool_input": {"a": 1},
    }
    server.post(f"/{id}/messages", {"role": "user", "content": "Measure."})
    server.post(
        f"/{id}/messages", {"role": "assistant", "parts": [{**part, "tool_output": "31 %"}]}
    )
    server.say(id, 3)


def _large_output(server: "Server", id: str) -> None:
    part = {
        "type": "tool",
        "tool_id": "c2",
        "tool_name": "shell",
        "tool_status": "completed",
        "tool_input": {"a": 1},
    }
    server.post(f"/{id}/messages", {"role": "user", "content": "Measure all."})
    large = {**part, "tool_output": "a line of words\n" * 40_000}
    server.post(
        f"/{id}/messages",
        {"role": "assistant", "parts": [{"type": "text", "text": "More."}, large]},
    )
    server.say(id, 3)


def _committed(server: "Server", id: str) -> None:
    for round in range(2):
        for number in range(1, 5):
            server.say(id, number + 4 * round)
        server.commit(id, keep_recent_count=1)
    server.say(id, 9)


def _reset(server: "Server", id: str) -> None:
    server.say(id, 1)
    server.say(id, 2)
    server.commit(id, reset_context=True)
    server.say(id, 3)


def _memory_off(server: "Server", id: str) -> None:
    server.say(id, 1)
    server.say(id, 2)
    server.commit(id, enable_working_memory=False)
    server.say(id, 3)


OWN = {
    "live": _live,
    "tools": _tools,
    "large-output": _large_output,
    "committed": _committed,
    "reset": _reset,
    "memory-off": _memory_off,
}
SCENARIOS: dict[str, tuple[Any, set[str]]] = {name: (make, set()) for name, make in OWN.items()}
SUMMARY, RESET = "Summary of what was said before:\n\n", "[The context was reset here."


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as a model gets them, without ids and times: what stands for all that was archived
    is a summary. Where a context was reset, OpenViking says nothing, and Holdfast that it was.
    """
    told = [_plain_summary(message) for message in messages]
    return [message for message in told if not message.get("summary", "").startswith(RESET)]


def _plain_summary(message: dict[str, Any]) -> dict[str, Any]:
    words = "".join(part.get("text", "") for part in message["parts"])
    if words.startswith(SUMMARY):
        return {"summary": words.removeprefix(SUMMARY).strip()}
    return {"role": message["role"], "parts": message["parts"]}


def _own_sessions(environment: Path, workspace: Path, model: "Model") -> list[tuple[str, str]]:
    problems = []
    shown: dict[str, list[dict[str, Any]]] = {}
    with Server(environment, workspace, model) as server:
        for name, make in OWN.items():
            server.post("", {"session_id": name})
            make(server, name)
            shown[name] = server.context(name)
    for name, finding in _findings(workspace):
        problems.append(
            (
                f"own session {name}",
                f"a healthy session gives {finding['rule']}: {finding['measured']}",
            )
        )
    counts = {"live": 5, "tools": 3, "large-output": 3, "committed": 3, "reset": 1, "memory-off": 1}
    for name, count in counts.items():
        if len(shown[name]) != count:
            problems.append(
                (f"own session {name}", f"it shows {len(shown[name])} messages, not {count}")
            )
        mine = imported(workspace / SESSIONS, workspace.parent / "holdfast.db", name, "openviking")
        parts = differences(plain(mine), plain(shown[name]))
        problems += [(f"own session {name}", problem) for problem in parts]
    return problems


# Sessions that the server was killed over.


def _appends(server: "Server", id: str, number: int) -> None:
    server.say(id, number)


def _commits(server: "Server", id: str, number: int) -> None:
    server.say(id, number)
    if number % 5 == 0:
        server.post(f"/{id}/commit", {"enable_working_memory": True, "keep_recent_count": 2})


KILLED = {"killed-over-appends": _appends, "killed-over-commits": _commits}
ACKNOWLEDGED = 40


def _killed(environment: Path, folder: Path, model: "Model") -> list[tuple[str, str]]:
    """What was acknowledged before kill -9 is in the healed session, or the doctor says how much is
    gone.
    """
    died, healed = folder / "died", folder / "died-healed"
    said: dict[str, int] = dict.fromkeys(KILLED, 0)
    with Server(environment, died, model) as server:
        for name in KILLED:
            server.post("", {"session_id": name})
        speakers = [threading.Thread(target=_speak, args=(server, name, said)) for name in KILLED]
        for speaker in speakers:
            speaker.start()
        _until(lambda: min(said.values()) >= ACKNOWLEDGED, "messages to be acknowledged")
        server.kill()
        for speaker in speakers:
            speaker.join()
    lost = {name for name, finding in _findings(died) if finding["rule"] == "openviking/wiped-live"}
    (healed / SESSIONS).parent.mkdir(parents=True)
    _doctor(
        str(died), "--heal", str(folder / "out"), "--as", "openviking", "--accept", "openviking/*"
    )
    (folder / "out" / SESSIONS).rename(healed / SESSIONS)
    left = [
        (name, finding)
        for name, finding in _findings(healed)
        if finding["policy"] in ("auto", "mark")
    ]
    problems = [(name, f"after healing there is still {finding['rule']}") for name, finding in left]
    with Server(environment, healed, model) as server:
        for name in KILLED:
            kept = _kept(healed / SESSIONS / name)
            if kept < said[name] and name not in lost:
                problems.append(
                    (name, f"{said[name]} messages were acknowledged, {kept} are there")
                )
            server.say(name, 11)
            if not server.shown(name):
                problems.append((name, "it shows nothing after one more message"))
    return problems


def _speak(server: "Server", id: str, said: dict[str, int]) -> None:
    number = 0
    try:
        while True:
            number += 1
            KILLED[id](server, id, number)
            said[id] = number
    except (OSError, http.client.HTTPException):
        pass  # it was killed


def _kept(session: Path) -> int:
    """How many messages lie in a session's files, each counted once."""
    files = [session / "messages.jsonl", *session.glob("history/archive_*/messages.jsonl")]
    return len(
        {json.loads(line)["id"] for file in files for line in file.read_text().split("\n") if line}
    )


# Sessions that the doctor healed.


def _healed(environment: Path, folder: Path, model: "Model") -> list[tuple[str, str]]:
    broken, workspace = folder / "broken", folder / "workspace"
    for build in LIVE:
        build(broken)
    asked = {rule for rule, _ in stores.CASES if rule in _policies("ask")}
    accepts = [word for rule in sorted(asked) for word in ("--accept", rule)]
    (workspace / SESSIONS).parent.mkdir(parents=True)
    _doctor(str(broken), "--heal", str(workspace / SESSIONS), "--as", "openviking", *accepts)
    problems = []
    with Server(environment, workspace, model) as server:
        for build, live in LIVE.items():
            name = build.__name__.replace("_", "-")
            try:
                problems += [(name, problem) for problem in _carried_on(server, name, live)]
            except urllib.error.HTTPError as error:
                problems.append(
                    (name, f"{error.url} answered {error.code}: {error.read()[:300]!r}")
                )
    problems += [
        (name, f"after healing there is still {finding['rule']}: {finding['measured']}")
        for name, finding in _findings(workspace)
        if finding["policy"] in ("auto", "mark")
    ]
    return problems


def _carried_on(server: "Server", name: str, live: tuple[int, ...]) -> list[str]:
    wanted = [f"msg_{number:02d}" for number in live]
    shown = server.shown(name)
    problems = [] if shown == wanted else [f"it shows {shown}, not {wanted}"]
    server.say(name, 11)
    if server.shown(name)[: len(shown)] != shown or len(server.shown(name)) != len(shown) + 1:
        problems.append(f"after one more message it shows {server.shown(name)}")
    state = server.commit(name)
    if state != "completed":
        problems.append(f"the next commit ended as {state}")
    if server.shown(name):
        problems.append(f"after a commit it still shows {server.shown(name)}")
    return problems


def _policies(policy: str) -> set[str]:
    from holdfast.doctor.openviking.rules import RULES

    return {rule.name for rule in RULES if rule.policy == policy}


def _findings(path: Path) -> list[tuple[str, dict[str, Any]]]:
    [store] = json.loads(_doctor(str(path), "--json"))["stores"]
    return [(finding["session"], finding) for finding in store["findings"]]


def _doctor(*arguments: str) -> str:
    command = [sys.executable, "-m", "holdfast.cli.main", "doctor", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


class Server:
    """OpenViking's own server on a workspace."""

    def __init__(self, environment: Path, workspace: Path, model: "Model") -> None:
        workspace.mkdir(parents=True, exist_ok=True)
        self._home = workspace.parent
        self._port = _free_port()
        answers = {"provider": "openai", "api_base": model.url, "api_key": "k", "model": "scripted"}
        settings = {
            "storage": {"workspace": str(workspace)},
            "embedding": {"dense": {**answers, "dimension": 8}},
            "vlm": answers,
            "server": {"host": "127.0.0.1", "port": self._port},
        }
        self._config = self._home / f"{workspace.name}.conf"
        self._config.write_text(json.dumps(settings))
        self._program = environment / "bin" / "openviking-server"

    def __enter__(self) -> "Server":
        self._log = open(self._config.with_suffix(".log"), "wb")
        self._process = subprocess.Popen(
            [self._program, "--config", self._config],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HOME": str(self._home)},
        )
        _until(self._is_up, "the server to answer")
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def say(self, id: str, number: int) -> None:
        self.post(
            f"/{id}/messages",
            {"role": "user" if number % 2 else "assistant", "content": f"Message {number}."},
        )

    def shown(self, id: str) -> list[str]:
        """The ids of the messages that a model would be shown."""
        return [
            message["id"]
            for message in self._call("GET", f"/api/v1/sessions/{id}/context")["messages"]
        ]

    def context(self, id: str) -> list[dict[str, Any]]:
        """What a model would be shown: the overview of what was archived, and the messages."""
        told = self._call("GET", f"/api/v1/sessions/{id}/context")
        overview = SUMMARY + told["latest_archive_overview"]
        before = [{"role": "user", "parts": [{"type": "text", "text": overview}]}]
        return [*(before if told["latest_archive_overview"] else ()), *told["messages"]]

    def commit(self, id: str, **options: Any) -> str:
        """Commits, and waits for what follows from it."""
        task = self.post(f"/{id}/commit", {"enable_working_memory": True, **options})["task_id"]
        state = ""

        def ended() -> bool:
            nonlocal state
            state = self._call("GET", f"/api/v1/tasks/{task}")["status"]
            return state in ("completed", "failed", "cancelled")

        _until(ended, f"the commit of {id} to end")
        return state

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", f"/api/v1/sessions{path}", body)

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            log = self._config.with_suffix(".log").read_text()[-2000:]
            raise RuntimeError(f"the server ended with {self._process.returncode}: {log}")
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._port}/health", timeout=5
            ) as answer:
                return json.load(answer)["healthy"] is True
        except OSError:
            return False

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}", data, method=method
        )
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)["result"]


class Model:
    """A model that always says the same: an overview to who takes notes, nothing to who looks for
    memories.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = json.dumps(model.answer(self.path, body)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "Model":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/embeddings"):
            asked = body["input"] if isinstance(body["input"], list) else [body["input"]]
            vectors = [
                {"object": "embedding", "index": n, "embedding": [0.1] * 8}
                for n in range(len(asked))
            ]
            return {
                "object": "list",
                "model": "scripted",
                "data": vectors,
                "usage": {"prompt_tokens": 1, "total_tokens": 1},
            }
        messages = body["messages"]
        if not messages or any(
            not str(message.get("content") or "").strip() for message in messages
        ):
            self.problems.append(f"a request has blank messages: {json.dumps(messages)[:300]}")
        is_memories = any(
            "memory extraction" in str(message["content"])[:300] for message in messages
        )
        said = {"role": "assistant", "content": NO_MEMORIES if is_memories else OVERVIEW}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "finish_reason": "stop", "message": said}
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "scripted",
            "choices": [choice],
            "usage": usage,
        }


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {DEADLINE_S} s for {what}")
        time.sleep(0.1)
