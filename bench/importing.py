"""`import holdfast` in a fresh interpreter, the interpreter's own start taken off; all modules were
compiled before.
"""

import os
import subprocess
import sys
import time

from bench import shim
from bench.figure import Figure, Run, interleaved, median

# msgspec also loads typing_extensions where some other package has brought it along, which Holdfast
# does not.
ALONE = "import sys; sys.modules['typing_extensions'] = None; import holdfast"
PROGRAMS = {
    "bare": "pass",
    "alone": ALONE,
    "together": "import holdfast",
    "engine": ALONE + "; import holdfast.engine.sqlite.engine",
    "async": "import holdfast; holdfast.open_async",
}


def measure(run: Run) -> list[Figure]:
    with shim.scratch() as folder:
        # Compiled modules go to a folder of their own: some environments forbid to write them
        # beside the source.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        rounds = {
            name: lambda code=code: _start(code, environment) for name, code in PROGRAMS.items()
        }
        found = interleaved(run.repeats * 2, rounds)
    ms = {name: median(took) * 1e3 for name, took in found.items()}
    by = f"a bare start {ms['bare']:.0f} ms"
    return [
        run.figure(
            "import holdfast, only its needs installed",
            ms["alone"] - ms["bare"],
            "ms",
            at_most=80,
            by=by,
        ),
        run.figure(
            "import holdfast, among many packages",
            ms["together"] - ms["bare"],
            "ms",
            at_most=80,
            by=by,
        ),
        run.figure(
            "import holdfast, and what opening a file loads", ms["engine"] - ms["bare"], "ms"
        ),
        run.figure("import holdfast, its asyncio face too", ms["async"] - ms["bare"], "ms"),
    ]


def _start(code: str, environment: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - began
