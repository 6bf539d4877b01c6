"""Laws of retaining: many sessions are asked about and erased at once, and it comes to the same as
one by one.
"""

from msgspec.structs import replace

from holdfast.domain.entry import Draft
from holdfast.engine.protocol import (
    Engine,
    Laid,
    Opening,
    OwedReply,
    Owing,
    Refused,
    Write,
    Written,
)
from holdfast.testing.conformance.builders import did, drafts, large, mint, named
from holdfast.testing.conformance.laws import Laws
from holdfast.testing.conformance.tested_session import TestedSession, are, new_session

LAWS = Laws()

MANY = 7
KEPT_KINDS = ("turn", "end")
"""Entries whose notes have no words of anybody: an erasure may leave them."""


@LAWS
def the_forks_of_a_session_are_its_own_children_alone(
    engine: Engine, root: TestedSession
) -> None:
    """Not those that their children have, and not another tenant's. They are told oldest first."""
    first = _fork(root, 2, at=5)
    # Made later, of an earlier time: the time decides.
    second = _fork(root, 3, at=4)
    grandchild = _fork(first, 4, at=6)
    stranger = _fork(root, 5, at=7, tenant="another")
    assert are(engine.forks("t", [root.id]), second, first)
    found = engine.forks("t", [root.id, first.id])
    assert are(found, second, first, grandchild)
    assert [known.parent for known in found] == [root.id, root.id, first.id]
    assert are(engine.forks("another", [root.id]), stranger)
    assert engine.forks("t", []) == []
    assert engine.forks("t", [grandchild.id, named(9), "no id at all"]) == []


@LAWS
def a_fork_is_one_as_long_as_its_parent_is_a_session(
    engine: Engine, root: TestedSession
) -> None:
    """An erasure takes words, and no kinship."""
    fork = _fork(root, 2)
    for session in (root, fork):
        did(engine, _erasing(session))
    assert are(engine.forks("t", [root.id]), fork)


@LAWS
def what_is_kept_is_listed_without_what_was_erased(engine: Engine) -> None:
    """By time, in pages; lists of all sessions have the erased ones among those that have ended."""
    first, second, third, fourth = (
        new_session(engine, number, at=5000 * number) for number in (1, 2, 3, 4)
    )
    new_session(engine, 5, tenant="another")
    for session in (second, third):
        did(engine, _erasing(session))
    fourth.write(drafts=(Draft("closed", None, mint(), 20_000),), close=True)
    # Later than all of them; the id breaks ties, and none has this time.
    end = (10**6, "")
    assert are(engine.kept("t", before=end, limit=9), fourth, first)
    assert are(engine.kept("t", before=end, limit=1), fourth)
    last = fourth.state
    assert are(engine.kept("t", before=(last.active_at, last.id), limit=9), first)
    assert engine.kept("t", before=(5000, ""), limit=9) == []
    assert engine.kept("nobody", before=end, limit=9) == []
    assert are(engine.sessions("t", state="ended"), fourth, third, second)
    assert len(engine.sessions("t")) == 4


@LAWS
def an_event_is_forgotten_with_its_session_if_that_is_asked_for(
    engine: Engine,
    forgotten: TestedSession,
    erased: TestedSession,
    other: TestedSession,
) -> None:
    """Then it is accepted again, as a new one; those of other sessions are known as before."""
    for session in (forgotten, erased, other):
        for number in range(3):
            session.append(event=(session.id, f"event {number}"))
    did(engine, replace(_erasing(forgotten), forget_events=True))
    did(engine, _erasing(erased))
    assert {event.session for event in engine.events()} == {erased.id, other.id}
    assert engine.accepted(forgotten.id, "event 1") is None
    other.refuses_append("accepted", event=(erased.id, "event 1"))
    other.append(event=(forgotten.id, "event 1"))


