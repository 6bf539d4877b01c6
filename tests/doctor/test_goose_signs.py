"""Every defect of goose's stores is named, and nothing else; what is healthy or only under way is
left in peace.
"""

import json
import os
import sqlite3
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goose_stores import (
    CONTEXT,
    DAMAGED,
    FOR_MODEL,
    HEALTHY,
    GooseStore,
    built,
    call,
    compacted,
    cut_stream,
    export,
    legacy_lines,
    lost_turn,
    one_call,
    only_a_command,
    orphan_at_the_end,
    result,
    reused_ids,
    text,
    three_calls,
    two_prompts,
    unfinished_turn,
)
from holdfast.doctor.goose.case import GooseCase
from holdfast.doctor.goose.detect.all import findings_of
from holdfast.doctor.goose.repeats import repeated_rows
from holdfast.doctor.goose.rules import RULES
from holdfast.doctor.goose.subject import GooseSubject
from holdfast.doctor.rulebook import rules_of
from holdfast.errors import StoreUnavailable
from holdfast.importers.goose.reader import GooseReader
from holdfast.importers.goose.records import GooseRow
from thorough import examples, few_cases

APPENDED = (one_call, three_calls, two_prompts, reused_ids, only_a_command)
"""Healthy sessions that were only ever added to: a live store may stop anywhere in them."""


def examined(path):
    """The signs of a store, by session."""
    patient = GooseSubject(path)
    try:
        return {found.session: found.findings for found in patient.examine()}
    finally:
        patient.close()


def rules_in(path):
    return sorted(
        {
            finding.rule.name.removeprefix("goose/")
            for found in examined(path).values()
            for finding in found
        }
    )


def charts(path, *, live=False):
    shelf = GooseReader(path)
    try:
        return [
            GooseCase(
                session, tuple(shelf.store.rows(session)), shelf.store.usage_rows(session), live
            )
            for session in shelf.store.sessions()
        ]
    finally:
        shelf.close()


def test_every_rule_is_shown_by_a_damaged_store():
    shown = {f"goose/{rule}" for rule in DAMAGED.values()}
    assert {rule.name for rule in RULES} - shown == {"goose/unreadable-store"}
    assert rules_of("goose") == RULES


@pytest.mark.slow
@pytest.mark.parametrize("case", DAMAGED, ids=lambda case: case.__name__)
def test_a_damaged_session_is_named_by_its_rule_alone_and_its_neighbours_are_not(tmp_path, case):
    path = built(tmp_path / "sessions.db", two_prompts, case, one_call)
    found = {
        session: {finding.rule.name for finding in signs}
        for session, signs in examined(path).items()
        if signs
    }
    assert list(found.values()) == [{f"goose/{DAMAGED[case]}"}]
    assert not {"20260921_1", "20260921_3"} & set(found)


def test_healthy_stores_give_no_sign(tmp_path):
    assert rules_in(built(tmp_path / "sessions.db", *HEALTHY)) == []


@pytest.mark.parametrize("schema", range(6, 17))
def test_healthy_stores_of_every_release_give_no_sign(tmp_path, schema):
    assert rules_in(built(tmp_path / "sessions.db", *HEALTHY, schema=schema)) == []


def test_rows_from_before_there_were_flags_are_healthy(tmp_path):
    path = tmp_path / "sessions.db"
    with GooseStore(path, 6) as store:
        store.session("20260921_1")
        store.say("user", text("What is in the shed?"), metadata_json=None)
        old = {
            "type": "toolResponse",
            "id": "c",
            "toolResult": {"status": "success", "value": [text("saw")]},
        }
        store.say("assistant", call("c"), metadata_json=None)
        store.say("user", old, metadata_json=None)
        store.say("assistant", text("A saw."), metadata_json=None)
    assert rules_in(path) == []


@pytest.mark.parametrize("case", APPENDED, ids=lambda case: case.__name__)
def test_every_beginning_of_a_healthy_session_is_left_in_peace_while_it_is_under_way(
    tmp_path, case
):
    (chart,) = charts(built(tmp_path / "sessions.db", case))
    for length in range(len(chart.rows) + 1):
        rows = chart.rows[:length]
        paid = tuple(one for one in chart.usage_rows if rows and one.created <= rows[-1].created)
        assert findings_of(GooseCase(chart.session, rows, paid, live=True)) == ()


@pytest.mark.parametrize("case", APPENDED, ids=lambda case: case.__name__)
def test_of_a_beginning_at_rest_only_its_open_end_is_told(tmp_path, case):
    (chart,) = charts(built(tmp_path / "sessions.db", case))
    for length in range(len(chart.rows) + 1):
        rows = chart.rows[:length]
        paid = tuple(one for one in chart.usage_rows if rows and one.created <= rows[-1].created)
        for finding in findings_of(GooseCase(chart.session, rows, paid)):
            assert finding.rule.name in (
                "goose/orphan-tool-request",
                "goose/unfinished-turn",
                "goose/unanswered-prompt",
            )
            assert finding.place in [row.place for row in rows[-2:]]


