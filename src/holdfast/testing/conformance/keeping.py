"""Laws of keeping: sessions are listed, payloads come back whole whatever their size, and what is
erased is gone.
"""

from msgspec.structs import replace

from holdfast.domain.entry import STARTING, Draft
from holdfast.engine.protocol import (
    Chunk,
    Engine,
    Owing,
    Refused,
    SessionState,
    Start,
    State,
    Waiting,
    Write,
    Written,
)
from holdfast.testing.conformance.builders import (
    Laws,
    as_entries,
    did,
    drafts,
    mint,
    opened,
    refusal,
    started,
    state,
)

LAWS = Laws()

LONG = b"x" * 40_000


# Lists


@LAWS
def sessions_are_listed_newest_first_and_pages_of_any_size_join_to_the_whole(
    engine: Engine,
) -> None:
    """Also where times are equal: the id of the last one seen says where to go on."""
    ids = [opened(engine, n, at=100 * (n // 3)) for n in range(1, 9)]
    whole = engine.sessions("t")
    assert {known.id for known in whole} == set(ids)
    assert [known.active_at for known in whole] == sorted(
        (known.active_at for known in whole), reverse=True
    )
    for size in range(1, 10):
        joined: list[SessionState] = []
        while page := engine.sessions("t", before=_mark(joined), limit=size):
            assert len(page) <= size
            joined += page
        assert [known.id for known in joined] == [known.id for known in whole]


@LAWS
def a_list_can_be_of_one_key_or_of_one_state(engine: Engine) -> None:
    first = opened(engine, 1, key="k", at=1)
    did(engine, Write(first, drafts=(Draft("closed", None, mint(), 2),), close=True))
    second, other = (
        opened(engine, 2, key="k", epoch=2, at=3),
        opened(engine, 3, key="other", at=4),
    )
    started(engine, other, at=5)
    assert _ids(engine, key="k") == [second, first]
    assert _ids(engine, state="open") == [second]
    assert _ids(engine, state="running") == [other]
    assert _ids(engine, state="ended") == [first]
    assert _ids(engine, key="k", state="open") == [second]
    assert _ids(engine, key="nobody's") == []
    page = engine.sessions("t", key="k", limit=1)
    assert [
        known.id for known in engine.sessions("t", key="k", before=_mark(page))
    ] == [first]


@LAWS
def a_message_makes_its_session_the_newest_to_the_second(engine: Engine) -> None:
    old, new = opened(engine, 1, at=1_000), opened(engine, 2, at=2_000)
    did(engine, Write(old, drafts=drafts(1, at=1_500)))
    assert _ids(engine) == [new, old]
    did(engine, Write(old, drafts=drafts(1, at=5_000)))
    assert state(engine, old).active_at == 5_000
    did(engine, Write(old, drafts=(Draft("label", None, mint(), 9_000, b"{}"),)))
    assert state(engine, old).active_at == 5_000
    assert _ids(engine) == [old, new]


@LAWS
def a_clock_that_was_set_back_takes_no_session_back(engine: Engine) -> None:
    session = opened(engine, 1, at=5_000)
    started(engine, session, at=2_000)
    did(engine, Write(session, drafts=drafts(1, at=3_000)))
    assert state(engine, session).active_at == 5_000


# Payloads


@LAWS
def an_entry_comes_back_as_it_was_given_whatever_its_shape(engine: Engine) -> None:
    """Plain messages may be kept in a shorter form; nobody can tell."""
    session = opened(engine, 1)
    at = 1_700_000_000_000
    timed = at.to_bytes(6, "big") + b"0123456789"
    notes = (b"", b'{"role":"assistant"}', b'{"role":"tool"}')
    bodies = (
        b'{"role":"user","content":"hi"}',
        b'{"role":"assistant","content":"hi"}',
        b'{"role":"assistant","content":"\\"}","x":"y"}',
        b'{"role":"user","content":""}',
        b'{"role":"user","content":"}',
        b'{"role":"user","content":"\xff"}',
        b'{"role":"user","content":"\0"}',
        b"\x01",
        b"",
    )
    given = tuple(
        Draft(kind, None, id, at, note, body)
        for kind in ("message", "instructions")
        for id in (timed, b"0123456789", mint())
        for note in notes
        for body in bodies
    )
    did(engine, Write(session, drafts=given))
    assert engine.entries(session, after=1) == as_entries(given, first=2)


@LAWS
def a_large_part_comes_back_whole_in_every_session_that_said_it(engine: Engine) -> None:
    one, two = opened(engine, 1), opened(engine, 2)
    said = [
        b'{"role":"user","content":"' + LONG + b'"}',
        b'{"a":"'
        + LONG
        + b'","b":["'
        + LONG
        + b'\\\\","'
        + LONG
        + b'"],"c":"'
        + LONG[:-1]
        + b'y"}',
        b'"' + b'\\"' * 30_000 + b'"',
        LONG,
        b'"' + LONG,
    ]
    given = tuple(Draft("message", None, mint(), 5, b"", body) for body in said)
    for session in (one, two):
        did(engine, Write(session, drafts=given))
        assert engine.entries(session, after=1) == as_entries(given, first=2)


@LAWS
def a_page_can_be_read_without_the_payloads_of_its_messages(engine: Engine) -> None:
    session = opened(engine, 1)
    spoken = Draft("message", None, mint(), 5, b"{}", b'"' + LONG + b'"')
    did(
        engine,
        Write(
            session,
            drafts=(spoken, Draft("instructions", None, mint(), 6, b"", b'"be kind"')),
        ),
    )
    _, message, instructions = engine.entries(session, bodies=False)
    assert (message.id, message.note, message.body) == (spoken.id, b"{}", b"")
    assert instructions.body == b'"be kind"'


# Erasure


@LAWS
def what_is_erased_is_gone_and_the_log_keeps_its_places(engine: Engine) -> None:
    """Entries stay where they are, with the notes they are given and no body; inbox, outbox and
    journal are empty.
    """
    session = _full(engine)
    before = engine.entries(session)
    _erase(engine, session)
    after = engine.entries(session)
    assert [(e.seq, e.kind, e.turn, e.id, e.at) for e in after[:-1]] == [
        (e.seq, e.kind, e.turn, e.id, e.at) for e in before
    ]
    assert {(e.note, e.body) for e in after[:-1]} == {(b'{"role":"user"}', b"")}
    assert (after[-1].kind, after[-1].note) == ("erased", b"{}")
    assert (engine.inbox(session), engine.journal(session), engine.outbox("t")) == (
        [],
        [],
        [],
    )
    known = state(engine, session)
    assert (known.ended, known.erased, known.turn) == (True, True, None)


@LAWS
def an_erased_session_takes_nothing_more_but_can_be_erased_again(
    engine: Engine,
) -> None:
    """Late outcomes too are refused: they would bring words back (I-7 ends here)."""
    session = _full(engine)
    _erase(engine, session)
    assert refusal(engine, Write(session, drafts=drafts())) == "ended"
    assert refusal(engine, Write(session, drafts=drafts(), ended_too=True)) == "ended"
    _erase(engine, session)
    assert [entry.kind for entry in engine.entries(session)][-2:] == [
        "erased",
        "erased",
    ]


@LAWS
def erasing_one_session_takes_nothing_from_another(engine: Engine) -> None:
    """Nor a large part that both have said."""
    session, other = _full(engine), opened(engine, 2)
    kept = (
        Draft(
            "message",
            None,
            mint(),
            5,
            b"",
            b'{"role":"user","content":"' + LONG + b'"}',
        ),
    )
    did(engine, Write(other, drafts=kept, event=("scope", "theirs")))
    _erase(engine, session)
    assert engine.entries(other, after=1) == as_entries(kept, first=2)
    assert engine.accepted("scope", "theirs") is not None


@LAWS
def entries_that_are_blanked_keep_their_places_and_all_else_stays(
    engine: Engine,
) -> None:
    """Large parts go with the last entry of the session that has them; inbox, outbox and turns are
    as they were.
    """
    session, large = _full(engine), b'{"role":"user","content":"' + LONG + b'"}'
    did(engine, Write(session, drafts=(Draft("message", None, mint(), 9, b"", large),)))
    before, weight = engine.entries(session), engine.weigh([session])[session].bytes
    stood = engine.inbox(session), engine.outbox("t"), state(engine, session)
    gone = (2, before[-1].seq)
    for seq, lost in zip(gone, (0, len(LONG)), strict=True):
        did(
            engine,
            Write(session, head=stood[2].head, blank=((seq, b'{"role":"user"}'),)),
        )
        assert engine.weigh([session])[session].bytes <= weight - lost
    after = engine.entries(session)
    assert [entry for entry in after if entry.seq not in gone] == [
        entry for entry in before if entry.seq not in (2, before[-1].seq)
    ]
    blank = [entry for entry in after if entry.seq in gone]
    assert {(entry.note, entry.body) for entry in blank} == {(b'{"role":"user"}', b"")}
    assert [(e.kind, e.id, e.at) for e in blank] == [
        (e.kind, e.id, e.at) for e in (before[1], before[-1])
    ]
    assert (engine.inbox(session), engine.outbox("t"), state(engine, session)) == stood


@LAWS
def an_erasure_and_what_it_blanks_elsewhere_are_one_commit(engine: Engine) -> None:
    """If one of the two is refused, neither is done; an ended session takes it, an erased one does
    not.
    """
    session, other = _full(engine), opened(engine, 2)
    did(engine, Write(other, drafts=drafts(2)))
    did(engine, Write(other, drafts=(Draft("closed", None, mint(), 9),), close=True))
    before, head = engine.entries(session), state(engine, other).head
    notes = tuple((entry.seq, b"") for entry in before)
    audit = Draft("erased", None, mint(), 10, b"{}")
    erasing = Write(session, drafts=(audit,), ended_too=True, close=True, erase=notes)
    blanking = Write(other, ended_too=True, blank=((2, b""),))
    for wrong in (replace(blanking, head=head + 1), replace(blanking, ended_too=False)):
        [outcome] = engine.commit([(erasing, wrong)])
        assert isinstance(outcome, Refused) and outcome.session == other
        assert engine.entries(session) == before and not state(engine, session).erased
    [outcome] = engine.commit([(erasing, replace(blanking, head=head))])
    assert isinstance(outcome, Written) and state(engine, session).erased
    two, three = engine.entries(other, after=1, limit=2)
    assert (two.body, bool(three.body)) == (b"", True)
    assert refusal(engine, Write(session, ended_too=True, blank=((2, b""),))) == "ended"


@LAWS
def an_event_of_an_erased_session_is_still_known(engine: Engine) -> None:
    session = _full(engine)
    _erase(engine, session)
    accepted = engine.accepted("scope", "ours")
    assert accepted is not None and accepted.session == session


def _full(engine: Engine) -> str:
    """A session with something everywhere."""
    session = opened(engine, 1, key="k")
    large = Draft(
        "message", None, mint(), 5, b"", b'{"role":"user","content":"' + LONG + b'"}'
    )
    did(engine, Write(session, drafts=(large,), event=("scope", "ours")))
    turn = Draft("turn", STARTING, mint(), 6)
    number = did(engine, Write(session, drafts=(turn,), start=Start("me", 600.0))).turn
    did(engine, Write(session, fence=number, chunk=Chunk(mint(), 0, b"spoken")))
    owed = Draft("end", number, mint(), 7, b"{}")
    did(
        engine,
        Write(
            session,
            drafts=(owed,),
            fence=number,
            finish=True,
            owes=(Owing(mint(), "somebody"),),
        ),
    )
    [waiting] = drafts(1, at=8)
    did(engine, Write(session, drafts=(waiting,), admits=(Waiting(waiting.id),)))
    return session


def _erase(engine: Engine, session: str) -> None:
    notes = tuple((entry.seq, b'{"role":"user"}') for entry in engine.entries(session))
    audit = Draft("erased", None, mint(), 9, b"{}")
    did(
        engine, Write(session, drafts=(audit,), ended_too=True, close=True, erase=notes)
    )


def _ids(
    engine: Engine, *, key: str | None = None, state: State | None = None
) -> list[str]:
    return [known.id for known in engine.sessions("t", key=key, state=state)]


def _mark(seen: list[SessionState]) -> tuple[int, str] | None:
    return (seen[-1].active_at, seen[-1].id) if seen else None
