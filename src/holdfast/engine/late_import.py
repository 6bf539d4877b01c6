"""Imports that are made when something is first asked for, in a process that may have no file left
to open.
"""

import errno
import sys
from types import TracebackType

from holdfast.engine.closed_engine import ending
from holdfast.engine.wake_signal import in_the_middle
from holdfast.errors import StoreUnavailable

_NO_FILE_LEFT = (errno.EMFILE, errno.ENFILE)


class loading:
    """Around such an import, for the store at `where`: if no file can be opened, that is the
    store's error and not Python's; so it is in a signal handler that has interrupted the same
    import. Nothing was written, and the same call works later.
    """

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError) and error.errno in _NO_FILE_LEFT:
            raise StoreUnavailable(
                where=self._where,
                problem=f"a part of Holdfast could not be loaded ({error.strerror})",
                remedy="Close files, or raise the limit of open files, and try again",
            ) from error
        if isinstance(error, ImportError) and sys.is_finalizing():
            raise ending(self._where) from error
        # By the call that this one has interrupted, on the same thread: another one would wait.
        if isinstance(error, ImportError) and "partially initialized" in str(error):
            raise in_the_middle(self._where) from error
