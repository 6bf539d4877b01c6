"""Healed Hermes stores: nothing left that can be healed, nothing discarded, the same bytes every
time.
"""

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commanding import process
from hermes_stores import DAMAGE, KEY, START, SUMMARY, Book, damaged, healthy, plain
from holdfast.doctor.finding import Change, Rule
from holdfast.doctor.hermes.case import HARNESS_STARTS, HermesCase
from holdfast.doctor.hermes.detect.all import findings_of
from holdfast.doctor.hermes.heal.session import heal as heal_case
from holdfast.doctor.hermes.rules import RULES
from holdfast.doctor.hermes.subject import HermesSubject
from holdfast.errors import StoreUnavailable
from holdfast.importers.foreign_session import ForeignMessage, ForeignSession
from holdfast.importers.hermes.reader import HermesReader
from holdfast.importers.hermes.records import HermesRow, HermesSession
from thorough import examples, few_cases

USUAL = ("auto", "mark")
REWRITTEN = {
    "hermes/merged-user-blob",
    "hermes/replaced-characters",
    "hermes/split-by-stream-cut",
    "hermes/unreadable-record",
}
"""Rules whose remedy changes a text, or that have none."""
POLICY = {rule.name: rule.policy for rule in RULES}


def accepts(*policies: str):
    return lambda rule: rule.policy in policies


def heal(path: Path, out: Path, *policies: str) -> list[Change]:
    patient = HermesSubject(path)
    try:
        healed = patient.healed(accepts(*policies))
        healed.write(str(out))
        return healed.changes()
    finally:
        patient.close()


def left(path: Path) -> set[str]:
    patient = HermesSubject(path)
    try:
        return {
            finding.rule.name for examined in patient.examine() for finding in examined.findings
        }
    finally:
        patient.close()


def live(path: Path, session: str = "sick") -> list[tuple[Any, ...]]:
    """What Hermes would load."""
    database = sqlite3.connect(path)
    query = "SELECT role, content FROM messages WHERE session_id = ? AND active = 1 ORDER BY id"
    rows = database.execute(query, (session,)).fetchall()
    database.close()
    return rows


def said(stories: list[ForeignSession]) -> dict[str, list[Any]]:
    """What the model would see of each story."""
    return {
        story.id: [
            line.payload["content"]
            if isinstance(line, ForeignMessage)
            else (line.text, len(line.keeps))
            for line in story.lines
            if not isinstance(line, ForeignMessage) or line.labels.get("visible_to_model", True)
        ]
        for story in stories
    }


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("name", DAMAGE)
def test_a_healed_store_has_nothing_left_that_heals_without_asking(tmp_path, name):
    path = damaged(tmp_path / "state.db", name)
    before = path.read_bytes()
    changes = heal(path, tmp_path / "healed.db", *USUAL)
    found = left(tmp_path / "healed.db")
    assert not {rule for rule in found if POLICY[rule] in USUAL}
    assert {change.rule for change in changes} <= {
        rule.name for rule in RULES if rule.policy in USUAL
    }
    if POLICY[DAMAGE[name][0]] in USUAL:
        assert DAMAGE[name][0] in {change.rule for change in changes}
    assert path.read_bytes() == before


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("name", DAMAGE)
def test_with_all_accepted_only_what_is_beyond_healing_is_left(tmp_path, name):
    changes = heal(damaged(tmp_path / "state.db", name), tmp_path / "healed.db", *USUAL, "ask")
    assert {POLICY[rule] for rule in left(tmp_path / "healed.db")} <= {"report"}
    assert all(change.before and change.after and change.place for change in changes)


@pytest.mark.slow
@few_cases(every=4)
@pytest.mark.parametrize("name", DAMAGE)
def test_healing_twice_gives_the_same_bytes_for_its_owner_alone(tmp_path, name):
    path = damaged(tmp_path / "state.db", name)
    for out in ("one.db", "two.db"):
        heal(path, tmp_path / out, *USUAL, "ask")
    assert (tmp_path / "one.db").read_bytes() == (tmp_path / "two.db").read_bytes()
    assert stat.S_IMODE((tmp_path / "one.db").stat().st_mode) == 0o600


