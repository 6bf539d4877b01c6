"""Laws of turns: numbers and fences, seizing, leases, and the journal of what is being said."""

from holdfast.domain.entry import STARTING, Draft
from holdfast.engine.protocol import (
    Chunk,
    Engine,
    JournalRow,
    Opening,
    OwedReply,
    Owing,
    Start,
    Write,
)
from holdfast.testing.conformance.builders import (
    Laws,
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


# Turns and fences


@LAWS
def the_number_of_a_turn_is_its_fence_and_only_grows(engine: Engine) -> None:
    session = opened(engine, 1)
    numbers = []
    for _ in range(3):
        turn = started(engine, session)
        known = state(engine, session)
        assert known.turn == known.fence == turn
        numbers.append(turn)
        did(engine, Write(session, fence=turn, finish=True))
    assert numbers[0] > 0
    assert numbers == sorted(set(numbers))


@LAWS
def a_starting_draft_gets_the_number_of_its_turn(engine: Engine) -> None:
    """Only drafts that say STARTING do: others keep their own number, or none."""
    session = opened(engine, 1)
    old = started(engine, session)
    did(engine, Write(session, fence=old, finish=True))
    given = (
        Draft("turn", STARTING, mint(), 3),
        Draft("message", None, mint(), 3),
        Draft("message", old, mint(), 3),
        Draft("message", STARTING, mint(), 3),
    )
    done = did(
        engine, Write(session, drafts=given, idle=True, start=Start("me", 600.0))
    )
    assert done.turn > old
    assert engine.entries(session, after=done.seq - 1) == as_entries(
        given, first=done.seq, turn=done.turn
    )


@LAWS
def a_running_turn_names_its_holder(engine: Engine) -> None:
    session = opened(engine, 1)
    turn = started(engine, session, holder="host:1:2")
    assert state(engine, session).holder == "host:1:2"
    did(engine, Write(session, drafts=drafts(turn=turn), fence=turn))
    assert state(engine, session).holder == "host:1:2"


@LAWS
def a_finished_turn_leaves_its_session_idle(engine: Engine) -> None:
    """The drafts of the finishing write are the turn's last words."""
    session = opened(engine, 1)
    turn = started(engine, session)
    last = drafts(2, turn=turn)
    done = did(engine, Write(session, drafts=last, fence=turn, finish=True))
    assert engine.entries(session, after=done.seq - 1) == as_entries(
        last, first=done.seq
    )
    known = state(engine, session)
    assert (known.turn, known.holder, known.lease_left_s) == (None, None, None)
    assert not known.ended


@LAWS
def turns_of_two_sessions_run_side_by_side(engine: Engine) -> None:
    one, two = opened(engine, 1), opened(engine, 2)
    first, second = started(engine, one), started(engine, two)
    did(engine, Write(one, drafts=drafts(), fence=first, finish=True))
    did(engine, Write(two, drafts=drafts(), fence=second))
    assert state(engine, one).turn is None
    assert state(engine, two).turn == second


@LAWS
def of_two_starts_in_a_batch_the_first_wins(engine: Engine) -> None:
    session = opened(engine, 1)
    batch = [
        (
            Write(
                session,
                drafts=drafts(turn=STARTING),
                idle=True,
                start=Start(who, 600.0),
            ),
        )
        for who in "ab"
    ]
    first, second = engine.commit(batch)
    assert getattr(first, "turn", None) == state(engine, session).turn
    assert getattr(second, "why", None) == "busy"
    assert state(engine, session).holder == "a"


@LAWS
def a_seized_turn_is_settled_by_whoever_seized_it(engine: Engine) -> None:
    """Seizing raises the fence by one and leaves the turn running under its number until it is
    finished.
    """
    session = opened(engine, 1)
    turn = started(engine, session)
    did(engine, Write(session, drafts=drafts(), fence=turn, seize=True))
    known = state(engine, session)
    assert (known.turn, known.fence) == (turn, turn + 1)
    assert refusal(engine, Write(session, drafts=drafts(), fence=turn)) == "superseded"
    assert refusal(engine, Write(session, fence=turn, renew_s=600.0)) == "superseded"
    assert refusal(engine, Write(session, fence=turn, finish=True)) == "superseded"
    assert (
        refusal(engine, Write(session, idle=True, start=Start("third", 600.0)))
        == "busy"
    )
    did(engine, Write(session, drafts=drafts(turn=turn), fence=turn + 1, finish=True))
    assert state(engine, session).turn is None
    assert started(engine, session) > turn + 1


@LAWS
def of_two_who_seize_a_turn_one_wins(engine: Engine) -> None:
    session = opened(engine, 1)
    turn = started(engine, session)
    did(engine, Write(session, fence=turn, seize=True))
    assert refusal(engine, Write(session, fence=turn, seize=True)) == "superseded"
    did(engine, Write(session, fence=turn + 1, seize=True))
    assert refusal(engine, Write(session, fence=turn + 1, finish=True)) == "superseded"
    did(engine, Write(session, fence=turn + 2, finish=True))


@LAWS
def a_superseded_writer_may_still_leave_late_words(engine: Engine) -> None:
    """Without a fence a write asks for nothing but the session: its drafts stay under the turn they
    name (I-7).
    """
    session = opened(engine, 1)
    old = started(engine, session)
    did(engine, Write(session, fence=old, seize=True))
    did(engine, Write(session, fence=old + 1, finish=True))
    new = started(engine, session)
    late = drafts(turn=old)
    done = did(engine, Write(session, drafts=late, ended_too=True))
    assert engine.entries(session, after=done.seq - 1) == as_entries(
        late, first=done.seq
    )
    assert state(engine, session).turn == new


@LAWS
def a_turn_may_be_finished_and_the_next_started_in_one_write(engine: Engine) -> None:
    """In this order: STARTING means the new turn; the end of the old one names its turn
    by number.
    """
    session = opened(engine, 1)
    old = started(engine, session, holder="first")
    given = (Draft("end", old, mint(), 3), Draft("turn", STARTING, mint(), 3))
    new = did(
        engine,
        Write(
            session, drafts=given, fence=old, finish=True, start=Start("second", 600.0)
        ),
    )
    assert new.turn > old
    assert engine.entries(session, after=new.seq - 1) == as_entries(
        given, first=new.seq, turn=new.turn
    )
    known = state(engine, session)
    assert (known.turn, known.fence, known.holder) == (new.turn, new.turn, "second")
    assert refusal(engine, Write(session, fence=old)) == "superseded"


@LAWS
def a_closed_session_has_no_running_turn(engine: Engine) -> None:
    """Closing finishes a running turn too; storing its end is the affair of whoever closes."""
    session = opened(engine, 1)
    turn = started(engine, session)
    did(engine, Write(session, drafts=drafts(turn=turn), close=True))
    known = state(engine, session)
    assert (known.ended, known.turn, known.holder, known.lease_left_s) == (
        True,
        None,
        None,
        None,
    )
    assert (
        refusal(
            engine, Write(session, drafts=drafts(turn=turn), fence=turn, ended_too=True)
        )
        == "superseded"
    )
    did(engine, Write(session, drafts=drafts(turn=turn), ended_too=True))


# Leases


@LAWS
def a_lease_is_there_while_a_turn_is_running(engine: Engine) -> None:
    session = opened(engine, 1)
    assert state(engine, session).lease_left_s is None
    turn = started(engine, session, lease_s=600.0)
    assert 0.0 < lease_left(engine, session) <= 600.0
    did(engine, Write(session, fence=turn, finish=True))
    assert state(engine, session).lease_left_s is None


@LAWS
def a_lease_is_renewed_from_now_on(engine: Engine) -> None:
    """`renew_s` is the time left from this commit on, longer or shorter than what was left."""
    session = opened(engine, 1)
    turn = started(engine, session, lease_s=600.0)
    did(engine, Write(session, fence=turn, renew_s=50_000.0))
    assert 600.0 < lease_left(engine, session) <= 50_000.0
    did(engine, Write(session, drafts=drafts(), fence=turn, renew_s=300.0))
    assert lease_left(engine, session) <= 300.0


@LAWS
def a_lease_that_has_run_out_ends_nothing_by_itself(engine: Engine) -> None:
    """An engine reports it, as zero or less; it is the runtime that seizes. The holder may still
    write until then.
    """
    session = opened(engine, 1)
    turn = started(engine, session, lease_s=0.0)
    assert lease_left(engine, session) <= 0.0
    assert state(engine, session).turn == turn
    did(engine, Write(session, drafts=drafts(), fence=turn))
    assert (
        refusal(engine, Write(session, idle=True, start=Start("other", 600.0)))
        == "busy"
    )


# The journal


@LAWS
def chunks_of_a_running_turn_are_kept_in_order(engine: Engine) -> None:
    """Bodies are any bytes. Rows are looked at only while the turn runs: after it an engine may
    drop them.
    """
    session = opened(engine, 1)
    turn = started(engine, session)
    one, two = mint(), mint()
    said = [
        (one, 0, b"a"),
        (two, 0, b""),
        (one, 1, bytes(range(256))),
        (two, 5, b"\x00" * 70_000),
        (one, 2, b"z"),
    ]
    positions = [
        did(engine, Write(session, fence=turn, chunk=Chunk(*chunk))).position
        for chunk in said
    ]
    assert positions == sorted(set(positions))
    assert positions[0] > state(engine, session).journal
    rows = [
        JournalRow(position, turn, *chunk)
        for position, chunk in zip(positions, said, strict=True)
    ]
    assert engine.journal(session) == rows


@LAWS
def pages_of_any_size_join_to_the_whole_journal(engine: Engine) -> None:
    session, other = opened(engine, 1), opened(engine, 2)
    fences = {session: started(engine, session), other: started(engine, other)}
    for index in range(8):
        for name, fence in fences.items():
            did(
                engine,
                Write(name, fence=fence, chunk=Chunk(mint(), index, name.encode())),
            )
    whole = engine.journal(session)
    assert [(row.index, row.body) for row in whole] == [
        (index, session.encode()) for index in range(8)
    ]
    for size in range(1, 10):
        joined: list[JournalRow] = []
        while page := engine.journal(
            session, after=joined[-1].position if joined else 0, limit=size
        ):
            assert len(page) <= size
            joined += page
        assert joined == whole


@LAWS
def the_journal_of_a_turn_is_what_comes_after_its_start(engine: Engine) -> None:
    session, other = opened(engine, 1), opened(engine, 2)
    talking = started(engine, other)
    for index in range(3):
        turn = started(engine, session)
        did(
            engine,
            Write(other, fence=talking, chunk=Chunk(mint(), index, b"elsewhere")),
        )
        done = did(
            engine, Write(session, fence=turn, chunk=Chunk(mint(), index, b"here"))
        )
        rows = engine.journal(session, after=state(engine, session).journal)
        assert [(row.position, row.turn, row.index) for row in rows] == [
            (done.position, turn, index)
        ]
        did(engine, Write(session, fence=turn, finish=True))
    assert [
        row.index for row in engine.journal(other, after=state(engine, other).journal)
    ] == [
        0,
        1,
        2,
    ]


@LAWS
def a_seized_turn_keeps_its_chunks_until_it_is_settled(engine: Engine) -> None:
    """Who seizes a turn makes a partial message of them (I-6)."""
    session = opened(engine, 1)
    turn = started(engine, session)
    message = mint()
    for index in range(3):
        did(engine, Write(session, fence=turn, chunk=Chunk(message, index, b"x")))
    did(engine, Write(session, fence=turn, seize=True))
    assert (
        refusal(
            engine, Write(session, fence=turn, chunk=Chunk(message, 3, b"too late"))
        )
        == "superseded"
    )
    rows = engine.journal(session, after=state(engine, session).journal)
    assert [(row.turn, row.message, row.index) for row in rows] == [
        (turn, message, index) for index in range(3)
    ]


@LAWS
def the_chunks_of_a_refused_commit_are_not_kept(engine: Engine) -> None:
    session = opened(engine, 1)
    turn = started(engine, session)
    outcomes = engine.commit(
        [
            (
                Write(
                    session,
                    fence=turn,
                    chunk=Chunk(mint(), index, b"x"),
                    head=None if index % 2 else 99,
                ),
            )
            for index in range(4)
        ]
    )
    assert [getattr(outcome, "why", "done") for outcome in outcomes] == [
        "moved",
        "done",
        "moved",
        "done",
    ]
    assert [row.index for row in engine.journal(session)] == [1, 3]


@LAWS
def an_entry_and_a_chunk_may_share_a_write(engine: Engine) -> None:
    """`Written` names both: the seq of the first draft and the position of the chunk."""
    session = opened(engine, 1)
    turn = started(engine, session)
    head = state(engine, session).head
    done = did(
        engine,
        Write(session, drafts=drafts(2), fence=turn, chunk=Chunk(mint(), 0, b"x")),
    )
    assert done.seq == head + 1
    assert done.turn == 0
    assert [row.position for row in engine.journal(session)] == [done.position]


def lease_left(engine: Engine, session: str) -> float:
    left = state(engine, session).lease_left_s
    assert left is not None
    return left


@LAWS
def a_reply_is_owed_from_its_commit_until_it_is_paid(engine: Engine) -> None:
    """Under the key it was given, oldest first, to its own tenant; paying twice is refused."""
    session = opened(engine, 1)
    number = started(engine, session)
    end = Draft("end", number, mint(), 77)
    owing = (Owing(mint(), "chat 1"), Owing(mint(), "chat 2"))
    did(engine, Write(session, drafts=(end,), fence=number, finish=True, owes=owing))
    debts = [OwedReply(each.id, session, number, each.reply_to, 77) for each in owing]
    assert engine.outbox("t") == debts
    assert engine.outbox("t", limit=1) == debts[:1]
    assert engine.outbox("another tenant") == []
    did(engine, Write(session, drafts=drafts(), pays=owing[0].id))
    assert engine.outbox("t") == debts[1:]
    assert refusal(engine, Write(session, drafts=drafts(), pays=owing[0].id)) == "taken"
    assert (
        refusal(
            engine,
            Write(
                session, drafts=drafts(), fence=number, owes=(Owing(mint(), "late"),)
            ),
        )
        == "superseded"
    )
    assert engine.outbox("t") == debts[1:]


@LAWS
def a_session_may_begin_after_the_head_of_another(engine: Engine) -> None:
    """Its own entries and turns go on counting from there; what is shared stays where it is."""
    parent = opened(engine, 1)
    did(engine, Write(parent, drafts=drafts(4)))
    branch = named(2)
    did(
        engine,
        Write(
            branch,
            drafts=drafts(),
            open=Opening("t", None, 1, head=3, fence=7, parent=parent),
        ),
    )
    assert (state(engine, branch).parent, state(engine, parent).parent) == (
        parent,
        None,
    )
    assert (
        state(engine, branch).head,
        state(engine, branch).origin,
        state(engine, branch).fence,
    ) == (4, 3, 7)
    assert [entry.seq for entry in engine.entries(branch)] == [4]
    assert started(engine, branch) == 8
    assert state(engine, parent).head == 5


@LAWS
def a_load_begins_where_the_last_base_was_set(engine: Engine) -> None:
    session = opened(engine, 1)
    assert state(engine, session).base == 0
    did(engine, Write(session, drafts=drafts(2)))
    did(engine, Write(session, drafts=drafts(), base=True))
    assert state(engine, session).base == 4
    did(engine, Write(session, drafts=drafts()))
    assert state(engine, session).base == 4
    did(engine, Write(session, drafts=drafts(), unbase=True))
    assert state(engine, session).base == 0


@LAWS
def what_was_made_from_half_of_a_journal_is_refused(engine: Engine) -> None:
    """Who settles a turn has read all that it said, or the write is refused: nothing that was shown
    is lost (I-5).
    """
    session = opened(engine, 1)
    turn = started(engine, session)
    began = state(engine, session).journal
    assert refusal(engine, Write(session, fence=turn, position=began + 1)) == "moved"
    did(engine, Write(session, fence=turn, position=began))
    said = [
        did(engine, Write(session, fence=turn, chunk=Chunk(b"m", n, b"word"))).position
        for n in range(2)
    ]
    did(engine, Write(session, fence=turn, seize=True))
    for read in (began, said[0]):
        assert (
            refusal(engine, Write(session, fence=turn + 1, finish=True, position=read))
            == "moved"
        )
    did(engine, Write(session, fence=turn + 1, finish=True, position=said[1]))
