"""One connection to a server, and how long an answer on it is waited for.

A server or a network that goes silent is told from one that is slow by a limit on the time to an
answer: then the connection is let go, never cancelled, because a COMMIT may be waiting for other
servers at the other end.
"""

import contextlib
import logging
import os
import socket
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from holdfast.engine.named_sql import Rows
from holdfast.engine.postgres.queries import QUERIES
from holdfast.engine.postgres.server.primary import Connection, ServerIdentity
from holdfast.engine.wake_signal import Signal

_log = logging.getLogger("holdfast")

PLANNED_ANEW = frozenset(("found", "sessions_found"))
"""How these are best answered depends on the words: rare ones are looked up, common ones met going
back in time.
"""
LOOKS = 4
"""An answer is missing when so many looks in a row found the same question open."""


class ServerConnection:
    """A connection on which one thread at a time asks, watched for answers that don't come."""

    def __init__(
        self,
        connection: Connection,
        identity: ServerIdentity | None,
        watchdog: "Watchdog",
    ) -> None:
        self.connection, self.identity = connection, identity
        self.unreplicated = False
        connection.add_notice_handler(self._noticed)
        self.question = 0
        self.harmless = False
        """Whether what is being asked may be cancelled: it has no COMMIT in it."""
        self.pooled = False
        """Whether the next transaction may be another server process's: nothing it is
        told stays.
        """
        self._asked = 0
        self._cancel = connection.pgconn.get_cancel()
        # before the first question: its answer may not come either
        watchdog.watch(self)
        self._greet()

    def _greet(self) -> None:
        """Looks whether the process that answers is the one that greeted us. If not, a pooler is in
        between, which may give each transaction to another: one that knows other statements by the
        names of ours.
        """
        try:
            with self.asking() as connection:
                [pid] = connection.execute(
                    QUERIES["backend"], prepare=False
                ).fetchone() or (None,)
        except BaseException:
            self.close()
            raise
        self.pooled = pid != connection.info.backend_pid
        if self.pooled:
            # the next transaction may be another process's, which does not know what
            # was prepared here
            connection.prepare_threshold = None

    @contextlib.contextmanager
    def asking(self) -> Iterator[Connection]:
        """Between asking and the answer."""
        self._asked += 1
        self.question = self._asked
        try:
            yield self.connection
        finally:
            self.question = 0

    def run(self, name: str, values: Any = None, *, slow: bool = False) -> Rows:
        """All rows of a query. One that is slow by nature may take its time."""
        self.harmless = False
        prepare = False if name in PLANNED_ANEW else None
        with (
            contextlib.nullcontext(self.connection)
            if slow
            else self.asking() as connection
        ):
            return connection.execute(
                QUERIES[name], values, binary=True, prepare=prepare
            ).fetchall()

    def run_slowly(self, name: str) -> None:
        """A command without an answer, which may take its time."""
        self.connection.execute(QUERIES[name], prepare=False)

    def run_all(
        self, statements: Sequence[tuple[str, Any]], *, harmless: bool = False
    ) -> list[Rows]:
        """Sends all statements at once; the rows of each. What has no COMMIT in it is harmless."""
        self.harmless = harmless
        failure: psycopg.Error | None = None
        cursors: list[psycopg.Cursor[Any]] = []
        with self.asking() as connection:
            try:
                with connection.pipeline():
                    try:
                        for name, values in statements:
                            cursors.append(
                                connection.execute(QUERIES[name], values, binary=True)
                            )
                    except psycopg.Error as error:
                        # the first is the cause; leaving the pipeline would tell of the
                        # others
                        failure = error
            except psycopg.Error as error:
                failure = failure or error
            if failure is not None:
                raise failure
            return [
                cursor.fetchall() if cursor.description is not None else []
                for cursor in cursors
            ]

    def hang_up(self) -> None:
        """Ends the connection without a word to the server, whoever is waiting on it."""
        with contextlib.suppress(OSError, psycopg.Error):
            end = socket.fromfd(
                self.connection.fileno(), socket.AF_INET, socket.SOCK_STREAM
            )
            with end:
                # the thread that waits on it finds the connection lost, and goes on as
                # after any other loss
                end.shutdown(socket.SHUT_RDWR)

    def forgo(self) -> None:
        """Lets the server stop what nobody waits for any more, if that can be no commit: it would
        wait for locks and be a connection too many. Only after hanging up: then nothing else can
        follow it.
        """
        if self.harmless:
            with contextlib.suppress(psycopg.Error):
                self._cancel.cancel()

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self.connection.close()

    def _noticed(self, diagnostic: Any) -> None:
        # PostgreSQL says COMMIT to a client whose wait for other servers was cut short,
        # with a
        # warning: what it has committed may be on one server only.
        if diagnostic.severity_nonlocalized == "WARNING" and diagnostic.sqlstate in (
            "01000",
            "57P01",
        ):
            self.unreplicated = True


class Watchdog:
    """Hangs up lines whose answer has not come for `answer_s`."""

    def __init__(self, answer_s: float) -> None:
        self.answer_s = answer_s
        self._lines: weakref.WeakKeyDictionary[ServerConnection, tuple[int, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._gate = threading.RLock()
        self._closed = Signal()
        self._thread: threading.Thread | None = None

    def watch(self, line: ServerConnection) -> None:
        with self._gate:
            self._lines[line] = (0, 0)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-watchdog", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def abandon(self) -> None:
        """In a child that was forked: closes the child's copies of the sockets."""
        for line in list(self._lines):
            with contextlib.suppress(OSError, psycopg.Error):
                os.close(line.connection.fileno())

    def _run(self) -> None:
        while not self._closed.wait(self.answer_s / LOOKS):
            with self._gate:
                # hung up outside of the gate: that takes a system call each
                silent = [line for line in list(self._lines) if self._is_silent(line)]
            for line in silent:
                _log.warning(
                    "no answer for %g s: the connection is let go", self.answer_s
                )
                line.hang_up()
                line.forgo()

    def _is_silent(self, line: ServerConnection) -> bool:
        question, looks = line.question, 1
        if question and self._lines[line][0] == question:
            looks = self._lines[line][1] + 1
        self._lines[line] = (question, looks)
        return bool(question) and looks > LOOKS
