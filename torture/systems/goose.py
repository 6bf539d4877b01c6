"""goose 1.52.0: what it made itself is healthy where it should be, the context that Holdfast makes
of it is what goose itself sends next, and what the doctor healed it imports and carries on.

A scripted model on loopback answers goose. Each row of the first kind is a store that goose wrote:
turns, tool calls, a compaction, an import, kills, errors. It is examined and imported, and goose is
spoken to once more; where something was found, the store is healed to goose's own form and loaded
again. Each row of the second kind is a broken store, healed with every question answered yes,
imported, and spoken to: the request that goose sends then must be valid and hold the messages that
it should, and the store must be healthy afterwards.
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

import goose_stores as stores  # noqa: E402
from holdfast.testing.providers import check  # noqa: E402
from torture.systems.goose_program import goose_command  # noqa: E402
from torture.systems.judging import NEXT, Trouble, counted, judged  # noqa: E402

INSTALL: list[str] = []
ANSWER = "Right you are."
LIMIT_S = 240
SHED, SAW, UNKNOWN = "What is in the shed?", "A saw.", "interrupted, outcome unknown"
STOPPED = "[interrupted: this turn was stopped before it was finished]"
UNANSWERED = "[interrupted: the outcome of this call is unknown]"
UNSURE = f"The tool call returned the following error: -32603: -32603: {UNKNOWN}"
TURN_CONTEXT = re.compile(r"<turn-context>.*?</turn-context>", re.DOTALL)

# What goose should send of each case after healing, before the message with the new question. It
# joins what one side says in a row, and leaves out an answer that nobody asked for.
SENT: dict[str, list[str]] = {
    "orphan_tool_request": [
        "Run the long test.",
        "Starting. shell()",
        UNSURE,
        "Never mind. What is the time?",
        "Noon.",
    ],
    "orphan_at_the_end": ["Run the long test.", "shell() shell()", UNSURE, UNSURE, STOPPED],
    "orphan_tool_response": [SHED, SAW],
    "result_before_call": [SHED, "shell()", "saw", SAW],
    "duplicate_tool_result": [SHED, "shell() shell()", "saw", "saw", SAW],
    "duplicate_rows": ["How many pear trees?", "I will look. shell()", "41", "There are 41."],
    "token_split_rows": ["Say hello to the bees.", "Hello bees, bye bye."],
    "lost_turn": ["Mow rows 1 to 3, then report.", STOPPED, "Are you done?", "I have not started."],
    "cut_stream": [
        *("How many pear trees?", "I will look. shell()", "41", "There are 41.", "Tell me more."),
        "The pear is a[interrupted: the answer above was cut off and is not complete]",
    ],
    "unanswered_prompt": [
        "Mow row 4.",
        STOPPED,
        "Are you there?",
        "I am.",
        "Then mow row 5.",
        STOPPED,
    ],
    "unfinished_turn": [SHED, "shell()", "saw", STOPPED],
    "merged_users": ["How many pear trees? And apple trees?", "41 and 12."],
    "metadata_clobbered": [f"{SHED} A call listed the shed: a saw.", SAW],
    "summary_deleted": [SHED, "shell()", "saw", SAW],
    "compacted_without_summary": ["Note 0.", "Noted.", "Note 1.", "Noted.", "Note 2.", "Noted."],
    "metadata_unreadable": ["Hello.", "Hello.Understood."],
    "metadata_missing": ["Hello.", "Hello.Understood."],
    "unknown_content_type": [SHED, SAW],
    "content_not_json": [],
    "millisecond_timestamps": ["Old question.", "Old answer.", "New question.", "New answer."],
    "duplicate_thinking": [SHED, "I will look. shell()", "saw", SAW],
    "odd_role": ["Hello.", "Hello."],
    "empty_row": ["Hello.", "Hello."],
    "stranded_messages": [
        "One more thing: use metric units. How tall is the ladder?",
        "About 2.4 m.",
    ],
    "thread_tables_present": ["Are there bees?", "There are."],
    "rewritten_history": [
        "One more thing: use metric units. How tall is the ladder?",
        "About 2.4 m.",
    ],
    "unreadable_record": [],
}


def run(environment: Path) -> tuple[int, int, list[str]]:
    """How many rows were right, of how many, and what was wrong with the others."""
    command = goose_command(environment)
    tasks: dict[str, Callable[[Goose], list[str]]] = {
        name: partial(_own, name=name) for name in SCENARIOS
    }
    tasks["import of an export"] = _export_and_import
    tasks |= {case.__name__: partial(_healed, case=case) for case in stores.DAMAGED}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        homes = {name: Path(folder) / name.replace(" ", "-") for name in tasks}
        under_way = {
            name: pool.submit(_row, command, homes[name], task) for name, task in tasks.items()
        }
        rows = {name: row.result() for name, row in under_way.items()}
    return counted(rows)


def _row(command: list[str], home: Path, task: Callable[["Goose"], list[str]]) -> list[str]:
    with Model() as model:
        return task(Goose(command, home, model))


# Stores that goose makes.


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without the system's. Between words of one side that follow each other goose puts
    one line break, Holdfast two. A call whose outcome is unknown goose leaves out; Holdfast tells
    the model that it is unknown.
    """
    unknown = {
        each.get("tool_call_id")
        for each in messages
        if str(each.get("content")).startswith(UNANSWERED)
    }
    told = []
    for message in messages:
        if message["role"] == "system" or message.get("tool_call_id", "") in unknown:
            continue
        words = message.get("content")
        kept = {
            **message,
            "content": re.sub(r"\n+", "\n", words) if isinstance(words, str) else words,
        }
        calls = [call for call in message.get("tool_calls") or () if call["id"] not in unknown]
        kept.pop("tool_calls", None)
        told.append(kept | ({"tool_calls": calls} if calls else {}))
    return told


