"""Laws of what waits and what is owed, in all sessions together: found by age, and claimed by one
sender at a time.
"""

from holdfast.domain.entry import Draft
from holdfast.engine.protocol import (
    Engine,
    OutboxClaim,
    OwedReply,
    Owing,
    Waiting,
    Write,
)
from holdfast.testing.conformance.builders import (
    Laws,
    as_entries,
    did,
    drafts,
    mint,
    opened,
    refusal,
    started,
)

LAWS = Laws()


@LAWS
def what_waits_in_all_sessions_is_found_by_age_a_page_at_a_time(engine: Engine) -> None:
    sessions = [opened(engine, number, key=f"k{number}") for number in (3, 1, 2)]
    said = [
        (session, _at(time)) for time, session in enumerate([*sessions, *sessions], 1)
    ]
    for session, draft in said:
        did(engine, Write(session, drafts=(draft,), admits=(Waiting(draft.id),)))
    elsewhere = opened(engine, 4, tenant="another", key="k")
    other = _at(1)
    did(engine, Write(elsewhere, drafts=(other,), admits=(Waiting(other.id),)))
    found = engine.pending("t")
    assert [(each.session, each.entry.id) for each in found] == [
        (session, draft.id) for session, draft in said
    ]
    assert [each.key for each in found] == ["k3", "k1", "k2"] * 2
    assert [found[0].entry] == as_entries((said[0][1],), first=2)
    paged = []
    after = None
    while page := engine.pending("t", after=after, limit=2):
        paged += page
        after = (page[-1].entry.id, page[-1].session, page[-1].entry.seq)
    assert paged == found
    did(engine, Write(sessions[0], takes=(said[0][1].id,)))
    assert engine.pending("t") == found[1:]


@LAWS
def what_waits_is_found_with_its_large_parts(engine: Engine) -> None:
    session = opened(engine, 1)
    large = Draft(
        "message",
        None,
        mint(),
        5,
        b"",
        b'{"role":"user","content":"' + b"x" * 100_000 + b'"}',
    )
    did(engine, Write(session, drafts=(large,), admits=(Waiting(large.id),)))
    [found] = engine.pending("t")
    assert (found.key, found.entry.body) == (None, large.body)


@LAWS
def the_sessions_in_which_a_turn_runs_are_found(engine: Engine) -> None:
    one, two = opened(engine, 1), opened(engine, 2)
    opened(engine, 3)
    elsewhere = opened(engine, 4, tenant="another")
    for session in (one, two, elsewhere):
        started(engine, session)
    assert sorted(engine.running("t")) == [one, two]
    did(engine, Write(one, fence=1, finish=True))
    assert engine.running("t") == [two]


@LAWS
def replies_that_are_owed_are_found_by_age_a_page_at_a_time(engine: Engine) -> None:
    one, two = opened(engine, 1), opened(engine, 2)
    debts = [
        _owe(engine, session, f"to {at}", at=at)
        for at, session in enumerate((two, one, two, one), 10)
    ]
    _owe(engine, opened(engine, 3, tenant="another"), "theirs", at=1)
    assert engine.outbox("t") == debts
    assert engine.outbox("t", limit=2) == debts[:2]
    assert engine.outbox("t", after=debts[1]) == debts[2:]
    assert engine.debts(one) == [debts[1], debts[3]]


@LAWS
def replies_of_one_moment_come_in_the_order_of_their_turns(engine: Engine) -> None:
    """Whatever their ids are; a page at a time too."""
    session = opened(engine, 1)
    ids = [mint() for _ in range(4)]
    debts = [_owe(engine, session, "somebody", at=10, id=id) for id in reversed(ids)]
    assert engine.outbox("t") == debts
    assert [*engine.outbox("t", limit=2), *engine.outbox("t", after=debts[1])] == debts


@LAWS
def a_reply_is_claimed_by_one_sender_at_a_time(engine: Engine) -> None:
    session = opened(engine, 1)
    debt = _owe(engine, session, "somebody", at=10)
    did(engine, Write(session, claim=OutboxClaim(debt.id, b"one", 600.0)))
    assert (
        refusal(engine, Write(session, claim=OutboxClaim(debt.id, b"two", 600.0)))
        == "taken"
    )
    assert (engine.outbox("t", free=True), engine.outbox("t")) == ([], [debt])
    did(engine, Write(session, claim=OutboxClaim(debt.id, b"one", 900.0)))
    assert (
        refusal(engine, Write(session, claim=OutboxClaim(debt.id, b"two", 0.0)))
        == "taken"
    ), "not its own to give back"
    did(engine, Write(session, claim=OutboxClaim(debt.id, b"one", 0.0)))
    assert engine.outbox("t", free=True) == [debt]
    did(engine, Write(session, claim=OutboxClaim(debt.id, b"two", 600.0)))
    did(engine, Write(session, pays=debt.id))
    assert (
        refusal(engine, Write(session, claim=OutboxClaim(debt.id, b"two", 600.0)))
        == "taken"
    )
    assert engine.outbox("t") == []


@LAWS
def a_claim_that_has_run_out_holds_nobody_off(engine: Engine) -> None:
    session = opened(engine, 1)
    debt = _owe(engine, session, "somebody", at=10)
    did(engine, Write(session, claim=OutboxClaim(debt.id, b"one", -1.0)))
    assert engine.outbox("t", free=True) == [debt]
    did(engine, Write(session, claim=OutboxClaim(debt.id, b"two", 600.0)))
    assert (
        refusal(engine, Write(session, claim=OutboxClaim(debt.id, b"one", 600.0)))
        == "taken"
    )


@LAWS
def of_two_claims_in_one_batch_one_is_done(engine: Engine) -> None:
    session = opened(engine, 1)
    debt = _owe(engine, session, "somebody", at=10)
    tickets = [
        engine.submit((Write(session, claim=OutboxClaim(debt.id, token, 600.0)),))
        for token in (b"one", b"two")
    ]
    assert [getattr(ticket.result(), "why", "done") for ticket in tickets] == [
        "done",
        "taken",
    ]


@LAWS
def a_claim_stays_while_another_session_is_erased(engine: Engine) -> None:
    session, other = opened(engine, 1), opened(engine, 2)
    debt = _owe(engine, session, "somebody", at=10)
    _owe(engine, other, "somebody else", at=11)
    did(engine, Write(session, claim=OutboxClaim(debt.id, b"one", 600.0)))
    erased = Draft("erased", None, mint(), 12, b"{}")
    did(engine, Write(other, drafts=(erased,), ended_too=True, close=True, erase=()))
    assert (engine.outbox("t"), engine.outbox("t", free=True)) == ([debt], [])


def _at(time: int) -> Draft:
    """A message whose id begins with this time."""
    [draft] = drafts(1, at=time)
    return Draft(
        "message",
        None,
        time.to_bytes(6, "big") + draft.id[6:],
        time,
        draft.note,
        draft.body,
    )


def _owe(
    engine: Engine, session: str, reply_to: str, *, at: int, id: bytes = b""
) -> OwedReply:
    """A turn ends and owes a reply."""
    number, id = started(engine, session), id or mint()
    end = Draft("end", number, mint(), at, b"{}")
    did(
        engine,
        Write(
            session,
            drafts=(end,),
            fence=number,
            finish=True,
            owes=(Owing(id, reply_to),),
        ),
    )
    return OwedReply(id, session, number, reply_to, at)
