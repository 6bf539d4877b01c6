"""Laws of sessions: how they are opened, bound to keys, found and listed; events and the inbox."""

from holdfast.domain.entry import STARTING, Draft
from holdfast.engine.protocol import (
    Accepted,
    Engine,
    Opening,
    Refused,
    SessionState,
    Start,
    Waiting,
    Write,
    Written,
)
from holdfast.testing.conformance.builders import (
    acceptance,
    answers,
    did,
    drafts,
    mint,
    named,
)
from holdfast.testing.conformance.laws import Laws
from holdfast.testing.conformance.tested_session import TestedSession, are, new_session

LAWS = Laws()


# Opening


@LAWS
def a_new_session_is_idle_open_and_as_it_was_asked_for(engine: Engine) -> None:
    """Its times are those of its first draft: an engine has no calendar of its own."""
    session = TestedSession(engine, 1)
    session.write(drafts=drafts(1, at=77), open=Opening("tenant", "a key", 1))
    assert session.state == SessionState(
        id=session.id,
        tenant="tenant",
        key="a key",
        epoch=1,
        ended=False,
        head=1,
        fence=0,
        turn=None,
        holder=None,
        lease_left_s=None,
        opened_at=77,
        active_at=77,
        last_at=77,
        journal=0,
    )


@LAWS
def a_key_is_bound_only_to_its_next_epoch(engine: Engine) -> None:
    """A key without a session begins at 1. Whether the session before has ended is the caller's
    affair.
    """
    two = TestedSession(engine, 2)
    for epoch in (2, 3):
        two.refuses_append("bound", open=Opening("t", "k", epoch))
    one = new_session(engine, 1, key="k")
    for epoch in (1, 3):
        two.refuses_append("bound", open=Opening("t", "k", epoch))
    new_session(engine, 2, key="k", epoch=2)
    assert one.state.epoch == 1
    assert two.state.epoch == 2


@LAWS
def the_current_session_of_a_key_follows_its_epochs(engine: Engine) -> None:
    """A reset ends one session and opens the next in one commit; an ended one stays current until
    there is a next.
    """
    one = new_session(engine, 1, key="k")
    two = TestedSession(engine, 2)
    assert engine.current("t", "k") == one.state
    closing = Write(one.id, drafts=drafts(), close=True)
    did(engine, closing, Write(two.id, drafts=drafts(), open=Opening("t", "k", 2)))
    assert engine.current("t", "k") == two.state
    two.write(close=True)
    assert engine.current("t", "k") == two.state
    assert one.state.key == "k"


@LAWS
def of_two_openings_of_one_key_in_a_batch_the_first_wins(engine: Engine) -> None:
    opening = Opening("t", "k", 1)
    first = Write(named(1), drafts=drafts(), open=opening)
    second = Write(named(2), drafts=drafts(), open=opening)
    assert answers(engine.commit([(first,), (second,)])) == [Written(1), "bound"]
    assert engine.state(named(2)) is None


@LAWS
def keys_of_different_tenants_are_different_keys(engine: Engine) -> None:
    one = new_session(engine, 1, tenant="a", key="k")
    two = new_session(engine, 2, tenant="b", key="k")
    assert engine.current("a", "k") == one.state
    assert engine.current("b", "k") == two.state
    # A tenant without sessions has no keys either.
    assert engine.current("c", "k") is None


@LAWS
def an_id_that_another_tenant_has_is_not_opened_again(engine: Engine) -> None:
    """I-19: an id is of one session, whoever asks for it, and in a batch of its own too."""
    theirs = new_session(engine, 1, tenant="a", key="k")
    before = theirs.state
    entries = theirs.entries()
    for key in (None, "k"):
        theirs.refuses_append("bound", open=Opening("b", key, 1))
    assert theirs.state == before
    assert theirs.entries() == entries
    assert engine.current("b", "k") is None
    assert engine.sessions("b") == []


@LAWS
def sessions_without_a_key_are_bound_to_nothing(
    one: TestedSession, two: TestedSession
) -> None:
    assert one.state.key is two.state.key is None