def _own(goose: "Goose", name: str) -> list[str]:
    problems = judged(goose, SCENARIOS[name], plain)
    return problems or (_loaded_again(goose) if SCENARIOS[name][1] else [])


def _loaded_again(goose: "Goose") -> list[str]:
    """What it left, healed to its own form and loaded by a goose that has never met it."""
    out = goose.home / "healed"
    _doctor(goose.files, "--heal", str(out), "--as", "goose-json", "--accept", "goose/*", "--json")
    files = sorted(out.iterdir()) if out.is_dir() else [out]
    another = Goose(goose.command, goose.home / "another", goose.model)
    return [f"loaded again: {problem}" for problem in _carried_on(another, files[-1], None)]


def _turns(goose: "Goose") -> str:
    goose.do("run", "-t", "Hello there.", "--name", "own")
    goose.do(
        "run", "-t", "Use the TOOL.", "--name", "own", "--resume", "--with-builtin", "developer"
    )
    return goose.session()


def _compaction(goose: "Goose") -> str:
    goose.do("run", "-t", "Hello there.", "--name", "own")
    goose.do("run", "-t", "/compact", "--name", "own", "--resume")
    goose.do("run", "-t", "And now?", "--name", "own", "--resume")
    return goose.session()


def _killed_in_a_tool(goose: "Goose") -> str:
    """goose's newer loop stores the call before the tool runs; a kill leaves it without a
    result.
    """
    arguments = ("run", "-t", "Use the SLOW one.", "--name", "own", "--with-builtin", "developer")
    return goose.kill_during(
        *arguments, loop="1", seen=lambda: _wait((goose.home / "begun").exists)
    )


def _killed_in_an_answer(goose: "Goose", loop: str = "") -> str:
    """The prompt is stored, and nothing of the answer."""
    goose.do("run", "-t", "Hello there.", "--name", "own")
    arguments = (
        "run",
        "-t",
        "HOLD it.",
        "--name",
        "own",
        "--resume",
        "--with-builtin",
        "developer",
    )
    return goose.kill_during(*arguments, loop=loop, seen=lambda: goose.model.halfway.wait(LIMIT_S))


def _killed_in_the_newer_loop(goose: "Goose") -> str:
    return _killed_in_an_answer(goose, loop="1")


def _killed_in_the_first_answer(goose: "Goose") -> str:
    arguments = ("run", "-t", "HOLD it.", "--name", "own", "--with-builtin", "developer")
    return goose.kill_during(*arguments, seen=lambda: goose.model.halfway.wait(LIMIT_S))


def _turn_after_a_kill(goose: "Goose") -> str:
    session = _killed_in_an_answer(goose)
    goose.do("run", "-t", "Are you there?", "--name", "own", "--resume")
    return session


def _error_of_the_model(goose: "Goose") -> str:
    goose.do("run", "-t", "BREAK it.", "--name", "own", "--with-builtin", "developer")
    return goose.session()


