"""Laws of laying: a session that another store keeps is laid down as it stands there, and nothing
is lost here.
"""

from holdfast.domain.accepted_events import AcceptedEvent, event_name
from holdfast.domain.entry import Draft
from holdfast.engine.protocol import (
    Accepted,
    Engine,
    Laid,
    Opening,
    OwedReply,
    Owing,
    Waiting,
)
from holdfast.testing.conformance.builders import acceptance, drafts, mint
from holdfast.testing.conformance.laws import Laws
from holdfast.testing.conformance.tested_session import (
    TestedSession,
    new_session,
    pages_join,
)

LAWS = Laws()

BEGUN = Laid(fence=0, active_at=1)
ERASED = Laid(fence=0, active_at=2, ended=True, erased=True)


@LAWS
def a_session_that_is_laid_down_stands_as_it_was_given(engine: Engine) -> None:
    """Its entries keep their turns and times; nothing runs in it, and the next turn gets the next
    number.
    """
    session = TestedSession(engine, 1)
    opened = Draft("opened", None, mint(), 5)
    given = (opened, *drafts(2, at=6), *drafts(2, at=7, turn=3))
    waiting = Waiting(given[1].id, None, 2)
    # Half of a surrogate pair, as some platforms' names have: text that is no UTF-8.
    debt = OwedReply(mint(), session.id, 3, "somebody \ud800", 7)
    laid = Laid(fence=4, active_at=900, base=3, inbox=(waiting,), outbox=(debt,))
    opening = Opening("t", "k", 1, fence=4)
    session.write(drafts=given, open=opening, head=0, idle=True, lay=laid)
    session.holds(given, first=1)
    known = session.state
    assert (known.key, known.epoch) == ("k", 1)
    assert (known.head, known.fence, known.base) == (5, 4, 3)
    assert known.active_at == 900
    assert known.opened_at == 5
    assert not known.ended
    assert not known.erased
    assert known.turn is None
    assert session.inbox() == [waiting]
    assert engine.outbox("t") == engine.debts(session.id) == [debt]
    # The fence it was given counts on, not one of this store's own.
    assert session.start() == 5


@LAWS
def what_is_laid_down_later_takes_the_place_of_inbox_and_outbox(
    engine: Engine, session: TestedSession, other: TestedSession
) -> None:
    [early, late] = drafts(2)
    session.admit(early)
    session.write(drafts=drafts(turn=1), owes=(Owing(mint(), "old"),))
    other.write(drafts=drafts(turn=1), owes=(Owing(mint(), "theirs"),))
    waiting = Waiting(late.id, None, 4)
    debt = OwedReply(mint(), session.id, 7, "new", 9)
    laid = Laid(fence=7, active_at=9, inbox=(waiting,), outbox=(debt,))
    session.write(drafts=(late,), head=3, idle=True, lay=laid)
    assert session.inbox() == [waiting]
    assert {owed.reply_to for owed in engine.outbox("t")} == {"new", "theirs"}
    assert engine.debts(session.id) == [debt]
    # Nothing waits there any more, and nothing is owed: so it is here.
    session.write(head=4, idle=True, lay=Laid(fence=7, active_at=9))
    assert session.inbox() == []
    assert {owed.reply_to for owed in engine.outbox("t")} == {"theirs"}


@LAWS
def what_is_laid_down_continues_what_is_there_or_is_refused(
    session: TestedSession,
) -> None:
    session.refuses_append("moved", head=0, idle=True, lay=BEGUN)
    number = session.start()
    session.refuses_append("busy", head=2, idle=True, lay=BEGUN)
    assert session.state.turn == number


@LAWS
def what_is_laid_down_may_have_ended_and_may_be_erased(session: TestedSession) -> None:
    """A late outcome may follow an end, and an audit entry an erasure: both are laid down too."""
    ended = Laid(fence=0, active_at=2, ended=True)
    # The write that ends it may bring entries, as a close does.
    session.append(head=1, idle=True, lay=ended)
    assert session.state.ended
    assert not session.state.erased
    session.refuses_append("ended")
    session.append(head=2, idle=True, ended_too=True, lay=ERASED)
    assert session.state.ended
    assert session.state.erased
    session.refuses_append("ended", ended_too=True)
    session.append(head=3, idle=True, ended_too=True, lay=ERASED)
    assert session.state.head == 4


@LAWS
def an_erasure_is_laid_down_with_what_it_leaves(session: TestedSession) -> None:
    session.append(2)
    given = (Draft("erased", None, mint(), 9, b"{}"),)
    left = tuple((seq, b"left") for seq in (1, 2, 3))
    session.write(
        drafts=given, head=3, idle=True, ended_too=True, erase=left, lay=ERASED
    )
    *kept, _ = session.entries()
    assert [(entry.note, entry.body) for entry in kept] == [(b"left", b"")] * 3
    # What comes with an erasure is not erased by it.
    session.holds(given, first=4)
    assert session.state.erased


@LAWS
def an_event_that_is_laid_down_is_known_and_one_that_is_known_stays_as_it_is(
    engine: Engine, ours: TestedSession
) -> None:
    theirs = TestedSession(engine, 2)
    ours.append(event=("scope", "ours"))
    before = acceptance(engine, "scope", "ours")
    [first, second] = drafts(2)
    known = AcceptedEvent(event_name("scope", "ours"), theirs.id, 2, first.id)
    new = AcceptedEvent(event_name("scope", "new"), theirs.id, 3, second.id)
    given = (Draft("opened", None, mint(), 1), first, second)
    opening = Opening("t", None, 1)
    laid = Laid(fence=0, active_at=1, events=(known, new))
    theirs.write(drafts=given, open=opening, head=0, idle=True, lay=laid)
    # Once more, as a copy that was broken off begins again.
    theirs.write(head=3, idle=True, lay=laid)
    assert acceptance(engine, "scope", "ours") == before
    assert acceptance(engine, "scope", "new") == Accepted(theirs.id, 3, second.id)
    ours.refuses_append("accepted", event=("scope", "new"))


@LAWS
def all_events_are_told_page_by_page_in_the_order_of_their_names(
    engine: Engine, one: TestedSession
) -> None:
    # All tenants': a copy is of a whole store.
    two = new_session(engine, 2, tenant="another")
    names = []
    for number in range(8):
        session = (one, two)[number % 2]
        session.append(event=("scope", str(number)))
        names.append(event_name("scope", str(number)))

    def page(after: bytes | None, limit: int) -> list[AcceptedEvent]:
        return engine.events(after=after or b"", limit=limit)

    whole = engine.events()
    assert [event.name for event in whole] == sorted(names)
    assert {event.session for event in whole} == {one.id, two.id}
    pages_join(whole, page, lambda event: event.name)


@LAWS
def tenants_are_told_once_each_and_in_order(engine: Engine) -> None:
    assert engine.tenants() == []
    # In the order of their bytes, whatever the database thinks of letters.
    for number, tenant in enumerate(("b", "a\0", "b", "é", "a"), 1):
        new_session(engine, number, tenant=tenant)
    assert engine.tenants() == ["a", "a\0", "b", "é"]
