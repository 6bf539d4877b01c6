"""The signs of what is wrong with a Hermes store: each defect by its name, and silence where
nothing is wrong.
"""

import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_stores import DAMAGE, HEALTHY, Book, ask, damaged, healthy, plain
from holdfast.doctor.finding import Finding
from holdfast.doctor.hermes.rules import RULES
from holdfast.doctor.hermes.subject import HermesSubject
from holding import kept_open
from thorough import examples, few_cases

ANY_BYTES = settings(
    max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def examine(path: Path, session: str | None = None) -> list[Finding]:
    """What is found, having told every story besides."""
    patient = HermesSubject(path)
    try:
        found = [finding for examined in patient.examine(session) for finding in examined.findings]
        if not any(finding.rule.name == "hermes/unreadable-store" for finding in found):
            for story in patient.healed(lambda rule: True).sessions():
                list(story.lines)
        return found
    finally:
        patient.close()


def rules(path: Path) -> set[str]:
    return {finding.rule.name for finding in examine(path)}


def test_a_healthy_store_gives_no_finding(tmp_path):
    assert examine(healthy(tmp_path / "state.db")) == []


@pytest.mark.parametrize("schema", [20, 21])
def test_a_healthy_store_of_an_older_schema_gives_no_finding(tmp_path, schema):
    assert examine(healthy(tmp_path / "state.db", schema=schema)) == []


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("make", HEALTHY, ids=lambda make: make.__name__)
def test_every_beginning_of_a_healthy_session_gives_no_finding(tmp_path, make):
    book = Book(tmp_path / "whole.db")
    make(book)
    book.close()
    whole = (tmp_path / "whole.db").read_bytes()
    rows = book_rows(tmp_path / "whole.db")
    for count, (session, row) in enumerate(rows):
        path = tmp_path / f"{count}.db"
        path.write_bytes(whole)
        cut_session(path, session, row)
        with kept_open(path):
            assert examine(path) == []


def test_a_call_that_a_session_ends_on_is_open_when_no_program_has_the_store(tmp_path):
    book = Book(tmp_path / "state.db")
    name = book.session("sick")
    book.say(name, "user", "When is high water?")
    ask(book, name, "call_3")
    book.close()
    with kept_open(tmp_path / "state.db"):
        assert examine(tmp_path / "state.db") == []
    [finding] = examine(tmp_path / "state.db")
    assert finding.rule.name == "hermes/tool-call-without-result"


def test_a_route_to_a_lost_session_is_told_when_that_session_or_its_chat_is_asked_for(tmp_path):
    path = damaged(tmp_path / "state.db", "ghost_route")
    patient = HermesSubject(path)
    [ghost] = [
        finding
        for one in patient.examine()
        for finding in one.findings
        if finding.rule.name == "hermes/ghost-route"
    ]
    lost = ghost.measured.split("session ")[1].split(",")[0]
    told = [finding for one in patient.examine(lost) for finding in one.findings]
    assert ghost in told
    assert [finding for one in patient.examine("nobody") for finding in one.findings] == []
    patient.close()


def book_rows(path: Path) -> list[tuple[str, int]]:
    database = sqlite3.connect(path)
    first = (
        "SELECT session_id, id FROM messages WHERE id NOT IN (SELECT min(id) FROM messages "
        "GROUP BY session_id)"
    )
    rows = database.execute(first).fetchall()
    database.close()
    return rows


def cut_session(path: Path, session: str, row: int) -> None:
    """The store as it was before this row: nothing behind it, and the session not ended."""
    database = sqlite3.connect(path)
    database.execute("DELETE FROM messages WHERE session_id = ? AND id >= ?", (session, row))
    database.execute(
        "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", (session,)
    )
    live = "SELECT count(*) FROM messages WHERE session_id = sessions.id AND active = 1"
    database.execute(f"UPDATE sessions SET message_count = ({live}) WHERE id = ?", (session,))
    database.commit()
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGE)
def test_a_defect_is_named_and_nothing_else_is(tmp_path, name):
    found = examine(damaged(tmp_path / "state.db", name))
    assert {finding.rule.name for finding in found} == {DAMAGE[name][0]}
    for finding in found:
        assert finding.place and finding.measured.endswith(".")
        assert finding.session != "plain"


def test_every_rule_has_a_case():
    names = {rule.name for rule in RULES}
    assert names == {rule for rule, _ in DAMAGE.values()} | {"hermes/unreadable-store"}
    assert len(names) == len(RULES) == 25


def test_one_session_can_be_looked_at_alone(tmp_path):
    path = damaged(tmp_path / "state.db", "orphan_user")
    assert examine(path, "plain") == []
    assert [finding.rule.name for finding in examine(path, "sick")] == ["hermes/orphan-user"]


def test_a_question_before_an_unreadable_answer_is_not_said_to_have_none(tmp_path):
    book = Book(tmp_path / "state.db")
    name = book.session("torn")
    book.say(name, "user", "Is the crane free?")
    book.say(name, "assistant", b"\xff")
    book.turn(name, "And the slip?", "All day.")
    assert rules(book.close()) == {"hermes/unreadable-record"}