@pytest.mark.slow
def test_healing_gives_the_same_bytes_in_every_process(tmp_path):
    """Sets have another order in each process: nothing that is written may follow it."""
    path = damaged(tmp_path / "state.db", "history_stored_twice")
    for seed in ("1", "2", "3"):
        out = tmp_path / f"healed{seed}.db"
        words = ("doctor", path, "--heal", out, "--as", "hermes")
        assert process(*words, PYTHONHASHSEED=seed).code in (0, 1)
    copies = {(tmp_path / f"healed{seed}.db").read_bytes() for seed in ("1", "2", "3")}
    assert len(copies) == 1


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("name", DAMAGE)
def test_the_healed_copy_tells_what_healing_tells(tmp_path, name):
    path = damaged(tmp_path / "state.db", name)
    patient = HermesSubject(path)
    healed = patient.healed(accepts(*USUAL, "ask"))
    told = said(list(healed.sessions()))
    healed.write(str(tmp_path / "healed.db"))
    patient.close()
    shelf = HermesReader(tmp_path / "healed.db")
    written = said(list(shelf.sessions()))
    shelf.close()
    if name == "repeated_tail":  # the old generation's copies are gone from the file
        told, written = ({**one, "compacted": one["compacted"][-3:]} for one in (told, written))
    assert told == written


def test_a_healthy_store_is_copied_row_by_row(tmp_path):
    path = healthy(tmp_path / "state.db")
    assert heal(path, tmp_path / "healed.db", *USUAL, "ask") == []
    one, two = (sqlite3.connect(tmp_path / name) for name in ("state.db", "healed.db"))
    for table in (
        "sessions",
        "messages",
        "gateway_routing",
        "delivery_obligations",
        "schema_version",
    ):
        query = (
            f"SELECT * FROM {table} ORDER BY 1, 2"
            if table != "schema_version"
            else f"SELECT * FROM {table}"
        )
        assert one.execute(query).fetchall() == two.execute(query).fetchall()
    kinds = "SELECT type, name FROM sqlite_schema ORDER BY type, name"
    assert one.execute(kinds).fetchall() == two.execute(kinds).fetchall()
    assert (
        two.execute(
            "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'winch'"
        ).fetchone()[0]
        > 0
    )
    assert two.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    one.close()
    two.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DAMAGE if DAMAGE[name][0] not in REWRITTEN])
def test_no_row_is_discarded(tmp_path, name):
    path = damaged(tmp_path / "state.db", name)
    heal(path, tmp_path / "healed.db", *USUAL, "ask")
    assert contents(path) <= contents(tmp_path / "healed.db")


def contents(path: Path) -> set[Any]:
    database = sqlite3.connect(path)
    rows = {
        (role, text)
        for role, text in database.execute("SELECT role, content FROM messages")
        if text is not None
    }
    database.close()
    return rows


def healed_rows(
    tmp_path: Path, name: str, *policies: str, session: str = "sick"
) -> list[tuple[Any, ...]]:
    heal(damaged(tmp_path / "state.db", name), tmp_path / "healed.db", *USUAL, *policies)
    return live(tmp_path / "healed.db", session)


def test_an_unanswered_question_is_followed_by_a_word_on_it(tmp_path):
    rows = healed_rows(tmp_path, "orphan_user")
    assert rows[1] == ("assistant", "[No answer to this message is stored.]")
    assert [role for role, _ in rows] == ["user", "assistant", "user", "assistant"]


def test_a_word_on_an_unanswered_question_is_put_beside_its_copies_too(tmp_path):
    rows = healed_rows(tmp_path, "orphan_user_compacted_away")
    place = rows.index(("user", "Log the tug."))
    assert rows[place + 1] == ("assistant", "[No answer to this message is stored.]")
    assert [text for _, text in rows][-2:] == ["How many?", "Three."]


def test_a_glued_question_is_cut_when_told_to(tmp_path):
    assert ("user", "How many so far?") in healed_rows(tmp_path, "merged_user_blob", "ask")


