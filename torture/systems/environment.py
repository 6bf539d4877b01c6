"""Virtual environments of the real programs: each has its own, made once and used again."""

import subprocess
import sys
import venv
from pathlib import Path


def install(environment: Path, packages: list[str]) -> None:
    """Has these packages in a virtual environment; a stamp that still holds makes this free."""
    stamp = environment / "installed"
    if not packages or (stamp.exists() and stamp.read_text() == "\n".join(packages)):
        environment.mkdir(parents=True, exist_ok=True)
        return
    print(f"installing {' '.join(packages)} (once) ...", file=sys.stderr, flush=True)
    venv.create(environment, clear=True, with_pip=True)
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--progress-bar", "off"]
    with subprocess.Popen([*pip, *packages], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            # It may take many minutes: who waits sees that something is done.
            if line.startswith(("Collecting", "Installing")):
                print(f"  {line.strip()[:100]}", file=sys.stderr, flush=True)
    if running.returncode:
        raise RuntimeError(f"pip ended with {running.returncode}")
    stamp.write_text("\n".join(packages))
