"""Laws of keeping: sessions are listed, payloads come back whole whatever their size, and what is
erased is gone.
"""

from itertools import product
from typing import Any

from msgspec.structs import replace

from holdfast.domain.entry import Draft, Entry
from holdfast.engine.protocol import Engine, Owing, Refused, SessionState, Write
from holdfast.testing.conformance.builders import (
    LARGE_BYTES,
    acceptance,
    did,
    drafts,
    large,
    mint,
)
from holdfast.testing.conformance.laws import Laws
from holdfast.testing.conformance.tested_session import (
    TestedSession,
    are,
    new_session,
    pages_join,
)

LAWS = Laws()

LONG = b"x" * LARGE_BYTES
BLANK_NOTE = b'{"role":"user"}'
"""What these laws leave of an entry whose words are taken."""


# Lists


@LAWS
def sessions_are_listed_newest_first_and_pages_of_any_size_join_to_the_whole(
    engine: Engine,
) -> None:
    """Also where times are equal: the id of the last one seen says where to go on."""
    # Several of each time, so that pages end within equal times.
    ids = {new_session(engine, n, at=100 * (n // 3)).id for n in range(1, 9)}

    def page(before: Any, limit: int) -> list[SessionState]:
        return engine.sessions("t", before=before, limit=limit)

    whole = engine.sessions("t")
    assert {known.id for known in whole} == ids
    times = [known.active_at for known in whole]
    assert times == sorted(times, reverse=True)
    pages_join(whole, page, _mark)


@LAWS
def a_list_can_be_of_one_key_or_of_one_state(engine: Engine) -> None:
    first = new_session(engine, 1, key="k", at=1)
    first.write(drafts=(Draft("closed", None, mint(), 2),), close=True)
    second = new_session(engine, 2, key="k", epoch=2, at=3)
    other = new_session(engine, 3, key="other", at=4)
    # A session that runs is not among the open ones.
    other.start(at=5)
    assert are(engine.sessions("t", key="k"), second, first)
    assert are(engine.sessions("t", state="open"), second)
    assert are(engine.sessions("t", state="running"), other)
    assert are(engine.sessions("t", state="ended"), first)
    assert are(engine.sessions("t", key="k", state="open"), second)
    assert engine.sessions("t", key="nobody's") == []
    [last] = engine.sessions("t", key="k", limit=1)
    assert are(engine.sessions("t", key="k", before=_mark(last)), first)


@LAWS
def the_keys_that_begin_so_are_listed_by_key_with_their_current_sessions(
    engine: Engine,
) -> None:
    old = new_session(engine, 1, key="a:1")
    old.write(drafts=(Draft("closed", None, mint(), 2),), close=True)
    new = new_session(engine, 2, key="a:1", epoch=2)
    over = new_session(engine, 3, key="a:2")
    over.write(drafts=(Draft("closed", None, mint(), 2),), close=True)
    last = new_session(engine, 4, key="a:ü\ue000")
    new_session(engine, 5, key="b:1")
    new_session(engine, 6, key=None)
    # Its session has ended: the key is in no list.
    assert are(engine.under("t", "a:"), new, last)
    assert are(engine.under("t", "a:", limit=1), new)
    assert are(engine.under("t", "a:", after="a:1"), last)
    assert len(engine.under("t", "")) == 3
    assert engine.under("another tenant", "a:") == []


@LAWS
def a_message_makes_its_session_the_newest_to_the_second(engine: Engine) -> None:
    old = new_session(engine, 1, at=1_000)
    new = new_session(engine, 2, at=2_000)
    # Half a second: less than a step.
    old.write(drafts=drafts(1, at=1_500))
    assert are(engine.sessions("t"), new, old)
    old.write(drafts=drafts(1, at=5_000))
    assert old.state.active_at == 5_000
    # A label is no word of anybody: who sorts an old session does not bring it up.
    old.write(drafts=(Draft("label", None, mint(), 9_000, b"{}"),))
    assert old.state.active_at == 5_000
    assert are(engine.sessions("t"), old, new)


@LAWS
def a_clock_that_was_set_back_takes_no_session_back(engine: Engine) -> None:
    session = new_session(engine, 1, at=5_000)
    # The clock of the process that writes is behind the one that opened it.
    session.start(at=2_000)
    session.write(drafts=drafts(1, at=3_000))
    assert session.state.active_at == 5_000


# Payloads


@LAWS
def an_entry_comes_back_as_it_was_given_whatever_its_shape(
    session: TestedSession,
) -> None:
    """Plain messages may be kept in a shorter form; nobody can tell."""
    at = 1_700_000_000_000
    # The time of a message is in its id, as a rule, and may then be left out of its row.
    timed = at.to_bytes(6, "big") + b"0123456789"
    notes = (b"", b'{"role":"assistant"}', b'{"role":"tool"}')
    bodies = (
        b'{"role":"user","content":"hi"}',
        b'{"role":"assistant","content":"hi"}',
        b'{"role":"assistant","content":"\\"}","x":"y"}',
        b'{"role":"user","content":""}',
        # From here on no JSON, though some look like it to a careless reader.
        b'{"role":"user","content":"}',
        b'{"role":"user","content":"\xff"}',
        b'{"role":"user","content":"\0"}',
        b"\x01",
        b"",
    )
    kinds = ("message", "instructions")
    ids = (timed, b"0123456789", mint())
    given = []
    for kind, id, note, body in product(kinds, ids, notes, bodies):
        given.append(Draft(kind, None, id, at, note, body))
    session.write(drafts=tuple(given))
    session.holds(tuple(given))


@LAWS
def a_large_part_comes_back_whole_in_every_session_that_said_it(
    one: TestedSession, two: TestedSession
) -> None:
    # Several in one payload, one of them twice, one that differs in its last byte; one that
    # is all escapes; and two that look like JSON strings and are not.
    several = b'{"a":"%b","b":["%b\\\\","%b"],"c":"%by"}' % (
        LONG,
        LONG,
        LONG,
        LONG[:-1],
    )
    said = [
        b'{"role":"user","content":"%b"}' % LONG,
        several,
        b'"%b"' % (b'\\"' * 30_000),
        LONG,
        b'"' + LONG,
    ]
    given = tuple(Draft("message", None, mint(), 5, b"", body) for body in said)
    # Whoever says it second shares it; the first must not notice.
    for session in (one, two):
        session.write(drafts=given)
        session.holds(given)


@LAWS
def a_page_can_be_read_without_the_payloads_of_its_messages(
    engine: Engine, session: TestedSession
) -> None:
    spoken = Draft("message", None, mint(), 5, b"{}", b'"%b"' % LONG)
    prompt = Draft("instructions", None, mint(), 6, b"", b'"be kind"')
    longer = Draft("instructions", None, mint(), 7, b"", b'"%b"' % LONG)
    session.write(drafts=(spoken, prompt, longer))
    _, message, *instructions = engine.entries(session.id, bodies=False)
    assert (message.id, message.note, message.body) == (spoken.id, b"{}", b"")
    # Only messages are left without: a reader without payloads still wants what rules them.
    assert [each.body for each in instructions] == [prompt.body, longer.body]


# Erasure


@LAWS
def what_is_erased_is_gone_and_the_log_keeps_its_places(engine: Engine) -> None:
    """Entries stay where they are, with the notes they are given and no body; inbox, outbox and
    journal are empty.
    """
    session = _full(engine)
    before = session.entries()
    _erase(session)
    *after, audit = session.entries()
    assert after == [_blanked(entry) for entry in before]
    assert (audit.kind, audit.note) == ("erased", b"{}")
    assert session.inbox() == []
    assert session.journal() == []
    assert engine.outbox("t") == []
    known = session.state
    assert known.ended
    assert known.erased
    assert known.turn is None


@LAWS
def an_erased_session_takes_nothing_more_but_can_be_erased_again(
    engine: Engine,
) -> None:
    """Late outcomes too are refused: they would bring words back (I-7 ends here)."""
    session = _full(engine)
    _erase(session)
    session.refuses_append("ended")
    session.refuses_append("ended", ended_too=True)
    _erase(session)
    *_, first, second = session.entries()
    assert first.kind == second.kind == "erased"


@LAWS
def erasing_one_session_takes_nothing_from_another(engine: Engine) -> None:
    """Nor a large part that both have said."""
    session = _full(engine)
    other = new_session(engine, 2)
    kept = (large(),)
    other.write(drafts=kept, event=("scope", "theirs"))
    _erase(session)
    other.holds(kept)
    assert engine.accepted("scope", "theirs") is not None


@LAWS
def entries_that_are_blanked_keep_their_places_and_all_else_stays(
    engine: Engine,
) -> None:
    """Large parts go with the last entry of the session that has them; inbox, outbox and turns are
    as they were.
    """
    session = _full(engine)
    session.write(drafts=(large(at=9),))
    before = session.entries()
    weight = engine.weigh([session.id])[session.id].bytes
    inbox = session.inbox()
    outbox = engine.outbox("t")
    known = session.state
    # Both have said the same large part: it weighs until the second of them is blanked.
    first = before[1]
    last = before[-1]
    for entry, lost in ((first, 0), (last, len(LONG))):
        session.write(head=known.head, blank=((entry.seq, BLANK_NOTE),))
        assert engine.weigh([session.id])[session.id].bytes <= weight - lost
    assert session.entries() == [
        before[0],
        _blanked(first),
        *before[2:-1],
        _blanked(last),
    ]
    assert session.inbox() == inbox
    assert engine.outbox("t") == outbox
    assert session.state == known


@LAWS
def an_erasure_and_what_it_blanks_elsewhere_are_one_commit(engine: Engine) -> None:
    """If one of the two is refused, neither is done; an ended session takes it, an erased one does
    not.
    """
    session = _full(engine)
    other = new_session(engine, 2)
    other.append(2)
    other.write(drafts=(Draft("closed", None, mint(), 9),), close=True)
    before = session.entries()
    head = other.state.head
    erasing = session.erasing((entry.seq, b"") for entry in before)
    blanking = Write(other.id, ended_too=True, blank=((2, b""),))
    for wrong in (replace(blanking, head=head + 1), replace(blanking, ended_too=False)):
        [outcome] = engine.commit([(erasing, wrong)])
        assert isinstance(outcome, Refused)
        assert outcome.session == other.id
        assert session.entries() == before
        assert not session.state.erased
    # With the right head, the same two writes are done.
    did(engine, erasing, replace(blanking, head=head))
    assert session.state.erased
    two, three = engine.entries(other.id, after=1, limit=2)
    assert two.body == b""
    assert three.body
    # There is nothing left in it to blank.
    session.refuses("ended", ended_too=True, blank=((2, b""),))


@LAWS
def an_event_of_an_erased_session_is_still_known(engine: Engine) -> None:
    session = _full(engine)
    _erase(session)
    assert acceptance(engine, "scope", "ours").session == session.id


def _full(engine: Engine) -> TestedSession:
    """A session with something everywhere."""
    session = new_session(engine, 1, key="k")
    session.write(drafts=(large(),), event=("scope", "ours"))
    turn = session.start(at=6)
    session.speak(turn)
    session.owe(turn, Owing(mint(), "somebody"))
    session.admit(*drafts(1, at=8))
    return session


def _erase(session: TestedSession) -> None:
    entries = session.entries()
    notes = [(entry.seq, BLANK_NOTE) for entry in entries]
    did(session.engine, session.erasing(notes))


def _blanked(entry: Entry) -> Entry:
    """The place of this entry, and nothing else of it."""
    return replace(entry, note=BLANK_NOTE, body=b"")


def _mark(last: SessionState) -> tuple[int, str]:
    """Where a list goes on after this session."""
    return last.active_at, last.id