def test_an_answer_that_was_cut_is_one_again(tmp_path):
    rows = healed_rows(tmp_path, "split_by_stream_cut")
    assert [text for _, text in rows][:2] == [
        "Tell me about the harbour.",
        "It was built in 1871 and has nine berths.",
    ]
    assert [role for role, _ in rows] == ["user", "assistant", "user", "assistant"]


def test_a_call_without_a_result_gets_one_that_says_so(tmp_path):
    rows = healed_rows(tmp_path, "tool_call_without_result")
    assert [role for role, _ in rows] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert rows[3] == ("tool", '{"error": "interrupted, outcome unknown"}')
    database = sqlite3.connect(tmp_path / "healed.db")
    query = "SELECT tool_call_id, tool_name FROM messages WHERE content LIKE '%outcome unknown%'"
    assert database.execute(query).fetchall() == [("call_3", "terminal")]
    database.close()


def test_a_call_that_was_stored_twice_is_there_once_with_an_outcome(tmp_path):
    rows = healed_rows(tmp_path, "duplicate_tool_call_row")
    assert [text for _, text in rows][1:3] == [
        "Let me look.",
        '{"error": "interrupted, outcome unknown"}',
    ]


def test_calls_that_are_not_json_keep_their_text_and_their_results(tmp_path):
    heal(damaged(tmp_path / "state.db", "tool_calls_not_json"), tmp_path / "healed.db", *USUAL)
    shelf = HermesReader(tmp_path / "healed.db")
    (story,) = shelf.sessions("sick")
    asked = list(story.lines)[1].payload["tool_calls"]
    shelf.close()
    assert [one["id"] for one in asked] == ["call_5", "call_6"]
    assert (
        "call_5" in asked[0]["function"]["arguments"] and asked[0]["function"]["name"] == "terminal"
    )


def test_a_lost_answer_comes_back_from_the_ledger_when_told_to(tmp_path):
    rows = healed_rows(tmp_path, "answer_only_in_ledger", "ask")
    assert rows[2:4] == [
        ("user", "Is the slip free?"),
        ("assistant", "Yes. The slip is free all day."),
    ]


def test_lost_turns_come_back_without_their_questions(tmp_path):
    rows = healed_rows(tmp_path, "lost_turn", "ask")
    assert [text for _, text in rows] == [
        "[The question is not stored.]",
        "The slip is free all day.",
        "[The question is not stored.]",
        "The winch is in repair.",
    ]


def test_a_turn_in_the_wrong_session_moves_to_the_right_one(tmp_path):
    rows = healed_rows(tmp_path, "written_after_end", "ask", session="right")
    assert [text for _, text in rows] == [
        "Is the slip free?",
        "All day.",
        "And the winch?",
        "In repair.",
        "And the ramp?",
        "Wet.",
    ]
    assert live(tmp_path / "healed.db") == [("user", "Is the crane free?"), ("assistant", "Yes.")]


def test_crossed_turns_are_paired_in_order(tmp_path):
    rows = healed_rows(tmp_path, "interleaved_turns", "ask")
    assert [text for _, text in rows][:4] == [
        "Is the crane free?",
        "The crane is.",
        "Is the slip free?",
        "The slip is not.",
    ]


def test_a_repeated_history_is_live_once(tmp_path):
    rows = healed_rows(tmp_path, "history_stored_twice")
    assert [text for _, text in rows] == [
        "Is the crane free?",
        "Yes.",
        "And the slip?",
        "All day.",
        "Thanks.",
        "You are welcome.",
    ]


def test_a_repeated_tail_is_found_by_a_search_no_more_than_twice(tmp_path):
    before = live(damaged(tmp_path / "other.db", "repeated_tail"), "compacted")
    assert healed_rows(tmp_path, "repeated_tail", session="compacted") == before
    database = sqlite3.connect(tmp_path / "healed.db")
    query = (
        "SELECT count(*) FROM messages WHERE content LIKE 'Log the barge%' AND (active OR "
        "compacted)"
    )
    assert database.execute(query).fetchone() == (2,)
    database.close()


