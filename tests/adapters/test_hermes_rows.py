"""Hermes' own tables behind Holdfast: what they lose is a change of the view, what they refuse comes later."""

import asyncio
import sqlite3
import threading

import hermes_modules
import pytest

from holdfast.adapters.hermes.rows import backlog
from holdfast.adapters.hermes.rows.catch_up import Row, missing
from holdfast.adapters.hermes.serving import serving_at
from holdfast.adapters.hermes.spoken.live_list import LiveList, plain


@pytest.fixture
def db(tmp_path):
    found = hermes_modules.patched().SessionDB(db_path=tmp_path / "state.db")
    found.create_session("s1", "cli")
    yield found
    serving_at(found.db_path).store.close()


def fill(db, *texts):
    for place, text in enumerate(texts):
        db.append_message(session_id="s1", role=("user", "assistant")[place % 2], content=text)


def transcript(db):
    return [message.text for message in serving_at(db.db_path).conversation("s1").transcript()]


def context(db):
    return [each["content"] for each in serving_at(db.db_path).conversation("s1").context()]


def loaded(db, **more):
    return [each["content"] for each in db.get_messages_as_conversation("s1", **more)]


def test_the_subclass_has_the_name_of_its_base(db):
    assert type(db).__name__ == "SessionDB" and type(db).__mro__[1] is hermes_modules.SessionDB


def test_a_rewritten_session_keeps_its_archive_and_all_that_was_said(db):
    fill(db, "One.", "Yes.", "Two.", "No.")
    db.archive_and_compact("s1", [{"role": "user", "content": "A summary."}])
    db.replace_messages("s1", [{"role": "user", "content": "A summary."}])
    assert loaded(db) == ["A summary."]
    assert loaded(db, include_inactive=True)[:4] == ["One.", "Yes.", "Two.", "No."]
    assert transcript(db) == ["One.", "Yes.", "Two.", "No.", "A summary."]
    assert context(db) == ["A summary."]


def test_what_is_taken_back_is_out_of_the_view_and_in_the_transcript(db):
    fill(db, "One.", "Yes.", "Two.", "No.")
    db.rewind_to_message("s1", 3)
    assert context(db) == loaded(db) == ["One.", "Yes."]
    assert transcript(db) == ["One.", "Yes.", "Two.", "No."]


def test_a_row_that_is_appended_again_with_its_time_is_one(db):
    for _ in range(2):
        db.append_message(session_id="s1", role="user", content="Seen.", timestamp=12.5)
    assert loaded(db) == transcript(db) == ["Seen."]


def test_equal_words_without_a_time_are_two_messages(db):
    fill(db, "Yes.", "Fine.", "Yes.")
    assert loaded(db) == transcript(db) == ["Yes.", "Fine.", "Yes."]


def test_what_nobody_said_is_a_row_alone(db):
    db.append_message(session_id="s1", role="session_meta")
    assert transcript(db) == [] and len(loaded(db)) == 1


