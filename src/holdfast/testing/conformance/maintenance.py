"""Laws of upkeep: a store tells what is in it and what is wrong with it, and telling changes
nothing (I-18).
"""

from typing import Any

from holdfast.domain.entry import Draft, Opened, noted
from holdfast.engine.protocol import Chunk, Engine, Opening, Write
from holdfast.testing.conformance.builders import (
    Laws,
    did,
    drafts,
    mint,
    named,
    opened,
    started,
    state,
)

LAWS = Laws()


@LAWS
def an_empty_store_tells_that_it_is_empty(engine: Engine) -> None:
    info = engine.info()
    assert (
        info.sessions,
        info.entries,
        info.tenants,
        info.journal_rows,
        info.active_at,
    ) == (
        0,
        0,
        0,
        0,
        None,
    )
    assert info.where == engine.where and info.engine
    assert engine.check() == []


@LAWS
def a_store_tells_what_is_in_it(engine: Engine) -> None:
    for number, tenant in enumerate(("b", "a", "c", "a"), 1):
        session = opened(engine, number, tenant=tenant, at=number)
        did(engine, Write(session, drafts=drafts(number, at=1_000 + number)))
    info = engine.info()
    assert (info.sessions, info.entries, info.tenants, info.active_at) == (
        4,
        4 + 1 + 2 + 3 + 4,
        3,
        1_004,
    )
    assert info.bytes == sum(info.files.values())


@LAWS
def entries_that_sessions_share_are_counted_once(engine: Engine) -> None:
    parent = opened(engine, 1)
    did(engine, Write(parent, drafts=drafts(3)))
    told = Draft("opened", None, mint(), 5, noted(Opened(parent=parent, parent_seq=4)))
    did(
        engine,
        Write(
            named(2),
            drafts=(told, *drafts()),
            open=Opening("t", None, 1, head=4, fence=0, parent=parent),
        ),
    )
    assert engine.info().entries == 4 + 2
    assert engine.check() == []


@LAWS
def a_store_in_the_middle_of_its_work_has_no_problems(engine: Engine) -> None:
    """A turn that speaks, one that was seized, one that has ended, a session that is over, one that
    was erased.
    """
    for number, story in enumerate(("speaks", "seized", "ended", "over", "erased"), 1):
        session = opened(engine, number, key=story)
        turn = started(engine, session)
        did(engine, Write(session, fence=turn, chunk=Chunk(mint(), 0, b"word")))
        if story == "seized":
            did(engine, Write(session, seize=True))
        if story in ("ended", "over", "erased"):
            did(
                engine,
                Write(
                    session,
                    drafts=(Draft("end", turn, mint(), 3, b'{"end":"completed"}'),),
                    finish=True,
                ),
            )
        if story in ("over", "erased"):
            did(engine, Write(session, close=True))
        if story == "erased":
            kept = tuple((entry.seq, entry.note) for entry in engine.entries(session))
            did(
                engine,
                Write(
                    session,
                    drafts=(Draft("erased", None, mint(), 4, b"{}"),),
                    ended_too=True,
                    erase=kept,
                ),
            )
    assert engine.check() == []


@LAWS
def looking_at_a_store_changes_nothing_in_it(engine: Engine) -> None:
    """I-18."""
    session = opened(engine, 1)
    turn = started(engine, session)
    did(
        engine,
        Write(
            session,
            drafts=drafts(2, turn=turn),
            fence=turn,
            chunk=Chunk(mint(), 0, b"word"),
        ),
    )

    def all_of_it() -> Any:
        return (
            engine.entries(session),
            engine.journal(session),
            state(engine, session).head,
            engine.info().entries,
        )

    before = all_of_it()
    assert engine.check() == engine.check() == []
    assert all_of_it() == before
