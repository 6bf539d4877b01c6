"""Connections for long pieces of work in SQLite, which a fork need not wait for to the end."""

from typing import Any

import apsw

from holdfast.process_fork import inside, note_opened

READ_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


class SteppingCursor(apsw.Cursor):
    """One whose steps are `inside`, each by itself: a fork does not wait for all of them."""

    def execute(self, *given: Any, **options: Any) -> Any:
        with inside():
            return super().execute(*given, **options)

    def __next__(self) -> Any:
        with inside():
            return super().__next__()

    def fetchall(self) -> Any:
        with inside():
            return super().fetchall()

    @property
    def get(self) -> Any:
        with inside():
            return super().get


class SteppingConnection(apsw.Connection):
    """A connection for one long piece of work: it is opened and closed `inside`, and each step of
    its cursors is.
    """

    def __init__(self, path: str, *, flags: int = READ_WRITE) -> None:
        with inside():
            super().__init__(path, flags=flags)
            note_opened(self)
        self.cursor_factory = SteppingCursor

    def __enter__(self) -> "SteppingConnection":
        with inside():
            super().__enter__()
        return self

    def __exit__(self, *given: Any) -> bool:
        with inside():
            return super().__exit__(*given)

    def close(self, force: bool = False) -> None:
        with inside():
            super().close(force)