def _cut(goose: "Goose") -> str:
    goose.do("run", "-t", "Hello there.", "--name", "another")
    goose.do("run", "-t", "CUT it.", "--name", "own", "--with-builtin", "developer")
    return goose.session()


UNANSWERED_PROMPT = {"goose/unanswered-prompt"}
SCENARIOS: dict[str, tuple[Callable[["Goose"], str], set[str]]] = {
    "turns with a tool": (_turns, set()),
    "compaction": (_compaction, set()),
    "kill -9 in a tool": (_killed_in_a_tool, {"goose/orphan-tool-request"}),
    "kill -9 in an answer": (_killed_in_an_answer, UNANSWERED_PROMPT),
    "kill -9 in an answer of the newer loop": (_killed_in_the_newer_loop, UNANSWERED_PROMPT),
    "kill -9 in the first answer": (_killed_in_the_first_answer, UNANSWERED_PROMPT),
    "turn after a kill -9": (_turn_after_a_kill, UNANSWERED_PROMPT),
    "error of the model": (_error_of_the_model, UNANSWERED_PROMPT),
    "stream that was cut": (_cut, {"goose/cut-stream"}),
}


def _export_and_import(goose: "Goose") -> list[str]:
    goose.do("run", "-t", "Use the TOOL.", "--name", "own", "--with-builtin", "developer")
    exported = goose.home / "export.json"
    goose.do("session", "export", "--name", "own", "--format", "json", "-o", str(exported))
    goose.do("session", "import", str(exported))
    return [*_silent(goose), *(f"the export: {rule}" for rule in _findings(exported))]


# Stores that were broken.


def _healed(goose: "Goose", case: Callable[[stores.GooseStore], None]) -> list[str]:
    broken = stores.built(goose.home / "broken.db", case)
    out = goose.home / "healed"
    _doctor(broken, "--heal", str(out), "--as", "goose-json", "--accept", "goose/*", "--json")
    files = sorted(out.iterdir()) if out.is_dir() else [out]
    return _carried_on(goose, files[-1], SENT[case.__name__])


def _carried_on(goose: "Goose", file: Path, expected: list[str] | None) -> list[str]:
    """Imports a healed session and says something in it; what is not right with what goose then
    does. Without anything that is expected, the request need only be valid.
    """
    said = goose.do("session", "import", str(file))
    session = next(
        (line.split()[0] for line in said.splitlines() if " - " in line and line[:8].isdigit()),
        None,
    )
    if session is None:
        return [f"it was not imported: {said[-300:]}"]
    try:
        spoken = goose.asked_next(session)
    except Trouble as trouble:
        return [str(trouble)]
    problems = [f"the request: {problem}" for problem in check("openai.chat", spoken)]
    sent = [_words(message) for message in spoken if message["role"] != "system"][:-1]
    if expected is not None and sent != expected:
        problems.append(f"it sent {sent}, not {expected}")
    return [*problems, *_silent(goose)]


def _words(message: dict[str, Any]) -> str:
    content = message.get("content")
    words = (
        content
        if isinstance(content, str)
        else "".join(part.get("text", "") for part in content or ())
    )
    calls = [f"{call['function']['name']}()" for call in message.get("tool_calls") or ()]
    return " ".join([*TURN_CONTEXT.sub("", words).split(), *calls])


def _silent(goose: "Goose") -> list[str]:
    return [f"its store: {rule}" for rule in sorted(_findings(goose.files))]


def _findings(path: Path) -> set[str]:
    (store,) = json.loads(_doctor(path, "--json"))["stores"]
    return (
        {f"{finding['rule']}: {finding['measured']}" for finding in store["findings"]}
        if store["messages"]
        else {"nothing is stored"}
    )