def test_replaced_characters_come_back_where_a_column_still_has_them(tmp_path):
    assert ("assistant", "The yellow 🚤 tonight.") in healed_rows(tmp_path, "replaced_characters")


def test_what_is_beyond_recovery_is_told_once(tmp_path):
    path = damaged(tmp_path / "state.db", "replaced_characters_for_good")
    (change,) = heal(path, tmp_path / "healed.db", *USUAL)
    assert "beyond recovery" in change.after
    assert heal(tmp_path / "healed.db", tmp_path / "again.db", *USUAL) == []
    assert left(tmp_path / "again.db") == set()


def test_a_session_that_a_compaction_ended_goes_on(tmp_path):
    for name, wanted in (
        ("compression_without_child", (None, None)),
        ("compression_with_a_next_session", ("sick",)),
    ):
        out = tmp_path / f"{name}-healed.db"
        heal(damaged(tmp_path / f"{name}.db", name), out, "ask")
        database = sqlite3.connect(out)
        if len(wanted) == 2:
            query = "SELECT ended_at, end_reason FROM sessions WHERE id = 'sick'"
        else:
            query = "SELECT parent_session_id FROM sessions WHERE id = 'next'"
        assert database.execute(query).fetchone() == wanted
        database.close()


def test_a_marked_answer_is_labelled_in_its_story(tmp_path):
    patient = HermesSubject(damaged(tmp_path / "state.db", "partial_unmarked"))
    (story,) = [one for one in patient.healed(accepts(*USUAL)).sessions() if one.id == "sick"]
    labels = [line.labels for line in story.lines]
    patient.close()
    assert labels[1]["incomplete"] and not labels[3]


def test_several_defects_in_one_session_are_all_healed(tmp_path):
    book = Book(tmp_path / "state.db")
    plain(book)
    for name, (_, make) in DAMAGE.items():
        if name in (
            "orphan_user",
            "partial_unmarked",
            "tool_call_without_result",
            "split_by_stream_cut",
            "tool_result_twice",
        ):
            make(_Under(book, name))
    heal(book.close(), tmp_path / "healed.db", *USUAL)
    assert left(tmp_path / "healed.db") == set()


class _Under:
    """A book whose sessions all go under one name."""

    def __init__(self, book: Book, name: str) -> None:
        self._book, self._name = book, name

    def session(self, name: str, **columns: Any) -> str:
        exists = self._book.db.execute("SELECT 1 FROM sessions WHERE id = ?", (name,)).fetchone()
        return name if exists else self._book.session(name, **columns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._book, name)


TEXTS = st.sampled_from(
    [
        "a",
        "b",
        "a\n\nb",
        "",
        "x\ufffd",
        SUMMARY,
        "[System: The previous response was cut off",
        HARNESS_STARTS[0],
    ]
)
CALLS = st.sampled_from(
    [
        None,
        None,
        '[{"id": "c1", "function": {"name": "n"}}]',
        '[{"id": "c1"}, {"id": "c2"}]',
        '[{"id',
    ]
)
FLAGS = st.sampled_from([(1, 0), (1, 0), (1, 0), (0, 1), (0, 0)])
ROWS = st.tuples(
    st.sampled_from(["user", "user", "assistant", "assistant", "tool", "session_meta"]),
    TEXTS,
    CALLS,
    st.sampled_from(["c1", "c2"]),
    st.sampled_from(["stop", None, "length"]),
    st.sampled_from([0.0, 0.00001, 0.05, 10.0]),
    FLAGS,
)


