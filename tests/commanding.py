"""The command line for tests: run in this process, as a process of its own, or on a terminal.

done = command("sessions", "list", "--store", path)    # in this process: quick
done = process("sessions", "list", "--store", path)    # a real process, with pipes
done = on_terminal("sessions", "list", "--store", path, columns=80, typed="y\\n")
done.code, done.out, done.err, done.json
"""

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from holdfast.cli.main import main

SOURCE = Path(__file__).resolve().parents[1] / "src"
UNSET = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "HOLDFAST_STORE", "HOLDFAST_DEBUG")
UNSET += ("HOLDFAST_TOKEN", "HOLDFAST_CA")
LIMIT_S = 60


class Done(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object it printed."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The objects it printed, one on each line."""
        return [json.loads(line) for line in self.out.splitlines()]


def surroundings(**environment: str) -> dict[str, str]:
    """The environment of a command: nothing in it but what a test asks for."""
    path = os.pathsep.join(part for part in (str(SOURCE), os.environ.get("PYTHONPATH")) if part)
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return {**kept, "TZ": "UTC", "PYTHONPATH": path, **environment}


def command(*arguments: object, stdin: str = "", **environment: str) -> Done:
    """Runs the command line in this process; what it prints is bytes first, as it is in life."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with (
        patch.dict(os.environ, surroundings(**environment), clear=True),
        patch.multiple(sys, stdout=out, stderr=err, stdin=io.StringIO(stdin)),
    ):
        code = main([str(argument) for argument in arguments])
        out.flush(), err.flush()
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Done(code, *texts)


def process(*arguments: object, stdin: str | None = None, **environment: str) -> Done:
    """Runs the command line as a process, with pipes; without `stdin` there is nothing to read."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", *map(str, arguments)],
        env=surroundings(**environment),
        input=stdin.encode() if stdin is not None else None,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        timeout=LIMIT_S,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def as_nobody(*words: object) -> subprocess.CompletedProcess[str]:
    """The command line without the right to go where it may not."""
    rights = "-dac_override,-dac_read_search"
    run = ["setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}"] if not os.getuid() else []
    line = [*run, sys.executable, "-m", "holdfast.cli.main", *map(str, words)]
    return subprocess.run(line, env=surroundings(), capture_output=True, text=True, timeout=60)


@contextmanager
def started(*arguments: object, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command line as a process that goes on; killed when the block is left. One that waits for
    what never comes is killed, too: then whoever reads from it meets the end.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", *map(str, arguments)],
        env=surroundings(**environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    limit = threading.Timer(LIMIT_S, child.kill)
    limit.start()
    with child:
        try:
            yield child
        finally:
            limit.cancel()
            child.kill()


def on_terminal(*arguments: object, columns: int = 80, typed: str = "", **environment: str) -> Done:
    """Runs the command line on a terminal of its own. What it says there is all in `out`, as on a
    screen.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", *map(str, arguments)],
        env=surroundings(**{"TERM": "xterm-256color", **environment}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    limit = threading.Timer(LIMIT_S, child.kill)  # one that waits for more than was typed
    limit.start()
    os.write(ours, typed.encode())
    said = _all_of(ours)
    limit.cancel()
    os.close(ours)
    return Done(child.wait(), said.decode().replace("\r\n", "\n"), "")


def _all_of(terminal: int) -> bytes:
    said = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side is gone: Linux says it so
            return said
        if not piece:
            return said
        said += piece
