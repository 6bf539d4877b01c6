"""Codex 0.166.0: what it made itself is healthy where it should be, and the context that Holdfast
makes of it is what Codex itself sends next.

A scripted model on loopback answers it. Each row is something that Codex did: turns, calls side by
side, forks, compactions, turns rolled back, large outputs, interrupts, kills, errors. Then it is
resumed with one more prompt, and the request that it sends is laid beside the context of the
imported rollouts: the same items, but for the instructions that come first.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from torture.systems.judging import NEXT, Trouble, counted, ended, judged, until  # noqa: E402
from torture.systems.npm import npm_folder  # noqa: E402
from torture.systems.program import Program  # noqa: E402
from torture.systems.scripted import Scripted, do  # noqa: E402

INSTALL: list[str] = []
BASE = "You are a coding agent running in the Codex CLI"
SUMMARY = "Another language model started to solve this problem"
PACKAGE = "@openai/codex@0.166.0"
CONFIG = """\
model = "{model}"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
supports_websockets = false
request_max_retries = 1
stream_max_retries = 1
[analytics]
enabled = false
"""


def run(environment: Path) -> tuple[int, int, list[str]]:
    """How many rows were right, of how many, and what was wrong with the others."""
    program = npm_folder(environment, PACKAGE) / ".bin" / "codex"
    rows = {}
    for name in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder, Scripted() as model:
            rows[name] = judged(Codex(program, Path(folder), model), SCENARIOS[name], plain)
    return counted(rows)


def plain(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items without the instructions in front; a summary as words, an unknown outcome without
    any.
    """
    first = items[0] if items else {}
    rest = items[1:] if first.get("role") in ("system", "developer") and _is_base(first) else items
    return [
        {"summary": _said(item)} if SUMMARY in _said(item) else _plain_outcome(item)
        for item in rest
    ]


def _plain_outcome(item: dict[str, Any]) -> dict[str, Any]:
    is_unknown = item.get("output") in (
        "aborted",
        "[interrupted: the outcome of this call is unknown]",
    )
    return (
        {"type": item["type"], "call_id": item["call_id"], "output": "unknown"}
        if is_unknown
        else item
    )


def _is_base(item: dict[str, Any]) -> bool:
    return BASE in json.dumps(item)


class Codex(Program):
    """Codex with a home of its own."""

    format = "openai.responses"

    def __init__(self, program: Path, folder: Path, model: Scripted) -> None:
        super().__init__(folder, model)
        self._program, self.files = str(program), self.home / ".codex" / "sessions"
        (self.home / ".codex").mkdir()
        (self.home / ".codex" / "config.toml").write_text(
            CONFIG.format(model="gpt-5", url=model.url)
        )

    def say(self, prompt: str, *more: str, session: str = "", how: str = "resume") -> str:
        """One turn; the id of the session."""
        said, complaint = ended(self._start(prompt, *more, session=session, how=how))
        return _session_in(said, complaint)

    def stop_during(
        self, prompt: str, which: signal.Signals, *, session: str, seen: Callable[[], bool]
    ) -> None:
        """One turn that gets a signal as soon as something is seen."""
        process = self._start(prompt, session=session)
        until(seen, process)
        os.killpg(process.pid, which)
        ended(process)
        self._model.go_on.set()

    def roll_back(self, session: str, turns: int) -> None:
        """Takes the last turns back, as its screen does."""
        with self.server() as server:
            server.ask("thread/resume", threadId=session)
            told = server.ask("thread/turns/list", threadId=session)["result"]["data"]
            server.ask("thread/revert", threadId=session, beforeTurnId=told[turns - 1]["id"])

    def server(self) -> "Server":
        return Server(self._process("app-server", typed=True))

    def sends_next(self, session: str) -> list[dict[str, Any]]:
        """What it sends when this session is spoken to once more, up to the new prompt."""
        for body in self.asked_next(session):
            items = body.get("input", [])
            places = [index for index, item in enumerate(items) if _said(item) == NEXT]
            if places:
                return items[: places[0]]  # type: ignore[no-any-return]
        raise Trouble("no request holds the new prompt")

    def stands(self, text: str) -> bool:
        """Whether this is written in a rollout."""
        return any(text in path.read_text() for path in self.files.glob("**/*.jsonl"))

    def _start(
        self, prompt: str, *more: str, session: str = "", how: str = "resume"
    ) -> "subprocess.Popen[str]":
        resumed = (how, session) if session else ()
        return self._process(
            "exec", *resumed, "--skip-git-repo-check", "--json", *more, "--", prompt
        )

    def _process(self, *arguments: str, typed: bool = False) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self._program, *arguments],
            stdin=subprocess.PIPE if typed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.work,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "SCRIPTED_KEY": "none",
                "LANG": "C.UTF-8",
            },
            start_new_session=True,
        )


