"""Laws of commits: what becomes of their drafts, how they are all or nothing, and what refuses
them.
"""

from itertools import product

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
from holdfast.testing.conformance.builders import answers, did, drafts, mint, named
from holdfast.testing.conformance.laws import Laws
from holdfast.testing.conformance.tested_session import TestedSession, pages_join

LAWS = Laws()


# The log


@LAWS
def seqs_are_dense_from_one_in_each_session(
    one: TestedSession, two: TestedSession
) -> None:
    for round_ in range(3):
        for session in (one, two):
            assert session.append(2).seq == 2 + 2 * round_
    for session in (one, two):
        assert [entry.seq for entry in session.entries()] == list(range(1, 8))
        assert session.state.head == 7


@LAWS
def entries_come_back_byte_for_byte(session: TestedSession) -> None:
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
    given = []
    shapes = product(blobs, blobs, (None, 7))
    for at, (note, body, turn) in enumerate(shapes, 1_700_000_000_000):
        given.append(Draft("message", turn, mint(), at, note, body))
    session.write(drafts=tuple(given))
    session.holds(tuple(given))


@LAWS
def every_kind_of_entry_is_kept(session: TestedSession) -> None:
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
    given = []
    for kind in kinds:
        given.append(Draft(kind, None, mint(), 5, kind.encode(), kind.encode()))
    session.write(drafts=tuple(given))
    session.holds(tuple(given))


@LAWS
def entries_made_in_the_same_instant_keep_their_order(session: TestedSession) -> None:
    """Times are data for people: neither equal ones nor ones that run backwards change the order of
    the log.
    """
    given: tuple[Draft, ...] = ()
    for at in (5, 5, 5, 9, 2, 2):
        # Newer ids are greater: this one is stored before those that were minted first.
        given = (*drafts(1, at=at), *given)
    for draft in given:
        session.write(drafts=(draft,))
    session.holds(given)


@LAWS
def pages_of_any_size_join_to_the_whole_log(
    engine: Engine, session: TestedSession
) -> None:
    session.append(9)

    def page(after: int | None, limit: int) -> list[Entry]:
        return engine.entries(session.id, after=after or 0, limit=limit)

    whole = session.entries()
    assert len(whole) == 10
    pages_join(whole, page, lambda entry: entry.seq)
    # After the last there is nothing, and that is no error.
    assert session.entries(after=10) == []


@LAWS
def what_is_not_there_reads_as_nothing(engine: Engine) -> None:
    assert engine.state(named(1)) is None
    assert engine.current("t", "k") is None
    assert engine.accepted("s", "e") is None
    assert engine.find("t", "") == engine.sessions("t") == []
    assert engine.entries(named(1)) == []
    assert engine.inbox(named(1)) == []
    assert engine.journal(named(1)) == []


# Commits


@LAWS
def the_writes_of_a_commit_happen_together(
    engine: Engine, one: TestedSession, two: TestedSession
) -> None:
    """A commit has one write for each session; `Written` speaks of the last: the seq of its first
    draft, 0 if none.
    """
    three = Write(one.id, drafts=drafts(3))
    assert did(engine, three, Write(two.id, drafts=drafts(2))) == Written(seq=2)
    assert one.state.head == 4
    assert two.state.head == 3
    assert did(engine, Write(one.id, drafts=drafts()), Write(two.id)) == Written()
    assert one.state.head == 5
    assert two.state.head == 3


@LAWS
def one_refused_write_undoes_the_whole_commit(
    engine: Engine, one: TestedSession, two: TestedSession
) -> None:
    before = one.state, two.state
    given = drafts(2, turn=STARTING)
    # Something of every kind: whatever an engine notes on the way must be undone.
    first = Write(
        one.id,
        drafts=given,
        event=("scope", "event"),
        idle=True,
        start=Start("me", 600.0),
        admits=(Waiting(given[0].id),),
        chunk=Chunk(mint(), 0, b"x"),
    )
    second = Write(named(3), drafts=drafts(), open=Opening("t", "key", 1))
    refused = Write(two.id, drafts=drafts(), head=99)
    [outcome] = engine.commit([(first, second, refused)])
    assert isinstance(outcome, Refused)
    assert outcome.why == "moved"
    assert outcome.session == two.id
    assert (one.state, two.state) == before
    assert engine.state(named(3)) is None
    assert engine.current("t", "key") is None
    assert engine.accepted("scope", "event") is None
    assert one.inbox() == []
    assert one.journal() == []
    assert len(one.entries()) == 1
    did(engine, first)
    assert one.state.head == 3
    assert len(one.inbox()) == len(one.journal()) == 1


