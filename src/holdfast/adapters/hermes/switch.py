"""Switching Holdfast on and off under an installed Hermes, for the command line.

For a try-out, a folder with a `sitecustomize` goes in front of `PYTHONPATH`: it lasts as long as the
command that is run. For good, two files go into the environment of Hermes: a copy of `hook`, and a
`.pth` file that loads it at the start of every Python there. Nothing of Hermes is changed, and taking
the files away switches it off.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.adapters.hermes import hook
from holdfast.adapters.hermes.pins import VERSION

MODULE = "holdfast_hermes_hook"
PTH = "holdfast_hermes.pth"
# It must never raise: Python would say so at each start, whatever it runs.
_LINE = f'import sys; exec("try:\\n import {MODULE}\\nexcept Exception: pass")\n'
_SITECUSTOMIZE = '''\
"""Puts Holdfast under Hermes, and then does what another `sitecustomize` on the path would do."""

import os
import sys

import {module}

_here = os.path.dirname(os.path.abspath(__file__))
_others = [each for each in sys.path if os.path.abspath(each or ".") != _here]
_this = sys.modules.pop("sitecustomize")
_path, sys.path = sys.path, _others
try:
    import sitecustomize
except ModuleNotFoundError:
    sys.modules["sitecustomize"] = _this
finally:
    sys.path = _path
'''
_ASK = """\
import importlib.metadata as metadata, json, sys, sysconfig
def version(name):
    # Of the environment itself first, as `pins` does: PYTHONPATH may hold another one's.
    for path in [sysconfig.get_paths()["purelib"]], sys.path:
        for found in metadata.distributions(name=name, path=path):
            return found.version
    return None
def has_hook():
    return any(getattr(each, "is_holdfast_for_hermes", False) for each in sys.meta_path)
print(json.dumps({"folder": sysconfig.get_paths()["purelib"], "hermes": version("hermes-agent"),
                  "holdfast": version("holdfast"), "is_on": has_hook()}))
"""
_SHELL_PATH = re.compile(r"""["']?(/[^\s"']+/bin/(?:hermes|python[\d.]*))["']?""")


class NoHermes(Exception):
    """There is no Hermes to be switched; the sentence says what to do."""


class Environment(NamedTuple):
    """Where a Hermes is installed. `hermes` and `holdfast` are the versions that are there, None
    where there is none; `is_on` is whether its Pythons load the hook.
    """

    python: str
    folder: str
    hermes: str | None
    holdfast: str | None
    is_on: bool

    @property
    def problem(self) -> str | None:
        """Why Holdfast can't be switched on there."""
        if self.hermes is None:
            return f"There is no Hermes Agent in the environment of {self.python}."
        if self.hermes != VERSION:
            return (
                f"Hermes Agent {self.hermes} is there, and this Holdfast is for {VERSION}: "
                "nothing is changed."
            )
        if self.holdfast is None:
            return (
                "Holdfast has to be installed beside Hermes Agent: "
                f"{self.python} -m pip install holdfast"
            )
        return None


def environment_of(hermes: str = "hermes", python: str | None = None) -> Environment:
    """The environment of a `hermes` executable, by name or path; or that of a `python`."""
    python = python or _python_of(_found(hermes))
    try:
        told = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=60, check=True
        )
        said = json.loads(told.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise NoHermes(
            f"The Python of Hermes, {python}, does not answer: {error}"
        ) from error
    return Environment(python, **said)


def _found(hermes: str) -> str:
    path = shutil.which(hermes)
    if path is None:
        raise NoHermes(
            f"There is no command `{hermes}`; name the Python of Hermes' environment with --python."
        )
    return os.path.realpath(path)


def _python_of(path: str) -> str:
    """The Python that runs an executable: named in its first line or, where that is a shell's, in
    the script.
    """
    with open(path, "rb") as file:
        script = file.read(65_536).decode(errors="replace")
    first, _, rest = script.partition("\n")
    words = first.removeprefix("#!").split()
    is_script = first.startswith("#!")
    if is_script and words:
        interpreter = Path(words[0])
        if "python" in interpreter.name:
            return words[0]
    if not is_script:
        rest = ""
    named: str
    for named in _SHELL_PATH.findall(rest):
        if named == path:
            continue
        if not os.access(named, os.X_OK):
            continue
        if "python" in Path(named).name:
            return named
        # A launcher that calls another one, as package managers make them.
        return _python_of(os.path.realpath(named))
    raise NoHermes(
        f"{path} does not say which Python runs it; name the one of Hermes' environment with "
        "--python."
    )


def switch_on(environment: Environment) -> None:
    """Puts the hook there. Done again, it brings the copy up to date."""
    folder = Path(environment.folder)
    # The module first: the other file needs it.
    _write(folder / f"{MODULE}.py", _hook_text())
    _write(folder / PTH, _LINE)


def switch_off(environment: Environment) -> bool:
    """Takes the hook away; whether it was there."""
    folder = Path(environment.folder)
    was_there = False
    for name in (PTH, f"{MODULE}.py"):
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()
            was_there = True
    return was_there


def is_current(environment: Environment) -> bool:
    """Whether the copy of the hook that is there is that of this Holdfast."""
    try:
        copy = Path(environment.folder) / f"{MODULE}.py"
        return copy.read_text() == _hook_text()
    except OSError:
        return False


@contextlib.contextmanager
def trying_out() -> Iterator[dict[str, str]]:
    """The variables with which a command runs on Holdfast, for the time of a `with` block."""
    with tempfile.TemporaryDirectory(prefix="holdfast-hermes-") as name:
        folder = Path(name)
        (folder / f"{MODULE}.py").write_text(_hook_text())
        text = _SITECUSTOMIZE.format(module=MODULE)
        (folder / "sitecustomize.py").write_text(text)
        paths = [str(folder)]
        # What the user has there stays, behind this.
        before = os.environ.get("PYTHONPATH")
        if before:
            paths.append(before)
        yield {"PYTHONPATH": os.pathsep.join(paths)}


def _hook_text() -> str:
    """The hook as a module by itself, which installs itself when it is loaded."""
    return Path(hook.__file__).read_text() + "\n\ninstall()\n"


def _write(path: Path, text: str) -> None:
    """Writes a file whole or not at all: a Python may start in the middle."""
    prefix = f".{path.name}."
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        # Else it would lie there for good: no later try knows its name.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def home_of(home: str | None = None) -> Path:
    """The folder of Hermes' files: the one given, `HERMES_HOME`, or the usual one."""
    named = home or os.environ.get("HERMES_HOME")
    if named:
        return Path(named)
    return Path.home() / ".hermes"