@LAWS
def a_session_may_be_opened_and_started_in_one_write(engine: Engine) -> None:
    session = TestedSession(engine, 1)
    given = (Draft("opened", None, mint(), 4), Draft("turn", STARTING, mint(), 4))
    opening = Opening("t", "k", 1)
    start = Start("me", 600.0)
    number = session.write(drafts=given, open=opening, idle=True, start=start).turn
    assert [entry.turn for entry in session.entries()] == [None, number]
    assert session.state.turn == number


# Finding and listing


@LAWS
def sessions_are_found_by_any_prefix_of_their_id(engine: Engine) -> None:
    """In the order of their ids; the characters of a prefix stand for themselves, there are no
    wildcards.
    """
    # Not in the order of their ids, so that an order of arrival would show.
    second = new_session(engine, 0xAB)
    first = new_session(engine, 0xA1)
    third = new_session(engine, 0xB)
    assert are(engine.find("t", "", limit=9), first, second, third)
    assert are(engine.find("t", "a", limit=9), first, second)
    assert are(engine.find("t", "", limit=2), first, second)
    for session in (first, second, third):
        assert engine.find("t", session.id) == [session.state]
        assert are(engine.find("t", session.id[:2]), session)
    # Wildcards of SQL and of file names, another case, and more than a whole id.
    for stranger in ("c", "%", "_", "a_", "*", "A", named(0xAB) + "0"):
        assert engine.find("t", stranger) == []


@LAWS
def sessions_are_found_by_their_own_tenant_only(engine: Engine) -> None:
    one = new_session(engine, 1, tenant="a")
    two = new_session(engine, 2, tenant="b")
    assert are(engine.find("a", "", limit=9), one)
    assert engine.find("a", two.id) == []
    assert are(engine.sessions("b"), two)
    assert engine.sessions("c") == []


@LAWS
def a_started_turn_makes_its_session_the_newest(engine: Engine) -> None:
    """The time is that of the first draft of the write that starts it; plain appends leave the
    order as it is.
    """
    one = new_session(engine, 1, at=100)
    two = new_session(engine, 2, at=200)
    # Less than a step of `active_at` later: lists need not move for every message.
    one.write(drafts=drafts(1, at=250))
    assert are(engine.sessions("t"), two, one)
    turn = one.start(at=300)
    assert are(engine.sessions("t"), one, two)
    one.write(drafts=drafts(1, at=400), fence=turn, finish=True)
    known = one.state
    assert (known.opened_at, known.active_at, known.last_at) == (100, 300, 400)


@LAWS
def a_load_begins_with_the_first_draft_of_the_last_base(session: TestedSession) -> None:
    """A base is the seq of that draft; it stays until the next one, and a refused commit moves
    nothing.
    """
    assert session.state.base == 0
    session.append(3)
    # Of several drafts the first.
    assert session.append(2, base=True).seq == session.state.base == 5
    session.append(2)
    session.refuses_append("moved", base=True, head=1)
    assert session.state.base == 5
    session.append(base=True)
    assert session.state.base == 9


# Events


@LAWS
def an_event_is_accepted_once(
    engine: Engine, one: TestedSession, two: TestedSession
) -> None:
    """It is noted with the first draft of its write, or the one named; a refusal says where,
    whichever session asks.
    """
    given = drafts(2)
    one.write(drafts=given, event=("scope", "e"))
    first = Accepted(one.id, 2, given[0].id)
    assert engine.accepted("scope", "e") == first
    # Whichever session asks: an event id is of its scope, not of a session.
    for session in (one, two):
        again = Write(session.id, drafts=drafts(), event=("scope", "e"))
        assert engine.commit([(again,)]) == [Refused("accepted", session.id, first)]
    assert one.state.head == 3
    assert two.state.head == 1
    given = drafts(3)
    # The message of a turn's start is not its first draft.
    two.write(drafts=given, event=("scope", "f"), event_draft=2)
    assert engine.accepted("scope", "f") == Accepted(two.id, 4, given[2].id)


