"""Claude Code 2.1.325: what it made itself is healthy where it should be, and the context that
Holdfast makes of it is what Claude Code itself sends next.

A scripted model on loopback answers it. Each row is something that Claude Code did: turns, calls
side by side, prompts typed while it works, rewinds and going back, forks, compactions, sub-agents,
large outputs, interrupts, kills, errors. Then it is resumed with one more prompt, and the request
that it sends is laid beside the context of the imported file: the same messages, without what
Claude Code tells the model about itself.
"""

import json
import os
import re
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
PACKAGE = "@anthropic-ai/claude-code@2.1.325"
REMINDER = re.compile(r"\A\s*<(system-reminder|task-notification)>.*</\1>\s*\Z", re.DOTALL)
UNKNOWN = ("[Tool call interrupted", "[interrupted")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
TYPED = re.compile(
    r"The user sent a new message while you were working:\n(.*?)\n\nThis is how Claude Code",
    re.DOTALL,
)
MADE = ("Continue from where you left off.", "No response requested.")
TOOLS = ("Bash", "Read", "Write", "Edit", "Agent")


def run(environment: Path) -> tuple[int, int, list[str]]:
    """How many rows were right, of how many, and what was wrong with the others."""
    program = program_in(environment)
    rows = {}
    for name in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder, Scripted() as model:
            rows[name] = judged(Claude(program, Path(folder), model), SCENARIOS[name], plain)
    return counted(rows)


