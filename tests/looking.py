"""A second pair of eyes: what a test sees of a store from outside, and the clock it moves by hand.

Everything here reads through a store handle of its own or through the engine of one, as another
process would.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.domain.chunk import shown, unpack
from holdfast.domain.entry import note_of
from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Engine
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store, open_store


class HandWorld(RealWorld):
    """The real world, but for a clock that a test moves ahead by hand (`ahead_s`)."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now(self) -> int:
        return super().now() + int(self.ahead_s * 1000)

    def tick(self) -> float:
        return super().tick() + self.ahead_s


class Hasty(RealWorld):
    """A world in which patience is over soon."""

    def tick(self) -> float:
        return super().tick() * 100


def patient(lock_s: float) -> Callable[..., Engine]:
    """The real engine, with less patience, for `holdfast.runtime.open_store.open_engine`: `open` has no
    word for it.
    """
    return lambda where, **options: open_engine(where, **{**options, "lock_s": lock_s})


@contextmanager
def other_handle(where: Any, **options: Any) -> Iterator[Store]:
    """Another handle on the same store, for the time of a `with` block."""
    with open_store(where, **options) as store:
        yield store


def raw_entries(store: Store, session_id: str) -> list[Any]:
    """The log as it lies in the store, read without settling anything."""
    return store._work.engine.entries(session_id, limit=1_000_000)


def ends(store: Store, session_id: str) -> dict[int, list[str]]:
    """Every turn that started, and the ends it has; a healthy one has one (I-6)."""
    found: dict[int, list[str]] = {}
    for entry in raw_entries(store, session_id):
        if entry.kind == "turn":
            found[entry.turn] = []
        elif entry.kind == "end":
            found[entry.turn].append(note_of("end", entry.note).end)
    return found


def end_notes(store: Store, session_id: str) -> list[Any]:
    """The notes of all ends, in order: `end`, `reason`, `error`."""
    return [
        note_of("end", entry.note)
        for entry in raw_entries(store, session_id)
        if entry.kind == "end"
    ]


def journaled(store: Store, session_id: str) -> str:
    """The text for people that lies in the journal now, in order of arrival."""
    rows = store._work.engine.journal(session_id, limit=1_000_000)
    return "".join(shown(delta for delta in unpack(row.body) if delta[0] != "open") for row in rows)


def journal_rows(store: Store, session_id: str) -> int:
    """How many commits the chunks of this session took, as far as the journal still holds them."""
    return len(store._work.engine.journal(session_id, limit=1_000_000))


def told(session: Any) -> list[tuple[str, str, str]]:
    """The transcript as (role, text, state)."""
    return [(message.role, message.text, message.state) for message in session.transcript()]


def waiters(store: Store, session_id: str) -> list[str | None]:
    """Who waits with each message of the inbox."""
    return [waiting.waiter for waiting in store._work.engine.inbox(session_id)]


def when(session: Session, condition: Callable[[], Any]) -> None:
    """Waits for the session's news until this is so."""
    news = threading.Event()
    stop = session._log.engine.watch(session.id, news.set)
    try:
        while not condition():
            news.wait(0.05)
            news.clear()
    finally:
        stop()
