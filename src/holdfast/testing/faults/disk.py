"""A disk that fails on demand: the n-th operation of the engine, for n = 1, 2, 3 … until a run is
clean.

    for faults in fail_each(life, trouble="full"):
        print(faults.struck)

A `Faults` stands between SQLite and the disk for the time of a `with` block (`seam`). It counts the
operations of the verbs it was asked to count and fails one of them, so many `times` in a row, or
from there on until `heal` (`LASTING`).

    writing     open  write  truncate  sync  delete
    reading     read  size  access
    locking     lock

What is not seen here: the shared memory beside a write-ahead log (its locks are the engine's
everyday ones), and files that are not SQLite's, which is the fair lock alone. The order of
operations is the same from run to run as long as one thread waits for another; where two race, the
n-th operation may be another one, and the sweep ends all the same.

A full disk takes the first half of a write and then refuses, as real ones do. An operation that is
told to have failed has not happened otherwise. A sync that does not fail is not carried out either:
nothing here cuts the power (`power` does), and a sweep is twice as quick without.
"""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import apsw

from holdfast.testing.faults.seam import Seam, SeamVfs, path_of

Trouble = Literal["full", "io"]

WRITING = frozenset({"open", "write", "truncate", "sync", "delete"})
READING = frozenset({"read", "size", "access"})
LOCKING = frozenset({"lock"})

_CODES = {
    "open": apsw.SQLITE_CANTOPEN,
    "write": apsw.SQLITE_IOERR_WRITE,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "delete": apsw.SQLITE_IOERR_DELETE,
    "read": apsw.SQLITE_IOERR_READ,
    "size": apsw.SQLITE_IOERR_FSTAT,
    "access": apsw.SQLITE_IOERR_ACCESS,
    "lock": apsw.SQLITE_IOERR_LOCK,
}
LASTING = sys.maxsize
"""So many times in a row that only `heal` ends it."""


class Struck(NamedTuple):
    """An operation that failed: its number, what it was, and on which file."""

    number: int
    verb: str
    path: str


class Faults(Seam):
    """The seam. `at` is the number of the operation to fail; 0 fails none and only counts. Only
    operations of these `verbs` are counted, on the files that `only` says, and no write that is
    shorter than `least_bytes`.
    """

    def __init__(
        self,
        *,
        at: int = 0,
        trouble: Trouble = "io",
        times: int = 1,
        verbs: frozenset[str] = WRITING,
        only: Callable[[str], bool] | None = None,
        least_bytes: int = 0,
    ) -> None:
        self._at = at
        self._trouble = trouble
        self._times = times
        self._verbs = verbs
        self._only = only
        self._least_bytes = least_bytes
        self._lock = threading.Lock()
        self.count = 0
        self.struck: list[Struck] = []

    def fail_at(self, number: int) -> None:
        """Another operation than was said at first."""
        self._at = number

    def heal(self) -> None:
        """The cause is gone: nothing fails any more."""
        self._at = 0

    def __exit__(self, *_: object) -> None:
        # Connections may outlive the block, and must not fail any more.
        self.heal()
        super().__exit__()

    def check(self, verb: str, path: str, size: int = sys.maxsize) -> Exception | None:
        """Counts an operation; the error that it is to fail with, or None."""
        if verb not in self._verbs or size < self._least_bytes:
            return None
        if self._only is not None and not self._only(path):
            return None
        # Several connections count at once, and each operation has one number.
        with self._lock:
            self.count += 1
            number = self.count
            at = self._at
            if not at or not at <= number < at + self._times:
                return None
            self.struck.append(Struck(number, verb, path))
        code = _CODES[verb]
        if self._trouble == "full" and verb == "write":
            code = apsw.SQLITE_FULL
        error = apsw.exception_for(code)
        # Said in the error, so that nobody looks for a real one.
        error.args = (f"{self._trouble} trouble was asked for",)
        return error

    def meet(self, verb: str, path: str) -> None:
        """Counts an operation, and fails it if it is to fail."""
        error = self.check(verb, path)
        if error is not None:
            raise error


class _Quiet:
    """SQLite goes on after some failures without telling anybody; what we made fail is no news
    then.
    """

    def excepthook(self, *_: Any) -> bool:
        return True


class _FailingFile(_Quiet, apsw.VFSFile):
    def __init__(self, base: str, name: Any, flags: list[int], faults: Faults) -> None:
        self._faults = faults
        self._path = path_of(name)
        # Before it is opened: what is said to have failed has not happened.
        self._meet("open")
        super().__init__(base, name, flags)

    def _meet(self, verb: str) -> None:
        self._faults.meet(verb, self._path)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._meet("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        error = self._faults.check("write", self._path, len(data))
        # A full disk takes what still fits.
        if isinstance(error, apsw.FullError):
            super().xWrite(bytes(data)[: len(data) // 2], offset)
        if error is not None:
            raise error
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._meet("truncate")
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        # Counted, not carried out: nothing here cuts the power, and a sweep is quicker.
        self._meet("sync")

    def xFileSize(self) -> int:
        self._meet("size")
        return super().xFileSize()

    def xLock(self, level: int) -> None:
        self._meet("lock")
        super().xLock(level)


class _FailingVfs(_Quiet, SeamVfs):
    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _FailingFile(self.base, name, flags, self.seam)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.seam.meet("delete", filename)
        # Without a sync of the folder: nothing here cuts the power.
        super().xDelete(filename, False)

    def xAccess(self, pathname: str, flags: int) -> bool:
        self.seam.meet("access", pathname)
        return super().xAccess(pathname, flags)


Faults.vfs = _FailingVfs


def fail_each(
    life: Callable[[Faults], Any],
    *,
    trouble: Trouble = "io",
    times: int = 1,
    verbs: frozenset[str] = WRITING,
    only: Callable[[str], bool] | None = None,
    least_bytes: int = 0,
    first: int = 1,
    step: int = 1,
) -> Iterator[Faults]:
    """Runs `life` with its first operation failing, then with its second, and so on until a run in
    which none failed; gives the seam of each run, the clean one last. With a `step` it is a sample.

    `life` is given the seam, heals it when it has met the trouble, and asserts what must hold.
    """
    for at in itertools.count(first, step):
        with Faults(
            at=at,
            trouble=trouble,
            times=times,
            verbs=verbs,
            only=only,
            least_bytes=least_bytes,
        ) as faults:
            try:
                life(faults)
            except BaseException as error:
                error.add_note(
                    f"{trouble} trouble, {times} times in a row, at {faults.struck[:1] or at}"
                )
                raise
        # After the block: who looks at the seam finds the disk as it usually is.
        yield faults
        if not faults.struck:
            return
