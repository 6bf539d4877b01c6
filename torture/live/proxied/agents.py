"""Claude Code 2.1.325, Codex 0.166.0, goose 1.52.0 and Hermes Agent 0.19.0, each with a home of its own and
a model at an address: one turn at a time, in one session.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from torture.systems import claude, codex, hermes
from torture.systems.environment import install
from torture.systems.goose_program import goose_command
from torture.systems.judging import LIMIT_S, Trouble
from torture.systems.npm import npm_folder


class Model(Protocol):
    """Where an agent's model is, and how far its answer has come."""

    url: str
    halfway: Any
    go_on: Any


class Agent:
    """An agent. `format` is what it speaks with its model, `tool` a call that it can run."""

    name: str
    format: str
    tool: list[Any]

    def __init__(self, folder: Path, model: Model) -> None:
        self.folder, self._model = folder, model

    def say(self, prompt: str) -> None:
        """One turn, to its end."""
        self.wait(self.begin(prompt))

    def begin(self, prompt: str) -> "subprocess.Popen[str]":
        """One turn that is under way; the process that does it."""
        raise NotImplementedError

    def wait(self, process: "subprocess.Popen[str]") -> None:
        """Waits for the end of a turn."""
        said, complaint = process.communicate(timeout=LIMIT_S)
        if process.returncode:
            raise Trouble(f"{self.name} ended with {process.returncode}: {said} {complaint}"[-500:])

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """SIGKILL, of all its processes."""
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def _run(self, command: list[str], settings: dict[str, str]) -> "subprocess.Popen[str]":
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **settings},
            start_new_session=True,
        )


class ClaudeCode(Agent):
    name, format, tool = "claude", "anthropic", claude.bash("echo ripe")
    key = "claude-code"
    session = "3f0c7e5a-6f5e-4a51-9a37-0d6b4c1d2e3f"

    @staticmethod
    def prepare(environment: Path) -> Path:
        return claude.program_in(environment)

    def begin(self, prompt: str) -> "subprocess.Popen[str]":
        is_new = not (self.folder / "home" / ".claude" / "projects").exists()
        return self._begin(prompt, "--session-id" if is_new else "--resume", self.session)

    def go_on(self, session: str, prompt: str) -> "subprocess.Popen[str]":
        """One turn of one of its sessions."""
        return self._begin(prompt, "--resume", session)

    def fork(self, session: str, prompt: str) -> "subprocess.Popen[str]":
        """One turn in a session that is forked off from another."""
        return self._begin(prompt, "--resume", session, "--fork-session")

    def fork_of_the_last(self, session: str, prompt: str) -> "subprocess.Popen[str]":
        """The same, of the session that was spoken to last, which is this one."""
        return self._begin(prompt, "--continue", "--fork-session")

    def sessions(self) -> set[str]:
        """The ids of its sessions, and with them the keys that the proxy has them under."""
        found = (self.folder / "home" / ".claude" / "projects").glob("*/*.jsonl")
        return {path.stem for path in found}

    def _begin(self, prompt: str, *named: str) -> "subprocess.Popen[str]":
        quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY")
        quiet += ("DISABLE_AUTOUPDATER", "IS_SANDBOX")
        settings = {"ANTHROPIC_BASE_URL": self._model.url, "ANTHROPIC_API_KEY": "none"}
        program = str(self.prepare(self.environment))
        command = [program, "-p", prompt, *named, "--allowedTools", "Bash"]
        return self._run(command, settings | dict.fromkeys(quiet, "1"))

    environment: Path


class Codex(Agent):
    name, format, tool = "codex", "openai.responses", ["exec_command", {"cmd": "echo ripe"}]
    key = "codex"
    environment: Path

    @staticmethod
    def prepare(environment: Path) -> Path:
        return npm_folder(environment, codex.PACKAGE) / ".bin" / "codex"

    def begin(self, prompt: str) -> "subprocess.Popen[str]":
        is_new = not (self.folder / "home" / ".codex" / "sessions").exists()
        return self._begin(prompt, *(() if is_new else ("resume", "--last")))

    def go_on(self, session: str, prompt: str) -> "subprocess.Popen[str]":
        """One turn of one of its sessions."""
        return self._begin(prompt, "resume", session)

    def fork(self, session: str, prompt: str) -> "subprocess.Popen[str]":
        """One turn in a session that is forked off from another."""
        return self._begin(prompt, "fork", session)

    def sessions(self) -> set[str]:
        """The ids of its sessions, and with them the keys that the proxy has them under."""
        found = (self.folder / "home" / ".codex" / "sessions").glob("**/rollout-*.jsonl")
        return {path.stem[-36:] for path in found}

    def _begin(self, prompt: str, *how: str) -> "subprocess.Popen[str]":
        place = self.folder / "home" / ".codex"
        place.mkdir(parents=True, exist_ok=True)
        config = codex.CONFIG.format(model="gpt-5", url=self._model.url)
        # It tries a websocket first, and tries again when it is cut.
        config = config.replace("supports_websockets = false", "supports_websockets = true")
        config = config.replace("max_retries = 1", "max_retries = 4")
        (place / "config.toml").write_text(config)
        program = str(self.prepare(self.environment))
        command = [program, "exec", *how, "--skip-git-repo-check", "--json", "--", prompt]
        return self._run(command, {"SCRIPTED_KEY": "none"})


class Goose(Agent):
    name, format, tool = "goose", "openai.chat", ["shell", {"command": "echo ripe"}]
    environment: Path

    @staticmethod
    def prepare(environment: Path) -> list[str]:
        return goose_command(environment)

    def begin(self, prompt: str) -> "subprocess.Popen[str]":
        root = self.folder / "home" / "root"
        resumed = ["--resume"] if root.exists() else []
        settings = {
            "NO_COLOR": "1",
            "GOOSE_PATH_ROOT": str(root),
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "pear",
            "OPENAI_HOST": self._model.url,
            "OPENAI_API_KEY": "none",
            "GOOSE_MODE": "auto",
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_TELEMETRY_ENABLED": "false",
        }
        command = [*self.prepare(self.environment), "run", "--name", "own", *resumed, "-t", prompt]
        return self._run(command, settings)


class Hermes(Agent):
    name, format, tool = "hermes", "openai.chat", ["terminal", {"command": "echo ripe"}]
    environment: Path

    @staticmethod
    def prepare(environment: Path) -> Path:
        install(environment, hermes.INSTALL)
        return environment / "bin" / "hermes"

    def begin(self, prompt: str) -> "subprocess.Popen[str]":
        place = self.folder / "home" / ".hermes"
        resumed = ["--continue"] if place.exists() else []
        place.mkdir(parents=True, exist_ok=True)
        provider = {"provider": "custom", "base_url": f"{self._model.url}/v1", "api_key": "none"}
        lines = "".join(f"  {name}: {value}\n" for name, value in provider.items())
        (place / "config.yaml").write_text(f"model:\n  default: lantern-1\n{lines}")
        program = str(self.prepare(self.environment))
        command = [program, "chat", "-q", prompt, "-Q", *resumed]
        return self._run(command, {"HERMES_HOME": str(place), "OPENAI_API_KEY": "none"})


AGENTS: tuple[type[Any], ...] = (ClaudeCode, Codex, Goose, Hermes)


def until(seen: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Waits until something is seen."""
    end = time.monotonic() + LIMIT_S
    while not seen():
        if process.poll() is not None:
            said, complaint = process.communicate()
            raise Trouble(f"it ended before that: {said[-300:]} {complaint[-300:]}")
        if time.monotonic() > end:
            raise Trouble("it did not come to that")
        time.sleep(0.02)