def program_in(environment: Path) -> Path:
    """The program itself, which is in a package for each kind of machine."""
    return next((npm_folder(environment, PACKAGE) / "@anthropic-ai").glob("claude-code-*/claude"))


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages without what Claude Code says of itself: system messages, reminders, marks for the
    cache, the line break between joined words, the words that it puts after a prompt without an
    answer when it resumes. Words are blocks, and what one side says in a row is one message. A
    prompt that was typed while it worked is one of the user's. That the outcome of a call is
    unknown is said in words of its own.
    """
    told: list[dict[str, Any]] = []
    for message in messages:
        kept = [
            _unmarked(block) for block in _blocks(message["content"]) if not _is_reminder(block)
        ]
        role = message["role"]
        if role == "system":
            kept = [
                {"type": "text", "text": text}
                for block in kept
                for text in TYPED.findall(block["text"])
            ]
            role = "user"
        if not kept:
            continue
        if told and told[-1]["role"] == role:
            told[-1]["content"] += kept
        else:
            told.append({"role": role, "content": kept})
    if told and told[-1] == {"role": "assistant", "content": [{"type": "text", "text": MADE[1]}]}:
        told.pop()
    if told and told[-1]["content"][-1] == {"type": "text", "text": MADE[0]}:
        told[-1]["content"].pop()
    return [message for message in told if message["content"]]


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _is_reminder(block: dict[str, Any]) -> bool:
    return bool(REMINDER.match(str(block.get("text", ""))))


def _unmarked(block: dict[str, Any]) -> dict[str, Any]:
    block = {key: value for key, value in block.items() if key != "cache_control"}
    if block["type"] == "tool_result" and str(block["content"]).startswith(UNKNOWN):
        return {**block, "content": "unknown"}
    return {**block, "text": block["text"].removesuffix("\n")} if block["type"] == "text" else block


class Claude(Program):
    """Claude Code with a home of its own."""

    format = "anthropic"

    def __init__(self, program: Path, folder: Path, model: Scripted) -> None:
        super().__init__(folder, model)
        self._program, self.files = str(program), self.home / ".claude" / "projects"

    def say(self, prompt: str, *more: str, session: str = "") -> str:
        """One turn, or more of them; the id of the session."""
        resumed = ("--resume", session) if session else ()
        done = self._start("-p", prompt, "--output-format", "json", *resumed, *more)
        said, complaint = ended(done)
        try:
            return str(json.loads(said)["session_id"])
        except (ValueError, KeyError) as error:
            raise Trouble(
                f"claude -p {prompt[:40]!r} said {said[:300]!r} {complaint[:300]!r}"
            ) from error

    def stop_during(
        self, prompt: str, how: signal.Signals, *, session: str = "", seen: Callable[[], bool]
    ) -> str:
        """One turn that gets a signal as soon as something is seen."""
        before = set(self.sessions())
        resumed = ("--resume", session) if session else ()
        process = self._start("-p", prompt, "--output-format", "json", *resumed)
        until(seen, process)
        process.send_signal(how)
        ended(process)
        self._model.go_on.set()
        return session or next(iter(set(self.sessions()) - before))

    def typing(self, session: str = "") -> "Typing":
        """A session that prompts are typed into while it works."""
        forms = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
        resumed = ("--resume", session) if session else ()
        return Typing(self, self._start("-p", *forms, *resumed, typed=True))

    def sends_next(self, session: str) -> list[dict[str, Any]]:
        """What it sends when this session is spoken to once more, up to the new prompt."""
        for body in self.asked_next(session):
            messages = body.get("messages", [])
            if body.get("tools") and (sent := _before(messages)) is not None:
                return sent
        raise Trouble("no request holds the new prompt")

    def sessions(self) -> list[str]:
        return [path.stem for path in self.files.glob("*/*.jsonl")]

    def lines(self, session: str) -> list[dict[str, Any]]:
        [path] = self.files.glob(f"*/{session}.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def answers(self, session: str) -> list[str]:
        """The last line of each turn."""
        ended = [line for line in self.lines(session) if line["type"] == "assistant"]
        return [line["uuid"] for line in ended if line["message"]["stop_reason"] == "end_turn"]

    def lines_of(self, kind: str) -> int:
        """How many lines of a type there are."""
        return sum(
            line["type"] == kind for session in self.sessions() for line in self.lines(session)
        )

    def ended(self) -> int:
        """How many turns have ended."""
        return sum(len(self.answers(session)) for session in self.sessions())

    def stands(self, *texts: str) -> bool:
        """Whether one of these is written in a file of its sessions."""
        files = self.files.glob("*/*.jsonl")
        written = "".join(path.read_text() for path in files)
        return any(text in written for text in texts)

    def _start(self, *arguments: str, typed: bool = False) -> "subprocess.Popen[str]":
        own = {
            "HOME": str(self.home),
            "ANTHROPIC_BASE_URL": self._model.url,
            "ANTHROPIC_API_KEY": "none",
        }
        quiet = dict.fromkeys(
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY"), "1"
        )
        quiet |= dict.fromkeys(("DISABLE_AUTOUPDATER", "IS_SANDBOX"), "1")
        return subprocess.Popen(
            [self._program, *arguments, "--allowedTools", *TOOLS],
            stdin=subprocess.PIPE if typed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.work,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"} | own | quiet,
        )


class Typing:
    """A process of Claude Code that reads its prompts from its input."""

    def __init__(self, claude: Claude, process: "subprocess.Popen[str]") -> None:
        self._claude, self._process = claude, process

    def type(self, content: str | list[dict[str, Any]]) -> None:
        self._write({"type": "user", "message": {"role": "user", "content": content}})

    def interrupt(self) -> None:
        self._write(
            {"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}}
        )

    def until(self, seen: Callable[[], bool]) -> None:
        until(seen, self._process)

    def end(self) -> str:
        """The id of the session, once all is done."""
        told, complaint = ended(self._process)
        for line in told.splitlines():
            if "session_id" in line:
                return str(json.loads(line)["session_id"])
        raise Trouble(f"claude said {told[:300]!r} {complaint[:300]!r}")

    def _write(self, value: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()


def _before(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The messages before the new prompt, and what stands before it in its own."""
    for at in range(len(messages) - 1, -1, -1):
        blocks = _blocks(messages[at]["content"])
        places = [index for index, block in enumerate(blocks) if block.get("text") == NEXT]
        if messages[at]["role"] == "user" and places:
            return [*messages[:at], {**messages[at], "content": blocks[: places[0]]}]
    return None


# What Claude Code does.


def bash(command: str) -> list[Any]:
    return ["Bash", {"command": command, "description": "Run it"}]


def _turns(claude: Claude) -> str:
    looked = {"think": "A look first.", "text": "Looking.", "tools": [bash("echo ripe")]}
    session = claude.say(f"Is the pear ripe? {do(looked, {'text': 'It is ripe.'})}")
    claude.say("And the apple?", session=session)
    return claude.say("Thanks.", session=session)


