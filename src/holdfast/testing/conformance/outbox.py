"""Laws of what waits and what is owed, in all sessions together: found by age, and claimed by one
sender at a time.
"""

from typing import Any

from msgspec.structs import replace

from holdfast.domain.entry import Draft
from holdfast.engine.protocol import (
    Engine,
    OutboxClaim,
    OwedReply,
    Owing,
    Pending,
    Written,
)
from holdfast.testing.conformance.builders import (
    answers,
    as_entries,
    did,
    drafts,
    large,
    mint,
)
from holdfast.testing.conformance.laws import Laws
from holdfast.testing.conformance.tested_session import (
    TestedSession,
    new_session,
    pages_join,
)

LAWS = Laws()


@LAWS
def what_waits_in_all_sessions_is_found_by_age_a_page_at_a_time(engine: Engine) -> None:
    sessions = [new_session(engine, number, key=f"k{number}") for number in (3, 1, 2)]
    # Each is given its second message after all have had their first.
    said = []
    for time, session in enumerate([*sessions, *sessions], 1):
        draft = _at(time)
        session.admit(draft)
        said.append((session.id, draft))
    new_session(engine, 4, tenant="another", key="k").admit(_at(1))
    found = engine.pending("t")
    assert [(each.session, each.entry.id) for each in found] == [
        (session, draft.id) for session, draft in said
    ]
    assert [each.key for each in found] == ["k3", "k1", "k2"] * 2
    first = said[0][1]
    assert [found[0].entry] == as_entries((first,), first=2)

    def page(after: Any, limit: int) -> list[Pending]:
        return engine.pending("t", after=after, limit=limit)

    pages_join(found, page, lambda one: (one.entry.id, one.session, one.entry.seq))
    sessions[0].write(takes=(first.id,))
    assert engine.pending("t") == found[1:]


@LAWS
def what_waits_is_found_with_its_large_parts(engine: Engine) -> None:
    message = large(size=100_000)
    new_session(engine).admit(message)
    [found] = engine.pending("t")
    assert found.key is None
    assert found.entry.body == message.body


@LAWS
def the_sessions_in_which_a_turn_runs_are_found(
    engine: Engine, one: TestedSession, two: TestedSession
) -> None:
    new_session(engine, 3)
    elsewhere = new_session(engine, 4, tenant="another")
    for session in (one, two, elsewhere):
        session.start()
    # In any order: it is no list for people.
    assert sorted(engine.running("t")) == [one.id, two.id]
    # The first turn of a session has the number 1.
    one.finish(1)
    assert engine.running("t") == [two.id]


@LAWS
def replies_that_are_owed_are_found_by_age_a_page_at_a_time(
    engine: Engine, one: TestedSession, two: TestedSession
) -> None:
    debts = []
    for at, session in enumerate((two, one, two, one), 10):
        debts.append(_owe(session, at=at))
    _owe(new_session(engine, 3, tenant="another"), at=1)
    assert engine.outbox("t") == debts
    assert engine.outbox("t", limit=2) == debts[:2]
    # From a debt, and not from a place: those before it may have been paid meanwhile.
    assert engine.outbox("t", after=debts[1]) == debts[2:]
    assert engine.debts(one.id) == [debts[1], debts[3]]


@LAWS
def replies_of_one_moment_come_in_the_order_of_their_turns(
    engine: Engine, session: TestedSession
) -> None:
    """Whatever their ids are; a page at a time too."""
    ids = [mint() for _ in range(4)]
    # The later the turn, the lower the id: an order of ids would show.
    debts = [_owe(session, id=id) for id in reversed(ids)]
    assert engine.outbox("t") == debts
    assert [*engine.outbox("t", limit=2), *engine.outbox("t", after=debts[1])] == debts


@LAWS
def a_reply_is_claimed_by_one_sender_at_a_time(
    engine: Engine, session: TestedSession
) -> None:
    debt = _owe(session)
    session.write(claim=OutboxClaim(debt.id, b"one", 600.0))
    session.refuses("taken", claim=OutboxClaim(debt.id, b"two", 600.0))
    assert engine.outbox("t", free=True) == []
    assert engine.outbox("t") == [debt]
    # Its own claim is renewed, however long it had left.
    session.write(claim=OutboxClaim(debt.id, b"one", 900.0))
    # No seconds give a reply back, and it is not this sender's to give back.
    session.refuses("taken", claim=OutboxClaim(debt.id, b"two", 0.0))
    session.write(claim=OutboxClaim(debt.id, b"one", 0.0))
    assert engine.outbox("t", free=True) == [debt]
    session.write(claim=OutboxClaim(debt.id, b"two", 600.0))
    session.write(pays=debt.id)
    session.refuses("taken", claim=OutboxClaim(debt.id, b"two", 600.0))
    assert engine.outbox("t") == []


@LAWS
def a_claim_that_has_run_out_holds_nobody_off(
    engine: Engine, session: TestedSession
) -> None:
    debt = _owe(session)
    # Run out before it began, without a clock that moves.
    session.write(claim=OutboxClaim(debt.id, b"one", -1.0))
    assert engine.outbox("t", free=True) == [debt]
    session.write(claim=OutboxClaim(debt.id, b"two", 600.0))
    session.refuses("taken", claim=OutboxClaim(debt.id, b"one", 600.0))


@LAWS
def of_two_claims_in_one_batch_one_is_done(session: TestedSession) -> None:
    debt = _owe(session)
    tickets = []
    for token in (b"one", b"two"):
        claim = OutboxClaim(debt.id, token, 600.0)
        tickets.append(session.submit(claim=claim))
    outcomes = [ticket.result() for ticket in tickets]
    assert answers(outcomes) == [Written(), "taken"]


@LAWS
def a_claim_stays_while_another_session_is_erased(
    engine: Engine, session: TestedSession, other: TestedSession
) -> None:
    debt = _owe(session)
    _owe(other, at=11)
    session.write(claim=OutboxClaim(debt.id, b"one", 600.0))
    # An erasure empties an outbox: of one session, and not of all.
    did(engine, other.erasing(()))
    assert engine.outbox("t") == [debt]
    assert engine.outbox("t", free=True) == []


def _at(time: int) -> Draft:
    """A message whose id begins with this time."""
    [draft] = drafts(1, at=time)
    return replace(draft, id=time.to_bytes(6, "big") + draft.id[6:])


def _owe(session: TestedSession, *, at: int = 10, id: bytes = b"") -> OwedReply:
    """A turn ends and owes a reply."""
    turn = session.start()
    [debt] = session.owe(turn, Owing(id or mint(), "somebody"), at=at)
    return debt
