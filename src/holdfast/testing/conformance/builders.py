"""The words in which the laws of engines are told: small stories of commits, without a clock and
without chance.

Used by the families of laws beside this file, and by an engine's own tests. Ids are counted, so
that no two are alike.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

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

PATIENCE_S = 30.0
"""How long a case waits for a signal before it says that none came."""

Case = Callable[[Engine], None]

_minted = itertools.count(1)


class Laws(dict[str, Case]):
    """A family of laws: each sentence and the case that shows it. Decorates a case whose name is
    the sentence.
    """

    def __call__(self, case: Case) -> Case:
        self[case.__name__.replace("_", " ")] = case
        return case


def named(number: int) -> str:
    """The id of a session; those of 1 to 15 differ in their first digit."""
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


def as_entries(
    given: tuple[Draft, ...], *, first: int, turn: int | None = None
) -> list[Entry]:
    """What the log should hold of these drafts from seq `first` on, `turn` standing where they said
    STARTING.
    """

    def kept(seq: int, draft: Draft) -> Entry:
        number = turn if draft.turn == STARTING else draft.turn
        return Entry(
            seq, draft.kind, number, draft.id, draft.at, draft.note, draft.body
        )

    return [kept(seq, draft) for seq, draft in enumerate(given, first)]


def did(engine: Engine, *writes: Write) -> Written:
    """One commit that must be done."""
    [outcome] = engine.commit([writes])
    assert isinstance(outcome, Written), f"refused: {outcome}"
    return outcome


def refusal(engine: Engine, write: Write) -> str:
    """One commit that must be refused and must change nothing: why."""
    before = (
        engine.state(write.session),
        engine.entries(write.session),
        engine.inbox(write.session),
    )
    [outcome] = engine.commit([(write,)])
    assert isinstance(outcome, Refused), f"done: {outcome}"
    assert outcome.session == write.session
    after = (
        engine.state(write.session),
        engine.entries(write.session),
        engine.inbox(write.session),
    )
    assert _timeless(before) == _timeless(after)
    return outcome.why


def answers(outcomes: Iterable[Outcome]) -> list[Written | str]:
    """What came of commits; of a refused one the reason alone, for its detail is the engine's own
    affair.
    """
    return [
        outcome if isinstance(outcome, Written) else outcome.why for outcome in outcomes
    ]


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
    asked = Opening(tenant, key, epoch)
    did(
        engine,
        Write(named(number), drafts=(Draft("opened", None, mint(), at),), open=asked),
    )
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
    turn = Draft("turn", STARTING, mint(), at)
    return did(
        engine, Write(session, drafts=(turn,), idle=True, start=Start(holder, lease_s))
    ).turn


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


def _timeless(read: tuple[SessionState | None, Any, Any]) -> Any:
    """What was read, without the lease, which runs by itself."""
    known, *rest = read
    if known is None:
        return None, rest
    return {
        name: getattr(known, name)
        for name in known.__struct_fields__
        if not name.startswith("lease")
    }, rest
