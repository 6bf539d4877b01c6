"""What a fork must not tear apart: nobody of ours is inside SQLite while this process forks, and a
child does not touch what it got before it uses SQLite itself.

SQLite has locks for the whole process, the one around its memory among them: every call takes it
for a moment. A child that was forked in such a moment has that lock locked, and nobody who lets go
of it. So each thread holds a lock of its own, its gate, while it is inside SQLite (`inside`), also
to open a connection, to prepare a store or to close it; a fork waits until it has all gates. Threads
that use SQLite without us are not waited for. Therefore a fork itself calls nothing of SQLite, in the
child neither: it returns whatever others do.

SQLite keeps what it knows of a file once for each process, its locks included, and a child gets a
copy of that which is not true of the child: the locks are the parent's. A connection that the child
then opened would believe that it holds them. So a child closes its copies of its parent's
connections before it first opens one, which tells SQLite to forget, and takes nothing from the
parent. If it never does, they are never closed: the last one to close would checkpoint. A lock
file's lock would live on in the child: it is closed there at once.

Python asks at the beginning of a fork whom to call. So this is there before SQLite is: a fork that
waits for the imports of a first use has to wait for what that use does next, too.
"""

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    import apsw

QUIET_S = 5.0
"""So long a fork waits for work in SQLite."""


POLITE_S = 0.2
"""So long a thread waits for a fork, in all its steps together: somebody whom the fork waits for may
wait for that thread.
"""
NAP_S = 0.002
GATE_S = 0.01
"""So long a fork waits for one gate before it lets go of those that it has."""


class Forked(Protocol):
    """What a child must not use, for it is its parent's."""

    def gates(self) -> list[Any]:
        """Locks under which SQLite is used besides the gates of the threads. Whoever holds one may
        enter `inside`, and not the other way round.
        """

    def abandon(self) -> None:
        """In the child: it is of no use any more. Nothing of SQLite is called."""


_is_mine: Callable[[Any], bool] = methodcaller("_is_owned")
_is_beginning = False
"""Whether this process is about to fork."""
_fork = 0
"""How many forks have begun."""


class Gate:
    """A lock that its own thread may take again: `with gate.lock():`. While a fork waits, others
    let it go first: one who works all the time would keep it out.

    The lock itself is what `with` takes and gives back, in C code alone. An interrupt that came
    between the two steps of a method of ours would leave it locked, and nobody in this process
    could open a store any more.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def lock(self) -> Any:
        """The lock, once no fork is about to begin or one has been waited for politely."""
        # Whoever is inside already is what the fork waits for.
        if _is_beginning and not _is_mine(self._lock):
            let_fork()
        return self._lock

    def acquire(self, timeout: float) -> bool:
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()


def let_fork() -> None:
    """Waits politely for a fork that is about to begin; by whoever holds nothing it wants."""
    mine = _mine
    if mine.fork != _fork:
        mine.fork, mine.naps = _fork, 0
    while _is_beginning and mine.naps < POLITE_S / NAP_S:
        mine.naps += 1
        # nobody else knows it: it may be interrupted
        threading.Event().wait(NAP_S)


class _OfThread(threading.local):
    gate: Gate | None = None
    fork = 0
    naps = 0


making = Gate()
"""Held while a gate is made, before a fork knows of it; nothing is waited for meanwhile."""
_mine = _OfThread()
# What is gone leaves them by itself, in C code alone: an interrupt that came in a function of ours
# would be swallowed there.
_gates: "set[weakref.ref[Gate]]" = set()
_concerned: "set[weakref.ref[Any]]" = set()
_files: dict[object, int] = {}
_held: list[Any] = []
_opened: "set[weakref.ref[apsw.Connection]]" = set()
_connections: "list[apsw.Connection]" = []
_inherited: "list[apsw.Connection]" = []
_is_quiet = True
"""Whether the fork that is beginning has all gates."""
_is_used = False
"""Whether this process, or one that it comes from, has used SQLite."""
_is_torn = False
"""Whether this process, or one that it comes from, was forked without them."""


def thread_gate() -> Gate:
    """The gate of the calling thread."""
    return _mine.gate or _make_gate()


def inside() -> Any:
    """What a thread holds while it is inside SQLite: `with inside():`. It waits for nothing else
    meanwhile than for SQLite.
    """
    return (_mine.gate or _make_gate()).lock()


def _make_gate() -> Gate:
    global _is_used
    with making.lock():
        _is_used = True
        _let_go()
        gate = Gate()
        _gates.add(weakref.ref(gate, _gates.discard))
        _mine.gate = gate
    return gate


def concern(one: Forked) -> None:
    """From now on a fork waits for its gates, and a child does not use it."""
    _concerned.add(weakref.ref(one, _concerned.discard))


def unconcern(one: Forked) -> None:
    _concerned.discard(weakref.ref(one))


def note_opened(connection: "apsw.Connection") -> None:
    """A child gets a copy of this connection. Called `inside`, where it is made."""
    _opened.add(weakref.ref(connection, _opened.discard))


def refuse_torn(where: str) -> None:
    """Refuses to open a store in a child that was forked while a thread was inside SQLite: its
    locks are here, and that thread is not.
    """
    if _is_torn:
        raise StoreUnavailable(
            where=where,
            problem="this process was forked while another thread was at work in SQLite for more "
            f"than {QUIET_S:g} s",
            remedy="Fork when no check or backup is under way, or start the process in another "
            "way, with `spawn` or `forkserver`",
        )


def keep_from_children(file: int) -> Callable[[], None]:
    """A descriptor that a child closes. Gives what the parent closes it with."""
    mark = object()  # not its number, which is another file's once it is closed
    _files[mark] = file

    def close() -> None:
        # In one step: whoever closes it again, or in a child, finds nothing to close.
        number = _files.pop(mark, None)
        if number is not None:
            os.close(number)

    return close


def forsake(connection: "apsw.Connection") -> None:
    """Closes a copy of a parent's connection: it brings nothing in and deletes nothing."""
    import apsw  # it is there: the connection is one of its own

    with suppress(apsw.Error):
        # the last connection to close would checkpoint, with locks that are the
        # parent's
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        # not its own way, which would make a gate: `_make_gate` is what calls this
        apsw.Connection.close(connection, True)


