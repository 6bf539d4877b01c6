"""Reading beside the writer: each thread has a connection of its own, which can't write (I-18).

A read looks first whether the files are still the ones that the writer uses, and afterwards whether
a newer release has changed the store's format meanwhile. Damage is told with its place.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import apsw

from holdfast.engine.closed_engine import closed
from holdfast.engine.named_sql import Rows, Values
from holdfast.engine.sqlite import connection as connecting
from holdfast.engine.sqlite.driver_errors import translate, translated
from holdfast.engine.sqlite.file_guard.file_identity import FileIdentity
from holdfast.engine.sqlite.maintenance.damage import damage_error
from holdfast.engine.sqlite.queries import QUERIES
from holdfast.engine.sqlite.spoilt_texts import rows_of
from holdfast.engine.wake_signal import is_mine
from holdfast.errors import InvalidMessage
from holdfast.process_fork import inside, thread_gate
from holdfast.stepping_connection import SteppingCursor


class Readers:
    """Connections that can't write, one for each thread that asks. Whoever uses one is `inside`.

    They are held here and closed by us, also when their thread is over: one that is dropped is
    closed wherever that happens, and a fork would not know of it.
    """

    _is_closed = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._local = threading.local()
        self._of_threads: dict[weakref.ref[_Thread], apsw.Connection] = {}
        self._over: deque[weakref.ref[_Thread]] = deque()
        self._lent: dict[int, apsw.Connection] = {}

    def read(self, name: str, values: Values) -> Rows:
        """All rows of a query."""
        raise NotImplementedError

    def alone(self) -> AbstractContextManager[apsw.Connection]:
        """A connection for one long piece of reading, closed at its end."""
        raise NotImplementedError

    def leave(self) -> None:
        """Closes the connection of this thread, if it has one; its next read makes another."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def connections(self) -> list[apsw.Connection]:
        """Those that may be open."""
        return [*list(self._of_threads.values()), *list(self._lent.values())]

    def _refuse_closed(self) -> None:
        """A connection that is made after all were closed would stay open."""
        if self._is_closed:
            raise closed(self._path)

    def _keep(self, reader: apsw.Connection) -> None:
        """It is this thread's from now on."""
        thread = _Thread()
        self._of_threads[weakref.ref(thread, self._over.append)] = reader
        self._local.thread = thread

    def _left_over(self) -> Iterator[apsw.Connection]:
        """The connections of threads that are over, once each; to be closed."""
        with suppress(IndexError):
            while True:
                reader = self._of_threads.pop(self._over.popleft(), None)
                if reader is not None:
                    yield reader

    def _lend(self, reader: apsw.Connection) -> None:
        """For one long piece of work, of which a fork may come in between of two steps."""
        reader.cursor_factory = SteppingCursor
        self._lent[id(reader)] = reader

    def _take_back(self, reader: apsw.Connection) -> None:
        self._lent.pop(id(reader), None)


class _Thread:
    """Lives as long as the thread that has it."""

    __slots__ = ("__weakref__",)


class SqliteReaders(Readers):
    """The reading connections of one engine. `files` are those that its writer uses; `wake_writer`
    lets it see for itself that they have strayed.
    """

    files: FileIdentity

    def __init__(
        self, path: str, *, busy_s: float, wake_writer: Callable[[], Any]
    ) -> None:
        super().__init__(path)
        self._busy_s, self._wake_writer = busy_s, wake_writer

    def read(self, name: str, values: Values) -> Rows:
        # a log that was deleted is the writer's to rescue; this waits until it has
        # looked
        if not self.files.may_be_read():
            self._wake_writer()
        # not with a context manager: every read comes by here
        try:
            reader = self._reader()
        except apsw.Error as error:
            raise translate(error, self._path) from error
        lock = self._local.gate.lock()
        try:
            if is_mine(lock):
                return self._read_beside(name, values)
            with lock:
                rows = rows_of(reader, QUERIES[name], values)
                # looked at after the rows: a migration in between would have changed
                # what they mean
                if reader.data_version() != self._local.version:
                    connecting.check_version(reader, self._path)
                    self._local.version = reader.data_version()
            return rows
        except UnicodeEncodeError as error:
            problem = "text with lone surrogates is the name of nothing in a store"
            raise InvalidMessage(problem=problem, place=ascii(error.object)) from None
        except apsw.ConnectionClosedError:
            raise closed(self._path) from None
        except (apsw.Error, UnicodeDecodeError) as error:
            with lock:
                raise damage_error(error, self._path, reader, name, values) from error

    def _read_beside(self, name: str, values: Values) -> Rows:
        """For a signal handler in the middle of another read of its thread: that thread's
        connection shows what the other read began with, and nothing that was committed since.
        """
        with self.alone() as reader:
            return rows_of(reader, QUERIES[name], values)

    @contextmanager
    def alone(self) -> Iterator[apsw.Connection]:
        self.files.check()
        with translated(self._path):
            self._refuse_closed()
            with inside():
                reader = connecting.connect_reader(self._path, busy_s=self._busy_s)
                self._lend(reader)
            try:
                # again: it may have been closed since, and has not seen this one
                self._refuse_closed()
                connecting.check_version(reader, self._path)
                yield reader
            finally:
                with inside():
                    self.files.leave(reader)
                    self._take_back(reader)

    def _reader(self) -> apsw.Connection:
        """This thread's connection."""
        reader: apsw.Connection | None = getattr(self._local, "reader", None)
        if reader is None:
            self._refuse_closed()
            gate = thread_gate()
            with inside():
                for left in self._left_over():
                    self.files.leave(left)
                reader = connecting.connect_reader(self._path, busy_s=self._busy_s)
                self._keep(reader)
                if self._is_closed:  # since, and by one who has not seen this one
                    self.files.leave(reader)
                # Nothing is called from here on, so no signal handler comes in between. The
                # reader last: an interrupt may.
                self._local.version = -1
                self._local.gate = gate
                self._local.reader = reader
        return reader

    def leave(self) -> None:
        reader: apsw.Connection | None = getattr(self._local, "reader", None)
        if reader is not None:
            self._local.reader = None
            with inside():
                self.files.leave(reader)
            self._local.thread = None

    def close(self) -> None:
        self._is_closed = True
        for reader in self.connections():
            with inside():
                self.files.leave(reader)
        self.files.forget()
