"""A client in a process of its own, which is killed and started again."""

import subprocess
import sys

from torture.live.viking.clients import ROOT
from torture.live.viking.stage import Setting

TRIES = 20


class KillableClient:
    """What it did not confirm is said again to the next one, with the same event id, as a caller
    would.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._child: subprocess.Popen[str] | None = None

    def say(self, line: str) -> None:
        for _ in range(TRIES):
            child = self._running()
            assert child.stdin is not None and child.stdout is not None
            try:
                child.stdin.write(line + "\n")
                child.stdin.flush()
                answer = child.stdout.readline().strip()
            except BrokenPipeError:
                answer = ""
            if answer == "done":
                return
            if answer:
                raise TimeoutError(f"{line}: {answer}")
        raise RuntimeError(f"the client ends whenever it is told to {line}")

    def kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()

    def _running(self) -> "subprocess.Popen[str]":
        if self._child is None or self._child.poll() is not None:
            setting = self._setting
            kind = "with" if setting.served else "without"
            command = [sys.executable, "-m", "torture.live.viking.clients", kind]
            self._child = subprocess.Popen(
                [*command, setting.gateway.url, str(setting.folder), setting.id],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                text=True,
            )
        return self._child
