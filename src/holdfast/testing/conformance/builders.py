"""What laws of engines are made of: commits, drafts and ids, without a clock and without chance.

Used by the families of laws beside this file, and by an engine's own tests. Ids are counted, so
that no two are alike.
"""

import itertools
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from holdfast.domain.entry import STARTING, Draft, Entry
from holdfast.engine.protocol import (
    Accepted,
    Engine,
    Opening,
    Outcome,
    Refused,
    SessionState,
    Start,
    Write,
    Written,
)

# Far longer than any engine takes: a slow machine breaks no law.
PATIENCE_S = 30.0
"""How long a case waits for a signal before it says that none came."""

LARGE_BYTES = 40_000
"""More than an engine keeps in the row of an entry (`engine.blobs.PART_BYTES_MIN`)."""

_minted = itertools.count(1)


def named(number: int) -> str:
    """The id of a session; those of 1 to 15 differ in their first digit."""
    # In the first digits, as laws of prefixes want to tell ids apart there.
    return f"{number:x}".ljust(8, "0") + "-0000-4000-8000-000000000000"


def mint() -> bytes:
    """An id like no other."""
    return next(_minted).to_bytes(16, "big")


def drafts(
    count: int = 1, *, at: int = 1_000, turn: int | None = None
) -> tuple[Draft, ...]:
    """Messages on their way."""
    return tuple(
        Draft("message", turn, mint(), at, b"{}", b'"hello"') for _ in range(count)
    )


def large(*, turn: int | None = None, at: int = 5, size: int = LARGE_BYTES) -> Draft:
    """A message so large that engines may keep its text apart, as a blob that sessions share."""
    body = b'{"role":"user","content":"' + b"x" * size + b'"}'
    return Draft("message", turn, mint(), at, b"", body)


def as_entries(
    given: tuple[Draft, ...], *, first: int, turn: int | None = None
) -> list[Entry]:
    """What the log should hold of these drafts from seq `first` on, `turn` standing where they said
    STARTING.
    """
    entries = []
    for seq, draft in enumerate(given, first):
        number = turn if draft.turn == STARTING else draft.turn
        entry = Entry(
            seq, draft.kind, number, draft.id, draft.at, draft.note, draft.body
        )
        entries.append(entry)
    return entries


def did(engine: Engine, *writes: Write) -> Written:
    """One commit that must be done."""
    [outcome] = engine.commit([writes])
    assert isinstance(outcome, Written), f"refused: {outcome}"
    return outcome


def refusal(engine: Engine, write: Write) -> str:
    """One commit that must be refused and must change nothing: why."""
    before = _readings(engine, write.session)
    [outcome] = engine.commit([(write,)])
    assert isinstance(outcome, Refused), f"done: {outcome}"
    assert outcome.session == write.session
    assert _readings(engine, write.session) == before
    return outcome.why


def answers(outcomes: Iterable[Outcome]) -> list[Written | str]:
    """What came of commits; of a refused one the reason alone, for its detail is the engine's own
    affair.
    """
    given: list[Written | str] = []
    for outcome in outcomes:
        given.append(outcome if isinstance(outcome, Written) else outcome.why)
    return given


def opened(
    engine: Engine,
    number: int,
    *,
    tenant: str = "t",
    key: str | None = None,
    epoch: int = 1,
    at: int = 1,
) -> str:
    """A session is made, with one entry in its log."""
    given = (Draft("opened", None, mint(), at),)
    did(engine, Write(named(number), drafts=given, open=Opening(tenant, key, epoch)))
    return named(number)


def started(
    engine: Engine,
    session: str,
    *,
    holder: str = "me",
    lease_s: float = 600.0,
    at: int = 2,
) -> int:
    """A turn is started, with one entry; its number."""
    given = (Draft("turn", STARTING, mint(), at),)
    # The default lease outlasts any case: no turn is to be given up by accident.
    start = Start(holder, lease_s)
    return did(engine, Write(session, drafts=given, idle=True, start=start)).turn


def state(engine: Engine, session: str) -> SessionState:
    """What the engine knows of a session that must be there."""
    known = engine.state(session)
    assert known is not None, f"no session {session}"
    return known


def acceptance(engine: Engine, scope: str, event: str) -> Accepted:
    """Where an event was accepted that must have been."""
    known = engine.accepted(scope, event)
    assert known is not None, f"{event} was never accepted in {scope}"
    return known


def _readings(engine: Engine, session: str) -> tuple[Any, ...]:
    """What can be read of a session."""
    known = engine.state(session)
    if known is not None:
        # A lease runs by itself: two looks at it differ though nothing was written.
        known = replace(known, lease_left_s=None, lease_s=None, lease_mark=None)
    return known, engine.entries(session), engine.inbox(session)
