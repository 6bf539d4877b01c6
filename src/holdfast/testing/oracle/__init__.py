"""The oracle of the fault tests, the power cuts, the loads and the soak: what is wrong with a
store.

    assert judge(store) == []                      # every invariant holds

    acknowledged = Acknowledged()
    acknowledged.said(session.id, session.append("Hello."), "Hello.")
    assert judge(store, acknowledged) == []              # and all that was acknowledged is there

It knows two things. `invariants` are what must hold of any store, whatever was done to it, with
turns running or not. A `Acknowledged` has what callers of this store were answered: all of it must
be there, once and in order (I-3). It is filled live, call by call, or from the acts that a process
wrote down before it was killed.

A store is read as any reader does: a turn whose writer is gone is settled by the look (I-6). Every
sentence ends with the number of the invariant that does not hold. What can't be read at all is
reported as I-18 and does not hide the rest.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.runtime.store import Store
from holdfast.testing.oracle.acknowledged import Acknowledged, Act
from holdfast.testing.oracle.invariants import OF_A_SESSION, OF_A_STORE
from holdfast.testing.oracle.look import FORMATS, SESSIONS_MAX, Look

__all__ = ["FORMATS", "Act", "Acknowledged", "judge"]


def judge(
    store: Store,
    acknowledged: Acknowledged | None = None,
    *,
    formats: Sequence[str] = FORMATS,
) -> list[str]:
    """A sentence for every invariant that does not hold in this store, and for everything
    acknowledged that is not so; empty when all is well. Contexts are looked at in these formats.
    """
    engine = store._work.engine
    found: list[str] = []
    looks: list[Look] = []
    for state in engine.find(store.tenant, "", SESSIONS_MAX):
        try:
            looks.append(Look(store.get(state.id), formats))
        except Exception as error:
            found.append(f"session {state.id[:8]}: it can't be read, {error!r} (I-18)")
    # All are read before any is judged: a session that can't be read hides no other.
    for look in looks:
        for law in OF_A_SESSION:
            found += _held(f"session {look.session.id[:8]}", law, look)
    for rule in OF_A_STORE:
        found += _held("the store", rule, engine, store.tenant, looks)
    if acknowledged is not None:
        outbox = engine.outbox(store.tenant, limit=SESSIONS_MAX)
        owed = {debt.id.hex() for debt in outbox}
        found += _held("acknowledged", acknowledged.contradictions, looks, owed)
    return found


def _held(place: str, law: Callable[..., Iterator[str]], *what: Any) -> list[str]:
    try:
        return [f"{place}: {sentence}" for sentence in law(*what)]
    # A law that can't look is a finding, and not the end of the look.
    except Exception as error:
        return [f"{place}: {law.__name__} could not look, {error!r} (I-18)"]
