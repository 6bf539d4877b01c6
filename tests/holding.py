"""A file that another process has open, as the program that writes it does."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def kept_open(path: Path) -> Iterator[None]:
    path.touch()
    with open(path, "rb") as file, subprocess.Popen(["sleep", "600"], stdin=file) as process:
        try:
            yield
        finally:
            process.kill()
