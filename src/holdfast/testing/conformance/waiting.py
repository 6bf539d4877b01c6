"""Laws of those who wait: tickets are answered, watchers told, closing finishes what was begun."""

import contextlib
import threading

from holdfast.domain.entry import Draft
from holdfast.engine.protocol import Engine, Outcome, Ticket, Write, Written
from holdfast.testing.conformance.builders import (
    PATIENCE_S,
    Laws,
    answers,
    as_entries,
    did,
    drafts,
    opened,
    started,
    state,
)

LAWS = Laws()


@LAWS
def commits_of_one_caller_are_done_in_their_order(engine: Engine) -> None:
    session = opened(engine, 1)
    given = drafts(200)
    tickets = [engine.submit((Write(session, drafts=(draft,)),)) for draft in given]
    assert [ticket.result(PATIENCE_S) for ticket in tickets] == [
        Written(2 + i) for i in range(200)
    ]
    assert engine.entries(session, after=1) == as_entries(given, first=2)


@LAWS
def commits_of_many_callers_are_each_done_once(engine: Engine) -> None:
    session = opened(engine, 1)
    given = [drafts(20) for _ in range(4)]

    def work(mine: tuple[Draft, ...]) -> None:
        for draft in mine:
            did(engine, Write(session, drafts=(draft,)))

    workers = [threading.Thread(target=work, args=(mine,)) for mine in given]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    kept = [entry.id for entry in engine.entries(session, after=1)]
    assert len(kept) == 80
    for mine in ([draft.id for draft in theirs] for theirs in given):
        assert [id for id in kept if id in mine] == mine


@LAWS
def a_ticket_calls_back_whether_asked_early_or_late(engine: Engine) -> None:
    """Once, or in a close race twice; then `result` does not wait."""
    session = opened(engine, 1)

    def heard(ticket: Ticket) -> Outcome:
        seen: list[Outcome] = []
        told = threading.Event()

        def note(done: Ticket) -> None:
            seen.append(done.result(0))
            told.set()

        ticket.then(note)
        assert told.wait(PATIENCE_S)
        return seen[0]

    ticket = engine.submit((Write(session, drafts=drafts()),))
    refused = engine.submit((Write(session, head=99),))
    assert answers([heard(ticket), heard(ticket), heard(refused)]) == [
        Written(2),
        Written(2),
        "moved",
    ]


@LAWS
def a_state_is_of_one_moment(engine: Engine) -> None:
    """Here every turn adds an entry when it starts and one when it ends, so an even head says that
    one is running.
    """
    session = opened(engine, 1)
    over = threading.Event()

    def work() -> None:
        for _ in range(40):
            turn = started(engine, session)
            did(
                engine,
                Write(session, drafts=drafts(turn=turn), fence=turn, finish=True),
            )
        over.set()

    worker = threading.Thread(target=work)
    worker.start()
    torn = []
    while worker.is_alive() and not over.is_set():
        known = state(engine, session)
        if (known.head % 2 == 0) != (
            known.turn is not None
        ) or known.fence != known.head // 2:
            torn.append(known)
    worker.join(PATIENCE_S)
    assert over.is_set()
    assert torn == []


@LAWS
def commits_submitted_before_closing_are_done(engine: Engine) -> None:
    session = opened(engine, 1)
    tickets = [engine.submit((Write(session, drafts=drafts()),)) for _ in range(100)]
    engine.close()
    assert [ticket.result(PATIENCE_S) for ticket in tickets] == [
        Written(2 + i) for i in range(100)
    ]


@LAWS
def closing_twice_is_fine(engine: Engine) -> None:
    opened(engine, 1)
    engine.close()
    engine.close()


@LAWS
def a_watcher_is_called_after_a_commit_and_can_read_it(engine: Engine) -> None:
    """It may be called for the commit before as well, late; but never for the last time before a
    commit is there.
    """
    session = opened(engine, 1)
    seen = threading.Event()

    def look() -> None:
        if state(engine, session).head >= 2:
            seen.set()

    engine.watch(session, look)
    did(engine, Write(session, drafts=drafts()))
    assert seen.wait(PATIENCE_S)


@LAWS
def a_watcher_that_was_stopped_is_not_called(engine: Engine) -> None:
    """Stopping one leaves the others; here one that stays tells that the calls were made. Stopping
    twice is fine.
    """
    session = opened(engine, 1)
    stopped, stays = threading.Event(), threading.Event()
    stop = engine.watch(session, stopped.set)
    engine.watch(session, stays.set)
    stop()
    stop()
    stopped.clear()  # of a call that was under way
    did(engine, Write(session, drafts=drafts()))
    assert stays.wait(PATIENCE_S)
    assert not stopped.is_set()


@LAWS
def a_callback_that_raises_stops_nothing(engine: Engine) -> None:
    """A lost reader stops nothing (I-16): the event loop behind a callback may be gone. Its error
    may go anywhere.
    """
    session = opened(engine, 1)

    def lost(*_: object) -> None:
        raise RuntimeError("this reader is gone")

    engine.watch(session, lost)
    for head in (2, 4, 6):
        ticket = engine.submit((Write(session, drafts=drafts()),))
        with contextlib.suppress(
            RuntimeError
        ):  # a ticket that is over may call back here and now
            ticket.then(lost)
        assert engine.submit((Write(session, drafts=drafts()),)).result(
            PATIENCE_S
        ) == Written(head + 1)
    assert state(engine, session).head == 7
