"""Who holds a turn: this process, named so that others on the machine can tell whether it still
lives (I-26).

A process is named by the boot of its kernel, its namespaces, its number and its start time: a
number alone is used again. It is taken for dead only by proof, and there is proof only for whoever
shares the kernel and the namespaces:

    the kernel knows no process of this number        asked with a signal that does nothing, which `hidepid` can't hide
    another process has the number                    its start time is another one
    it is a zombie                                    and no thread of it runs on

Everything less leaves it to the lease: another machine, whatever its name; another container; a
/proc that is not that of our namespace, that hides the process, or that is not there.
"""

import os
from functools import lru_cache

import msgspec

PROC = "/proc"


class Process(msgspec.Struct, frozen=True, gc=False):
    """A process as it was named. `kernel` and `spaces` are empty where the system does not tell
    them.
    """

    kernel: str
    spaces: str
    number: int
    started: int


def myself() -> str:
    """This process."""
    return f"{_kernel()}/{_spaces()}/{os.getpid()}/{_began()}"


def clock_name() -> str:
    """Which clock counts the time since boot here: that of this boot of this kernel, as this time
    namespace has it. Empty where the system does not tell.
    """
    boot, _, _ = _kernel().partition("@")
    _, _, time = _spaces().partition(".")
    return f"{boot}.{time}" if boot else ""


def is_gone(holder: str | None) -> bool:
    """Whether it is proved that this process lives no more."""
    process = _named(holder or "")
    if (
        process is None
        or not process.started
        or not process.kernel
        or not process.spaces
    ):
        return False
    if (process.kernel, process.spaces) != (_kernel(), _spaces()):
        return False
    # This very process runs, whatever /proc shows of it.
    if (process.number, process.started) == (os.getpid(), _began()):
        return False
    now = _look(str(process.number)) if _proc_is_ours() else None
    if now is not None:
        return now.started != process.started or now.is_dead
    return not _exists(process.number)


def _named(holder: str) -> Process | None:
    parts = holder.split("/")
    # More may follow: the holder of a turn has the id of the wish that started it
    # behind its process.
    if len(parts) < 4 or not (parts[2].isdecimal() and parts[3].isdecimal()):
        return None
    return Process(parts[0], parts[1], int(parts[2]), int(parts[3]))


class _Seen(msgspec.Struct, frozen=True, gc=False):
    started: int
    is_dead: bool


def _look(name: str) -> _Seen | None:
    """What /proc says of a process: when it began, in clock ticks since boot. None when it says
    nothing.
    """
    try:
        with open(f"{PROC}/{name}/stat", "rb") as file:
            # Behind the last bracket: the program's name stands in brackets, and may
            # have spaces and brackets in it. Fields are counted from the state, the
            # third.
            fields = file.read().rpartition(b")")[2].split()
        state, threads, started = fields[0], int(fields[17]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
    # The first thread of a process may be over while others go on: then it looks like a zombie and
    # is none.
    return _Seen(started, state in (b"Z", b"X") and threads <= 1)


def _exists(number: int) -> bool:
    """Whether there is a process of this number in this namespace. One that may not be signalled is
    there.
    """
    try:
        os.kill(number, 0)
    # A number that does not fit into a pid_t is no process of this system.
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


@lru_cache(maxsize=1)
def _began() -> int:
    """When this process began, in clock ticks since boot; 0 where the system does not tell."""
    looked = _look("self")
    return looked.started if looked is not None else 0


@lru_cache(maxsize=1)
def _kernel() -> str:
    """This boot of this machine. The name is no proof of anything, but where it differs, the
    machine may be a copy of another that was running, which has the same boot.
    """
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            # A slash would part the name: slashes stand between its fields.
            return f"{file.read().strip()}@{os.uname().nodename.replace('/', '_')}"
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=1)
def _spaces() -> str:
    """The namespace that numbers mean something in, and the one that start times are told in."""
    try:
        numbers = os.readlink(f"{PROC}/self/ns/pid")
    except OSError:
        return ""
    try:
        times = os.readlink(f"{PROC}/self/ns/time")
    except OSError:
        times = "0"  # a kernel without such namespaces has one time
    return f"{numbers.strip('pid:[]')}.{times.strip('time:[]')}"


def _proc_is_ours() -> bool:
    """Whether /proc tells of the processes of this namespace: then it knows this one by one number
    only.
    """
    try:
        with open(f"{PROC}/self/status", "rb") as file:
            numbers = next(
                line.split()[1:] for line in file if line.startswith(b"NSpid:")
            )
    except (OSError, StopIteration):
        return False
    return numbers == [str(os.getpid()).encode()]


def _look_anew() -> None:
    """Forgets what was cached: a forked child has begun later, and may be in other namespaces
    than its parent.
    """
    for known in (_began, _kernel, _spaces):
        known.cache_clear()


os.register_at_fork(after_in_child=_look_anew)
