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
    subprocess.run(
        [environment / "bin" / "python", "-m", "pip", "install", "--quiet", *packages], check=True
    )
    stamp.write_text("\n".join(packages))
