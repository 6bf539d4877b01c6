"""A folder for servers, which is gone, with all that runs in it, when whoever made it is gone.

    with Shelter() as shelter:            # as a context manager, or with `close()`
        shelter.folder                    # owned by who runs the servers: see `servants`

A process of its own watches over the folder. It holds the reading end of a pipe; when the writing
end is closed, by `close` or by the death of its maker, however that died, it ends every process
that works in the folder and removes the folder. So there is one way down, and a killed test run
leaves nothing behind.

PostgreSQL refuses to run as root. Where the tests do, servers are run as `nobody`, and the folder
belongs to it.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

GRACE_S = 10.0
"""How long a server may take to stop before it is killed."""


MEMORY = "/dev/shm"
MEMORY_FREE_MIN = 2 << 30


class Shelter:
    """A folder, and the process that watches over it. It lies in memory where it can, unless a
    place is given.
    """

    def __init__(self, place: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-servers-", dir=place or _roomy()))
        own(self.folder)
        # A session of its own: a Ctrl-C or a kill of the whole test run must not reach it.
        self._watch = subprocess.Popen(
            [sys.executable, __file__, self.folder], stdin=subprocess.PIPE, start_new_session=True
        )

    def close(self) -> None:
        """Ends what runs in the folder, and removes it; returns when that is done."""
        assert self._watch.stdin is not None
        self._watch.stdin.close()
        self._watch.wait()

    def __enter__(self) -> "Shelter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _roomy() -> str | None:
    """Memory, where there is enough of it: what a killed process wrote is kept there as it is on a
    disk, and several servers that sync all the time don't stand in each other's way. A chosen
    TMPDIR is respected.
    """
    if "TMPDIR" in os.environ or not os.path.isdir(MEMORY):
        return None
    place = os.statvfs(MEMORY)
    free, runs_programs = place.f_bavail * place.f_frsize, not place.f_flag & os.ST_NOEXEC
    return MEMORY if free >= MEMORY_FREE_MIN and runs_programs else None


def servants() -> dict[str, Any]:
    """What `subprocess` is told so that a server runs as somebody it accepts."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def own(path: Path) -> None:
    """Gives a file or a folder to whoever runs the servers."""
    if who := servants():
        os.chown(path, who["user"], who["group"])


def within(folder: Path) -> list[psutil.Process]:
    """All processes that work in this folder; one that is dead and only not yet reaped does not."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # it has just ended, or is none of ours
    return found


def end_all(folder: Path, sign: signal.Signals) -> bool:
    """Sends this to all processes that work in the folder; whether they were gone in time."""
    end = time.monotonic() + GRACE_S
    signalled: set[int] = set()
    while found := within(folder):
        for process in found:
            if process.pid not in signalled:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(sign)
                signalled.add(process.pid)
        if time.monotonic() > end:
            return False
        time.sleep(0.005)  # they are nobody's children here, so there is no signal to wait on
    return True


def _watch_over(folder: Path) -> None:
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)
    os.chdir("/")
    while os.read(0, 4096):
        pass
    # SIGQUIT first: PostgreSQL then leaves at once and gives back its shared memory.
    if not end_all(folder, signal.SIGQUIT):
        end_all(folder, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _watch_over(Path(sys.argv[1]).resolve())