def _doctor(path: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "holdfast.cli.main", "doctor", str(path), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def _wait(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.1)
    return False


class Goose:
    """goose with a home of its own."""

    format = "openai.chat"

    def __init__(self, command: list[str], home: Path, model: "Model") -> None:
        home.mkdir()
        self.command, self.home, self.model = command, home, model
        self.folder = home
        self.files = home / "root" / "data" / "sessions" / "sessions.db"

    def session(self) -> str:
        """The id of its session that is called `own`."""
        with closing(sqlite3.connect(f"file:{self.files}?mode=ro", uri=True)) as store:
            [(id,)] = store.execute("SELECT id FROM sessions WHERE name = 'own'")
        return str(id)

    def kill_during(self, *arguments: str, seen: Callable[[], bool], loop: str = "") -> str:
        """Kills it as soon as something is seen; the session."""
        process = self.start(*arguments, loop=loop)
        reached = seen()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.model.go_on.set()
        if not reached:
            raise Trouble("it did not come to where it was to be killed")
        return self.session()

    def sends_next(self, session: str) -> list[dict[str, Any]]:
        """What it sends when this session is spoken to once more, up to the new prompt."""
        *sent, last = self.asked_next(session)
        before = last["content"].rpartition(NEXT)[0].rstrip("\n")
        return [*sent, {**last, "content": before}] if before else sent

    def asked_next(self, session: str) -> list[dict[str, Any]]:
        """The messages of the request that it sends when this session is spoken to once more."""
        self.model.requests.clear()
        self.do("run", "-t", NEXT, "--resume", "--session-id", session)
        # It asks for a name for the session too, in a few words: the longest request is the one
        # that carries on.
        asked = [
            sent["messages"]
            for sent in self.model.requests
            if NEXT in json.dumps(sent["messages"][-2:])
        ]
        if not asked:
            raise Trouble("it asked nothing of the model")
        return max(asked, key=len)  # type: ignore[no-any-return]

    def do(self, *arguments: str) -> str:
        """Calls goose; what it says."""
        process = self.start(*arguments)
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
        return said

    def start(self, *arguments: str, loop: str = "") -> "subprocess.Popen[str]":
        settings = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "NO_COLOR": "1",
            "GOOSE_PATH_ROOT": str(self.home / "root"),
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "pear",
            "OPENAI_HOST": self.model.url,
            "OPENAI_API_KEY": "none",
            "GOOSE_MODE": "auto",
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_TELEMETRY_ENABLED": "false",
        }
        if loop:
            settings["GOOSE_STATE_MACHINE"] = loop
        return subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.home,
            env=settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


class Model:
    """A model on loopback that speaks Chat Completions: it calls a tool when it is asked
    for one.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.halfway, self.go_on = threading.Event(), threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.model = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Model":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The deltas of the reply to a request."""
        self.requests.append(request)
        last = request["messages"][-1]
        names = [tool["function"]["name"] for tool in request.get("tools") or ()]
        shell = next((name for name in names if "shell" in name), None)
        commands = {"TOOL": "echo saw", "SLOW": "touch begun; sleep 60"}
        asked = json.dumps(last["content"]) if last["role"] == "user" else ""
        wanted = [command for word, command in commands.items() if word in asked]
        if not shell or not wanted:
            return [{"role": "assistant", "content": ANSWER[:5]}, {"content": ANSWER[5:]}]
        function = {"name": shell, "arguments": json.dumps({"command": wanted[0]})}
        call = {
            "index": 0,
            "id": f"call_{len(self.requests)}",
            "type": "function",
            "function": function,
        }
        return [{"role": "assistant", "content": "I will look."}, {"tool_calls": [call]}]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send(
            "application/json", json.dumps({"object": "list", "data": [{"id": "pear"}]}).encode()
        )

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model: Model = self.server.model  # type: ignore[attr-defined]
        deltas = model.answer(request)
        asked = str(request["messages"][-1].get("content")) if request.get("tools") else ""
        if "BREAK" in asked:
            self.send_error(400, "it is broken")
            return
        head = {"id": f"chatcmpl-{len(model.requests)}-{time.time_ns()}", "model": "pear"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if not request.get("stream"):
            message = {"role": "assistant", "content": ANSWER}
            whole = {
                **head,
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": usage,
            }
            self._send("application/json", json.dumps(whole).encode())
            return
        finish = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
        ends: list[dict[str, Any]] = [{"index": 0, "delta": {}, "finish_reason": finish}]
        chunks = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            for delta in deltas
        ]
        chunks += [{**head, "choices": ends}, {**head, "choices": [], "usage": usage}]
        events = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
        holds = "HOLD" in asked and not model.halfway.is_set()
        if holds or "CUT" in asked:
            self._half(model, events[0], holds=holds)
            return
        self._send("text/event-stream", "".join(f"data: {event}\n\n" for event in events).encode())

    def _half(self, model: Model, event: str, *, holds: bool) -> None:
        """The beginning of a stream, and then silence, or the end of the connection."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"data: {event}\n\n".encode())
        self.wfile.flush()
        model.halfway.set()
        if holds:
            model.go_on.wait(LIMIT_S)

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the table is all that is printed."""
