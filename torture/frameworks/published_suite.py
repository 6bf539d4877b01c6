"""A framework's own published tests, fetched from its source distribution and run in its environment.

The module of a suite is also a plug-in of pytest: it puts ours in the place of theirs before the
tests are read.
"""

import os
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python_of(environment: Path) -> str:
    return str(environment / "bin" / "python")


def installed(environment: Path, package: str) -> str:
    """The release of a package that the environment has, as pip names it."""
    asked = f"import importlib.metadata as m; print(m.version({package!r}))"
    shown = subprocess.run(
        [python_of(environment), "-c", asked], check=True, capture_output=True, text=True
    )
    return f"{package}=={shown.stdout.strip()}"


def unpacked(environment: Path, release: str, place: Path, *, needs: Sequence[str]) -> Path:
    """The folder of a release's source distribution, unpacked here if it is not yet; `needs` is what
    its tests want installed beside it.
    """
    python = python_of(environment)
    if not place.exists():
        subprocess.run([python, "-m", "pip", "install", "--quiet", *needs], check=True)
        package = release.partition("==")[0]
        download = [python, "-m", "pip", "download", "--quiet", "--no-deps"]
        download += ["--no-binary", package, "--dest", str(place), release]
        subprocess.run(download, check=True)
        for archive in place.glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(place, filter="data")
    [folder] = [each for each in place.iterdir() if each.is_dir()]
    return folder


def outcome(
    environment: Path, source: Path, plugin: str, options: Sequence[str]
) -> tuple[int, int, list[str]]:
    """How many of the tests passed, of how many, and a sentence for each that did not."""
    command = [python_of(environment), "-m", "pytest", "-q", "-p", plugin]
    command += ["-p", "no:cacheprovider", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True)
    said = ended.stdout
    failed = re.findall(r"^(?:FAILED|ERROR) (.+)$", said, re.MULTILINE)
    passed = sum(int(count) for count in re.findall(r"(\d+) passed", said))
    if ended.returncode and not failed:
        failed = [said[-400:] + ended.stderr[-400:]]
    return passed, passed + len(failed), [f"its own suite: {each}" for each in failed]
