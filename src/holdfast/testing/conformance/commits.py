"""Laws of commits: what becomes of their drafts, how they are all or nothing, and what refuses
them.
"""

from holdfast.domain.entry import STARTING, Draft, Entry
from holdfast.engine.protocol import (
    Chunk,
    Engine,
    Opening,
    Refused,
    Start,
    Waiting,
    Write,
    Written,
)
from holdfast.testing.conformance.builders import (
    Laws,
    answers,
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


# The log


@LAWS
def seqs_are_dense_from_one_in_each_session(engine: Engine) -> None:
    one, two = opened(engine, 1), opened(engine, 2)
    for round_ in range(3):
        for session in (one, two):
            assert did(engine, Write(session, drafts=drafts(2))).seq == 2 + 2 * round_
    for session in (one, two):
        assert [entry.seq for entry in engine.entries(session)] == list(range(1, 8))
        assert state(engine, session).head == 7


@LAWS
def entries_come_back_byte_for_byte(engine: Engine) -> None:
    """Note and body may be any bytes, empty too; ids, kinds, turns and times are as they were
    given.
    """
    blobs = (
        b"",
        b"\x00",
        b"null",
        bytes(range(256)),
        "\u00e9\U0001f642".encode(),
        b"\xff" * 70_000,
    )
    given = tuple(
        Draft("message", turn, mint(), 1_700_000_000_000 + at, note, body)
        for at, note in enumerate(blobs)
        for body in blobs
        for turn in (None, 7)
    )
    session = opened(engine, 1)
    did(engine, Write(session, drafts=given))
    assert engine.entries(session, after=1) == as_entries(given, first=2)


@LAWS
def every_kind_of_entry_is_kept(engine: Engine) -> None:
    kinds = (
        "opened",
        "message",
        "turn",
        "take",
        "call",
        "end",
        "instructions",
        "view",
        "label",
        "retract",
        "closed",
    )
    given = tuple(
        Draft(kind, None, mint(), 5, kind.encode(), kind.encode()) for kind in kinds
    )
    session = opened(engine, 1)
    did(engine, Write(session, drafts=given))
    assert engine.entries(session, after=1) == as_entries(given, first=2)


@LAWS
def entries_made_in_the_same_instant_keep_their_order(engine: Engine) -> None:
    """Times are data for people: neither equal ones nor ones that run backwards change the order of
    the log.
    """
    session = opened(engine, 1)
    given = tuple(drafts(1, at=at)[0] for at in (5, 5, 5, 9, 2, 2))
    for draft in reversed(given):
        did(engine, Write(session, drafts=(draft,)))
    assert engine.entries(session, after=1) == as_entries(given[::-1], first=2)


@LAWS
def pages_of_any_size_join_to_the_whole_log(engine: Engine) -> None:
    session = opened(engine, 1)
    did(engine, Write(session, drafts=drafts(9)))
    whole = engine.entries(session)
    assert len(whole) == 10
    for size in range(1, 12):
        joined: list[Entry] = []
        while page := engine.entries(
            session, after=joined[-1].seq if joined else 0, limit=size
        ):
            assert len(page) <= size
            joined += page
        assert joined == whole
    assert engine.entries(session, after=10) == []


@LAWS
def what_is_not_there_reads_as_nothing(engine: Engine) -> None:
    assert engine.state(named(1)) is None
    assert engine.current("t", "k") is None
    assert engine.accepted("s", "e") is None
    assert (engine.find("t", ""), engine.sessions("t")) == ([], [])
    assert (
        engine.entries(named(1)),
        engine.inbox(named(1)),
        engine.journal(named(1)),
    ) == (
        [],
        [],
        [],
    )


# Commits


@LAWS
def the_writes_of_a_commit_happen_together(engine: Engine) -> None:
    """A commit has one write for each session; `Written` speaks of the last: the seq of its first
    draft, 0 if none.
    """
    one, two = opened(engine, 1), opened(engine, 2)
    assert did(
        engine, Write(one, drafts=drafts(3)), Write(two, drafts=drafts(2))
    ) == Written(seq=2)
    assert (state(engine, one).head, state(engine, two).head) == (4, 3)
    assert did(engine, Write(one, drafts=drafts(1)), Write(two)) == Written()
    assert (state(engine, one).head, state(engine, two).head) == (5, 3)


@LAWS
def one_refused_write_undoes_the_whole_commit(engine: Engine) -> None:
    one, two = opened(engine, 1), opened(engine, 2)
    before = state(engine, one), state(engine, two)
    given = drafts(2, turn=STARTING)
    first = Write(
        one,
        drafts=given,
        event=("scope", "event"),
        idle=True,
        start=Start("me", 600.0),
        admits=(Waiting(given[0].id),),
        chunk=Chunk(mint(), 0, b"x"),
    )
    second = Write(named(3), drafts=drafts(), open=Opening("t", "key", 1))
    [outcome] = engine.commit([(first, second, Write(two, drafts=drafts(), head=99))])
    assert isinstance(outcome, Refused) and (outcome.why, outcome.session) == (
        "moved",
        two,
    )
    assert (state(engine, one), state(engine, two)) == before
    assert (
        engine.state(named(3)),
        engine.current("t", "key"),
        engine.accepted("scope", "event"),
    ) == (None, None, None)
    assert (engine.inbox(one), engine.journal(one), len(engine.entries(one))) == (
        [],
        [],
        1,
    )
    did(engine, first)
    assert (
        state(engine, one).head,
        len(engine.inbox(one)),
        len(engine.journal(one)),
    ) == (3, 1, 1)


@LAWS
def a_refused_commit_never_fails_its_neighbours(engine: Engine) -> None:
    session, stranger = opened(engine, 1), named(9)
    good = drafts(3)
    bad = (Write(session, drafts=drafts(), fence=1),)
    one, two, three = ((Write(session, drafts=(draft,)),) for draft in good)
    outcomes = engine.commit([one, bad, two, (Write(stranger),), three, bad])
    assert answers(outcomes) == [
        Written(2),
        "superseded",
        Written(3),
        "missing",
        Written(4),
        "superseded",
    ]
    assert engine.entries(session, after=1) == as_entries(good, first=2)


@LAWS
def a_batch_of_nothing_is_nothing(engine: Engine) -> None:
    assert engine.commit([]) == []


@LAWS
def a_commit_sees_those_before_it_in_its_batch(engine: Engine) -> None:
    session = named(1)
    batch = [
        Write(session, drafts=drafts()),
        Write(session, drafts=drafts(), open=Opening("t", None, 1)),
        Write(session, drafts=drafts(), head=1),
        Write(session, drafts=drafts(), head=1),
    ]
    outcomes = engine.commit([(write,) for write in batch])
    assert answers(outcomes) == ["missing", Written(1), Written(2), "moved"]


# Guards


@LAWS
def a_write_to_no_session_is_refused_missing(engine: Engine) -> None:
    assert refusal(engine, Write(named(1), drafts=drafts())) == "missing"
    assert engine.state(named(1)) is None


@LAWS
def guards_are_judged_on_a_new_session_too(engine: Engine) -> None:
    """It has nothing yet: head 0, fence 0, no turn, an empty inbox, no debts."""
    asked = Opening("t", None, 1)
    assert (
        refusal(engine, Write(named(1), drafts=drafts(), open=asked, head=1)) == "moved"
    )
    assert (
        refusal(engine, Write(named(1), drafts=drafts(), open=asked, fence=0))
        == "superseded"
    )
    assert (
        refusal(engine, Write(named(1), drafts=drafts(), open=asked, takes=(mint(),)))
        == "taken"
    )
    assert (
        refusal(engine, Write(named(1), drafts=drafts(), open=asked, pays=mint()))
        == "taken"
    )
    did(engine, Write(named(1), drafts=drafts(), open=asked, head=0, idle=True))


@LAWS
def a_head_that_has_moved_is_refused(engine: Engine) -> None:
    session = opened(engine, 1)
    for head in (0, 2):
        assert refusal(engine, Write(session, drafts=drafts(), head=head)) == "moved"
    did(engine, Write(session, drafts=drafts(), head=1))
    assert state(engine, session).head == 2


@LAWS
def a_fence_is_good_only_while_its_turn_is_running(engine: Engine) -> None:
    session = opened(engine, 1)
    for fence in (0, 1):
        assert refusal(engine, Write(session, fence=fence)) == "superseded"
    turn = started(engine, session)
    for fence in (turn - 1, turn + 1):
        assert (
            refusal(engine, Write(session, drafts=drafts(), fence=fence))
            == "superseded"
        )
    did(engine, Write(session, drafts=drafts(), fence=turn))
    did(engine, Write(session, fence=turn, finish=True))
    assert refusal(engine, Write(session, drafts=drafts(), fence=turn)) == "superseded"


@LAWS
def an_idle_write_is_refused_while_a_turn_is_running(engine: Engine) -> None:
    session = opened(engine, 1)
    did(engine, Write(session, drafts=drafts(), idle=True))
    turn = started(engine, session)
    assert refusal(engine, Write(session, drafts=drafts(), idle=True)) == "busy"
    assert (
        refusal(engine, Write(session, idle=True, start=Start("other", 600.0)))
        == "busy"
    )
    did(engine, Write(session, drafts=drafts()))
    did(engine, Write(session, fence=turn, finish=True))
    did(engine, Write(session, drafts=drafts(), idle=True))


@LAWS
def an_ended_session_takes_only_late_outcomes(engine: Engine) -> None:
    """`close` ends the session from the next write on; its own drafts are stored."""
    session = opened(engine, 1)
    assert not state(engine, session).ended
    did(engine, Write(session, drafts=drafts(), close=True))
    assert state(engine, session).ended and state(engine, session).head == 2
    assert refusal(engine, Write(session, drafts=drafts())) == "ended"
    assert (
        refusal(engine, Write(session, idle=True, start=Start("me", 600.0))) == "ended"
    )
    did(engine, Write(session, drafts=drafts(), ended_too=True))
    assert state(engine, session).ended and state(engine, session).head == 3
