"""A player in a process of its own, as whoever runs it sees it: what it has told, and its end."""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from holdfast.testing.adapters.playing import Task

LIMIT_S = 60.0
"""How long anything is waited for before a player is taken to hang."""

PROGRAM = "from holdfast.testing.adapters.playing import main; main()"

Fact = dict[str, Any]


class NotKilled(Exception):
    """A process that was to be killed had come to its end before."""


class PlayerProcess:
    """A running player. `facts` are what it has told so far."""

    def __init__(self, python: str, player: str, told: Callable[[int], Task]) -> None:
        # A pipe of its own, not stdout: frameworks print what they like.
        reading, writing = os.pipe()
        self.facts: list[Fact] = []
        self._news: queue.SimpleQueue[Fact | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        program = [python, "-c", PROGRAM, player]
        self._process = subprocess.Popen(
            [*program, told(writing).as_json()],
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=[writing],
            # A Ctrl-C of whoever runs the matrix would reach the player, too, and look
            # like a user who cancels.
            start_new_session=True,
        )
        # The child has its own end. With this one open, the reader would never see the
        # end of the pipe.
        os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as pipe:
            for line in pipe:
                self._news.put(json.loads(line))
        self._news.put(None)

    def wait_for(self, enough: Callable[["PlayerProcess"], bool]) -> bool:
        """Reads what it tells until that is enough; False when it has ended before, or tells
        nothing more.
        """
        while not enough(self):
            try:
                fact = self._news.get(timeout=LIMIT_S)
            except queue.Empty:
                return False
            if fact is None:
                # Put back: whoever asks next must not wait for a process that has
                # ended.
                self._news.put(None)
                return False
            self.facts.append(fact)
        return True

    def kill(self) -> None:
        """SIGKILL; what it had told before is read to its end."""
        self._process.kill()
        # A pipe keeps what was written to it before the kill.
        self.end_killed()

    def end_killed(self) -> None:
        """Waits for its end by SIGKILL; `NotKilled` if it has come to another."""
        code = self.end()
        if code != -signal.SIGKILL:
            printed = self.errors().splitlines()[-1:]
            raise NotKilled(f"the process ended with {code} by itself {printed}")

    def end(self) -> int:
        """Waits for its end and gives its exit code."""
        self.wait_for(lambda process: False)
        try:
            return self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    @property
    def shown(self) -> list[str]:
        """The pieces that a user has seen, in order."""
        return [fact["shown"] for fact in self.facts if "shown" in fact]

    @property
    def done(self) -> list[str]:
        """The prompts whose answers were complete."""
        return [fact["done"] for fact in self.facts if "done" in fact]

    @property
    def tools(self) -> int:
        """How many tools were started."""
        return sum("tool" in fact for fact in self.facts)

    def errors(self) -> str:
        """The last lines that it printed."""
        self._errors.seek(0)
        printed = self._errors.read().decode(errors="replace").strip()
        return printed[-2000:]

    def close(self) -> None:
        """Kills what still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        self._errors.close()