@LAWS
def the_same_event_twice_in_a_batch_is_accepted_once(
    engine: Engine, session: TestedSession
) -> None:
    given = drafts(2)
    first = Write(session.id, drafts=given[:1], event=("scope", "e"))
    again = Write(session.id, drafts=given[1:], event=("scope", "e"))
    accepted = Accepted(session.id, 2, given[0].id)
    assert engine.commit([(first,), (again,)]) == [
        Written(2),
        Refused("accepted", session.id, accepted),
    ]
    assert session.state.head == 2


@LAWS
def an_event_of_a_refused_commit_is_still_unknown(
    engine: Engine, session: TestedSession
) -> None:
    session.refuses_append("moved", event=("scope", "e"), head=9)
    assert engine.accepted("scope", "e") is None
    # A retry of what was refused is new.
    session.append(event=("scope", "e"))


@LAWS
def scopes_keep_equal_events_apart(
    engine: Engine, one: TestedSession, two: TestedSession
) -> None:
    one.append(event=("a", "e"))
    two.append(event=("b", "e"))
    assert acceptance(engine, "a", "e").session == one.id
    assert acceptance(engine, "b", "e").session == two.id
    assert engine.accepted("c", "e") is None


# The inbox


@LAWS
def the_inbox_holds_what_was_admitted_in_order(
    session: TestedSession, other: TestedSession
) -> None:
    """An admitted message is one of the drafts of its write, and waits at that draft's seq."""
    given = drafts(3)
    for draft, waiter in zip(given, ("ann", None, "bob"), strict=True):
        session.write(drafts=(draft,), admits=(Waiting(draft.id, waiter),))
    one, two, three = (draft.id for draft in given)
    assert session.inbox() == [
        Waiting(one, "ann", 2),
        Waiting(two, None, 3),
        Waiting(three, "bob", 4),
    ]
    assert other.inbox() == []


@LAWS
def several_may_be_admitted_and_taken_in_one_write(session: TestedSession) -> None:
    given = drafts(4)
    session.admit(*given)
    # Not in the order in which they wait.
    session.append(takes=(given[2].id, given[0].id))
    assert session.inbox() == [
        Waiting(given[1].id, None, 3),
        Waiting(given[3].id, None, 5),
    ]


@LAWS
def a_message_is_taken_once(session: TestedSession, other: TestedSession) -> None:
    """All of `takes` must be waiting in this very session; if one is not, none is taken."""
    given = drafts(2)
    one, two = (draft.id for draft in given)
    session.admit(*given)
    # It waits, and elsewhere: that is as good as gone.
    other.refuses("taken", takes=(one,))
    session.write(takes=(one,))
    session.refuses_append("taken", takes=(two, one))
    session.refuses("taken", takes=(mint(),))
    assert [waiting.message for waiting in session.inbox()] == [two]


@LAWS
def of_two_takers_in_a_batch_the_first_wins(
    engine: Engine, session: TestedSession
) -> None:
    [draft] = drafts()
    session.admit(draft)
    first = Write(session.id, drafts=drafts(), takes=(draft.id,))
    second = Write(session.id, drafts=drafts(), takes=(draft.id,))
    assert answers(engine.commit([(first,), (second,)])) == [Written(3), "taken"]


@LAWS
def a_message_that_is_given_back_stands_where_it_stood(session: TestedSession) -> None:
    """Who gives a message back names its seq (I-4). Admitting again what still waits changes its
    waiter only.
    """
    given = drafts(2)
    one, two = (draft.id for draft in given)
    session.write(drafts=given, admits=(Waiting(one, "ann"), Waiting(two, "bob")))
    # A turn took it, and ended without having used it.
    session.write(takes=(one,))
    session.append(admits=(Waiting(one, None, 2),))
    assert session.inbox() == [Waiting(one, None, 2), Waiting(two, "bob", 3)]
    session.write(admits=(Waiting(two, None, 3),))
    assert session.inbox() == [Waiting(one, None, 2), Waiting(two, None, 3)]