class Server:
    """The server that Codex' screens talk to, asked one thing at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process, self._asked = process, 0

    def __enter__(self) -> "Server":
        self.ask("initialize", clientInfo={"name": "holdfast", "version": "1"})
        self._write({"method": "initialized"})
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None
        ended(self._process)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._asked += 1
        self._write({"id": self._asked, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told: dict[str, Any] = json.loads(line)
            if told.get("id") == self._asked:
                if "error" in told:
                    raise Trouble(f"{method}: {told['error']}")
                return told
        raise Trouble(f"{method}: the server is gone")

    def _write(self, value: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()


def _session_in(said: str, complaint: str) -> str:
    for line in said.splitlines():
        if "thread_id" in line:
            return str(json.loads(line)["thread_id"])
    raise Trouble(f"codex said {said[:300]!r} {complaint[:300]!r}")


def _said(item: dict[str, Any]) -> str:
    content = item.get("content") if item.get("role") == "user" else None
    return (
        content
        if isinstance(content, str)
        else "".join(part.get("text", "") for part in content or ())
    )


# What Codex does.


def shell(command: str) -> list[Any]:
    return ["exec_command", {"cmd": command}]


WAITS = shell("while [ ! -e go ]; do sleep 0.1; done; echo wet")
COMPACT = ("-c", "model_auto_compact_token_limit=100")


def _turns(codex: Codex) -> str:
    looked = {"think": "A look first.", "text": "Looking.", "tools": [shell("echo ripe")]}
    session = codex.say(f"Is the pear ripe? {do(looked, {'text': 'It is ripe.'})}")
    codex.say("And the apple?", session=session)
    return codex.say("Thanks.", session=session)


def _side_by_side(codex: Codex) -> str:
    calls = [
        shell("for i in 1 2 3; do sleep 0.2; done; echo slow"),
        shell("echo fast"),
        shell("exit 3"),
    ]
    session = codex.say(f"Look at three rows. {do({'tools': calls}, {'text': 'All three.'})}")
    return codex.say("Good.", session=session)


def _forked(codex: Codex) -> str:
    session = codex.say("Another question.", session=_turns(codex), how="fork")
    return codex.say("And more.", session=session)


def _fork_of_a_fork(codex: Codex) -> str:
    first = _turns(codex)
    second = codex.say("Another question.", session=first, how="fork")
    codex.say("The first goes on.", session=first)
    third = codex.say("A third one.", session=second, how="fork")
    codex.say("The second goes on.", session=second)
    return codex.say("And more.", session=third)


def _compacted(codex: Codex) -> str:
    session = _turns(codex)
    codex.say("Compact before this.", *COMPACT, session=session)
    return codex.say("Go on.", session=session)


def _compacted_twice(codex: Codex) -> str:
    session = _compacted(codex)
    codex.say(f"Look. {do({'tools': [shell('echo again')]}, {'text': 'Again.'})}", session=session)
    return codex.say("Compact once more.", *COMPACT, session=session)


def _compacted_in_a_turn(codex: Codex) -> str:
    steps = do({"tools": [shell("echo one")]}, {"tools": [shell("echo two")]}, {"text": "Both."})
    return codex.say(
        "Go on.", session=codex.say(f"Look twice. {steps}", *COMPACT, session=codex.say("Hello."))
    )


def _fork_of_a_compacted_one(codex: Codex) -> str:
    return codex.say(
        "And more.", session=codex.say("Another question.", session=_compacted(codex), how="fork")
    )


def _rolled_back(codex: Codex) -> str:
    session = _turns(codex)
    codex.roll_back(session, 1)
    return codex.say("Another question.", session=session)


def _rolled_back_far(codex: Codex) -> str:
    session = _turns(codex)
    codex.say("One more.", session=session)
    codex.roll_back(session, 3)
    return session


def _large_output(codex: Codex) -> str:
    session = codex.say(f"List all. {do({'tools': [shell('seq 1 30000')]}, {'text': 'Many.'})}")
    return codex.say("Thanks.", session=session)


def _patch(codex: Codex) -> str:
    patch = "*** Begin Patch\n*** Add File: list.txt\n+pears\n*** End Patch\n"
    session = codex.say(f"Write. {do({'tools': [['apply_patch', patch]]}, {'text': 'Done.'})}")
    return codex.say("Thanks.", session=session)


def _pictures(codex: Codex) -> str:
    import base64

    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    (codex.work / "pixel.png").write_bytes(base64.b64decode(pixel))
    return codex.say("What is this?", "-i", str(codex.work / "pixel.png"))


def _stopped_in_an_answer(codex: Codex, which: signal.Signals) -> str:
    session = codex.say("Hello.")
    codex.stop_during(
        f"Tell me all. {do({'hold': 'It began'})}", which, session=session, seen=codex.halfway
    )
    return session


def _stopped_in_a_tool(codex: Codex, which: signal.Signals) -> str:
    session = codex.say("Hello.")
    prompt = f"Water row one. {do({'text': 'Watering.', 'tools': [WAITS]})}"
    codex.stop_during(
        prompt, which, session=session, seen=lambda: codex.stands('"type":"function_call"')
    )
    (codex.work / "go").touch()
    return session


def _killed_in_an_answer(codex: Codex) -> str:
    return _stopped_in_an_answer(codex, signal.SIGKILL)


def _interrupted_in_an_answer(codex: Codex) -> str:
    return _stopped_in_an_answer(codex, signal.SIGINT)


def _killed_in_a_tool(codex: Codex) -> str:
    return _stopped_in_a_tool(codex, signal.SIGKILL)


def _interrupted_in_a_tool(codex: Codex) -> str:
    return _stopped_in_a_tool(codex, signal.SIGINT)


def _resumed_after_a_kill(codex: Codex) -> str:
    return codex.say("Are you there?", session=_killed_in_a_tool(codex))


def _api_error(codex: Codex) -> str:
    session = codex.say("Hello.")
    codex.say(f"Break. {do({'status': 400})}", session=session)
    return codex.say("Once more.", session=session)


def _cut(codex: Codex) -> str:
    session = codex.say("Hello.")
    codex.say(f"Tell me all. {do({'cut': 'It all began with'})}", session=session)
    return codex.say("Go on.", session=session)


def _unknown_tool(codex: Codex) -> str:
    steps = do({"tools": [["no_such_tool", {"a": 1}]]}, {"text": "There is no such tool."})
    return codex.say("Thanks.", session=codex.say(f"Try it. {steps}"))


OPEN = {"codex/tool-call-without-result"}
SCENARIOS: dict[str, tuple[Callable[[Codex], str], set[str]]] = {
    "turns with a tool": (_turns, set()),
    "calls side by side": (_side_by_side, set()),
    "fork": (_forked, set()),
    "fork of a fork": (_fork_of_a_fork, set()),
    "compaction": (_compacted, set()),
    "two compactions": (_compacted_twice, set()),
    "compaction in a turn": (_compacted_in_a_turn, set()),
    "fork of a compacted one": (_fork_of_a_compacted_one, set()),
    "one turn rolled back": (_rolled_back, set()),
    "three turns rolled back": (_rolled_back_far, set()),
    "large output": (_large_output, set()),
    "patch": (_patch, set()),
    "pictures": (_pictures, set()),
    "ctrl-c in an answer": (_interrupted_in_an_answer, set()),
    "ctrl-c in a tool": (_interrupted_in_a_tool, set()),
    "kill -9 in an answer": (_killed_in_an_answer, set()),
    "kill -9 in a tool": (_killed_in_a_tool, OPEN),
    "turn after a kill -9 in a tool": (_resumed_after_a_kill, OPEN),
    "error of the model": (_api_error, set()),
    "stream that was cut": (_cut, set()),
    "tool that is not there": (_unknown_tool, set()),
}
