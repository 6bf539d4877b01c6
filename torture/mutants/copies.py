"""A private copy of the tree to put faults into; the tree itself is never touched."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torture.mutants.book import ROOT, Mutant

Fate = Literal["noticed", "missed", "stale", "equivalent", "no tests", "unsound"]


@dataclass(frozen=True)
class Verdict:
    """What became of a fault, how long that took to learn, and by which test."""

    mutant: Mutant
    fate: Fate
    by: str = ""
    took_s: float = 0.0


class PrivateCopy:
    """The files of the tree, as they are now, in a folder of one's own."""

    def __init__(self, folder: Path, *, limit_s: float) -> None:
        self._folder, self._limit_s = folder, limit_s
        self._writes = 0
        self._running: subprocess.Popen[str] | None = None
        for name in _files():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)

    def try_out(self, mutant: Mutant) -> Verdict:
        """Puts one fault in, runs the tests that should notice, and takes it out again."""
        if problem := mutant.problem(self._folder):
            return Verdict(mutant, "stale", problem)
        if mutant.equivalent:
            return Verdict(mutant, "equivalent", mutant.equivalent)
        path = self._folder / mutant.file
        sound = path.read_text(encoding="utf-8")
        started = time.monotonic()
        try:
            self._write(path, mutant.applied(sound))
            fate, by = self.run(mutant.tests)
        finally:
            self._write(path, sound)
        return Verdict(mutant, fate, by, time.monotonic() - started)

    def _write(self, path: Path, text: str) -> None:
        """With a time of its own: compiled files are told apart by size and whole seconds."""
        self._writes += 1
        path.write_text(text, encoding="utf-8")
        stamp = int(time.time()) + 10 * self._writes
        os.utime(path, (stamp, stamp))

    def run(self, tests: str) -> tuple[Fate, str]:
        """Whether these tests fail, and which did first."""
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "--tb=no",
            "-rfE",
        ]
        paths = os.pathsep.join(str(self._folder / part) for part in ("src", ".", "tests"))
        # Plug-ins that these tests do not need take longer to load than most of the tests take.
        process = self._running = subprocess.Popen(
            [*words, *shlex.split(tests)],
            cwd=self._folder,
            env={
                **os.environ,
                "PYTHONPATH": paths,
                "COLUMNS": "200",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # what hangs is ended with all that it has started
        )
        try:
            told, _ = process.communicate(timeout=self._limit_s)
        except subprocess.TimeoutExpired:
            return "noticed", "the tests do not end"
        finally:
            _end_all(process)
            self._running = None
        return _fate(process.returncode, told)

    def end(self) -> None:
        """Ends what is running."""
        running = self._running
        if running is not None:
            _end_all(running)


def _end_all(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _fate(code: int, told: str) -> tuple[Fate, str]:
    if code == 0:
        return "missed", ""
    lines = told.splitlines()
    first = next((line for line in lines if line.startswith(("FAILED ", "ERROR "))), None)
    if code == 5 or (code == 4 and first is None) or "no tests ran" in told:
        return "no tests", lines[-1] if lines else ""
    if first is None:  # a crash of the whole run, or a module that can't be imported
        return "noticed", f"the run ended with {code}"
    return "noticed", first.split(" - ")[0].removeprefix("FAILED ").removeprefix("ERROR ")


def _files() -> list[str]:
    """What is in the repository or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [
        name for name in sorted(set(listed.stdout.split("\0"))) if name and (ROOT / name).is_file()
    ]