def test_a_refused_row_waits_through_a_restart_and_is_written_once(db, monkeypatch):
    monkeypatch.setattr(backlog, "AGAIN_S", 0)
    with sqlite3.connect(db.db_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert db.append_message(session_id="s1", role="user", content="One.") == -1
        assert db.append_message(session_id="s1", role="assistant", content="Two.") == -1
        other.execute("ROLLBACK")
    serving = serving_at(db.db_path)
    serving.backlog = backlog.Backlog(serving.store, serving.world)
    assert loaded(db) == ["One.", "Two."]
    fill(db, "Three.")
    assert loaded(db) == transcript(db) == ["One.", "Two.", "Three."]


def test_refused_rows_are_written_though_nobody_asks_for_them(db, monkeypatch):
    monkeypatch.setattr(backlog, "AGAIN_S", 0)
    with sqlite3.connect(db.db_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        fill(db, "One.", "Two.")
        [thread] = [each for each in threading.enumerate() if each.name == "hermes-backlog"]
        other.execute("ROLLBACK")
    thread.join(20)
    written = db._conn.execute("SELECT content FROM messages ORDER BY id").fetchall()
    assert written == [("One.",), ("Two.",)]


def test_a_refused_row_does_not_make_the_next_one_wait(db):
    with sqlite3.connect(db.db_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        fill(db, "One.")
        other.execute("ROLLBACK")
    # Tried again only after a while: until then the rows stand in line, unless they are asked for.
    assert db.append_message(session_id="s1", role="assistant", content="Two.") == -1
    assert db._conn.execute("SELECT * FROM messages").fetchall() == []
    assert loaded(db) == transcript(db) == ["One.", "Two."]


def test_a_row_that_is_refused_again_is_not_passed_by_those_after_it(db, monkeypatch):
    monkeypatch.setattr(backlog.Backlog, "write_later", lambda *given: None)
    with sqlite3.connect(db.db_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        fill(db, "One.", "Two.")
        other.execute("ROLLBACK")
    insert = db._insert

    def refuse(session_id, row):
        if row["content"] == "One.":
            raise sqlite3.DatabaseError("malformed")
        return insert(session_id, row)

    monkeypatch.setattr(db, "_insert", refuse)
    assert loaded(db) == []
    monkeypatch.setattr(db, "_insert", insert)
    assert loaded(db) == ["One.", "Two."]


def test_an_end_of_a_session_that_was_refused_is_written_later(db, monkeypatch):
    monkeypatch.setattr(backlog, "AGAIN_S", 0)
    with sqlite3.connect(db.db_path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert db.promote_to_session_reset("s1", "idle") is False
        other.execute("ROLLBACK")
    fill(db, "One.")
    assert db.get_session("s1")["ended_at"] is not None


def test_a_database_that_is_only_read_is_passed_through(tmp_path, db):
    other = type(db)(db_path=tmp_path / "other.db", read_only=True)
    other.append_message(session_id="s1", role="user", content="Hi.")
    assert not (tmp_path / "holdfast-other.db").exists() and transcript(db) == []


def test_a_cached_agent_of_another_session_is_evicted():
    runner = hermes_modules.patched().GatewayRunner()
    first = hermes_modules.patched().AIAgent(session_id="first")
    runner._agent_cache["chat"] = (first, "signature", 2, "first")
    asyncio.run(runner._run_agent("Hi.", "", [], None, "first", session_key="chat"))
    asyncio.run(runner._run_agent("Hi.", "", [], None, "second", "chat"))
    assert runner.ran == ["first", "new agent for second"]


ASKED, ANSWERED = Row("user", "Hi."), Row("assistant", "Hello there.")


@pytest.mark.parametrize(
    ("stored", "rows", "count"),
    [
        ([ASKED, ANSWERED], [ASKED, ANSWERED], 0),
        ([ASKED, ANSWERED], [ASKED], 1),
        ([ASKED, ANSWERED], [], 2),
        ([ASKED, Row("assistant", "Hello ")], [ASKED, ANSWERED], 0),
        ([ASKED, Row("user", "steered"), ANSWERED], [ASKED, ANSWERED], 0),
        ([ASKED, ANSWERED], [Row("user", "Before."), Row("assistant", "Yes."), ASKED], 1),
        ([], [ASKED], 0),
    ],
)
def test_rows_are_missing_only_at_the_end(stored, rows, count):
    assert missing(stored, rows) == count


def test_a_dict_is_presented_as_the_same_object_as_long_as_it_is_in_the_list():
    held = LiveList()
    one, two = {"role": "user", "content": "One."}, {"role": "user", "content": "Two."}
    said = [(each, plain(each)) for each in (one, two)]
    first = held.presented(said)
    one["content"] = "One, edited."
    said = [(each, plain(each)) for each in (one, two)]
    assert held.reword(said) and not held.reword(said)
    again = held.presented(said)
    assert [a is b for a, b in zip(first, again, strict=True)] == [True, True]
    assert again[0]["content"] == "One, edited."


def test_several_stored_messages_become_one_dict_and_are_reworded_to_it():
    held = LiveList()
    live = {"role": "user", "content": "One.\nTwo."}
    stored = [{"role": "user", "content": "One."}, {"role": "user", "content": "Two."}]
    held.bind(live, stored)
    said = [(live, plain(live))]
    assert [each["content"] for each in held.presented(said)] == ["One.", "Two."]
    held.reword(said)
    assert [each["content"] for each in held.presented(said)] == ["One.\nTwo."]


def test_an_object_in_a_message_is_stored_as_its_text():
    said = plain(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "more": {
                        1,
                    },
                }
            ],
        }
    )
    assert said["tool_calls"][0]["more"] == "{1}"