def _side_by_side(claude: Claude) -> str:
    calls = [
        bash("for i in 1 2 3; do sleep 0.2; done; echo slow"),
        bash("echo fast"),
        bash("exit 3"),
    ]
    session = claude.say(f"Look at three rows. {do({'tools': calls}, {'text': 'All three.'})}")
    return claude.say("Good.", session=session)


WAITS = bash("while [ ! -e go ]; do sleep 0.1; done; echo wet")


def _queued(claude: Claude) -> str:
    typing = claude.typing()
    typing.type(
        "Water row one. "
        f"{do({'text': 'Watering.', 'tools': [WAITS]}, {'text': 'All rows are wet.'})}"
    )
    typing.until(lambda: claude.stands("tool_use"))
    for text in ("Row two as well.", "And row three.", "And row four."):
        typing.type(text)
    typing.until(lambda: claude.stands("And row four."))
    (claude.work / "go").touch()
    return claude.say("Thanks.", session=typing.end())


def _queued_in_an_answer(claude: Claude) -> str:
    typing = claude.typing()
    typing.type(f"Tell me about row one. {do({'hold': 'It is wet.'})}")
    typing.until(claude.halfway)
    typing.type("And row two.")
    typing.type([{"type": "text", "text": "And this one."}, PICTURE])
    typing.until(lambda: claude.lines_of("queue-operation") == 4)
    claude.go_on()
    return typing.end()


def _typed(claude: Claude, typing: "Typing", *prompts: str) -> None:
    """Turns of one process, each after the one before."""
    for prompt in prompts:
        before = claude.ended()
        typing.type(prompt)
        typing.until(lambda: claude.ended() > before)  # noqa: B023


def _rewound(claude: Claude) -> str:
    typing = claude.typing()
    _typed(claude, typing, "Is the pear ripe?", "And the apple?", "And the plum?")
    session = typing.end()
    [first, _, _] = claude.answers(session)
    return claude.say("Another question.", "--resume-session-at", first, session=session)


def _rewound_into_a_turn(claude: Claude) -> str:
    """Back to where a call was made, before its result."""
    session = _turns(claude)
    called = [
        line
        for line in claude.lines(session)
        if "toolu_" in json.dumps(line) and line["type"] == "assistant"
    ]
    return claude.say(
        "Another question.", "--resume-session-at", called[0]["uuid"], session=session
    )


def _back_again(claude: Claude) -> str:
    """A rewind in a second process, while the first goes on from where it was."""
    typing = claude.typing()
    _typed(claude, typing, "Is the pear ripe?", "And the apple?")
    [session] = claude.sessions()
    claude.say(
        "Another question.", "--resume-session-at", claude.answers(session)[0], session=session
    )
    _typed(claude, typing, "Where were we?")
    return typing.end()


def _forked(claude: Claude) -> str:
    session = claude.say("Another question.", "--fork-session", session=_turns(claude))
    return claude.say("And more.", session=session)


def _compacted(claude: Claude) -> str:
    session = _turns(claude)
    claude.say("/compact", session=session)
    return claude.say("Go on.", session=session)


def _compacted_twice(claude: Claude) -> str:
    session = _compacted(claude)
    claude.say(f"Look. {do({'tools': [bash('echo again')]}, {'text': 'Again.'})}", session=session)
    claude.say("/compact", session=session)
    return session


def _sub_agents(claude: Claude) -> str:
    task = f"Count the bees. {do({'tools': [bash('echo 12 bees')]}, {'text': 'There are 12.'})}"
    call = ["Agent", {"description": "Count", "prompt": task, "subagent_type": "general-purpose"}]
    session = claude.say(
        f"How many bees? {do({'tools': [call, call]}, {'text': 'Twelve, twice.'})}"
    )
    return claude.say("Thanks.", session=session)


def _large_output(claude: Claude) -> str:
    session = claude.say(f"List all. {do({'tools': [bash('seq 1 30000')]}, {'text': 'Many.'})}")
    return claude.say("Thanks.", session=session)


def _pictures(claude: Claude) -> str:
    typing = claude.typing()
    typing.type([{"type": "text", "text": "What is this?"}, PICTURE])
    return typing.end()


