"""Laws of turns: numbers and fences, seizing, leases, and the journal of what is being said."""

from holdfast.domain.entry import STARTING, Draft
from holdfast.engine.protocol import (
    Chunk,
    ChunkWrite,
    Engine,
    JournalRow,
    Opening,
    Outcome,
    Owing,
    Refused,
    Start,
    Write,
    Written,
)
from holdfast.testing.conformance.builders import answers, drafts, mint
from holdfast.testing.conformance.laws import Laws
from holdfast.testing.conformance.tested_session import TestedSession, pages_join

LAWS = Laws()


# Turns and fences


@LAWS
def the_number_of_a_turn_is_its_fence_and_only_grows(session: TestedSession) -> None:
    numbers = []
    for _ in range(3):
        turn = session.start()
        known = session.state
        assert known.turn == known.fence == turn
        numbers.append(turn)
        session.finish(turn)
    assert numbers[0] > 0
    # Gaps are fine: a seizure takes a number, too.
    assert numbers == sorted(set(numbers))


@LAWS
def a_starting_draft_gets_the_number_of_its_turn(session: TestedSession) -> None:
    """Only drafts that say STARTING do: others keep their own number, or none."""
    old = session.start()
    session.finish(old)
    given = (
        Draft("turn", STARTING, mint(), 3),
        # A message from outside the turn, stored with its start.
        Draft("message", None, mint(), 3),
        Draft("message", old, mint(), 3),
        Draft("message", STARTING, mint(), 3),
    )
    done = session.write(drafts=given, idle=True, start=Start("me", 600.0))
    assert done.turn > old
    session.holds(given, first=done.seq, turn=done.turn)


@LAWS
def a_running_turn_names_its_holder(session: TestedSession) -> None:
    turn = session.start(holder="host:1:2")
    assert session.state.holder == "host:1:2"
    session.write(drafts=drafts(turn=turn), fence=turn)
    assert session.state.holder == "host:1:2"


@LAWS
def a_finished_turn_leaves_its_session_idle(session: TestedSession) -> None:
    """The drafts of the finishing write are the turn's last words."""
    turn = session.start()
    last = drafts(2, turn=turn)
    done = session.write(drafts=last, fence=turn, finish=True)
    # The fence was good when the write was judged: its drafts count.
    session.holds(last, first=done.seq)
    known = session.state
    assert (known.turn, known.holder, known.lease_left_s) == (None, None, None)
    assert not known.ended


@LAWS
def turns_of_two_sessions_run_side_by_side(
    one: TestedSession, two: TestedSession
) -> None:
    first = one.start()
    second = two.start()
    # Both turns have the same number, each in its session.
    one.append(fence=first, finish=True)
    two.append(fence=second)
    assert one.state.turn is None
    assert two.state.turn == second


@LAWS
def of_two_starts_in_a_batch_the_first_wins(
    engine: Engine, session: TestedSession
) -> None:
    batch = []
    for holder in "ab":
        given = drafts(turn=STARTING)
        start = Start(holder, 600.0)
        batch.append((Write(session.id, drafts=given, idle=True, start=start),))
    first, second = engine.commit(batch)
    assert isinstance(first, Written)
    assert first.turn == session.state.turn
    assert answers([second]) == ["busy"]
    assert session.state.holder == "a"


@LAWS
def a_seized_turn_is_settled_by_whoever_seized_it(session: TestedSession) -> None:
    """Seizing raises the fence by one and leaves the turn running under its number until it is
    finished.
    """
    turn = session.start()
    session.append(fence=turn, seize=True)
    known = session.state
    assert known.turn == turn
    assert known.fence == turn + 1
    session.refuses_append("superseded", fence=turn)
    session.refuses("superseded", fence=turn, renew_s=600.0)
    session.refuses("superseded", fence=turn, finish=True)
    # Seized is not free: until it is settled, its chunks would be lost under another turn.
    session.refuses("busy", idle=True, start=Start("third", 600.0))
    session.write(drafts=drafts(turn=turn), fence=turn + 1, finish=True)
    assert session.state.turn is None
    assert session.start() > turn + 1


@LAWS
def of_two_who_seize_a_turn_one_wins(session: TestedSession) -> None:
    turn = session.start()
    session.write(fence=turn, seize=True)
    session.refuses("superseded", fence=turn, seize=True)
    # The first to seize may die before it settles: its own fence can be seized in turn.
    session.write(fence=turn + 1, seize=True)
    session.refuses("superseded", fence=turn + 1, finish=True)
    session.finish(turn + 2)


@LAWS
def a_superseded_writer_may_still_leave_late_words(session: TestedSession) -> None:
    """Without a fence a write asks for nothing but the session: its drafts stay under the turn they
    name (I-7).
    """
    old = session.start()
    session.write(fence=old, seize=True)
    session.finish(old + 1)
    new = session.start()
    late = drafts(turn=old)
    # `ended_too`, as the runtime writes late outcomes: the session may have ended meanwhile.
    done = session.write(drafts=late, ended_too=True)
    session.holds(late, first=done.seq)
    assert session.state.turn == new