@LAWS
def the_writes_of_a_commit_do_not_see_each_other(
    engine: Engine, session: TestedSession
) -> None:
    before = session.state.head
    given = drafts(2)
    # Both stand behind the same head: what the commit itself adds does not count.
    writes = [Write(session.id, drafts=(draft,), head=before) for draft in given]
    [outcome] = engine.commit([tuple(writes)])
    assert outcome == Written(before + 2)
    session.holds(given)
    late = Write(session.id, drafts=drafts(), head=before)
    [outcome] = engine.commit([(late,)])
    assert isinstance(outcome, Refused)
    assert outcome.why == "moved"


@LAWS
def a_refused_commit_never_fails_its_neighbours(
    engine: Engine, session: TestedSession
) -> None:
    good = drafts(3)
    one, two, three = ((Write(session.id, drafts=(draft,)),) for draft in good)
    bad = (Write(session.id, drafts=drafts(), fence=1),)
    # A session that was never opened, in the same batch.
    stray = (Write(named(9)),)
    outcomes = engine.commit([one, bad, two, stray, three, bad])
    assert answers(outcomes) == [
        Written(2),
        "superseded",
        Written(3),
        "missing",
        Written(4),
        "superseded",
    ]
    session.holds(good)


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
    session = TestedSession(engine, 1)
    session.refuses_append("missing")
    assert engine.state(session.id) is None


@LAWS
def guards_are_judged_on_a_new_session_too(engine: Engine) -> None:
    """It has nothing yet: head 0, fence 0, no turn, an empty inbox, no debts."""
    session = TestedSession(engine, 1)
    opening = Opening("t", None, 1)
    given = drafts()
    session.refuses("moved", drafts=given, open=opening, head=1)
    # Its fence is 0, and still no fence is good: no turn is running.
    session.refuses("superseded", drafts=given, open=opening, fence=0)
    session.refuses("taken", drafts=given, open=opening, takes=(mint(),))
    session.refuses("taken", drafts=given, open=opening, pays=mint())
    session.append(open=opening, head=0, idle=True)


@LAWS
def a_head_that_has_moved_is_refused(session: TestedSession) -> None:
    for head in (0, 2):
        session.refuses_append("moved", head=head)
    # Exactly the head, neither before nor beyond.
    session.append(head=1)
    assert session.state.head == 2


@LAWS
def a_fence_is_good_only_while_its_turn_is_running(session: TestedSession) -> None:
    # Those that it would have before and after its first turn.
    for fence in (0, 1):
        session.refuses("superseded", fence=fence)
    turn = session.start()
    for fence in (turn - 1, turn + 1):
        session.refuses_append("superseded", fence=fence)
    session.append(fence=turn)
    session.finish(turn)
    session.refuses_append("superseded", fence=turn)


@LAWS
def an_idle_write_is_refused_while_a_turn_is_running(session: TestedSession) -> None:
    session.append(idle=True)
    turn = session.start()
    session.refuses_append("busy", idle=True)
    session.refuses("busy", idle=True, start=Start("other", 600.0))
    session.append()
    session.finish(turn)
    session.append(idle=True)


@LAWS
def an_ended_session_takes_only_late_outcomes(session: TestedSession) -> None:
    """`close` ends the session from the next write on; its own drafts are stored."""
    assert not session.state.ended
    session.append(close=True)
    assert session.state.ended
    assert session.state.head == 2
    session.refuses_append("ended")
    session.refuses("ended", idle=True, start=Start("me", 600.0))
    # Late, and let in: what a tool did after the end is kept (I-7).
    session.append(ended_too=True)
    assert session.state.ended
    assert session.state.head == 3