@LAWS
def many_erasures_at_once_leave_what_they_leave_one_by_one(engine: Engine) -> None:
    """One that is refused is refused alone. What others owe, say and have in common with them stays
    theirs.
    """
    doomed = [_full(engine, number) for number in range(1, MANY)]
    kept = _full(engine, MANY)
    # A turn that runs while the others go, with a chunk beside theirs.
    turn = kept.start(at=9)
    kept.speak(turn, 0, b"still spoken")
    before = _readings(kept)
    batch = [(replace(_erasing(one), forget_events=True),) for one in doomed]
    # Refused for its head, in the middle of a batch that is done.
    moved = kept.state.head + 5
    batch.append((replace(_erasing(kept), head=moved),))
    *done, refused = engine.commit(batch)
    assert all(isinstance(outcome, Written) for outcome in done)
    assert isinstance(refused, Refused)
    assert _readings(kept) == before
    assert [debt.session for debt in engine.outbox("t")] == [kept.id]
    for session in doomed:
        assert {entry.body for entry in session.entries()} == {b""}
        assert session.state.erased
        assert session.journal() == []
        assert session.inbox() == []
    assert {event.session for event in engine.events()} == {kept.id}
    assert engine.check() == []


@LAWS
def an_untold_entry_of_an_erased_session_keeps_nothing(engine: Engine) -> None:
    """Whoever erases tells what is left of entries; of others their places are left."""
    session = _full(engine, 1)
    entries = session.entries()
    notes = {entry.seq: entry.note for entry in entries if entry.kind in KEPT_KINDS}
    did(engine, session.erasing(notes.items()))
    *left, audit = session.entries()
    assert audit.body == b""
    for entry, was in zip(left, entries, strict=True):
        note = notes.get(was.seq, b"")
        assert entry == replace(was, note=note, body=b"")


@LAWS
def what_is_laid_down_beside_an_erasure_stays(engine: Engine) -> None:
    """An erased session may be given what another store has of it, in the same batch."""
    one = _full(engine, 1)
    other = _full(engine, 2)
    [owed] = engine.debts(one.id)
    debt = OwedReply(mint(), one.id, owed.turn, "somebody", 9)
    laid = Laid(fence=3, active_at=9, ended=True, outbox=(debt,))
    # The entry that says that it was erased is the one more.
    head = one.state.head + 1
    lay = Write(one.id, head=head, idle=True, ended_too=True, lay=laid)
    outcomes = engine.commit([(_erasing(one),), (lay,), (_erasing(other),)])
    assert all(isinstance(outcome, Written) for outcome in outcomes)
    assert [kept.id for kept in engine.outbox("t")] == [debt.id]


@LAWS
def many_sessions_are_weighed_and_read_at_once_as_one_by_one(engine: Engine) -> None:
    sessions = [_full(engine, number).id for number in range(1, MANY)]
    # What is not there is left out, and is no error.
    asked = [*sessions, named(99), "no id at all"]
    assert engine.weigh(asked) == {id: engine.weigh([id])[id] for id in sessions}
    for limit in (1, 3, 100):
        for bodies in (True, False):
            found = engine.beginnings(asked, limit=limit, bodies=bodies)
            assert found == {
                id: engine.entries(id, limit=limit, bodies=bodies) for id in sessions
            }
    assert engine.weigh([]) == {}
    assert engine.beginnings([], limit=1) == {}


@LAWS
def there_is_nothing_left_to_scrub_after_an_erasure(engine: Engine) -> None:
    # Before there was any, too: there is nothing to do then.
    engine.scrub()
    did(engine, _erasing(_full(engine, 1)))
    engine.scrub()
    assert engine.check() == []


def _fork(
    parent: TestedSession, number: int, *, at: int = 2, tenant: str = "t"
) -> TestedSession:
    fork = TestedSession(parent.engine, number)
    opening = Opening(tenant, None, 1, head=parent.state.head, parent=parent.id)
    fork.write(drafts=drafts(1, at=at), open=opening)
    return fork


def _full(engine: Engine, number: int) -> TestedSession:
    """A session with entries of some length, an event, a large part that all have said,
    and a debt.
    """
    session = new_session(engine, number)
    turn = session.start()
    given = (large(turn=turn, at=3), *drafts(number))
    session.write(drafts=given, event=("scope", session.id))
    session.owe(turn, Owing(mint(), "somebody"), at=4)
    return session


def _erasing(session: TestedSession) -> Write:
    """As the runtime erases: notes are left where they say of a turn that it began and ended."""
    notes = []
    for entry in session.entries():
        kept = entry.note if entry.kind in KEPT_KINDS else b""
        notes.append((entry.seq, kept))
    return session.erasing(notes)


def _readings(session: TestedSession) -> object:
    engine = session.engine
    known = session.state
    return (
        session.entries(),
        session.journal(),
        engine.debts(session.id),
        known.head,
        known.fence,
    )