def test_messages_of_a_session_that_is_not_there_are_told_and_kept(tmp_path):
    path = healthy(tmp_path / "state.db")
    database = sqlite3.connect(path)
    database.execute("DELETE FROM sessions WHERE id = 'photo'")
    database.commit()
    database.close()
    (finding,) = examine(path)
    assert (finding.rule.name, finding.session) == ("hermes/unreadable-record", "photo")


@pytest.mark.parametrize(
    "data",
    [b"", b"not a database", b"SQLite format 3\x00", b"SQLite format 3\x00" + bytes(4080)],
    ids=len,
)
def test_what_is_no_store_is_unreadable_and_no_exception(tmp_path, data):
    path = tmp_path / "state.db"
    path.write_bytes(data)
    assert rules(path) == {"hermes/unreadable-store"}


@pytest.mark.slow
def test_a_file_that_is_cut_anywhere_has_a_finding(tmp_path):
    whole = healthy(tmp_path / "whole.db").read_bytes()
    path = tmp_path / "state.db"
    for size in range(0, len(whole), 2999):
        path.write_bytes(whole[:size])
        found = rules(path)
        assert found & {"hermes/unreadable-store", "hermes/unreadable-record"}, size


@pytest.mark.slow
@ANY_BYTES
@given(
    st.lists(
        st.tuples(st.floats(0, 0.999), st.binary(min_size=1, max_size=64)), min_size=1, max_size=6
    )
)
def test_no_damage_is_an_exception(tmp_path, wounds):
    whole = bytearray(_whole(tmp_path))
    for where, wound in wounds:
        place = int(where * len(whole))
        whole[place : place + len(wound)] = wound
    path = _fresh(tmp_path)
    path.write_bytes(whole)
    examine(path)


def _whole(folder: Path) -> bytes:
    """A healthy store, built once for all examples of a test."""
    path = folder / "whole.db"
    return (path if path.exists() else healthy(path)).read_bytes()


def _fresh(folder: Path) -> Path:
    path = folder / "fuzz.db"
    path.unlink(missing_ok=True)
    return path


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.sampled_from(
        [
            "\x00json:[",
            "\x00json:{}",
            "[" * 3000,
            '{"a":' * 3000,
            "[[]]",
            '[{"id": 5}]',
            '[{"id": []}]',
        ]
    ),
    st.integers(1, 3000).map(lambda depth: "\x00json:" + "[" * depth + "]" * depth),
)


@pytest.mark.slow
@ANY_BYTES
@given(
    st.sampled_from(
        ["messages", "sessions", "gateway_routing", "delivery_obligations", "state_meta"]
    ),
    st.data(),
)
def test_no_value_of_a_wrong_type_is_an_exception(tmp_path, table, data):
    path = _fresh(tmp_path)
    path.write_bytes(_whole(tmp_path))
    database = sqlite3.connect(path)
    database.execute("PRAGMA synchronous = OFF")
    database.execute("INSERT INTO state_meta VALUES ('holdfast.beyond-recovery', '[1]')")
    columns = [
        name for _, name, _, _, _, key in database.execute(f"PRAGMA table_info({table})") if not key
    ]
    column, value = data.draw(st.sampled_from(columns)), data.draw(VALUES)
    database.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid % 3 = 0", (value,))
    database.commit()
    database.close()
    examine(path)


@pytest.mark.parametrize("column", ["content", "tool_calls"])
@pytest.mark.parametrize("depth", [150, 201, 5000, 200_000])
def test_deep_nesting_is_a_finding_and_no_exception(tmp_path, column, depth):
    book = Book(tmp_path / "state.db")
    plain(book)
    deep = "[" * depth + "]" * depth
    text = (
        f"\x00json:{deep}"
        if column == "content"
        else json.dumps([{"id": "c"}])[:-1] + f', {{"deep": {deep}}}]'
    )
    book.say("plain", "user", "Look.")
    book.say("plain", "assistant", **({"content": ""} | {column: text}))
    found = rules(book.close())
    if depth > 200:
        assert found == {
            "hermes/unreadable-record" if column == "content" else "hermes/tool-calls-not-json"
        }


@pytest.mark.parametrize(
    ("apart_s", "is_double"), [(0.02, True), (0.09, True), (0.2, False), (60.0, False)]
)
def test_a_question_is_doubled_only_when_it_is_stored_twice_at_once(tmp_path, apart_s, is_double):
    """Somebody who asks the same again a moment later has asked twice."""
    book = Book(tmp_path / "state.db")
    name = book.session("asked")
    book.say(name, "user", "Is the crane free?")
    book.say(name, "user", "Is the crane free?", book.now + apart_s)
    book.say(name, "assistant", "Yes.", book.now + apart_s + 1)
    assert ("hermes/double-user-row" in rules(book.close())) == is_double
