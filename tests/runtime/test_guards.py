"""Between computing and committing: another handle writes, and what was computed is computed again (I-11, I-12)."""

import threading

import pytest

import holdfast
from looking import other_handle

LIMIT_S = 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return request.getfixturevalue("databases")(schema=True)


@pytest.fixture
def session(where):
    with holdfast.open(where, durability="process") as store:
        yield store.session("k")


@pytest.fixture
def other(where, session):
    with other_handle(where) as store:
        yield store.session("k")


def before_commit(session, act):
    """Does this once, just before the next commit of this handle with an entry of its own."""
    engine = session._work.room.engine
    submit, left = engine.submit, [act]

    def interposed(commit):
        if left and any(write.drafts for write in commit):
            left.pop()()
        return submit(commit)

    engine.submit = interposed


def before_log(session, act, *, time):
    """Does this just before the log is read for the `time`-th time from now."""
    room = session._work.room
    log, reads = room.log, []

    def interposed():
        reads.append(1)
        if len(reads) == time:
            act()
        return log()

    room.log = interposed


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
