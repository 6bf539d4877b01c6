"""A disk that fills up while Hermes answers: what was shown is kept once, in both stores, in order."""

import json
import sqlite3

import hermes_modules
import pytest

from holdfast.adapters.hermes.rows import backlog
from holdfast.adapters.hermes.serving import serving_at
from holdfast.testing.faults.disk import LASTING, WRITING, Faults


@pytest.fixture
def hermes(tmp_path, monkeypatch):
    """The modules of Hermes on a disk that can be filled, and freed again."""
    monkeypatch.setattr(backlog, "AGAIN_S", 0)
    with Faults(trouble="full", times=LASTING, verbs=WRITING) as faults:
        modules = hermes_modules.patched()
        modules.db = modules.SessionDB(db_path=tmp_path / "state.db")
        modules.db.create_session("s1", "cli")
        other = sqlite3.connect(tmp_path / "state.db", isolation_level=None)

        def fill():
            faults.fail_at(faults.count + 1)
            # Hermes' own writes fail, too: here for a lock, which its code treats the same.
            other.execute("BEGIN IMMEDIATE")

        def free():
            faults.heal()
            other.execute("ROLLBACK")

        modules.fill, modules.free, modules.heal = fill, free, faults.heal
        yield modules
        other.close()
        serving_at(modules.db.db_path).store.close()


def transcript(hermes):
    session = serving_at(hermes.db.db_path).conversation("s1")
    return [(message.text, message.state) for message in session.transcript()]


def seen_by_the_model(hermes):
    session = serving_at(hermes.db.db_path).conversation("s1")
    return [message["content"] for message in session.context()]


def rows(hermes):
    found = hermes.db._conn.execute("SELECT role, content FROM messages ORDER BY id")
    return found.fetchall()


def stopped(hermes, *, free_at_once=False, shown=None):
    """An agent whose answer was cut off by a full disk, and what its caller got."""
    shown = [] if shown is None else shown
    agent = hermes.AIAgent(session_db=hermes.db)

    def show(text):
        shown.append(text)
        if free_at_once and "Stopped" in text:
            hermes.free()

    agent.stream_delta_callback = show
    agent.script = [["Half ", "of it ", hermes.fill, "never ", "never"]]
    result = agent.run_conversation("Hi.")
    if not free_at_once:
        hermes.free()
    return agent, result


def goes_on(hermes, agent, history):
    agent.script = [["Yes."]]
    agent.run_conversation("And?", conversation_history=history)


@pytest.mark.parametrize("free_at_once", [False, True])
def test_a_store_that_fails_says_nothing_in_the_users_name(hermes, free_at_once):
    shown = []
    agent, result = stopped(hermes, free_at_once=free_at_once, shown=shown)
    assert shown[:2] == ["Half ", "of it "] and "can't be stored" in shown[2] and len(shown) == 3
    assert result["failed"] and "interrupt_message" not in result
    assert agent.interrupts == [None]


def test_what_the_user_has_interrupted_with_is_not_lost_to_a_store_that_fails(hermes):
    agent = hermes.AIAgent(session_db=hermes.db)
    agent.stream_delta_callback = [].append
    late = lambda: (agent.interrupt("Wait!"), agent._fire_stream_delta("never"))  # noqa: E731
    agent.script = [["Half ", hermes.fill, late]]
    result = agent.run_conversation("Hi.")
    hermes.free()
    assert result["interrupt_message"] == "Wait!"


@pytest.mark.parametrize("free_at_once", [False, True])
def test_an_answer_that_a_full_disk_has_cut_off_is_there_once(hermes, free_at_once):
    agent, result = stopped(hermes, free_at_once=free_at_once)
    goes_on(hermes, agent, result["messages"])
    assert transcript(hermes) == [
        ("Hi.", "complete"),
        ("Half of it ", "partial"),
        ("And?", "complete"),
        ("Yes.", "complete"),
    ]
    assert seen_by_the_model(hermes) == ["Hi.", "Half of it", "And?", "Yes."]


@pytest.mark.parametrize("free_at_once", [False, True])
def test_what_was_shown_before_the_disk_was_full_gets_its_row_before_what_follows(
    hermes, free_at_once
):
    agent, result = stopped(hermes, free_at_once=free_at_once)
    goes_on(hermes, agent, result["messages"])
    assert rows(hermes) == [
        ("user", "Hi."),
        ("assistant", "Half of it"),
        ("user", "And?"),
        ("assistant", "Yes."),
    ]
    history = hermes.db.get_messages_as_conversation("s1")
    newer = hermes.AIAgent(session_db=hermes.db, script=[["Fine."]])
    newer.run_conversation("More.", conversation_history=history)
    asked = [each["content"] for each in newer.requests[0]]
    assert asked == ["Hi.", "Half of it", "And?", "Yes.", "More."]
    assert len(transcript(hermes)) == 6


def test_rows_that_neither_store_takes_wait_in_memory_and_are_stored_first(hermes):
    agent, result = stopped(hermes)
    with sqlite3.connect(hermes.db.db_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        goes_on(hermes, agent, result["messages"])
        waiting = serving_at(hermes.db.db_path).store.session(backlog.KEY).pending()
        kept = [json.loads(each.text)["named"]["content"] for each in waiting]
        assert kept == ["Half of it", "And?", "Yes."]
        other.execute("ROLLBACK")
    hermes.db.get_messages_as_conversation("s1")
    assert [text for _, text in rows(hermes)] == ["Hi.", "Half of it", "And?", "Yes."]


def test_a_history_that_is_loaded_soon_after_a_refusal_has_each_row_once(hermes, monkeypatch):
    monkeypatch.setattr(backlog, "AGAIN_S", 1000)
    monkeypatch.setattr(backlog.Backlog, "write_later", lambda *given: None)
    stopped(hermes)
    for _ in range(2):
        loaded = hermes.db.get_messages_as_conversation("s1")
        assert [each["content"] for each in loaded] == ["Hi.", "Half of it"]
        monkeypatch.setattr(backlog, "AGAIN_S", 0)


def test_rows_that_wait_are_not_written_anew_while_they_are_refused(hermes, monkeypatch):
    """They would stand there twice as soon as those that wait are written."""
    stopped(hermes)
    make = hermes.db._insert

    def refuse(session_id, row):
        # Those that wait are refused for what they are, as by a damaged index.
        if row.get("finish_reason") != "interrupted":
            raise sqlite3.DatabaseError("malformed")
        return make(session_id, row)

    with monkeypatch.context() as patch:
        patch.setattr(hermes.db, "_insert", refuse, raising=False)
        hermes.db.get_messages_as_conversation("s1")
    hermes.db.get_messages_as_conversation("s1")
    assert [text for _, text in rows(hermes)] == ["Hi.", "Half of it"]
