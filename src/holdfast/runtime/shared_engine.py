"""An engine as a store and its sessions hold it: when none of them is left, it is closed.

An engine has threads, and these know it: it would live for ever. What the store, its sessions and
its turns know is this handle, which no thread knows. When the last of them is gone, a thread closes
engine and keeper: whoever drops the last handle may be in the middle of anything, and what is
raised there Python swallows, Ctrl-C included. So nothing happens there but a note to that thread,
made by C code alone.
"""

import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from holdfast.engine.closed_engine import ClosedEngine
from holdfast.engine.protocol import Engine, RowsCallback
from holdfast.engine.wake_signal import Signal
from holdfast.engine.watchers import Watchers
from holdfast.runtime.live.lease_keeper import LeaseKeeper
from holdfast.runtime.plans.deadline import Deadline

# Looked up once for each store: `__getattr__` is Python code, and every read and write
# would pass through it. None of these changes while an engine is open.
_USED_OFTEN = (
    "current",
    "entries",
    "inbox",
    "look_s",
    "read_only",
    "state",
    "submit",
    "watch",
    "where",
)


class _Note(weakref.ref[Any]):
    """Tells the closer that a handle is gone."""

    __slots__ = ("closed", "engine", "keeper")
    engine: Engine
    keeper: LeaseKeeper
    closed: Signal


class _Closer:
    """One thread for all stores of this process."""

    def __init__(self) -> None:
        self.dropped: SimpleQueue[_Note] = SimpleQueue()
        self.notes: set[_Note] = set()
        """Those of living handles: a note that is forgotten tells nobody."""
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        # A process that ends starts no thread, and would wait for it.
        if sys.is_finalizing():
            return
        # its start may have been interrupted
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, name="holdfast-closer", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        while True:
            note = self.dropped.get()
            self.notes.discard(note)
            with suppress(Exception):  # the next one is to be closed, too
                _close(note.engine, note.keeper)
            note.closed.set()
            # This frame waits for the next note, which may never come: it must not hold
            # the engine until then.
            del note


_closer = _Closer()


class HeldEngine:
    """The engine itself to all who use it."""

    def __init__(self, engine: Engine, keeper: LeaseKeeper) -> None:
        # Its own closer is kept: in a forked child the module has another one, which
        # knows nothing of this note.
        self._engine, self._closer = engine, _closer
        for name in _USED_OFTEN:
            setattr(self, name, getattr(engine, name))
        self._note = _Note(self, _closer.dropped.put)
        # The note holds the engine, not the handle: a handle that its own note could
        # reach would never be dropped.
        self._note.engine, self._note.keeper = engine, keeper
        self._note.closed = Signal()
        _closer.notes.add(self._note)
        _closer.begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def close(self) -> None:
        # First: a note that is forgotten tells nobody, so the closer does not close it
        # again when the handle goes.
        self._closer.notes.discard(self._note)
        self._engine.close()

    def close_within(self, deadline: Deadline) -> None:
        """Has engine and keeper closed by the closer's thread, and waits so long at most: they
        finish what they have begun.
        """
        self._closer.begin()
        self._closer.dropped.put(self._note)
        self._note.closed.wait(deadline.left_s or 0.0)


class TenantEngine:
    """The engine as a store for another tenant and its sessions hold it: when that store is closed
    they lose it, and all others go on using it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine: Any = engine
        self._watchers = Watchers()
        for name in _USED_OFTEN:
            if name != "watch":
                setattr(self, name, getattr(engine, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def shared(self) -> Engine:
        """The engine that it shares with the other tenants."""
        engine: Engine = self._engine
        return engine

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self.watch_rows(session, lambda _: callback())

    def watch_rows(self, session: str, callback: RowsCallback) -> Callable[[], None]:
        stop = self._engine.watch_rows(session, callback)
        forget = self._watchers.add_for_rows(session, callback)

        def end() -> None:
            stop()
            forget()

        return end

    def close(self) -> None:
        self._engine = ClosedEngine(self.where)
        for name in _USED_OFTEN:
            # What does not ask the engine stays: it may be looked at on the way out.
            if name not in ("look_s", "read_only", "watch", "where"):
                vars(self).pop(name, None)
        # They look, and are told that it is closed.
        self._watchers.wake_those(self._watchers.watched())


def _close(engine: Engine, keeper: LeaseKeeper) -> None:
    # In this order: the keeper's thread ends turns, and writes while it does.
    keeper.close()
    engine.close()


def _forget() -> None:
    """A forked child has no closer thread, and must not close the engines of its parent."""
    global _closer
    _closer.notes.clear()
    _closer = _Closer()


os.register_at_fork(after_in_child=_forget)
