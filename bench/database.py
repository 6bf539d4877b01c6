"""A PostgreSQL of the benchmark's own: the tests' server, on a disk, with syncs as slow as the
world says.

The server is the one the tests start, from pip alone, with the settings of one that is used. What
slows its syncs is the same shim that slows SQLite's; it is loaded into the server, and a sync takes
2 ms longer there, as on a disk in a cloud.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import shim
from bench.figure import Run

DELAYS_US = {"native": 0, "slowed": 2000}
SETTINGS = {
    "shared_buffers": "128MB",
    "min_wal_size": "256MB",
    "max_wal_size": "1GB",
    "autovacuum": "on",
}
_TESTS = Path(__file__).parents[1] / "tests"


@contextlib.contextmanager
def database(run: Run) -> Iterator[str]:
    """The DSN of a server of this world, which is gone afterwards. `BENCH_DIR` says on which disk,
    /var/tmp unless told: a folder that whoever runs the server can reach.
    """
    sys.path.append(str(_TESTS))
    from servers import Server
    from shelter import Shelter

    with Shelter(os.environ.get("BENCH_DIR", "/var/tmp")) as shelter:
        library = shim.build(str(shelter.folder))  # where whoever runs the server may read it
        server = Server(shelter.folder / "bench")
        with _environment(LD_PRELOAD=library, SLOW_SYNC_US="0"):
            server.create()
        server.configure(**SETTINGS)
        with _environment(LD_PRELOAD=library, SLOW_SYNC_US=str(DELAYS_US[run.world])):
            server.start()
        yield server.dsn()


@contextlib.contextmanager
def _environment(**changed: str) -> Iterator[None]:
    """What a process that is started meanwhile finds in its environment."""
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
