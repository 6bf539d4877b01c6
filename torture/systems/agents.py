"""OpenAI Agents SDK 0.24.0: what it left in a `SQLiteSession` is healthy where it should be, and
the context that Holdfast makes of it is what the SDK itself sends next.

A scripted model on loopback answers it, once as the Responses API and once as Chat Completions.
Each row is something that a program with the SDK did: turns, calls side by side, an undo, kills,
errors. Then it is spoken to once more, and the request that it sends is laid beside the context of
the imported store.
"""

import json
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
from torture.systems.program import Program  # noqa: E402
from torture.systems.scripted import Scripted, do  # noqa: E402

INSTALL = ["openai-agents==0.24.0"]
RELEASE = "0.24.0"
SESSION = "orchard"
FORMATS = {"responses": "openai.responses", "chat": "openai.chat"}


def run(environment: Path) -> tuple[int, int, list[str]]:
    """How many rows were right, of how many, and what was wrong with the others."""
    rows = {}
    for api in FORMATS:
        for name in SCENARIOS:
            with tempfile.TemporaryDirectory() as folder, Scripted() as model:
                agent = Agents(environment, Path(folder), model, api)
                rows[f"{api}, {name}"] = judged(agent, SCENARIOS[name], plain)
    return counted(rows)


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages, or items, without the instructions of the agent, which the SDK keeps in no store.
    Of Chat Completions, prompts that follow each other are one message: the SDK sends them apart,
    and not every server takes that.
    """
    told: list[dict[str, Any]] = []
    for message in messages:
        if told and told[-1].get("role") == message.get("role") == "user" and "type" not in message:
            told[-1] = {**told[-1], "content": f"{told[-1]['content']}\n\n{message['content']}"}
        elif message.get("role") not in ("system", "developer"):
            told.append(message)
    return told


class Agents(Program):
    """A program with the SDK: a process for each turn."""

    def __init__(self, environment: Path, folder: Path, model: Scripted, api: str) -> None:
        super().__init__(folder, model)
        self._python, self._api = str(environment / "bin" / "python"), api
        self.files, self.format = self.home / "sessions.db", FORMATS[api]

    def say(self, prompt: str, *, session: str = SESSION, is_refused: bool = False) -> None:
        """One turn."""
        process = self._start(prompt)
        _, complaint = ended(process)
        if bool(process.returncode) != is_refused:
            raise Trouble(f"{prompt[:40]!r} ended with {process.returncode}: {complaint[-300:]!r}")

    def undo(self, items: int) -> None:
        """Takes the last items back."""
        ended(self._start("", undo=items))

    def kill_during(self, prompt: str, seen: Callable[[], bool]) -> None:
        """One turn that is killed as soon as something is seen."""
        process = self._start(prompt)
        until(seen, process)
        process.send_signal(signal.SIGKILL)
        ended(process)
        self._model.go_on.set()

    def sends_next(self, session: str) -> list[dict[str, Any]]:
        """What it sends when it is spoken to once more, up to the new prompt."""
        for body in self.asked_next(session):
            sent = body.get("input") or body.get("messages") or []
            if sent and sent[-1].get("content") == NEXT:
                return sent[:-1]  # type: ignore[no-any-return]
        raise Trouble("no request ends with the new prompt")

    def is_watering(self) -> bool:
        return (self.work / "watering").exists()

    def _start(self, prompt: str, undo: int = 0) -> "subprocess.Popen[str]":
        task = {"store": str(self.files), "session": SESSION, "prompt": prompt, "undo": undo}
        task |= {"url": f"{self._model.url}/v1", "api": self._api}
        driver = str(Path(__file__).with_name("agents_driver.py"))
        return subprocess.Popen(
            [self._python, "-P", driver, json.dumps(task)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.work,
        )


# What a program does.


def _turns(program: Agents) -> str:
    looked = {"text": "Looking.", "tools": [["look", {"row": 1}]]}
    program.say(f"Is row one wet? {do(looked, {'text': 'It is wet.'})}")
    program.say("And row two?")
    program.say("Thanks.")
    return SESSION


def _side_by_side(program: Agents) -> str:
    calls = [["look", {"row": number}] for number in (1, 2, 3)]
    program.say(f"Look at three rows. {do({'tools': calls}, {'text': 'All three are wet.'})}")
    program.say("Good.")
    return SESSION


def _two_rounds(program: Agents) -> str:
    one, two = ({"tools": [["look", {"row": number}]]} for number in (1, 2))
    program.say(f"Look at one, then two. {do(one, two, {'text': 'Both are wet.'})}")
    return SESSION


def _undone(program: Agents) -> str:
    _turns(program)
    program.undo(2)
    program.say("Another question.")
    return SESSION


def _killed_in_an_answer(program: Agents) -> str:
    program.say("Hello.")
    program.kill_during(f"Tell me all. {do({'hold': 'It began'})}", program.halfway)
    return SESSION


def _killed_in_a_tool(program: Agents) -> str:
    program.say("Hello.")
    steps = do({"text": "Watering.", "tools": [["look", {"row": 1}], ["water", {"row": 1}]]})
    program.kill_during(f"Water row one. {steps}", program.is_watering)
    return SESSION


def _turn_after_a_kill(program: Agents) -> str:
    _killed_in_a_tool(program)
    program.say("Are you there?")
    return SESSION


def _api_error(program: Agents) -> str:
    program.say("Hello.")
    program.say(f"Break. {do({'status': 400})}", is_refused=True)
    program.say("Once more.")
    return SESSION


SCENARIOS: dict[str, tuple[Callable[[Agents], str], set[str]]] = {
    "turns with a tool": (_turns, set()),
    "calls side by side": (_side_by_side, set()),
    "two rounds of calls": (_two_rounds, set()),
    "undo": (_undone, set()),
    "kill -9 in an answer": (_killed_in_an_answer, set()),
    "kill -9 in a tool": (_killed_in_a_tool, set()),
    "turn after a kill -9 in a tool": (_turn_after_a_kill, set()),
    "error of the model": (_api_error, set()),
}
