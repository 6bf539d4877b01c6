"""The three agents: how each is had, started and asked to run a command, and what its requests to
the model say besides the conversation.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torture.systems import claude, codex
from torture.systems.goose_program import goose_command
from torture.systems.npm import npm_folder

Json = dict[str, Any]


class Agent:
    """An agent. `format` is what it speaks with its model; `queues`: it takes a second prompt while
    it works on the first, and answers it afterwards; `asking_mode`: the mode of a session in which
    it asks, where its settings don't say so.
    """

    name: str
    format: str
    queues = True
    asking_mode = ""

    def __init__(self, environment: Path) -> None:
        self.environment = environment / self.name

    def prepare(self) -> None:
        """Has the program here."""
        self.command()

    def command(self) -> list[str]:
        raise NotImplementedError

    def settings(self, home: Path, url: str, *, asks: bool) -> dict[str, str]:
        """Its environment, with a home of its own; `asks`: before it runs anything."""
        raise NotImplementedError

    def shell(self, command: str, *, asks: bool) -> list[Any]:
        """A call of its tool for commands, as the scripted model words it."""
        raise NotImplementedError

    def sent(self, body: Json) -> list[Json]:
        """The conversation in a request, without what the agent says of itself."""
        raise NotImplementedError


class Goose(Agent):
    """goose 1.52.0."""

    name = "goose"
    format = "openai.chat"
    queues = False

    def program(self) -> list[str]:
        return goose_command(self.environment)

    def command(self) -> list[str]:
        return [*self.program(), "acp", "--with-builtin", "developer"]

    def settings(self, home: Path, url: str, *, asks: bool) -> dict[str, str]:
        return {
            "GOOSE_PATH_ROOT": str(home / "root"),
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "pear",
            "OPENAI_HOST": url,
            "OPENAI_API_KEY": "none",
            "GOOSE_MODE": "approve" if asks else "auto",
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_TELEMETRY_ENABLED": "false",
            "GOOSE_DISABLE_SESSION_NAMING": "true",
        }

    def shell(self, command: str, *, asks: bool) -> list[Any]:
        return ["shell", {"command": command}]

    def sent(self, body: Json) -> list[Json]:
        return [message for message in body["messages"] if message["role"] != "system"]

    def store(self, home: Path) -> Path:
        return home / "root" / "data" / "sessions" / "sessions.db"


class Claude(Agent):
    """claude-agent-acp 0.49.0, with the Claude Code that it brings along."""

    name = "claude"
    format = "anthropic"

    def command(self) -> list[str]:
        package = "@agentclientprotocol/claude-agent-acp"
        modules = npm_folder(self.environment, f"{package}@0.49.0")
        return ["node", str(modules / package / "dist" / "index.js")]

    def settings(self, home: Path, url: str, *, asks: bool) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-ant-none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }

    def shell(self, command: str, *, asks: bool) -> list[Any]:
        return ["Bash", {"command": command, "description": "run"}]

    def sent(self, body: Json) -> list[Json]:
        return claude.plain(body["messages"])


class Codex(Agent):
    """codex-acp 2.6.0, with the Codex that it brings along."""

    name = "codex"
    format = "openai.responses"
    asking_mode = "read-only"

    def command(self) -> list[str]:
        package = "@agentclientprotocol/codex-acp"
        modules = npm_folder(self.environment, f"{package}@2.6.0")
        return ["node", str(modules / package / "dist" / "index.js")]

    def settings(self, home: Path, url: str, *, asks: bool) -> dict[str, str]:
        (home / ".codex").mkdir(exist_ok=True)
        config = codex.CONFIG.format(model="gpt-5.5", url=url)
        (home / ".codex" / "config.toml").write_text(config)
        return {"SCRIPTED_KEY": "none", "OPENAI_API_KEY": "none"}

    def shell(self, command: str, *, asks: bool) -> list[Any]:
        arguments = {"cmd": command}
        if asks:  # it asks before a command leaves the sandbox
            arguments |= {"sandbox_permissions": "require_escalated", "justification": "May I?"}
        return ["exec_command", arguments]

    def sent(self, body: Json) -> list[Json]:
        return codex.plain(body["input"])


AGENTS: tuple[Callable[[Path], Agent], ...] = (Goose, Claude, Codex)


def surroundings(home: Path) -> dict[str, str]:
    """What every program here is started with."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "NO_COLOR": "1", "LANG": "C.UTF-8"}