def _files(claude: Claude) -> str:
    path = str(claude.work / "list.txt")
    steps = do(
        {"tools": [["Write", {"file_path": path, "content": "pears\napples\n"}]]},
        {"tools": [["Read", {"file_path": path}]]},
        {"tools": [["Edit", {"file_path": path, "old_string": "pears", "new_string": "plums"}]]},
        {"text": "It is written."},
    )
    return claude.say("Thanks.", session=claude.say(f"Write a list. {steps}"))


def _interrupted_in_an_answer(claude: Claude) -> str:
    typing = claude.typing()
    typing.type(f"Tell me all. {do({'hold': 'It all began with'})}")
    typing.until(claude.halfway)
    typing.interrupt()
    typing.until(lambda: claude.stands("interrupted by user"))
    claude.go_on()
    typing.type("Shorter, please.")
    return typing.end()


def _interrupted_in_a_tool(claude: Claude) -> str:
    typing = claude.typing()
    typing.type(f"Water row one. {do({'text': 'Watering.', 'tools': [WAITS]})}")
    typing.until(lambda: claude.stands("tool_use"))
    typing.interrupt()
    typing.until(lambda: claude.stands("interrupted by user"))
    typing.type("Never mind.")
    return typing.end()


def _signalled(claude: Claude) -> str:
    session = claude.say("Hello.")
    claude.stop_during(
        f"Tell me all. {do({'hold': 'It began'})}",
        signal.SIGINT,
        session=session,
        seen=claude.halfway,
    )
    return session


def _killed_in_an_answer(claude: Claude) -> str:
    session = claude.say("Hello.")
    claude.stop_during(
        f"Tell me all. {do({'hold': 'It began'})}",
        signal.SIGKILL,
        session=session,
        seen=claude.halfway,
    )
    return session


def _killed_in_a_tool(claude: Claude) -> str:
    session = claude.say("Hello.")
    prompt = f"Water row one. {do({'text': 'Watering.', 'tools': [bash('echo quick'), WAITS]})}"
    claude.stop_during(
        prompt, signal.SIGKILL, session=session, seen=lambda: claude.stands('"content":"quick"')
    )
    (claude.work / "go").touch()
    return session


def _resumed_after_a_kill(claude: Claude) -> str:
    return claude.say("Are you there?", session=_killed_in_a_tool(claude))


def _api_error(claude: Claude) -> str:
    session = claude.say("Hello.")
    claude.say(f"Break. {do({'status': 400})}", session=session)
    return claude.say("Once more.", session=session)


def _cut(claude: Claude) -> str:
    session = claude.say(f"Tell me all. {do({'cut': 'It all began with'})}")
    return claude.say("Go on.", session=session)


def _unknown_tool(claude: Claude) -> str:
    steps = do({"tools": [["NoSuchTool", {"a": 1}]]}, {"text": "There is no such tool."})
    return claude.say("Thanks.", session=claude.say(f"Try it. {steps}"))


OPEN = {"claude/tool-call-without-result"}
SCENARIOS: dict[str, tuple[Callable[[Claude], str], set[str]]] = {
    "turns with a tool": (_turns, set()),
    "calls side by side": (_side_by_side, set()),
    "prompts typed while a tool runs": (_queued, set()),
    "prompts typed during an answer": (_queued_in_an_answer, set()),
    "rewind": (_rewound, set()),
    "rewind into a turn": (_rewound_into_a_turn, set()),
    "rewind and back again": (_back_again, set()),
    "fork": (_forked, set()),
    "compaction": (_compacted, set()),
    "two compactions": (_compacted_twice, set()),
    "sub-agents": (_sub_agents, set()),
    "large output": (_large_output, set()),
    "pictures": (_pictures, set()),
    "files": (_files, set()),
    "interrupt in an answer": (_interrupted_in_an_answer, set()),
    "interrupt in a tool": (_interrupted_in_a_tool, set()),
    "ctrl-c in an answer": (_signalled, set()),
    "kill -9 in an answer": (_killed_in_an_answer, set()),
    "kill -9 in a tool": (_killed_in_a_tool, OPEN),
    "turn after a kill -9 in a tool": (_resumed_after_a_kill, set()),
    "error of the model": (_api_error, set()),
    "stream that was cut": (_cut, set()),
    "tool that is not there": (_unknown_tool, set()),
}
