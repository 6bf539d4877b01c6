"""Laws of laying: a session that another store keeps is laid down as it stands there, and nothing
is lost here.
"""

from holdfast.domain.accepted_events import AcceptedEvent, event_name
from holdfast.domain.entry import Draft
from holdfast.engine.protocol import (
    Engine,
    Laid,
    Opening,
    OwedReply,
    Owing,
    Waiting,
    Write,
)
from holdfast.testing.conformance.builders import (
    Laws,
    acceptance,
    as_entries,
    did,
    drafts,
    mint,
    named,
    opened,
    refusal,
    started,
    state,
)

LAWS = Laws()

BEGUN = Laid(fence=0, active_at=1)


@LAWS
def a_session_that_is_laid_down_stands_as_it_was_given(engine: Engine) -> None:
    """Its entries keep their turns and times; nothing runs in it, and the next turn gets the next
    number.
    """
    given = (
        Draft("opened", None, mint(), 5),
        *drafts(2, at=6),
        *drafts(2, at=7, turn=3),
    )
    waiting, debt = (
        Waiting(given[1].id, None, 2),
        OwedReply(mint(), named(1), 3, "somebody \ud800", 7),
    )
    laid = Laid(fence=4, active_at=900, base=3, inbox=(waiting,), outbox=(debt,))
    did(
        engine,
        Write(
            named(1),
            drafts=given,
            open=Opening("t", "k", 1, fence=4),
            head=0,
            idle=True,
            lay=laid,
        ),
    )
    assert engine.entries(named(1)) == as_entries(given, first=1)
    known = state(engine, named(1))
    assert (known.head, known.fence, known.base, known.active_at, known.opened_at) == (
        5,
        4,
        3,
        900,
        5,
    )
    assert (known.ended, known.erased, known.turn, known.key, known.epoch) == (
        False,
        False,
        None,
        "k",
        1,
    )
    assert (engine.inbox(named(1)), engine.outbox("t"), engine.debts(named(1))) == (
        [waiting],
        [debt],
        [debt],
    )
    assert started(engine, named(1)) == 5


@LAWS
def what_is_laid_down_later_takes_the_place_of_inbox_and_outbox(engine: Engine) -> None:
    session = opened(engine, 1)
    [early, late] = drafts(2)
    did(engine, Write(session, drafts=(early,), admits=(Waiting(early.id),)))
    did(engine, Write(session, drafts=drafts(turn=1), owes=(Owing(mint(), "old"),)))
    other = opened(engine, 2)
    did(engine, Write(other, drafts=drafts(turn=1), owes=(Owing(mint(), "theirs"),)))
    debt = OwedReply(mint(), session, 7, "new", 9)
    laid = Laid(
        fence=7, active_at=9, inbox=(Waiting(late.id, None, 4),), outbox=(debt,)
    )
    did(engine, Write(session, drafts=(late,), head=3, idle=True, lay=laid))
    assert engine.inbox(session) == [Waiting(late.id, None, 4)]
    assert {owed.reply_to for owed in engine.outbox("t")} == {"new", "theirs"}
    assert engine.debts(session) == [debt]
    did(engine, Write(session, head=4, idle=True, lay=Laid(fence=7, active_at=9)))
    assert engine.inbox(session) == []
    assert {owed.reply_to for owed in engine.outbox("t")} == {"theirs"}


@LAWS
def what_is_laid_down_continues_what_is_there_or_is_refused(engine: Engine) -> None:
    session = opened(engine, 1)
    assert (
        refusal(engine, Write(session, drafts=drafts(), head=0, idle=True, lay=BEGUN))
        == "moved"
    )
    number = started(engine, session)
    assert (
        refusal(engine, Write(session, drafts=drafts(), head=2, idle=True, lay=BEGUN))
        == "busy"
    )
    assert state(engine, session).turn == number