def test_what_follows_a_compaction_is_healthy_at_every_length(tmp_path):
    (chart,) = charts(built(tmp_path / "sessions.db", compacted))
    first = next(place for place, row in enumerate(chart.rows) if row.metadata["agentVisible"])
    for length in range(first + 1, len(chart.rows) + 1):
        assert (
            findings_of(
                GooseCase(chart.session, chart.rows[:length], chart.usage_rows[:4], live=True)
            )
            == ()
        )


@pytest.mark.parametrize(
    "case", [orphan_at_the_end, unfinished_turn, cut_stream], ids=lambda case: case.__name__
)
def test_the_open_end_of_a_store_that_somebody_has_open_may_be_under_way(tmp_path, case):
    path = built(tmp_path / "sessions.db", case)
    held = "import sys; f = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", held, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert rules_in(path) == []
        process.stdin.close()
    assert rules_in(path) == [DAMAGED[case]]


def test_a_prompt_that_is_being_answered_is_not_lost(tmp_path):
    path = tmp_path / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        one_call(store)
        store.ask("And apple trees?")
    (chart,) = charts(path)
    assert findings_of(msgspec.structs.replace(chart, live=True)) == ()
    assert rules_in(path) == ["unanswered-prompt"]


def test_prompts_typed_for_one_turn_are_answered_together(tmp_path):
    path = built(tmp_path / "sessions.db", two_prompts)
    assert rules_in(path) == []


def test_an_answer_is_cut_when_the_same_model_counts_its_tokens_elsewhere(tmp_path):
    path = tmp_path / "sessions.db"
    asked = {"provider": "openai", "requestedModel": "pear"}
    counts = ({"inputTokens": 10, "outputTokens": 5}, {"elapsedMs": 17})
    with GooseStore(path) as store:
        for number, usage in enumerate(counts, 1):
            store.session(f"20260921_{number}")
            store.ask("Tell me more.")
            about = {"userVisible": True, "agentVisible": True, "inference": asked, "usage": usage}
            store.say("assistant", text("The pear is a"), metadata_json=json.dumps(about))
    found = examined(path)
    assert found["20260921_1"] == () and [finding.rule.name for finding in found["20260921_2"]] == [
        "goose/cut-stream"
    ]
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM messages WHERE session_id = '20260921_1'")
    connection.close()
    assert rules_in(path) == []  # a model that never counts


def test_a_lost_reply_is_told_at_the_prompt_in_whose_time_it_was_paid_for(tmp_path):
    path = tmp_path / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        two_prompts(store)
        store.now += 10
        lost_turn(store)
    assert [finding.place for finding in examined(path)["20260921_1"]] == ["messages row 4"]


def test_a_history_that_was_compacted_or_imported_may_have_been_written_anew(tmp_path):
    path = tmp_path / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        began = store.now
        store.session("20260921_2")
        two_prompts(store)
        store.database.execute("UPDATE sqlite_sequence SET seq = seq + 10 WHERE name = 'messages'")
        store.name, store.now = "20260921_1", began
        compacted(store)
        store.now = began
        store.session("20260921_3", created_at="2027-01-01 00:00:00")
        store.now = began
        two_prompts(store)
    assert rules_in(path) == []


@pytest.mark.parametrize(
    "metadata", ["{}", "null", "[]", '{"userVisible":true}', '{"userVisible":1,"agentVisible":0}']
)
def test_metadata_is_an_object_with_both_flags(tmp_path, metadata):
    path = tmp_path / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        store.say("user", text("Hello."), metadata_json=metadata)
        store.say("assistant", text("Hello."))
    assert rules_in(path) == ["metadata-unreadable"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "conversationCompacted", "msg": "…"},
        {
            "type": "frontendToolRequest",
            "id": "f",
            "toolCall": {"status": "success", "value": {"name": "x"}},
        },
        {"type": "text"},
        {"text": "no type"},
        "no block",
    ],
)
def test_blocks_that_goose_cant_load_are_told(tmp_path, block):
    path = tmp_path / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        store.ask("Hello.")
        store.say("assistant", text("Hello."), block)
        store.say("user", result("f")) if isinstance(block, dict) and block.get("id") else None
        store.say("assistant", text("Hello again."))
    assert rules_in(path) == ["unknown-content-type"]


def test_a_result_or_call_that_may_be_in_a_broken_record_is_not_said_to_be_missing(tmp_path):
    path = tmp_path / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        store.ask("What is in the shed?")
        store.say("assistant", call("c1"))
        store.say("user", content_json='[{"type":"toolRes')
        store.say("assistant", text("A saw."))
    assert rules_in(path) == ["content-not-json"]


