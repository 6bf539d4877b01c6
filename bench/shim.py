"""The shim under the measured process: it counts syncs and, in the slowed world, makes each take 1
ms longer.

The disks of build machines sync in some 0.05 ms, which hides what group commit is for. Both worlds
run under the shim, so that syncs are counted in both; natively it delays nothing.
"""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("slow_sync.c")
WORLDS = {"native": 0, "slowed": 1000}
"""World → how much longer a sync takes, in microseconds."""


def build(folder: str) -> str:
    """Compiles the shim; returns the library's path."""
    library = os.path.join(folder, "slow_sync.so")
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", library, str(SOURCE), "-ldl"], check=True
    )
    return library


def environment(library: str, world: str) -> dict[str, str]:
    """What a process needs in its environment to live in this world."""
    return {
        **os.environ,
        "LD_PRELOAD": library,
        "SLOW_SYNC_US": str(WORLDS[world]),
        "BENCH_WORLD": world,
    }


def syncs() -> int:
    """How often this process has synced a file so far."""
    count = ctypes.CDLL(None).slow_sync_count
    count.restype = ctypes.c_long
    return count()


def written() -> int:
    """How many bytes this process has handed to write calls so far (`wchar`): database, WAL and all
    else it writes.
    """
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("wchar"))


def scratch() -> "tempfile.TemporaryDirectory[str]":
    """A folder for stores that are measured; `BENCH_DIR` says on which disk, the current folder's
    unless told.
    """
    return tempfile.TemporaryDirectory(prefix=".bench-", dir=os.environ.get("BENCH_DIR", "."))
