"""Who holds a turn: this process, named so that others on the machine can tell whether it still lives.

A process is named by machine boot, process namespace, number and start time: a number alone is used again. Where a
name can't be judged from here (another machine, another container), the lease decides.
"""

import os
from functools import lru_cache


def myself() -> str:
    """This process."""
    return f"{_boot()}/{_namespace()}/{os.getpid()}/{_started(os.getpid()) or 0}"


def is_gone(holder: str | None) -> bool:
    """Whether it is certain that this process lives no more."""
    parts = (holder or "").split("/")
    if len(parts) < 4 or not parts[2].isdigit():
        return False
    boot, namespace, number, started = parts[:4]
    if boot != _boot() or namespace != _namespace():
        # The same host with another boot is a machine that was restarted: nothing of then lives.
        return boot.partition("@")[2] == _boot().partition("@")[2] != "" and boot != _boot()
    now = _started(int(number))
    if now is None:
        return not _exists(int(number))
    return str(now) != started


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}@{os.uname().nodename.replace('/', '_')}"
    except OSError:
        return f"boot@{os.uname().nodename.replace('/', '_')}"


@lru_cache(maxsize=1)
def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def _started(number: int) -> int | None:
    """When this process began, in clock ticks since boot; None when there is no such process, or it is only a
    zombie.
    """
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _exists(number: int) -> bool:
    if os.path.isdir("/proc/self"):
        return False  # where /proc is there, it has answered already
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
