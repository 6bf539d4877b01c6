"""Between computing and committing: another handle writes, and what was computed is computed again
(I-11, I-12).
"""

import threading

import pytest

import holdfast
from holdfast.engine.protocol import Write
from holdfast.errors import TurnInterrupted
from looking import other_handle, told

LIMIT_S = 60.0


@pytest.fixture
def store(where):
    with holdfast.open(where, durability="process") as opened:
        yield opened


@pytest.fixture
def session(store):
    return store.session("k")


@pytest.fixture
def other(where, session):
    with other_handle(where) as store:
        yield store.session("k")


def before_commit(session, act):
    """Does this once, just before the next commit of this handle with an entry of its own."""
    engine = session._log.engine
    submit, left = engine.submit, [act]

    def interposed(commit):
        if left and any(write.drafts for write in commit):
            left.pop()()
        return submit(commit)

    engine.submit = interposed


def before_log(session, act, *, time):
    """Does this just before the log is read for the `time`-th time from now."""
    session_log = session._log
    log, reads = session_log.log, []

    def interposed():
        reads.append(1)
        if len(reads) == time:
            act()
        return log()

    session_log.log = interposed


def said(session):
    return [message.text for message in session.transcript()]


def talk(session, count):
    for number in range(count):
        with session.turn(f"question {number}") as turn:
            turn.say(f"answer {number}")


def test_a_list_that_another_handle_records_meanwhile_is_stored_once(session, other):
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    session.record(history)
    longer = [*history, {"role": "user", "content": "c"}]
    before_commit(session, lambda: other.record(longer))
    session.record(longer)
    assert said(session) == ["a", "b", "c"]
    assert [payload["content"] for payload in session.context()] == ["a", "b", "c"]


def test_a_message_that_comes_while_a_summary_is_committed_stays_in_view(session, other):
    talk(session, 3)
    before_commit(session, lambda: other.append("by the way"))
    assert session.compact("All of it.", keep_turns=1) is not None
    for handle in (session, other):
        assert [payload["content"] for payload in handle.context()][-1].endswith("by the way")


@pytest.mark.slow
def test_a_summary_never_falls_into_a_turn_that_starts_while_it_is_made(session, other):
    talk(session, 3)
    started, over = threading.Event(), threading.Event()

    def start():
        threading.Thread(target=go).start()
        assert started.wait(LIMIT_S)

    def go():
        with other.turn("Go.") as turn:
            started.set()
            over.wait(0.3)
            turn.say("Went.")
        over.set()

    before_log(session, start, time=2)
    assert session.compact("All of it.", keep_turns=0) is not None
    assert over.wait(LIMIT_S)
    kinds = [entry.kind for entry in session.entries()]
    assert kinds.index("compaction") > max(at for at, kind in enumerate(kinds) if kind == "end")
    shown = [payload["content"] for payload in session.context()]
    assert shown[0].endswith("Go.") and shown[1:] == ["Went."]


def seized(session, turn):
    """As if somebody had taken this turn over and was killed before it wrote the turn's end."""
    assert (
        session._log.submit(Write(session._log.id, fence=turn._work.number, seize=True, renew_s=0))
        .result()
        .seq
        == 0
    )


def test_a_summary_made_inside_a_turn_that_is_taken_over_meanwhile_comes_after_its_end(
    session, other
):
    """I-7, I-11: a seizure adds nothing to the log, so the head does not tell; the fence does."""
    talk(session, 3)
    with pytest.raises(TurnInterrupted), session.turn("Go.") as turn:
        before_commit(session, lambda: seized(other, turn))
        assert session.compact("All of it.", keep_turns=1) is not None
        turn.say("Went.")
    kinds = [(entry.kind, entry.turn) for entry in session.entries()]
    assert kinds.index(("end", turn._work.number)) < kinds.index(("compaction", None))


def test_a_turn_is_settled_from_all_that_its_writer_has_stored_late(session, other):
    """I-4: a message that was answered after all is not given back, to be answered once more."""
    turn = other.turn("Hi")
    seized(session, turn)

    def answer():
        with pytest.raises(TurnInterrupted):
            turn.add({"role": "assistant", "content": "Late."})

    before_commit(session, answer)
    assert [(role, text) for role, text, _ in told(session)] == [
        ("user", "Hi"),
        ("assistant", "Late."),
    ]
    assert session.pending() == []


def test_a_turn_is_settled_from_all_that_its_writer_has_shown(session, other):
    """I-5: a server that knows less of the journal than was acknowledged, as one that was replaced
    does.
    """
    turn = other.turn("Hi")
    stream = turn.deliver(iter(["Shown.", "never"]))
    assert next(stream) == "Shown."
    seized(session, turn)
    engine = session._log.engine
    journal, asked = engine.journal, []

    def knows_less(*given, **named):
        asked.append(given)
        return [] if len(asked) == 1 else journal(*given, **named)

    engine.journal = knows_less
    assert told(session) == [("user", "Hi", "complete"), ("assistant", "Shown.", "partial")]
    stream.close()


def test_an_erasure_takes_what_came_while_it_was_made(store, session, other):
    """I-21: nothing is acknowledged as erased that was not."""
    talk(session, 2)
    before_commit(session, lambda: other.append("by the way"))
    assert store.erase(session.id).done
    assert not any(said(session))
    assert not any(entry.body for entry in store._work.engine.entries(session.id))


def test_an_erasure_never_falls_into_a_turn_that_starts_while_it_is_made(store, session, other):
    talk(session, 2)
    begun = []
    before_commit(session, lambda: begun.append(other.turn("Go on.")))
    assert store.erase(session.id).done
    with pytest.raises(TurnInterrupted):
        begun[0].say("Still here.")
    assert not any(said(session))
