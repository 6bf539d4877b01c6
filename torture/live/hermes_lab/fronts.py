"""The other ways to start Hermes: the command line, one shot, the TUI's server, ACP, cron."""

import json
import os
import re
import subprocess
import time

from torture.live.hermes_lab import Trouble, kill


def chat(lab, text):
    """`hermes chat -q`: what it has printed."""
    return _run(lab, lab.program("hermes"), "chat", "-q", text)


def one_shot(lab, text):
    """`hermes -z`: what it has printed."""
    return _run(lab, lab.program("hermes"), "-z", text)


def cron(lab, text):
    """A job, run by `hermes cron tick`: what it has printed."""
    made = _run(lab, lab.program("hermes"), "cron", "create", "1m", text)
    job = re.search(r"[0-9a-f]{8,}", made)
    if job is None:
        raise Trouble(f"no cron job was made: {made[-200:]}")
    _run(lab, lab.program("hermes"), "cron", "run", job.group(0))
    return _run(lab, lab.program("hermes"), "cron", "tick")


def _run(lab, *command):
    done = subprocess.run(
        command,
        env=lab.env,
        cwd=lab.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
    )
    return done.stdout + done.stderr


class Client:
    """A client of a program that speaks JSON-RPC, a message a line, over its standard streams."""

    def __init__(self, lab, *command):
        self.process = lab.spawn(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.got = []
        self._rest = b""
        self._count = 0

    def ask(self, method, params):
        """Sends a request; its number."""
        self._count += 1
        message = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self._count

    def answer(self, number, seconds=90):
        """What was answered to this request."""
        [found] = self.until(
            lambda each: each.get("id") == number and "method" not in each, seconds
        )
        return found.get("result") or {}

    def until(self, wanted, seconds=90):
        """Reads until a message is as wanted; that message."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._read()
            for each in self.got:
                if wanted(each):
                    return [each]
            if self.process.poll() is not None:
                raise Trouble(f"it ended with {self.process.returncode}")
            time.sleep(0.02)
        raise Trouble(f"waited {seconds} s; the last was {str(self.got[-1:])[:200]}")

    def _read(self):
        self._rest += self.process.stdout.read() or b""
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            try:
                self.got.append(json.loads(line))
            except ValueError:
                continue

    def close(self):
        if self.process.poll() is None:
            kill(self.process)


class Tui(Client):
    """The server behind the terminal interface."""

    def __init__(self, lab):
        super().__init__(lab, lab.program("python"), "-m", "tui_gateway.entry")
        self.until(lambda each: "ready" in json.dumps(each))
        self._session = self.answer(self.ask("session.create", {"cols": 80}))["session_id"]

    def say(self, text):
        self.ask("prompt.submit", {"session_id": self._session, "text": text})

    def shown(self):
        """The text that the interface was told to show so far."""
        self._read()
        pieces = [each.get("params") or {} for each in self.got]
        deltas = [each for each in pieces if each.get("type") == "message.delta"]
        return "".join((each.get("payload") or {}).get("text", "") for each in deltas)

    def done(self):
        self.until(lambda each: (each.get("params") or {}).get("type") == "message.complete")


class Acp(Client):
    """An editor's agent."""

    def __init__(self, lab):
        super().__init__(lab, lab.program("hermes-acp"))
        self.answer(self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}}))
        made = self.ask("session/new", {"cwd": str(lab.folder), "mcpServers": []})
        self._session = self.answer(made)["sessionId"]
        self._prompt = 0

    def say(self, text):
        prompt = [{"type": "text", "text": text}]
        self._prompt = self.ask("session/prompt", {"sessionId": self._session, "prompt": prompt})

    def shown(self):
        self._read()
        updates = [(each.get("params") or {}).get("update") or {} for each in self.got]
        said = [each for each in updates if each.get("sessionUpdate") == "agent_message_chunk"]
        return "".join((each.get("content") or {}).get("text", "") for each in said)

    def done(self):
        self.answer(self._prompt)