@LAWS
def a_turn_may_be_finished_and_the_next_started_in_one_write(
    session: TestedSession,
) -> None:
    """In this order: STARTING means the new turn; the end of the old one names its turn
    by number.
    """
    old = session.start(holder="first")
    given = (Draft("end", old, mint(), 3), Draft("turn", STARTING, mint(), 3))
    new = session.write(
        drafts=given, fence=old, finish=True, start=Start("second", 600.0)
    )
    assert new.turn > old
    session.holds(given, first=new.seq, turn=new.turn)
    known = session.state
    assert known.turn == known.fence == new.turn
    assert known.holder == "second"
    session.refuses("superseded", fence=old)


@LAWS
def a_closed_session_has_no_running_turn(session: TestedSession) -> None:
    """Closing finishes a running turn too; storing its end is the affair of whoever closes."""
    turn = session.start()
    # Without a fence: whoever ends a session need not own its turn.
    session.write(drafts=drafts(turn=turn), close=True)
    known = session.state
    assert known.ended
    assert (known.turn, known.holder, known.lease_left_s) == (None, None, None)
    # `ended_too` opens an ended session to late outcomes; it does not revive a fence.
    session.refuses("superseded", drafts=drafts(turn=turn), fence=turn, ended_too=True)
    session.write(drafts=drafts(turn=turn), ended_too=True)


# Leases


@LAWS
def a_lease_is_there_while_a_turn_is_running(session: TestedSession) -> None:
    assert session.state.lease_left_s is None
    turn = session.start(lease_s=600.0)
    # Not exactly 600: the engine's clock may have gone on since the commit.
    assert 0.0 < session.lease_left_s <= 600.0
    session.finish(turn)
    assert session.state.lease_left_s is None


@LAWS
def a_lease_is_renewed_from_now_on(session: TestedSession) -> None:
    """`renew_s` is the time left from this commit on, longer or shorter than what was left."""
    turn = session.start(lease_s=600.0)
    session.write(fence=turn, renew_s=50_000.0)
    assert 600.0 < session.lease_left_s <= 50_000.0
    session.append(fence=turn, renew_s=300.0)
    assert session.lease_left_s <= 300.0


@LAWS
def a_lease_that_has_run_out_ends_nothing_by_itself(session: TestedSession) -> None:
    """An engine reports it, as zero or less; it is the runtime that seizes. The holder may still
    write until then.
    """
    # Run out from the first moment on, without a clock that moves.
    turn = session.start(lease_s=0.0)
    assert session.lease_left_s <= 0.0
    assert session.state.turn == turn
    session.append(fence=turn)
    session.refuses("busy", idle=True, start=Start("other", 600.0))


# The journal


@LAWS
def chunks_of_a_running_turn_are_kept_in_order(session: TestedSession) -> None:
    """Bodies are any bytes. Rows are looked at only while the turn runs: after it an engine may
    drop them.
    """
    turn = session.start()
    one = mint()
    two = mint()
    said = [
        (one, 0, b"a"),
        (two, 0, b""),
        (one, 1, bytes(range(256))),
        # Indexes need not be dense: that is for the runtime to see to.
        (two, 5, b"\x00" * 70_000),
        (one, 2, b"z"),
    ]
    rows = []
    last = session.state.journal
    for chunk in said:
        position = session.write(fence=turn, chunk=Chunk(*chunk)).position
        assert position > last
        last = position
        rows.append(JournalRow(position, turn, *chunk))
    assert session.journal() == rows


@LAWS
def pages_of_any_size_join_to_the_whole_journal(
    engine: Engine, session: TestedSession, other: TestedSession
) -> None:
    ours = session.start()
    theirs = other.start()
    # In turn, so that neither's rows are neighbours in the journal they share.
    for index in range(8):
        session.speak(ours, index, b"ours")
        other.speak(theirs, index, b"theirs")

    def page(after: int | None, limit: int) -> list[JournalRow]:
        return engine.journal(session.id, after=after or 0, limit=limit)

    whole = session.journal()
    assert [(row.index, row.body) for row in whole] == [
        (index, b"ours") for index in range(8)
    ]
    pages_join(whole, page, lambda row: row.position)


@LAWS
def the_journal_of_a_turn_is_what_comes_after_its_start(
    session: TestedSession, other: TestedSession
) -> None:
    talking = other.start()
    for index in range(3):
        turn = session.start()
        # Rows of others lie between, in a journal that all sessions share.
        other.speak(talking, index, b"elsewhere")
        position = session.speak(turn, index, b"here")
        [row] = session.journal(after=session.state.journal)
        assert (row.position, row.turn, row.index) == (position, turn, index)
        session.finish(turn)
    rows = other.journal(after=other.state.journal)
    assert [row.index for row in rows] == [0, 1, 2]


