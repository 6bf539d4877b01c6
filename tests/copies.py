"""Stores to be copied, and all that is in one, for the tests that copy.

fill(path)                       # two tenants, forks, keys with epochs, every state a session can
be in assert told(path) == told(other) # the same sessions, in every respect that a store knows
"""

import os
from pathlib import Path
from typing import Any

import holdfast
from exhibits import fill_long, fill_table
from holdfast.engine.protocol import Engine, SessionState

ODD = '\0\x01\x85\udfff\ud800\u2028\ufeff\uffff🦀\U0010ffff\\"\n é\udc00'
"""Text that is hard to carry: NUL, lone surrogates, the ends of Unicode, what JSON escapes."""
PICTURE = "data:image/png;base64," + "iVBORw0KGgo" * 6_000
FIELDS = (
    "id",
    "tenant",
    "key",
    "epoch",
    "ended",
    "erased",
    "head",
    "fence",
    "turn",
    "opened_at",
    "active_at",
    "last_at",
    "base",
    "origin",
)


def fill(where: str | os.PathLike[str], tenant: str = "default") -> None:
    """A store with something of everything in it; nothing is running at the end."""
    with holdfast.open(where, durability="process", tenant=tenant) as store:
        fill_table(store, store.session("telegram:dm:42"))
        fill_long(store.session("cli:ada"))
        _fill_odd(store)
        _fill_keys(store)
        _fill_forks(store)
        gone = store.session("erased")
        with gone.turn("Forget this secret.", event_id="erased-1") as turn:
            turn.say("It is forgotten.")
        store.erase(gone.id)


def _fill_odd(store: holdfast.Store) -> None:
    session = store.session("odd \U0010ffff\0")
    session.append(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}
    )
    with session.turn(ODD, event_id=ODD, reply_to=ODD) as turn:
        list(turn.deliver([ODD, ODD]))
    with session.turn(PICTURE, reply_to="sent") as turn:
        turn.say(PICTURE)
    next(owed for owed in store.outbox() if owed.reply_to == "sent").sent("platform-1")
    session.label(next(iter(session.transcript())).id, seen=True)


def _fill_keys(store: holdfast.Store) -> None:
    for number in range(3):
        with store.session("reset").turn(f"Life {number}.", event_id=f"life-{number}") as turn:
            turn.say("Yes.")
        store.accept("reset", f"Carry on {number}.", event_id=f"carried-{number}")
        store.reset("reset")
    store.session("reset").turn(None, event_id="alone").interrupt("nothing to do")


def _fill_forks(store: holdfast.Store) -> None:
    parent = store.session("parent")
    with parent.turn("One.") as turn:
        turn.say("First.")
    child = parent.fork()
    with child.turn("Two.") as turn:
        turn.say("Second.")
    with child.fork(key="grandchild").turn("Three.") as turn:
        turn.say("Third.")


def told(where: str | os.PathLike[str]) -> dict[str, Any]:
    """All that a store knows of its sessions, but for what belongs to a process: leases and who
    waits.
    """
    with holdfast.open(where, durability="process") as store:
        engine = store._work.engine
        states = sorted(
            (
                state
                for tenant in engine.tenants()
                for state in engine.sessions(tenant, limit=10_000)
            ),
            key=lambda state: state.id,
        )
        return {
            "sessions": {state.id: _session(engine, state) for state in states},
            "current": {
                (state.tenant, state.key): _id(engine.current(state.tenant, state.key))
                for state in states
                if state.key
            },
            "events": engine.events(limit=100_000),
        }


def _session(engine: Engine, state: SessionState) -> dict[str, Any]:
    return {
        "state": {name: getattr(state, name) for name in FIELDS},
        "entries": engine.entries(state.id, limit=100_000),
        "labels": engine.labels(state.id),
        "inbox": [(waiting.seq, waiting.message) for waiting in engine.inbox(state.id)],
        "debts": engine.debts(state.id),
    }


def _id(state: SessionState | None) -> str | None:
    return state.id if state is not None else None


def beside(path: Path, name: str = "copy.db") -> Path:
    return path.with_name(name)