def _before() -> None:
    global _is_beginning, _is_quiet, _fork
    _is_beginning, _is_quiet = True, False
    _fork += 1
    for _ in range(int(QUIET_S / GATE_S)):
        # None is kept while another is waited for: whoever is inside may wait in SQLite for a
        # transaction of a thread that is between two steps of it.
        _let_gates_go()
        _is_quiet = all(map(_take, _gates_by_kind()))
        if _is_quiet:
            break
    # a fork must not hang: what can't be had is left as it is
    if not _is_quiet:
        for gate in _gates_by_kind():
            if gate.acquire(timeout=0):
                _held.append(gate)
    # Held: a child forgets what the threads of its parent had before it does anything else.
    _connections.extend(_alive(_opened))


def _gates_by_kind() -> Iterator[Any]:
    """Each kind before the next is looked for: who holds the first makes none of the others. It
    keeps another fork of this process waiting, too.
    """
    yield making
    for one in _alive(_concerned):
        yield from one.gates()
    yield from _alive(_gates)


def _alive(known: "set[weakref.ref[Any]]") -> list[Any]:
    return [one for one in [found() for found in list(known)] if one is not None]


def _take(gate: Any) -> bool:
    if not gate.acquire(timeout=GATE_S):
        return False
    _held.append(gate)
    return True


def _let_gates_go() -> None:
    while _held:
        _held.pop().release()


def _after() -> None:
    global _is_beginning
    _connections.clear()
    _let_gates_go()
    _is_beginning = False


def _in_child() -> None:
    global _is_torn
    for one in _alive(_concerned):
        one.abandon()
    # the child has no store; what it opens is concerned on its own
    _concerned.clear()
    for file in _files.values():
        os.close(file)
    _files.clear()
    if not _inherited:
        atexit.register(_leak)
    _inherited.extend(_connections)
    _opened.clear()
    # It may have been imported while the fork was under way, which did not wait then.
    has_waited = _is_quiet if _is_beginning else not _is_used
    _is_torn |= not has_waited
    _after()
    # Whoever uses SQLite here for the first time comes by `_make_gate`.
    _mine.gate = None


def _let_go() -> None:
    """In a child, before it uses SQLite: closes what it got."""
    # Of one that is torn nothing can be closed, and it opens nothing.
    while _inherited and not _is_torn:
        forsake(_inherited[-1])
        _inherited.pop()


def _leak() -> None:
    """At the end of a child that did not use SQLite: Python would close them as it ends."""
    with suppress(ImportError):
        import ctypes

        for connection in _inherited:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def wait_at_forks() -> None:
    """From now on. Once in a process, after the same of `forked_imports`: what is last asked to
    wait waits first, and who is inside SQLite may have to import.
    """
    os.register_at_fork(
        before=_before, after_in_parent=_after, after_in_child=_in_child
    )
