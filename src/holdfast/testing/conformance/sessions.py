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
    Laws,
    acceptance,
    answers,
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


# Opening


@LAWS
def a_new_session_is_idle_open_and_as_it_was_asked_for(engine: Engine) -> None:
    """Its times are those of its first draft: an engine has no calendar of its own."""
    did(
        engine,
        Write(named(1), drafts=drafts(1, at=77), open=Opening("tenant", "a key", 1)),
    )
    assert state(engine, named(1)) == SessionState(
        id=named(1),
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
    for epoch in (2, 3):
        assert (
            refusal(
                engine, Write(named(2), drafts=drafts(), open=Opening("t", "k", epoch))
            )
            == "bound"
        )
    one = opened(engine, 1, key="k")
    for epoch in (1, 3):
        assert (
            refusal(
                engine, Write(named(2), drafts=drafts(), open=Opening("t", "k", epoch))
            )
            == "bound"
        )
    two = opened(engine, 2, key="k", epoch=2)
    assert (state(engine, one).epoch, state(engine, two).epoch) == (1, 2)


@LAWS
def the_current_session_of_a_key_follows_its_epochs(engine: Engine) -> None:
    """A reset ends one session and opens the next in one commit; an ended one stays current until
    there is a next.
    """
    one = opened(engine, 1, key="k")
    assert engine.current("t", "k") == state(engine, one)
    did(
        engine,
        Write(one, drafts=drafts(), close=True),
        Write(named(2), drafts=drafts(), open=Opening("t", "k", 2)),
    )
    assert engine.current("t", "k") == state(engine, named(2))
    did(engine, Write(named(2), close=True))
    assert engine.current("t", "k") == state(engine, named(2))
    assert state(engine, one).key == "k"


@LAWS
def of_two_openings_of_one_key_in_a_batch_the_first_wins(engine: Engine) -> None:
    batch = [
        (Write(named(n), drafts=drafts(), open=Opening("t", "k", 1)),) for n in (1, 2)
    ]
    assert answers(engine.commit(batch)) == [Written(1), "bound"]
    assert engine.state(named(2)) is None


@LAWS
def keys_of_different_tenants_are_different_keys(engine: Engine) -> None:
    one, two = (
        opened(engine, 1, tenant="a", key="k"),
        opened(engine, 2, tenant="b", key="k"),
    )
    assert engine.current("a", "k") == state(engine, one)
    assert engine.current("b", "k") == state(engine, two)
    assert engine.current("c", "k") is None


@LAWS
def an_id_that_another_tenant_has_is_not_opened_again(engine: Engine) -> None:
    """I-19: an id is of one session, whoever asks for it, and in a batch of its own too."""
    theirs = opened(engine, 1, tenant="a", key="k")
    before = state(engine, theirs), engine.entries(theirs)
    for key in (None, "k"):
        assert (
            refusal(engine, Write(theirs, drafts=drafts(), open=Opening("b", key, 1)))
            == "bound"
        )
    assert (state(engine, theirs), engine.entries(theirs)) == before
    assert (engine.current("b", "k"), engine.sessions("b")) == (None, [])


@LAWS
def sessions_without_a_key_are_bound_to_nothing(engine: Engine) -> None:
    one, two = opened(engine, 1), opened(engine, 2)
    assert (state(engine, one).key, state(engine, two).key) == (None, None)


@LAWS
def a_session_may_be_opened_and_started_in_one_write(engine: Engine) -> None:
    opening = Draft("opened", None, mint(), 4)
    turn = Draft("turn", STARTING, mint(), 4)
    write = Write(
        named(1),
        drafts=(opening, turn),
        open=Opening("t", "k", 1),
        idle=True,
        start=Start("me", 600.0),
    )
    number = did(engine, write).turn
    assert [entry.turn for entry in engine.entries(named(1))] == [None, number]
    assert state(engine, named(1)).turn == number


# Finding and listing


@LAWS
def sessions_are_found_by_any_prefix_of_their_id(engine: Engine) -> None:
    """In the order of their ids; the characters of a prefix stand for themselves, there are no
    wildcards.
    """
    ids = [opened(engine, n) for n in (0xAB, 0xA1, 0xB)]
    by_id = sorted(ids)
    assert [known.id for known in engine.find("t", "", limit=9)] == by_id
    assert [known.id for known in engine.find("t", "a", limit=9)] == by_id[:2]
    assert [known.id for known in engine.find("t", "", limit=2)] == by_id[:2]
    for session in ids:
        assert engine.find("t", session) == [state(engine, session)]
        assert [known.id for known in engine.find("t", session[:2])] == [session]
    for stranger in ("c", "%", "_", "a_", "*", "A", named(0xAB) + "0"):
        assert engine.find("t", stranger) == []


@LAWS
def sessions_are_found_by_their_own_tenant_only(engine: Engine) -> None:
    one, two = opened(engine, 1, tenant="a"), opened(engine, 2, tenant="b")
    assert [known.id for known in engine.find("a", "", limit=9)] == [one]
    assert engine.find("a", two) == []
    assert [known.id for known in engine.sessions("b")] == [two]
    assert engine.sessions("c") == []


@LAWS
def a_started_turn_makes_its_session_the_newest(engine: Engine) -> None:
    """The time is that of the first draft of the write that starts it; plain appends leave the
    order as it is.
    """
    one, two = opened(engine, 1, at=100), opened(engine, 2, at=200)
    did(engine, Write(one, drafts=drafts(1, at=250)))
    assert [known.id for known in engine.sessions("t")] == [two, one]
    turn = started(engine, one, at=300)
    assert [known.id for known in engine.sessions("t")] == [one, two]
    did(engine, Write(one, drafts=drafts(1, at=400), fence=turn, finish=True))
    known = state(engine, one)
    assert (known.opened_at, known.active_at, known.last_at) == (100, 300, 400)


@LAWS
def a_load_begins_with_the_first_draft_of_the_last_base(engine: Engine) -> None:
    """A base is the seq of that draft; it stays until the next one, and a refused commit moves
    nothing.
    """
    session = opened(engine, 1)
    assert state(engine, session).base == 0
    did(engine, Write(session, drafts=drafts(3)))
    assert (
        did(engine, Write(session, drafts=drafts(2), base=True)).seq
        == state(engine, session).base
        == 5
    )
    did(engine, Write(session, drafts=drafts(2)))
    assert (
        refusal(engine, Write(session, drafts=drafts(), base=True, head=1)) == "moved"
    )
    assert state(engine, session).base == 5
    did(engine, Write(session, drafts=drafts(), base=True))
    assert state(engine, session).base == 9


# Events


@LAWS
def an_event_is_accepted_once(engine: Engine) -> None:
    """It is noted with the first draft of its write, or the one named; a refusal says where,
    whichever session asks.
    """
    one, two = opened(engine, 1), opened(engine, 2)
    given = drafts(2)
    did(engine, Write(one, drafts=given, event=("scope", "e")))
    first = Accepted(session=one, seq=2, message=given[0].id)
    assert engine.accepted("scope", "e") == first
    for session in (one, two):
        again = Write(session, drafts=drafts(), event=("scope", "e"))
        assert engine.commit([(again,)]) == [Refused("accepted", session, first)]
    assert (state(engine, one).head, state(engine, two).head) == (3, 1)
    given = drafts(3)
    did(engine, Write(two, drafts=given, event=("scope", "f"), event_draft=2))
    assert engine.accepted("scope", "f") == Accepted(
        session=two, seq=4, message=given[2].id
    )


@LAWS
def the_same_event_twice_in_a_batch_is_accepted_once(engine: Engine) -> None:
    session = opened(engine, 1)
    given = drafts(2)
    batch = [
        (Write(session, drafts=(draft,), event=("scope", "e")),) for draft in given
    ]
    first = Accepted(session=session, seq=2, message=given[0].id)
    assert engine.commit(batch) == [Written(2), Refused("accepted", session, first)]
    assert state(engine, session).head == 2


@LAWS
def an_event_of_a_refused_commit_is_still_unknown(engine: Engine) -> None:
    session = opened(engine, 1)
    assert (
        refusal(engine, Write(session, drafts=drafts(), event=("scope", "e"), head=9))
        == "moved"
    )
    assert engine.accepted("scope", "e") is None
    did(engine, Write(session, drafts=drafts(), event=("scope", "e")))


@LAWS
def scopes_keep_equal_events_apart(engine: Engine) -> None:
    one, two = opened(engine, 1), opened(engine, 2)
    did(engine, Write(one, drafts=drafts(), event=("a", "e")))
    did(engine, Write(two, drafts=drafts(), event=("b", "e")))
    assert (
        acceptance(engine, "a", "e").session,
        acceptance(engine, "b", "e").session,
    ) == (
        one,
        two,
    )
    assert engine.accepted("c", "e") is None


# The inbox


@LAWS
def the_inbox_holds_what_was_admitted_in_order(engine: Engine) -> None:
    """An admitted message is one of the drafts of its write, and waits at that draft's seq."""
    session, other = opened(engine, 1), opened(engine, 2)
    given = drafts(3)
    for draft, waiter in zip(given, ("ann", None, "bob"), strict=True):
        did(
            engine, Write(session, drafts=(draft,), admits=(Waiting(draft.id, waiter),))
        )
    one, two, three = (draft.id for draft in given)
    assert engine.inbox(session) == [
        Waiting(one, "ann", 2),
        Waiting(two, None, 3),
        Waiting(three, "bob", 4),
    ]
    assert engine.inbox(other) == []


@LAWS
def several_may_be_admitted_and_taken_in_one_write(engine: Engine) -> None:
    session = opened(engine, 1)
    given = drafts(4)
    did(
        engine,
        Write(
            session, drafts=given, admits=tuple(Waiting(draft.id) for draft in given)
        ),
    )
    did(engine, Write(session, drafts=drafts(), takes=(given[2].id, given[0].id)))
    assert [(waiting.message, waiting.seq) for waiting in engine.inbox(session)] == [
        (given[1].id, 3),
        (given[3].id, 5),
    ]


@LAWS
def a_message_is_taken_once(engine: Engine) -> None:
    """All of `takes` must be waiting in this very session; if one is not, none is taken."""
    session, other = opened(engine, 1), opened(engine, 2)
    given = drafts(2)
    one, two = (draft.id for draft in given)
    did(engine, Write(session, drafts=given, admits=(Waiting(one), Waiting(two))))
    assert refusal(engine, Write(other, takes=(one,))) == "taken"
    did(engine, Write(session, takes=(one,)))
    assert refusal(engine, Write(session, drafts=drafts(), takes=(two, one))) == "taken"
    assert refusal(engine, Write(session, takes=(mint(),))) == "taken"
    assert [waiting.message for waiting in engine.inbox(session)] == [two]


@LAWS
def of_two_takers_in_a_batch_the_first_wins(engine: Engine) -> None:
    session = opened(engine, 1)
    [draft] = drafts()
    did(engine, Write(session, drafts=(draft,), admits=(Waiting(draft.id),)))
    batch = [(Write(session, drafts=drafts(), takes=(draft.id,)),) for _ in range(2)]
    assert answers(engine.commit(batch)) == [Written(3), "taken"]


@LAWS
def a_message_that_is_given_back_stands_where_it_stood(engine: Engine) -> None:
    """Who gives a message back names its seq (I-4). Admitting again what still waits changes its
    waiter only.
    """
    session = opened(engine, 1)
    given = drafts(2)
    one, two = (draft.id for draft in given)
    did(
        engine,
        Write(session, drafts=given, admits=(Waiting(one, "ann"), Waiting(two, "bob"))),
    )
    did(engine, Write(session, takes=(one,)))
    did(engine, Write(session, drafts=drafts(), admits=(Waiting(one, None, 2),)))
    assert engine.inbox(session) == [Waiting(one, None, 2), Waiting(two, "bob", 3)]
    did(engine, Write(session, admits=(Waiting(two, None, 3),)))
    assert engine.inbox(session) == [Waiting(one, None, 2), Waiting(two, None, 3)]
