"""Somebody writes before each commit of a call: the call comes to its end all the same, after few
tries, and nothing of what arrives is lost.
"""

from contextlib import suppress
from functools import partial

import pytest

import holdfast
from holdfast.errors import SessionEnded, TurnInterrupted
from holdfast.runtime.live.session_log import SessionLog
from looking import other_handle
from thorough import few_on_postgres

pytestmark = few_on_postgres("how often a plan is made again is decided in `runtime/plans`")

TRIES_MAX = 12


@pytest.fixture
def store(where):
    with holdfast.open(where, durability="process") as opened:
        yield opened


@pytest.fixture
def other(where, store):
    store.session("k")
    with other_handle(where) as opened:
        yield opened


class Intruder:
    """Does something before each commit of a store with an entry of its own, from now on."""

    def __init__(self, store, act):
        self.times = 0
        engine, self._act = store._work.engine, act
        self._submit, engine.submit = engine.submit, self._interposed

    def _interposed(self, commit):
        if any(write.drafts for write in commit):
            self.times += 1
            assert self.times <= TRIES_MAX, "it tries for ever"
            self._act(self.times)
        return self._submit(commit)


def waiting(session):
    return [message.text for message in session.pending()]


def append(session, text):
    """Says it, as long as the session takes it."""
    with suppress(SessionEnded):
        session.append(text)


def accept(store, count):
    for number in range(count):
        store.accept("k", f"early {number}")
    return [f"early {number}" for number in range(count)]


def test_a_reset_ends_though_a_message_arrives_before_each_of_its_commits(store, other):
    early = accept(store, 5)
    intruder = Intruder(store, lambda time: other.accept("k", f"late {time}"))
    new = store.reset("k")
    late = [f"late {time}" for time in range(1, intruder.times + 1)]
    assert new.epoch == 2
    assert new.id == other.session("k").id
    assert waiting(new) == [*early, *late]


def test_a_reset_ends_though_something_is_appended_before_each_of_its_commits(store, other):
    early = accept(store, 5)
    old = other.session("k")

    Intruder(store, lambda time: append(old, f"late {time}"))
    new = store.reset("k")
    assert (new.epoch, waiting(new)) == (2, early)


def test_a_reset_that_stops_a_turn_ends_though_messages_arrive(store, other):
    turn = other.session("k").turn("Go.")
    early = accept(store, 5)
    intruder = Intruder(store, lambda time: other.accept("k", f"late {time}"))
    new = store.reset("k", reason="enough")
    late = [f"late {time}" for time in range(1, intruder.times + 1)]
    assert new.epoch == 2
    assert waiting(new) == [*early, *late]
    with pytest.raises(TurnInterrupted):
        turn.say("Still here.")


def test_each_of_two_resets_at_once_makes_a_session(store, other):
    """The one that is refused has ended nothing: it ends what the other one has made."""
    before = [lambda: other.reset("k")]
    Intruder(store, lambda time: before.pop()() if before else None)
    assert store.reset("k").epoch == 3


def test_a_session_ends_though_messages_arrive_before_each_commit(store, other):
    turn = other.session("k").turn("Go.")
    session = store.session("k")
    Intruder(store, lambda time: other.accept("k", f"late {time}"))
    session.end("enough")
    with pytest.raises(TurnInterrupted):
        turn.say("Still here.")


def test_an_erasure_ends_though_something_is_said_before_each_of_its_commits(store, other):
    old = other.session("k")
    old.append("secret")
    Intruder(store, lambda time: append(old, f"secret {time}"))
    assert store.erase(old.id).done
    assert store.search("secret") == []
    assert not any(entry.body for entry in store._work.engine.entries(old.id))


def test_an_erasure_ends_though_messages_arrive_before_each_of_its_commits(store, other):
    old = store.session("k")
    old.append("secret")
    Intruder(store, lambda time: other.accept("k", f"late {time}"))
    assert store.erase(old.id).done
    assert store.search("secret") == []


def test_a_reset_goes_through_the_log_once_however_much_waits(store, monkeypatch):
    early = accept(store, 40)
    seen, by_id = [], SessionLog._by_id
    monkeypatch.setattr(SessionLog, "_by_id", lambda log: seen.append(log) or by_id(log))
    new = store.reset("k")
    assert len(seen) == 1
    assert waiting(new) == early


def talked(store, *, compacted):
    """A session in which three turns were taken, the first of them summed up if asked."""
    session = store.session("k")
    ids = []
    for number in range(3):
        with session.turn(f"question {number}") as turn:
            ids.append(turn.add({"role": "assistant", "content": f"answer {number}"}))
    if compacted:
        assert session.compact("All of it.", keep_turns=1) is not None
    return session, ids


def shown(session):
    return [payload["content"] for payload in session.context()]


@pytest.mark.parametrize("how", ["append", "accept"])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_rewind_ends_though_something_is_said_before_each_of_its_commits(
    store, other, how, compacted
):
    session, ids = talked(store, compacted=compacted)
    say = other.session("k").append if how == "append" else partial(other.accept, "k")
    intruder = Intruder(store, lambda time: say(f"late {time}"))
    session.rewind(ids[0])
    for handle in (session, other.session("k")):
        # The last one came when nothing was guarded any more: it may stand behind the rewind.
        assert [text for text in shown(handle) if not text.startswith("late")] == [
            "question 0",
            "answer 0",
        ]
        assert len(shown(handle)) <= 3
    assert len(waiting(session)) == (intruder.times if how == "accept" else 0)


def test_a_refused_rewind_reads_what_is_new_and_not_the_history(store, other, monkeypatch):
    session, ids = talked(store, compacted=False)
    before = ["once", "twice"]
    other_session = other.session("k")
    Intruder(store, lambda time: before and other_session.append(before.pop()))
    seen, history = [], SessionLog.history
    monkeypatch.setattr(SessionLog, "history", lambda log: seen.append(log) or history(log))
    session.rewind(ids[0])
    assert len(seen) == 1
    for handle in (session, other_session):
        assert shown(handle) == ["question 0", "answer 0"]
    session.rewind(ids[2])
    assert shown(session)[-2:] == ["question 2", "answer 2"]


@pytest.mark.parametrize("times", [1, 6])
def test_a_rewind_goes_back_from_a_summary_that_was_made_meanwhile(store, other, times):
    session, ids = talked(store, compacted=False)
    other_session = other.session("k")

    def intrude(time):
        if time < times:
            other_session.append("late")
        elif time == times:
            assert other_session.compact("All of it.", keep_turns=1) is not None

    Intruder(store, intrude)
    session.rewind(ids[0])
    for handle in (session, other_session, store.get(session.id)):
        assert shown(handle) == ["question 0", "answer 0"]
