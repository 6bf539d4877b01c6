"""A folder of our own, which goes when we go.

A private copy holds whole conversations, so it must not outlive its process. It is removed when it
is closed. A process that was killed closes nothing: each folder is locked by its process as long as
that lives, and the next one that makes a folder at the same place removes those that nobody holds
any more.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from holdfast.importers.values import StrPath

_LOCK = ".held"
# A folder without a lock may be one that is just being made.
_YOUNG_S = 3600.0
_swept: set[tuple[str, str]] = set()


class OwnFolder:
    """A folder for its owner alone, at `path`, and locked until it is closed."""

    def __init__(self, prefix: str, within: StrPath | None = None) -> None:
        place = os.fspath(within) if within is not None else tempfile.gettempdir()
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self._lock = -1
        try:
            self._hold()
            # Once for each place: a folder for everybody may hold very many files.
            if (place, prefix) not in _swept:
                _swept.add((place, prefix))
                sweep(place, prefix, now_s=os.stat(self.path).st_mtime)
        except BaseException:
            self.close()
            raise

    def _hold(self) -> None:
        """The lock gets its name when it is held: whoever finds it by that name finds it held, or
        its holder gone.
        """
        made = self.path / f"{_LOCK}.new"
        self._lock = os.open(
            made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        # A lock goes with its process, however that ends.
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(made, self.path / _LOCK)

    def close(self) -> None:
        # While the lock is held: nobody else takes it for one that was left.
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> "OwnFolder":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def sweep(place: str, prefix: str, *, now_s: float) -> None:
    """Removes folders of ours whose process is gone."""
    try:
        found = [
            item.path for item in os.scandir(place) if item.name.startswith(prefix)
        ]
    except OSError:
        return
    for path in found:
        if _is_left(path, now_s):
            shutil.rmtree(path, ignore_errors=True)


def _is_left(path: str, now_s: float) -> bool:
    try:
        about = os.lstat(path)
        # In a folder for everybody, others may put what looks like ours.
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            return False
        try:
            lock = os.open(
                os.path.join(path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except FileNotFoundError:
            return now_s - about.st_mtime > _YOUNG_S
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(lock)
        return True
    except OSError:
        return False  # it is held, or gone already
