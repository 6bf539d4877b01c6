"""Laws of retaining: many sessions are asked about and erased at once, and it comes to the same as
one by one.
"""

from holdfast.domain.entry import Draft
from holdfast.engine.protocol import (
    Chunk,
    Engine,
    Laid,
    Opening,
    OwedReply,
    Owing,
    Refused,
    Write,
)
from holdfast.testing.conformance.builders import (
    Laws,
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

MANY = 7
LONG = b"x" * 40_000


@LAWS
def the_forks_of_a_session_are_its_own_children_alone(engine: Engine) -> None:
    """Not those that their children have, and not another tenant's. They are told oldest first."""
    root = opened(engine, 1)
    first, second = _fork(engine, 2, root, at=5), _fork(engine, 3, root, at=4)
    grandchild, stranger = (
        _fork(engine, 4, first, at=6),
        _fork(engine, 5, root, at=7, tenant="another"),
    )
    assert [known.id for known in engine.forks("t", [root])] == [second, first]
    assert [known.id for known in engine.forks("t", [root, first])] == [
        second,
        first,
        grandchild,
    ]
    assert [known.parent for known in engine.forks("t", [root, first])] == [
        root,
        root,
        first,
    ]
    assert [known.id for known in engine.forks("another", [root])] == [stranger]
    assert (
        engine.forks("t", [])
        == engine.forks("t", [grandchild, named(9), "no id at all"])
        == []
    )


@LAWS
def a_fork_is_one_as_long_as_its_parent_is_a_session(engine: Engine) -> None:
    """An erasure takes words, and no kinship."""
    root = opened(engine, 1)
    fork = _fork(engine, 2, root)
    for session in (root, fork):
        did(engine, _erasing(engine, session))
    assert [known.id for known in engine.forks("t", [root])] == [fork]


@LAWS
def what_is_kept_is_listed_without_what_was_erased(engine: Engine) -> None:
    """By time, in pages; lists of all sessions have the erased ones among those that have ended."""
    first, second, third, fourth = (
        opened(engine, number, at=5000 * number) for number in (1, 2, 3, 4)
    )
    opened(engine, 5, tenant="another")
    for session in (second, third):
        did(engine, _erasing(engine, session))
    did(
        engine,
        Write(fourth, drafts=(Draft("closed", None, mint(), 20_000),), close=True),
    )
    far = 10**6
    assert [known.id for known in engine.kept("t", before=(far, ""), limit=9)] == [
        fourth,
        first,
    ]
    assert [known.id for known in engine.kept("t", before=(far, ""), limit=1)] == [
        fourth
    ]
    last = state(engine, fourth)
    assert [
        known.id for known in engine.kept("t", before=(last.active_at, fourth), limit=9)
    ] == [first]
    assert (
        engine.kept("t", before=(5000, ""), limit=9)
        == engine.kept("nobody", before=(far, ""), limit=9)
        == []
    )
    assert [known.id for known in engine.sessions("t", state="ended")] == [
        fourth,
        third,
        second,
    ]
    assert len(engine.sessions("t")) == 4


@LAWS
def an_event_is_forgotten_with_its_session_if_that_is_asked_for(engine: Engine) -> None:
    """Then it is accepted again, as a new one; those of other sessions are known as before."""
    forgotten, erased, other = (opened(engine, number) for number in (1, 2, 3))
    for session in (forgotten, erased, other):
        for number in range(3):
            did(
                engine,
                Write(session, drafts=drafts(), event=("scope", f"{session} {number}")),
            )
    did(engine, _erasing(engine, forgotten, forget_events=True))
    did(engine, _erasing(engine, erased))
    assert {event.session for event in engine.events()} == {erased, other}
    assert engine.accepted("scope", f"{forgotten} 1") is None
    assert (
        refusal(engine, Write(other, drafts=drafts(), event=("scope", f"{erased} 1")))
        == "accepted"
    )
    did(engine, Write(other, drafts=drafts(), event=("scope", f"{forgotten} 1")))


@LAWS
def many_erasures_at_once_leave_what_they_leave_one_by_one(engine: Engine) -> None:
    """One that is refused is refused alone. What others owe, say and have in common with them stays
    theirs.
    """
    doomed = [_full(engine, number) for number in range(1, MANY)]
    kept = _full(engine, MANY)
    turn = started(engine, kept, at=9)
    did(engine, Write(kept, fence=turn, chunk=Chunk(mint(), 0, b"still spoken")))
    before = _seen(engine, kept)
    commits = [(_erasing(engine, session, forget_events=True),) for session in doomed]
    moved = state(engine, kept).head + 5
    outcomes = engine.commit([*commits, (_erasing(engine, kept, head=moved),)])
    assert [isinstance(outcome, Refused) for outcome in outcomes] == [False] * len(
        doomed
    ) + [True]
    assert _seen(engine, kept) == before
    assert [debt.session for debt in engine.outbox("t")] == [kept]
    for session in doomed:
        assert {entry.body for entry in engine.entries(session)} == {b""}
        assert state(engine, session).erased
        assert not engine.journal(session) and not engine.inbox(session)
    assert {event.session for event in engine.events()} == {kept}
    assert engine.check() == []


@LAWS
def an_untold_entry_of_an_erased_session_keeps_nothing(engine: Engine) -> None:
    """Whoever erases tells what is left of entries; of others their places are left."""
    session = _full(engine, 1)
    entries = engine.entries(session)
    some = tuple(
        (entry.seq, entry.note) for entry in entries if entry.kind in ("turn", "end")
    )
    audit = Draft("erased", None, mint(), 9, b"{}")
    did(engine, Write(session, drafts=(audit,), ended_too=True, close=True, erase=some))
    left = engine.entries(session)
    assert [(entry.seq, entry.id) for entry in left[:-1]] == [
        (entry.seq, entry.id) for entry in entries
    ]
    assert {entry.body for entry in left} == {b""}
    assert {entry.note for entry in left[:-1] if entry.kind not in ("turn", "end")} == {
        b""
    }


@LAWS
def what_is_laid_down_beside_an_erasure_stays(engine: Engine) -> None:
    """An erased session may be given what another store has of it, in the same batch."""
    one, other = _full(engine, 1), _full(engine, 2)
    head = state(engine, one).head
    [owed] = [debt for debt in engine.outbox("t") if debt.session == one]
    laid = Laid(
        fence=3,
        active_at=9,
        ended=True,
        outbox=(OwedReply(mint(), one, owed.turn, "somebody", 9),),
    )
    lay = Write(one, head=head + 1, idle=True, ended_too=True, lay=laid)
    outcomes = engine.commit(
        [(_erasing(engine, one),), (lay,), (_erasing(engine, other),)]
    )
    assert not any(isinstance(outcome, Refused) for outcome in outcomes)
    assert [debt.id for debt in engine.outbox("t")] == [laid.outbox[0].id]


@LAWS
def many_sessions_are_weighed_and_read_at_once_as_one_by_one(engine: Engine) -> None:
    sessions = [_full(engine, number) for number in range(1, MANY)]
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
    engine.scrub()
    did(engine, _erasing(engine, _full(engine, 1)))
    engine.scrub()
    assert engine.check() == []


def _fork(
    engine: Engine, number: int, parent: str, *, at: int = 2, tenant: str = "t"
) -> str:
    opening = Opening(tenant, None, 1, head=state(engine, parent).head, parent=parent)
    did(engine, Write(named(number), drafts=drafts(1, at=at), open=opening))
    return named(number)


def _full(engine: Engine, number: int) -> str:
    """A session with entries of some length, an event, a large part that all have said,
    and a debt.
    """
    session = opened(engine, number)
    turn = started(engine, session)
    large = Draft(
        "message", turn, mint(), 3, b"", b'{"role":"user","content":"' + LONG + b'"}'
    )
    did(
        engine,
        Write(session, drafts=(large, *drafts(number)), event=("scope", session)),
    )
    end = Draft("end", turn, mint(), 4, b'{"end":"completed"}')
    did(
        engine,
        Write(
            session,
            drafts=(end,),
            fence=turn,
            finish=True,
            owes=(Owing(mint(), "somebody"),),
        ),
    )
    return session


def _erasing(
    engine: Engine,
    session: str,
    *,
    head: int | None = None,
    forget_events: bool = False,
) -> Write:
    entries = engine.entries(session)
    kept = {
        entry.seq: entry.note if entry.kind in ("turn", "end") else b""
        for entry in entries
    }
    audit = Draft("erased", None, mint(), 9, b"{}")
    return Write(
        session, drafts=(audit,), head=head, ended_too=True, close=True, erase=tuple(kept.items()),
        forget_events=forget_events,
    )  # fmt: skip


def _seen(engine: Engine, session: str) -> object:
    known = state(engine, session)
    return (
        engine.entries(session),
        engine.journal(session),
        engine.debts(session),
        known.head,
        known.fence,
    )