def test_files_are_examined_like_databases(tmp_path):
    orphan = (
        ("user", text("Look.")),
        ("assistant", call("c1")),
        ("user", text("Well?")),
        ("assistant", text("Hm.")),
    )
    (tmp_path / "20250430_080000.jsonl").write_bytes(legacy_lines(*orphan))
    (tmp_path / "export.json").write_text(json.dumps(export(*orphan)))
    torn = legacy_lines(("user", text("Look.")), ("assistant", text("At what?")))[:-20]
    (tmp_path / "torn.jsonl").write_bytes(torn)
    (tmp_path / "cut.json").write_bytes(
        json.dumps(export(*orphan[:2], ("user", result("c1")))).encode()[:-150]
    )
    assert rules_in(tmp_path / "20250430_080000.jsonl") == ["orphan-tool-request"]
    assert rules_in(tmp_path / "export.json") == ["orphan-tool-request"]
    assert rules_in(tmp_path / "torn.jsonl") == ["content-not-json"]
    assert rules_in(tmp_path / "cut.json") == ["content-not-json", "unreadable-record"]


def test_one_session_can_be_asked_for(tmp_path):
    path = built(tmp_path / "sessions.db", two_prompts, unfinished_turn)
    patient = GooseSubject(path)
    found = list(patient.examine("20260921_2"))
    patient.close()
    assert [(one.session, one.messages, len(one.findings)) for one in found] == [
        ("20260921_2", 4, 1)
    ]


def test_examining_leaves_the_original_and_its_folder_as_they_were(tmp_path):
    path = built(tmp_path / "sessions.db", *DAMAGED)
    os.utime(path, ns=(1_000_000_000, 2_000_000_000))
    before = path.stat()
    examined(path)
    after = path.stat()
    assert (after.st_atime_ns, after.st_mtime_ns) == (before.st_atime_ns, before.st_mtime_ns)
    assert [file.name for file in tmp_path.iterdir()] == ["sessions.db"]


@pytest.mark.slow
@few_cases(every=5)
@pytest.mark.parametrize("part", range(0, 24))
def test_a_cut_store_is_told_to_be_broken(tmp_path, part):
    def many(store):
        for _ in range(20):
            one_call(store)

    whole = built(tmp_path / "sessions.db", many).read_bytes()
    cut = tmp_path / "cut.db"
    cut.write_bytes(whole[: len(whole) * part // 24 + 20])
    try:
        found = examined(cut)
    except StoreUnavailable:
        return  # the doctor's exam tells this as goose/unreadable-store
    assert any(found.values())


def test_a_damaged_page_is_told(tmp_path):
    def many(store):
        for _ in range(60):
            one_call(store)

    path = built(tmp_path / "sessions.db", many)
    raw = bytearray(path.read_bytes())
    size = int.from_bytes(raw[16:18], "big")
    raw[size * 12 : size * 13] = b"\x00" * size
    path.write_bytes(raw)
    assert "unreadable-record" in rules_in(path)


columns = ("message_id", "role", "content_json", "metadata_json", "created_timestamp")
broken = st.sampled_from(
    ["", "nul", "[1, null]", '{"a": 1}', b"\xff\xfe", 7, -1, 1e300, "[" * 3000, '["\\ud800"]']
)


@pytest.mark.slow
@given(
    column=st.sampled_from(columns[1:]),
    value=broken,
    case=st.sampled_from(HEALTHY[:2]),
    row=st.integers(1, 4),
)
@settings(max_examples=examples(80))
def test_a_broken_value_is_always_told_and_never_stops_the_exam(
    tmp_path_factory, column, value, case, row
):
    path = tmp_path_factory.mktemp("any") / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        case(store)
        store.session("20260921_2")
        lost_turn(store)
        if column == "created_timestamp" and isinstance(value, int) and value >= 0:
            value = "yesterday"
        store.database.execute(f"UPDATE messages SET {column} = ? WHERE id = ?", (value, row))
    found = examined(path)
    assert found["20260921_1"]
    assert [finding.rule.name for finding in found["20260921_2"]] == ["goose/lost-turn"]


def test_rows_for_the_model_that_goose_adds_are_no_summaries(tmp_path):
    path = tmp_path / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        store.ask("What is in the shed?")
        store.say("assistant", call("c1"))
        store.say("user", result("c1"))
        store.say("user", CONTEXT, seen=FOR_MODEL)
        store.say("assistant", text("A saw."))
    assert rules_in(path) == []


def test_a_row_is_a_repetition_only_if_it_says_the_same():
    """Some releases gave one id to messages that are not one."""
    rows = [
        GooseRow(
            number, f"row {number}", "m1", "user", [{"type": "text", "text": text}], number, None
        )
        for number, text in enumerate(("one", "two", "one"), 1)
    ]
    assert repeated_rows(rows) == [2]