@LAWS
def what_is_laid_down_may_have_ended_and_may_be_erased(engine: Engine) -> None:
    """A late outcome may follow an end, and an audit entry an erasure: both are laid down too."""
    session = opened(engine, 1)
    ended = Laid(fence=0, active_at=2, ended=True)
    did(engine, Write(session, drafts=drafts(), head=1, idle=True, lay=ended))
    assert (state(engine, session).ended, state(engine, session).erased) == (
        True,
        False,
    )
    assert refusal(engine, Write(session, drafts=drafts())) == "ended"
    erased = Laid(fence=0, active_at=2, ended=True, erased=True)
    did(
        engine,
        Write(session, drafts=drafts(), head=2, idle=True, ended_too=True, lay=erased),
    )
    assert (state(engine, session).ended, state(engine, session).erased) == (True, True)
    assert refusal(engine, Write(session, drafts=drafts(), ended_too=True)) == "ended"
    did(
        engine,
        Write(session, drafts=drafts(), head=3, idle=True, ended_too=True, lay=erased),
    )
    assert state(engine, session).head == 4


@LAWS
def an_erasure_is_laid_down_with_what_it_leaves(engine: Engine) -> None:
    session = opened(engine, 1)
    did(engine, Write(session, drafts=drafts(2)))
    audit = Draft("erased", None, mint(), 9, b"{}")
    erased = Laid(fence=0, active_at=2, ended=True, erased=True)
    left = tuple((seq, b"left") for seq in (1, 2, 3))
    did(
        engine,
        Write(
            session,
            drafts=(audit,),
            head=3,
            idle=True,
            ended_too=True,
            erase=left,
            lay=erased,
        ),
    )
    kept = engine.entries(session)
    assert [(entry.note, entry.body) for entry in kept[:3]] == [(b"left", b"")] * 3
    assert (kept[3].kind, kept[3].id) == ("erased", audit.id)
    assert state(engine, session).erased


@LAWS
def an_event_that_is_laid_down_is_known_and_one_that_is_known_stays_as_it_is(
    engine: Engine,
) -> None:
    ours = opened(engine, 1)
    did(engine, Write(ours, drafts=drafts(), event=("scope", "ours")))
    before = acceptance(engine, "scope", "ours")
    [first, second] = drafts(2)
    known = AcceptedEvent(event_name("scope", "ours"), named(2), 2, first.id)
    new = AcceptedEvent(event_name("scope", "new"), named(2), 3, second.id)
    opening = Opening("t", None, 1)
    given = (Draft("opened", None, mint(), 1), first, second)
    laid = Laid(fence=0, active_at=1, events=(known, new))
    did(
        engine, Write(named(2), drafts=given, open=opening, head=0, idle=True, lay=laid)
    )
    did(engine, Write(named(2), head=3, idle=True, lay=laid))
    assert acceptance(engine, "scope", "ours") == before
    accepted = acceptance(engine, "scope", "new")
    assert (accepted.session, accepted.seq, accepted.message) == (
        named(2),
        3,
        second.id,
    )
    assert (
        refusal(engine, Write(ours, drafts=drafts(), event=("scope", "new")))
        == "accepted"
    )


@LAWS
def all_events_are_told_page_by_page_in_the_order_of_their_names(
    engine: Engine,
) -> None:
    sessions = [opened(engine, 1), opened(engine, 2, tenant="another")]
    for number in range(7):
        did(
            engine,
            Write(sessions[number % 2], drafts=drafts(), event=("scope", str(number))),
        )
    whole = engine.events()
    assert [event.name for event in whole] == sorted(
        event_name("scope", str(number)) for number in range(7)
    )
    assert {event.session for event in whole} == set(sessions)
    for size in range(1, 9):
        joined: list[AcceptedEvent] = []
        while page := engine.events(
            after=joined[-1].name if joined else b"", limit=size
        ):
            assert len(page) <= size
            joined += page
        assert joined == whole


@LAWS
def tenants_are_told_once_each_and_in_order(engine: Engine) -> None:
    assert engine.tenants() == []
    for number, tenant in enumerate(("b", "a\0", "b", "é", "a"), 1):
        opened(engine, number, tenant=tenant)
    assert engine.tenants() == ["a", "a\0", "b", "é"]
