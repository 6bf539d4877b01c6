"""Laws of upkeep: a store tells what is in it and what is wrong with it, and telling changes
nothing (I-18).
"""

from holdfast.domain.entry import Draft, Opened, noted
from holdfast.engine.protocol import Chunk, Engine, Opening
from holdfast.testing.conformance.builders import did, drafts, mint
from holdfast.testing.conformance.laws import Laws
from holdfast.testing.conformance.tested_session import TestedSession, new_session

LAWS = Laws()


@LAWS
def an_empty_store_tells_that_it_is_empty(engine: Engine) -> None:
    info = engine.info()
    assert info.sessions == info.entries == info.tenants == info.journal_rows == 0
    assert info.active_at is None
    assert info.where == engine.where
    assert info.engine
    assert engine.check() == []


@LAWS
def a_store_tells_what_is_in_it(engine: Engine) -> None:
    for number, tenant in enumerate(("b", "a", "c", "a"), 1):
        session = new_session(engine, number, tenant=tenant, at=number)
        session.write(drafts=drafts(number, at=1_000 + number))
    info = engine.info()
    assert info.sessions == 4
    # An entry that opens each, and one, two, three, four messages.
    assert info.entries == 4 + 10
    assert info.tenants == 3
    assert info.active_at == 1_004
    assert info.bytes == sum(info.files.values())


@LAWS
def entries_that_sessions_share_are_counted_once(
    engine: Engine, parent: TestedSession
) -> None:
    parent.append(3)
    note = noted(Opened(parent=parent.id, parent_seq=4))
    given = (Draft("opened", None, mint(), 5, note), *drafts())
    opening = Opening("t", None, 1, head=4, fence=0, parent=parent.id)
    TestedSession(engine, 2).write(drafts=given, open=opening)
    assert engine.info().entries == 4 + 2
    assert engine.check() == []


@LAWS
def a_store_in_the_middle_of_its_work_has_no_problems(engine: Engine) -> None:
    """A turn that speaks, one that was seized, one that has ended, a session that is over, one that
    was erased.
    """
    turns = {}
    for number in range(1, 6):
        session = new_session(engine, number, key=f"k{number}")
        turns[session] = session.start()
        session.speak(turns[session])
    _speaks, seized, ended, over, erased = turns
    seized.write(seize=True)
    for session in (ended, over, erased):
        session.owe(turns[session])
    for session in (over, erased):
        session.write(close=True)
    notes = [(entry.seq, entry.note) for entry in erased.entries()]
    did(engine, erased.erasing(notes))
    assert engine.check() == []


@LAWS
def looking_at_a_store_changes_nothing_in_it(
    engine: Engine, session: TestedSession
) -> None:
    """I-18."""
    turn = session.start()
    chunk = Chunk(mint(), 0, b"word")
    session.write(drafts=drafts(2, turn=turn), fence=turn, chunk=chunk)
    entries = session.entries()
    journal = session.journal()
    head = session.state.head
    counted = engine.info().entries
    # Twice: what the first look leaves behind, the second one would find.
    assert engine.check() == engine.check() == []
    assert session.entries() == entries
    assert session.journal() == journal
    assert session.state.head == head
    assert engine.info().entries == counted