@settings(max_examples=examples(120))
@given(st.lists(ROWS, max_size=16), st.booleans(), st.sampled_from([USUAL, (*USUAL, "ask")]))
def test_whatever_a_session_holds_healing_comes_to_an_end_with_nothing_left(
    rows, has_ended, policies
):
    now, made = START, []
    for number, (role, text, calls, call_id, finish, later, (active, compacted)) in enumerate(
        rows, 1
    ):
        now += later
        speaks = role == "assistant"
        made.append(
            HermesRow(
                id=number,
                session="any",
                role=role,
                content=text,
                timestamp=now,
                tool_calls=calls if speaks else None,
                tool_call_id=call_id if role == "tool" else None,
                finish_reason=finish if speaks else None,
                active=active,
                compacted=compacted,
            )
        )
    session = HermesSession(
        "any", 1, "cli", START, ended_at=now + 5 if has_ended else None, message_count=3
    )
    healed, _ = heal_case(HermesCase(session, made, has_stops=True, newest=now), accepts(*policies))
    assert not [finding for finding in findings_of(healed) if finding.policy in policies]
    assert {row.id for row in made} <= {row.id for row in healed.rows}


def test_a_child_is_healed_beside_its_healed_parent(tmp_path):
    book = Book(tmp_path / "state.db")
    parent = book.session("before", source="telegram", session_key=KEY)
    rows = [
        book.say(parent, "user", "Tell me all."),
        book.say(parent, "assistant", "It was 18", finish_reason="length"),
    ]
    rows += [
        book.say(parent, "user", "[System: The previous response was cut off.]"),
        book.say(parent, "assistant", "71."),
    ]
    rows += book.turn(parent, "Thanks.", "You are welcome.")
    child = book.session("after", source="telegram", session_key=KEY, parent_session_id=parent)
    book.compact(parent, rows[:1], rows[1:], into=child)
    book.turn(child, "Go on.", "It has nine berths.")
    heal(book.close(), tmp_path / "healed.db", *USUAL)
    assert left(tmp_path / "healed.db") == set()
    shelf = HermesReader(tmp_path / "healed.db")
    stories = said(list(shelf.sessions()))
    shelf.close()
    assert stories["before"][:2] == ["Tell me all.", "It was 1871."]
    assert stories["after"][1:] == ["Go on.", "It has nine berths."]


def test_a_damaged_file_becomes_a_whole_one(tmp_path):
    book = Book(tmp_path / "state.db")
    name = book.session("long")
    for number in range(100):
        book.turn(name, f"Question {number}. " + "word " * 40, f"Answer {number}. " + "word " * 40)
    path = book.close()
    data = bytearray(path.read_bytes())
    page = data.index(b"Answer 50. word") // 4096 * 4096
    data[page : page + 100] = b"\xff" * 100
    path.write_bytes(data)
    heal(path, tmp_path / "healed.db", *USUAL)
    assert not {rule for rule in left(tmp_path / "healed.db") if POLICY[rule] in USUAL}
    database = sqlite3.connect(tmp_path / "healed.db")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert database.execute("SELECT count(*) FROM messages").fetchone()[0] > 150
    database.close()


def test_a_lock_on_a_session_that_is_not_there_is_left_out(tmp_path):
    path = damaged(tmp_path / "state.db", "stale_compression_lock")
    database = sqlite3.connect(path)
    database.execute("UPDATE compression_locks SET session_id = 'nowhere'")
    database.commit()
    database.close()
    assert left(path) == {"hermes/stale-compression-lock"}
    (change,) = heal(path, tmp_path / "healed.db", *USUAL)
    assert (change.rule, change.session) == ("hermes/stale-compression-lock", "")
    assert left(tmp_path / "healed.db") == set()


def test_nothing_is_written_over(tmp_path):
    path = healthy(tmp_path / "state.db")
    with pytest.raises(StoreUnavailable, match="nothing yet"):
        heal(path, path)
    assert left(path) == set()


def test_a_store_that_cannot_be_read_cannot_be_healed(tmp_path):
    (tmp_path / "state.db").write_bytes(b"nothing")
    with pytest.raises(StoreUnavailable):
        heal(tmp_path / "state.db", tmp_path / "healed.db")
    assert not (tmp_path / "healed.db").exists()


def test_a_rule_says_all_that_a_person_needs():
    for rule in RULES:
        assert isinstance(rule, Rule) and rule.name.startswith("hermes/")
        assert all(
            text.rstrip("'\"") and len(text) > 10
            for text in (rule.cause, rule.expected, rule.example, rule.remedy)
        )
