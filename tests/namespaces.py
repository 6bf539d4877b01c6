"""Other places on this machine, as containers and clones of it have them: commands that run a
process there, for `procs.child(…, within=…)`. They are real namespaces; the process dies with the
command that runs it.
"""

import os
from pathlib import Path

UNSHARE = [
    "unshare",
    *([] if os.geteuid() == 0 else ["--map-root-user"]),
    "--kill-child=SIGKILL",
    "--fork",
    "--mount",
]


def _after(setup: str, *options: str) -> list[str]:
    """Runs what follows after this piece of shell, in namespaces of its own."""
    return [*UNSHARE, *options, "sh", "-ec", f'{setup}\nexec "$@"', "sh"]


def other_processes(*, own_proc: bool) -> list[str]:
    """Another process namespace: with a /proc of its own, as containers have, or with that of the
    machine.
    """
    return _after("mount -t proc proc /proc" if own_proc else ":", "--pid")


def other_boot(folder: Path, boot: str = "00000000-aaaa-4bbb-8ccc-000000000001") -> list[str]:
    """Another boot with the same host name, as a clone of this machine has."""
    forged = folder / "boot_id"
    forged.write_text(boot + "\n", encoding="ascii")
    return _after(f"mount --bind {forged} /proc/sys/kernel/random/boot_id")


def other_name(name: str = "another-machine") -> list[str]:
    """Another host name."""
    return _after(f"hostname {name}", "--uts")


def small_disk(place: Path, size_k: int) -> list[str]:
    """A disk of so many kilobytes in this place."""
    return _after(f"mount -t tmpfs -o size={size_k}k small {place}")


def no_proc() -> list[str]:
    """A root without /proc."""
    return _after("mount -t tmpfs nothing /proc")


def hidden_processes() -> list[str]:
    """A /proc that shows to a user only what is the user's own, looked at by another user than this
    process's.
    """
    return [*_after("mount -t proc -o remount,hidepid=2 proc /proc"), *OTHER_USER]


OTHER_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
"""Another user than the one who runs the tests."""
