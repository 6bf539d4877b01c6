"""Laws of those who wait: tickets are answered, watchers told, closing finishes what was begun."""

import contextlib
import queue
import threading

from holdfast.domain.entry import Draft
from holdfast.engine.protocol import (
    Chunk,
    ChunkWrite,
    Engine,
    JournalRow,
    NewRows,
    Outcome,
    Ticket,
    Written,
)
from holdfast.testing.conformance.builders import (
    PATIENCE_S,
    answers,
    drafts,
    mint,
)
from holdfast.testing.conformance.laws import Laws
from holdfast.testing.conformance.tested_session import TestedSession, new_session

LAWS = Laws()


@LAWS
def commits_of_one_caller_are_done_in_their_order(session: TestedSession) -> None:
    # Many: their order must hold from one batch to the next, too.
    given = drafts(200)
    tickets = [session.submit(drafts=(draft,)) for draft in given]
    for seq, ticket in enumerate(tickets, 2):
        assert ticket.result(PATIENCE_S) == Written(seq)
    session.holds(given)


@LAWS
def commits_of_many_callers_are_each_done_once(session: TestedSession) -> None:
    given = [drafts(20) for _ in range(4)]

    def work(mine: tuple[Draft, ...]) -> None:
        for draft in mine:
            session.write(drafts=(draft,))

    workers = [threading.Thread(target=work, args=(mine,)) for mine in given]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    kept = [entry.id for entry in session.entries(after=1)]
    assert len(kept) == 80
    for theirs in given:
        # The callers may alternate as they like; each one's own order stays.
        mine = [draft.id for draft in theirs]
        assert [id for id in kept if id in mine] == mine


@LAWS
def a_ticket_calls_back_whether_asked_early_or_late(session: TestedSession) -> None:
    """Once, or in a close race twice; then `result` does not wait."""

    def heard(ticket: Ticket) -> Outcome:
        seen: queue.Queue[Outcome] = queue.Queue()
        ticket.then(lambda done: seen.put(done.result(0)))
        return seen.get(timeout=PATIENCE_S)

    ticket = session.submit(drafts=drafts())
    refused = session.submit(head=99)
    assert heard(ticket) == Written(2)
    assert heard(ticket) == Written(2)
    assert answers([heard(refused)]) == ["moved"]


@LAWS
def a_state_is_of_one_moment(session: TestedSession) -> None:
    """Here every turn adds an entry when it starts and one when it ends, so an even head says that
    one is running.
    """
    over = threading.Event()

    def work() -> None:
        for _ in range(40):
            turn = session.start()
            session.write(drafts=drafts(turn=turn), fence=turn, finish=True)
        over.set()

    worker = threading.Thread(target=work)
    worker.start()
    torn = []
    while worker.is_alive() and not over.is_set():
        known = session.state
        is_running = known.head % 2 == 0
        if is_running != (known.turn is not None) or known.fence != known.head // 2:
            torn.append(known)
    worker.join(PATIENCE_S)
    assert over.is_set()
    assert torn == []


@LAWS
def commits_submitted_before_closing_are_done(
    engine: Engine, session: TestedSession
) -> None:
    # None is waited for: closing has to.
    tickets = [session.submit(drafts=drafts()) for _ in range(100)]
    engine.close()
    for seq, ticket in enumerate(tickets, 2):
        assert ticket.result(PATIENCE_S) == Written(seq)


@LAWS
def closing_twice_is_fine(engine: Engine) -> None:
    new_session(engine)
    engine.close()
    engine.close()


@LAWS
def a_watcher_is_called_after_a_commit_and_can_read_it(
    engine: Engine, session: TestedSession
) -> None:
    """It may be called for the commit before as well, late; but never for the last time before a
    commit is there.
    """
    seen = threading.Event()

    def look() -> None:
        if session.state.head >= 2:
            seen.set()

    # Before the commit: a watcher that comes later must look by itself.
    engine.watch(session.id, look)
    session.append()
    assert seen.wait(PATIENCE_S)


@LAWS
def a_watcher_that_was_stopped_is_not_called(
    engine: Engine, session: TestedSession
) -> None:
    """Stopping one leaves the others; here one that stays tells that the calls were made. Stopping
    twice is fine.
    """
    stopped = threading.Event()
    stays = threading.Event()
    stop = engine.watch(session.id, stopped.set)
    engine.watch(session.id, stays.set)
    stop()
    stop()
    # A call for the commit that opened the session may have been under way.
    stopped.clear()
    session.append()
    assert stays.wait(PATIENCE_S)
    assert not stopped.is_set()


@LAWS
def a_watcher_of_rows_is_told_all_that_is_new_or_that_it_has_to_look(
    engine: Engine, session: TestedSession
) -> None:
    told: queue.Queue[NewRows] = queue.Queue()
    engine.watch_rows(session.id, told.put)
    turn = session.start()
    for index in range(3):
        chunk = Chunk(mint(), index, b"word")
        write = ChunkWrite(session.id, fence=turn, chunk=chunk)
        assert isinstance(engine.commit([(write,)])[0], Written)
    kept = session.journal()
    session.finish(turn)
    heard: list[JournalRow] = []
    looks = 0
    # Each of the three is told, or was seen by a look; a turn that begins or ends is never a row.
    while len(heard) < 3 and looks < 5:
        rows = told.get(timeout=PATIENCE_S)
        looks += rows is None
        heard += rows or ()
    assert heard == [row for row in kept if row in heard]


@LAWS
def what_is_more_than_a_row_is_not_told_as_one(
    engine: Engine, session: TestedSession
) -> None:
    turn = session.start()
    session.speak(turn)
    told: queue.Queue[NewRows] = queue.Queue()
    engine.watch_rows(session.id, told.put)
    session.append(fence=turn)
    while (rows := told.get(timeout=PATIENCE_S)) is not None:
        assert list(rows) == session.journal(), (
            "a call for the row before was under way"
        )


@LAWS
def a_callback_that_raises_stops_nothing(
    engine: Engine, session: TestedSession
) -> None:
    """A lost reader stops nothing (I-16): the event loop behind a callback may be gone. Its error
    may go anywhere.
    """

    def lost(*_: object) -> None:
        raise RuntimeError("this reader is gone")

    engine.watch(session.id, lost)
    for head in (2, 4, 6):
        ticket = session.submit(drafts=drafts())
        # A ticket that is over may call back here and now.
        with contextlib.suppress(RuntimeError):
            ticket.then(lost)
        again = session.submit(drafts=drafts())
        assert again.result(PATIENCE_S) == Written(head + 1)
    assert session.state.head == 7