@LAWS
def a_write_of_a_chunk_alone_means_what_a_plain_one_does(
    session: TestedSession,
) -> None:
    """It is stored in its turn among others, and refused when that is over."""
    message = mint()
    turn = session.start()

    def said(index: int, fence: int = turn) -> Outcome:
        chunk = Chunk(message, index, b"x")
        return session.engine.commit(
            [(ChunkWrite(session.id, fence=fence, chunk=chunk),)]
        )[0]

    first = said(0)
    second = session.speak(turn, 1, message=message)
    third = said(2)
    assert isinstance(first, Written)
    assert isinstance(third, Written)
    assert first == Written(0, 0, first.position)
    assert first.position < second < third.position
    assert [row.index for row in session.journal()] == [0, 1, 2]
    wrong = said(3, turn + 1)
    session.finish(turn)
    over = said(3)
    session.write(close=True)
    ended = said(3)
    refused = [one.why for one in (wrong, over, ended) if isinstance(one, Refused)]
    assert refused == ["superseded", "superseded", "ended"]


@LAWS
def a_seized_turn_keeps_its_chunks_until_it_is_settled(session: TestedSession) -> None:
    """Who seizes a turn makes a partial message of them (I-6)."""
    turn = session.start()
    message = mint()
    for index in range(3):
        session.speak(turn, index, b"x", message=message)
    session.write(fence=turn, seize=True)
    session.refuses("superseded", fence=turn, chunk=Chunk(message, 3, b"too late"))
    rows = session.journal(after=session.state.journal)
    assert {(row.turn, row.message) for row in rows} == {(turn, message)}
    assert [row.index for row in rows] == [0, 1, 2]


@LAWS
def the_chunks_of_a_refused_commit_are_not_kept(
    engine: Engine, session: TestedSession
) -> None:
    turn = session.start()
    batch = []
    for index, head in enumerate((99, None, 99, None)):
        chunk = Chunk(mint(), index, b"x")
        batch.append((Write(session.id, fence=turn, chunk=chunk, head=head),))
    one, two, three, four = answers(engine.commit(batch))
    assert one == three == "moved"
    assert isinstance(two, Written)
    assert isinstance(four, Written)
    assert [row.index for row in session.journal()] == [1, 3]


@LAWS
def an_entry_and_a_chunk_may_share_a_write(session: TestedSession) -> None:
    """`Written` names both: the seq of the first draft and the position of the chunk."""
    turn = session.start()
    head = session.state.head
    done = session.append(2, fence=turn, chunk=Chunk(mint(), 0, b"x"))
    assert done.seq == head + 1
    assert done.turn == 0
    assert [row.position for row in session.journal()] == [done.position]


# What turns leave behind


@LAWS
def a_reply_is_owed_from_its_commit_until_it_is_paid(
    engine: Engine, session: TestedSession
) -> None:
    """Under the key it was given, oldest first, to its own tenant; paying twice is refused."""
    number = session.start()
    first = Owing(mint(), "chat 1")
    debts = session.owe(number, first, Owing(mint(), "chat 2"), at=77)
    assert engine.outbox("t") == debts
    assert engine.outbox("t", limit=1) == debts[:1]
    assert engine.outbox("another tenant") == []
    session.append(pays=first.id)
    assert engine.outbox("t") == debts[1:]
    session.refuses_append("taken", pays=first.id)
    late = (Owing(mint(), "late"),)
    session.refuses_append("superseded", fence=number, owes=late)
    assert engine.outbox("t") == debts[1:]


@LAWS
def a_session_may_begin_after_the_head_of_another(
    engine: Engine, parent: TestedSession
) -> None:
    """Its own entries and turns go on counting from there; what is shared stays where it is."""
    parent.append(4)
    branch = TestedSession(engine, 2)
    # Not from the parent's head, which is 5: a fork may begin anywhere in it.
    branch.append(open=Opening("t", None, 1, head=3, fence=7, parent=parent.id))
    assert parent.state.parent is None
    known = branch.state
    assert known.parent == parent.id
    assert (known.head, known.origin, known.fence) == (4, 3, 7)
    assert [entry.seq for entry in branch.entries()] == [4]
    assert branch.start() == 8
    assert parent.state.head == 5


@LAWS
def a_load_begins_where_the_last_base_was_set(session: TestedSession) -> None:
    assert session.state.base == 0
    session.append(2)
    session.append(base=True)
    assert session.state.base == 4
    session.append()
    assert session.state.base == 4
    session.append(unbase=True)
    assert session.state.base == 0


@LAWS
def what_was_made_from_half_of_a_journal_is_refused(session: TestedSession) -> None:
    """Who settles a turn has read all that it said, or the write is refused: nothing that was shown
    is lost (I-5).
    """
    turn = session.start()
    began = session.state.journal
    # Nothing was said yet: the only right position is where the turn began.
    session.refuses("moved", fence=turn, position=began + 1)
    session.write(fence=turn, position=began)
    first = session.speak(turn, 0, message=b"m")
    second = session.speak(turn, 1, message=b"m")
    session.write(fence=turn, seize=True)
    for read in (began, first):
        session.refuses("moved", fence=turn + 1, finish=True, position=read)
    session.write(fence=turn + 1, finish=True, position=second)
