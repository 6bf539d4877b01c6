"""Programs that are published on npm, each in a folder of its own: fetched once, and again when the
release changes.
"""

import subprocess
import sys
from pathlib import Path


def npm_folder(environment: Path, package: str) -> Path:
    """Where the modules of a package lie."""
    stamp = environment / "installed"
    if not stamp.exists() or stamp.read_text() != package:
        print(f"fetching {package} (once) ...", file=sys.stderr, flush=True)
        environment.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(environment),
            package,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stamp.write_text(package)
    return environment / "node_modules"
