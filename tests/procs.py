"""Real child processes for tests: started with a script, spoken with by lines, really stopped and
really killed.

    with child(SCRIPT, path) as other:     # python, with src/ and tests/ on its path; killed when the block is left
        other.wait_for("running")          # reads lines until one begins so; gives the rest of that line
        other.tell("go on")                # a line for the child's `hear()`
        other.kill()                       # SIGKILL, and wait until it is gone

A script is plain text, dedented before it is run. It finds `sys`, `say(*words)` (one line to us,
flushed before it returns) and `hear()` (the next line from us, "" when there is none any more)
already there; its arguments are in `sys.argv[1:]`. Nothing here sleeps: every wait is for a line or
for an end, with a generous limit that is only reached when something hangs, and then the child's
own error output is part of the failure.
"""

import fcntl
import os
import queue
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 60.0
"""How long anything is waited for before the test is taken to hang."""

PRELUDE = """
import faulthandler, signal, sys
faulthandler.register(signal.SIGUSR2)  # one that hangs is asked where

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

def hear():
    return sys.stdin.readline().rstrip("\\n")

"""


class Child:
    """A python process that runs a script. `pid` is its number; `code` its exit code once it has
    ended (-9: killed).
    """

    def __init__(self, script: str, *args: object, within: Sequence[str] = ()) -> None:
        paths = [str(ROOT / "src"), str(ROOT / "tests")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the child
        self._process = subprocess.Popen(
            [*within, sys.executable, "-c", PRELUDE + textwrap.dedent(script), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=env,
            cwd=ROOT,
        )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for line in pipe:
                self._lines.put(line.decode().rstrip("\n"))
        self._lines.put(None)

    def line(self, limit_s: float = LIMIT_S) -> str | None:
        """The next line it said; None when it has ended and said no more."""
        if self._ended:
            return None
        try:
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            self._process.send_signal(signal.SIGUSR2)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)  # it says where it is
            raise AssertionError(
                f"the child said nothing for {limit_s:g} s{self.errors()}"
            ) from None
        self._ended = line is None
        return line

    def lines(self, limit_s: float = LIMIT_S) -> list[str]:
        """All that it says from here to its end."""
        said = []
        while (line := self.line(limit_s)) is not None:
            said.append(line)
        return said

    def wait_for(self, signal_name: str, limit_s: float = LIMIT_S) -> str:
        """Reads lines until one begins with this word; the rest of that line."""
        while (line := self.line(limit_s)) is not None:
            word, _, rest = line.partition(" ")
            if word == signal_name:
                return rest
        raise AssertionError(f"the child ended without saying {signal_name!r}{self.errors()}")

    def tell(self, line: str = "") -> None:
        """A line for its `hear()`."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone and reaped. What it had said before can still
        be read.
        """
        self._process.kill()
        self._process.wait(LIMIT_S)

    def kill_unreaped(self) -> None:
        """SIGKILL; returns when it is dead, but leaves it a zombie, as a careless parent would."""
        self._process.kill()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def freeze(self) -> None:
        """SIGSTOP; returns when it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def freeze_between_commits(self, where: str | os.PathLike[str]) -> None:
        """SIGSTOP at a moment at which it does not hold the lock of the store at `where`."""
        with open(f"{os.fspath(where)}-lock", "rb+") as lock:
            while True:
                self.freeze()
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    self.thaw()

    def thaw(self) -> None:
        """SIGCONT: it goes on where it stood."""
        os.kill(self.pid, signal.SIGCONT)

    def interrupt(self) -> None:
        """SIGINT: Ctrl-C."""
        os.kill(self.pid, signal.SIGINT)

    def end(self, limit_s: float = LIMIT_S, *, code: int = 0) -> list[str]:
        """Waits for its own end, which must have this exit code; what it said on the way there."""
        said = self.lines(limit_s)
        found = self._process.wait(limit_s)
        assert found == code, f"the child ended with {found}, not {code}{self.errors()}"
        return said

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def errors(self) -> str:
        """Its error output so far, ready to be put behind a sentence."""
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return f"; its error output:\n{text}" if text else "; it wrote no errors"

    def close(self) -> None:
        """Kills what still runs and lets go of the pipes."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._errors.close()


@contextmanager
def child(script: str, *args: object, within: Sequence[str] = ()) -> Iterator[Child]:
    """A child for the time of a `with` block; killed at its end if it still runs. `within` is a
    command that runs it: one of `namespaces`.
    """
    started = Child(script, *args, within=within)
    try:
        yield started
    finally:
        started.close()


def run(
    script: str, *args: object, limit_s: float = LIMIT_S, within: Sequence[str] = ()
) -> list[str]:
    """Runs a script to its end, which must be a clean one; the lines it said."""
    with child(script, *args, within=within) as one:
        return one.end(limit_s)
