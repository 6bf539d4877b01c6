"""A healed copy of goose's sessions: nothing is left to heal, nothing is discarded, and it is the
same every time.
"""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goose_stores import (
    CONTEXT,
    DAMAGED,
    HEALTHY,
    START,
    GooseStore,
    built,
    call,
    compacted_without_summary,
    content_not_json,
    cut_stream,
    duplicate_rows,
    duplicate_thinking,
    duplicate_tool_result,
    export,
    legacy_lines,
    merged_users,
    metadata_clobbered,
    metadata_unreadable,
    millisecond_timestamps,
    odd_role,
    one_call,
    orphan_at_the_end,
    orphan_tool_request,
    orphan_tool_response,
    result,
    result_before_call,
    stranded_messages,
    summary_deleted,
    text,
    thinking,
    thread_tables_present,
    token_split_rows,
    two_prompts,
    unfinished_turn,
    unknown_content_type,
    unreadable_record,
)
from holdfast.doctor.exam import accepting
from holdfast.doctor.goose.case import GooseCase
from holdfast.doctor.goose.detect.all import findings_of
from holdfast.doctor.goose.heal.session import heal
from holdfast.doctor.goose.subject import GooseSubject
from holdfast.domain.message import freeze
from holdfast.errors import StoreUnavailable
from holdfast.formats import registry
from holdfast.importers.goose.records import GooseRow, GooseSession
from thorough import examples, few_cases

EVERYTHING = ("*",)


def healed(path, out, *accepted):
    """Heals a store into `out`; what was changed."""
    patient = GooseSubject(path)
    try:
        copy = patient.healed(accepting(accepted))
        copy.write(str(out))
        return copy.changes()
    finally:
        patient.close()


def files(out):
    return sorted(out.iterdir()) if out.is_dir() else [out]


def findings(out):
    """What is still wrong with a healed copy, by policy."""
    found = []
    for file in files(out):
        patient = GooseSubject(file)
        found += [
            (finding.policy, finding) for one in patient.examine() for finding in one.findings
        ]
        patient.close()
    return found


def messages(tmp_path, case, *accepted):
    """The messages of a session after healing."""
    out = tmp_path / "out"
    healed(built(tmp_path / "sessions.db", case), out, *accepted)
    return json.loads(files(out)[0].read_bytes())["conversation"]


def seen_by_model(spoken):
    return [said for said in spoken if said["metadata"]["agentVisible"]]


def contents(spoken):
    return [said["content"] for said in spoken]


@pytest.mark.slow
@few_cases(every=4)
@pytest.mark.parametrize("case", DAMAGED, ids=lambda case: case.__name__)
@pytest.mark.parametrize("accepted", [(), EVERYTHING], ids=["as it is", "all accepted"])
def test_a_healed_copy_has_nothing_left_to_heal(tmp_path, case, accepted):
    out = tmp_path / "out"
    changes = healed(built(tmp_path / "sessions.db", two_prompts, case), out, *accepted)
    left = findings(out)
    assert [finding for policy, finding in left if policy in ("auto", "mark")] == []
    if accepted:
        assert left == []
    assert all(change.before != change.after for change in changes)


@pytest.mark.parametrize("accepted", [(), EVERYTHING], ids=["as it is", "all accepted"])
def test_healing_twice_gives_the_same_bytes(tmp_path, accepted):
    path = built(tmp_path / "sessions.db", *DAMAGED)
    first = healed(path, tmp_path / "one", *accepted)
    second = healed(path, tmp_path / "two", *accepted)
    assert first == second
    assert {file.name: file.read_bytes() for file in files(tmp_path / "one")} == {
        file.name: file.read_bytes() for file in files(tmp_path / "two")
    }


@pytest.mark.slow
@pytest.mark.parametrize("accepted", [(), EVERYTHING], ids=["as it is", "all accepted"])
def test_healing_what_was_healed_changes_nothing(tmp_path, accepted):
    healed(built(tmp_path / "sessions.db", *DAMAGED), tmp_path / "one", *accepted)
    for file in files(tmp_path / "one"):
        assert healed(file, tmp_path / f"again-{file.name}") == []


def test_healthy_sessions_are_copied_and_not_changed(tmp_path):
    path = built(tmp_path / "sessions.db", *HEALTHY)
    assert healed(path, tmp_path / "out", *EVERYTHING) == []
    spoken = [
        said
        for file in files(tmp_path / "out")
        for said in json.loads(file.read_bytes())["conversation"]
    ]
    patient = GooseSubject(path)
    stories = list(patient.healed(accepting(())).sessions())
    assert spoken == [line.payload for story in stories for line in story.lines]
    patient.close()


def test_the_copy_belongs_to_its_owner_and_overwrites_nothing(tmp_path):
    path = built(tmp_path / "sessions.db", two_prompts, one_call)
    healed(path, tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in files(tmp_path / "out")} == {0o600}
    with pytest.raises(StoreUnavailable):
        healed(path, tmp_path / "out")


def test_one_session_is_one_file_and_ids_are_no_paths(tmp_path):
    with GooseStore(tmp_path / "sessions.db") as store:
        store.session("../../etc/passwd")
        two_prompts(store)
    healed(tmp_path / "sessions.db", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_bytes())["id"] == "../../etc/passwd"
    built(tmp_path / "more.db", two_prompts)
    with GooseStore(tmp_path / "two.db") as store:
        for name in ("../a", "__/a", "..", ""):
            store.session(name)
            two_prompts(store)
    healed(tmp_path / "two.db", tmp_path / "out")
    assert {file.parent for file in files(tmp_path / "out")} == {tmp_path / "out"}
    assert len(files(tmp_path / "out")) == 4


def test_a_call_without_a_result_gets_one_that_says_so(tmp_path):
    spoken = messages(tmp_path, orphan_tool_request)
    called = next(
        place for place, said in enumerate(spoken) if said["content"][-1]["type"] == "toolRequest"
    )
    answer = spoken[called + 1]["content"]
    assert [block["id"] for block in answer] == ["call_o1"]
    assert answer[0]["toolResult"]["error"].startswith("interrupted")
    assert spoken[called + 1]["created"] == spoken[called]["created"]


def test_a_made_result_stands_next_to_its_call_though_another_result_of_it_came_behind_words(
    tmp_path,
):
    """I-10: what stands behind words answers no call any more, for any provider."""

    def scattered(store):
        store.ask("Frost and wind?")
        store.say("assistant", call("call_a"), call("call_b"))
        store.say("assistant", text("Let me see."))
        store.say("user", result("call_a"))
        store.say("assistant", text("No frost."))

    spoken = messages(tmp_path, scattered)
    called = next(
        place for place, said in enumerate(spoken) if said["content"][0]["type"] == "toolRequest"
    )
    assert [(block["type"], block["id"]) for block in spoken[called + 1]["content"]] == [
        ("toolResponse", "call_b")
    ]
    assert [said["created"] for said in spoken] == sorted(said["created"] for said in spoken)


def test_a_turn_that_died_in_its_tools_is_closed_and_said_to_be_interrupted(tmp_path):
    *_, answered, said = messages(tmp_path, orphan_at_the_end)
    assert [block["id"] for block in answered["content"]] == ["call_o1", "call_o2"]
    assert (said["role"], "interrupted" in said["content"][0]["text"]) == ("assistant", True)


def test_a_result_without_a_call_is_hidden_from_the_model(tmp_path):
    spoken = messages(tmp_path, orphan_tool_response)
    assert [result("call_gone")] in contents(spoken)
    assert [result("call_gone")] not in contents(seen_by_model(spoken))


def test_words_beside_a_result_without_a_call_are_still_shown(tmp_path):
    def beside(store):
        store.ask("What is in the shed?")
        store.say("user", result("call_gone"), text("And in the barn?"))
        store.say("assistant", text("A saw."))

    spoken = messages(tmp_path, beside)
    assert [text("And in the barn?")] in contents(seen_by_model(spoken))
    assert [result("call_gone")] in contents(spoken)
    assert [result("call_gone")] not in contents(seen_by_model(spoken))


def test_a_result_is_put_behind_its_call(tmp_path):
    kinds = [said["content"][0]["type"] for said in messages(tmp_path, result_before_call)]
    assert kinds == ["text", "text", "toolRequest", "toolResponse", "text"]
    out = json.loads(files(tmp_path / "out")[0].read_bytes())["conversation"]
    assert [said["created"] for said in out] == sorted(said["created"] for said in out)


def test_the_first_of_two_results_is_kept(tmp_path):
    spoken = messages(tmp_path, duplicate_tool_result)
    assert [result("call_d1", "saw, again")] in contents(spoken)
    assert [result("call_d1", "saw, again")] not in contents(seen_by_model(spoken))
    assert [result("call_d1"), result("call_d2")] in contents(seen_by_model(spoken))


def test_a_message_that_was_stored_again_is_there_once(tmp_path):
    spoken = messages(tmp_path, duplicate_rows)
    assert len(spoken) == len({said["id"] for said in spoken}) == 5


def test_pieces_of_an_answer_are_joined(tmp_path):
    assert contents(messages(tmp_path, token_split_rows))[1:] == [[text("Hello bees, bye bye.")]]


def test_an_answer_that_was_cut_is_marked_and_the_next_line_says_so(tmp_path):
    *_, cut, said = messages(tmp_path, cut_stream)
    assert (cut["content"], cut["metadata"]["holdfast"]) == (
        [text("The pear is a")],
        {"incomplete": True},
    )
    assert "cut off" in said["content"][0]["text"]


def test_a_turn_that_never_ended_is_said_to_be_interrupted(tmp_path):
    *_, said = messages(tmp_path, unfinished_turn)
    assert (said["role"], "interrupted" in said["content"][0]["text"]) == ("assistant", True)


def test_flags_that_are_lost_hide_a_row_from_the_model_and_keep_what_was_found(tmp_path):
    lost = messages(tmp_path, metadata_unreadable)[2]["metadata"]
    assert (lost["userVisible"], lost["agentVisible"]) == (True, False)
    assert lost["holdfast"]["metadata_raw"] == '{"userVisible":false,"agentVis'


def test_blocks_that_goose_cant_load_are_carried_beside_the_rest(tmp_path):
    said = messages(tmp_path, unknown_content_type)[-1]
    assert said["content"] == [text("A saw.")]
    assert said["metadata"]["holdfast"]["opaque"] == [
        {"at": 0, "block": {"type": "reasoning", "text": "Only a saw."}}
    ]


def test_a_call_of_a_screens_own_tool_becomes_a_usual_one(tmp_path):
    def case(store):
        store.ask("Look.")
        store.say("assistant", {**call("f1"), "type": "frontendToolRequest"})
        store.say("user", result("f1"))
        store.say("assistant", text("A saw."))

    assert contents(messages(tmp_path, case))[2:4] == [[call("f1")], [result("f1")]]


@pytest.mark.parametrize(
    "case, raw",
    [(content_not_json, '[{"type":"text","te'), (unreadable_record, "[" * 300 + "]" * 300)],
)
def test_what_cant_be_read_is_kept_beside_a_placeholder(tmp_path, case, raw):
    spoken = messages(tmp_path, case)
    (kept,) = (said for said in spoken if "holdfast" in said["metadata"])
    assert kept["metadata"]["holdfast"]["raw"] == raw
    assert (kept["content"][0]["type"], kept["metadata"]["agentVisible"]) == ("text", False)


def test_milliseconds_become_seconds_and_clamped_rows_take_the_time_of_their_storing(tmp_path):
    spoken = messages(tmp_path, millisecond_timestamps)
    assert [said["content"][0]["text"] for said in spoken] == [
        "Old question.", "Old answer.", "New question.", "New answer.",
    ]  # fmt: skip
    assert [said["created"] for said in spoken] == [
        START + 10_001,
        START + 10_003,
        1893456000,
        1893456005,
    ]


def test_an_odd_role_is_noted_and_hidden(tmp_path):
    (odd,) = (said for said in messages(tmp_path, odd_role) if "holdfast" in said["metadata"])
    assert (odd["role"], odd["metadata"]["agentVisible"]) == ("user", False)
    assert odd["metadata"]["holdfast"] == {"role": "tool"}


def test_what_a_person_has_to_accept_is_not_done_without_it(tmp_path):
    for number, case in enumerate(
        (merged_users, metadata_clobbered, summary_deleted, duplicate_thinking)
    ):
        path = built(tmp_path / f"{number}.db", case)
        assert healed(path, tmp_path / f"{number}.json") == []
        assert healed(path, tmp_path / f"{number}-accepted.json", f"goose/{DAMAGED[case]}") != []


def test_merged_prompts_are_split_and_the_context_is_for_the_model_alone(tmp_path):
    first, second, added, _ = messages(tmp_path, merged_users, "goose/merged-users")
    assert contents((first, second, added)) == [
        [text("How many pear trees?")],
        [text("And apple trees?")],
        [CONTEXT],
    ]
    assert (added["metadata"]["userVisible"], added["metadata"]["turnContext"]) == (False, True)


def test_pairs_are_hidden_or_shown_again_when_that_is_accepted(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    hidden = messages(tmp_path / "a", metadata_clobbered, *EVERYTHING)
    shown = messages(tmp_path / "b", summary_deleted, *EVERYTHING)
    everything = messages(tmp_path / "c", compacted_without_summary, *EVERYTHING)
    assert [call("call_c1")] not in contents(seen_by_model(hidden))
    assert [call("call_s1")] in contents(seen_by_model(shown))
    assert seen_by_model(everything) == everything


def test_thinking_stays_with_the_call(tmp_path):
    spoken = messages(tmp_path, duplicate_thinking, *EVERYTHING)
    assert contents(spoken)[2] == [text("I will look.")]
    assert contents(spoken)[3] == [thinking("I should look.", "sig-7"), call("call_t1")]


def test_messages_without_a_session_come_back_when_that_is_accepted(tmp_path):
    path = built(tmp_path / "sessions.db", stranded_messages, thread_tables_present)
    healed(path, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_bytes())["id"] == "20260921_2"
    changes = healed(path, tmp_path / "all", *EVERYTHING)
    assert {file.stem for file in files(tmp_path / "all")} == {
        "20260921_1",
        "20260921_2",
        "thread_t-1",
    }
    assert {change.rule for change in changes} == {
        "goose/stranded-messages",
        "goose/thread-tables-present",
    }


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("case", DAMAGED, ids=lambda case: case.__name__)
def test_healed_stories_are_messages_of_their_format(tmp_path, case):
    patient = GooseSubject(built(tmp_path / "sessions.db", case))
    copy = patient.healed(accepting(EVERYTHING))
    for story in copy.sessions():
        lines = list(story.lines)
        assert len({line.origin for line in lines}) == len(lines)
        for line in lines:
            freeze(line.payload)
            registry.get(line.format).note(line.payload)
    assert [change.rule for change in copy.changes()] or DAMAGED[case] in (
        "lost-turn",
        "rewritten-history",
    )
    patient.close()


def test_files_are_healed_like_databases(tmp_path):
    spoken = (
        ("user", text("Look.")),
        ("assistant", call("c1")),
        ("user", text("Well?")),
        ("assistant", text("Hm.")),
    )
    (tmp_path / "20250430_080000.jsonl").write_bytes(legacy_lines(*spoken) + b'{"role": "us')
    (tmp_path / "export.json").write_text(
        json.dumps(export(*spoken, usage={"input_tokens": 3}, unknown=[1]))
    )
    for name in ("20250430_080000.jsonl", "export.json"):
        out = tmp_path / f"{name}.out"
        assert healed(tmp_path / name, out)
        assert findings(out) == []
    kept = json.loads((tmp_path / "export.json.out").read_bytes())
    assert (kept["usage"], kept["unknown"], kept["message_count"]) == ({"input_tokens": 3}, [1], 5)


def test_a_session_row_that_is_broken_still_gives_what_goose_asks_for(tmp_path):
    path = tmp_path / "sessions.db"
    with GooseStore(path) as store:
        columns = {
            "extension_data": "{",
            "session_type": "wizard",
            "model_config_json": '{"model_name":"pear"}',
        }
        store.session(
            "20260921_1", created_at="yesterday", recipe_json="[", goose_mode="?", **columns
        )
        two_prompts(store)
    assert [change.rule for change in healed(path, tmp_path / "out.json")] == [
        "goose/unreadable-record"
    ]
    said = json.loads(Path(tmp_path / "out.json").read_bytes())
    assert (said["extension_data"], said["session_type"], said["goose_mode"]) == (
        {},
        "user",
        "auto",
    )
    assert said["model_config"]["toolshim"] is False
    assert said["created_at"].startswith("2026-")


SESSION = GooseSession("20260921_1", "database", "sessions 20260921_1", {})
ids = st.sampled_from(["call_0", "call_0", "call_1"])
blocks = st.one_of(
    st.sampled_from(["Hello.", "", " ", "/help", CONTEXT["text"]]).map(text),
    ids.map(call),
    ids.map(result),
    st.sampled_from(["", "sig-1"]).map(lambda signature: thinking("Hm.", signature)),
    st.sampled_from(
        [
            {"type": "reasoning", "text": "Hm."},
            {**call("call_1"), "type": "frontendToolRequest"},
            {},
            7,
        ]
    ),
)
flags = st.sampled_from(
    [None, *({"userVisible": a, "agentVisible": b} for a in (True, False) for b in (True, False))]
)
row = st.builds(
    lambda message_id, role, content, created, metadata, usage, lost: {
        "message_id": message_id,
        "role": role,
        "content": None if lost == 1 else content,
        "content_problem": "it is not JSON" if lost == 1 else "",
        "raw": b"[" if lost == 1 else b"",
        "created": None if lost == 2 else created,
        "problem": "its time is no time" if lost == 2 else "",
        "metadata": None if lost == 3 or metadata is None else {**metadata, **usage},
        "metadata_problem": "it is missing" if lost == 3 else "",
    },
    st.sampled_from(["m1", "m2", "m3", None]),
    st.sampled_from(["user", "user", "assistant", "assistant", "tool"]),
    st.lists(blocks, max_size=3),
    st.sampled_from([START, START + 1, START + 2, START * 1000]),
    flags,
    st.sampled_from([{}, {"usage": {"outputTokens": 4}}]),
    st.sampled_from([0] * 12 + [1, 2, 3]),
)


@pytest.mark.slow
@given(rows=st.lists(row, max_size=8), accepted=st.sampled_from([(), EVERYTHING]))
@settings(max_examples=examples(200))
def test_whatever_a_session_holds_healing_comes_to_an_end(rows, accepted):
    found = [
        GooseRow(number=number, place=f"row {number}", **one)
        for number, one in enumerate(rows, start=1)
    ]
    found.sort(key=lambda row: (row.created or 0, row.number))
    chart, _ = heal(GooseCase(SESSION, tuple(found)), accepting(accepted))
    assert [finding for finding in findings_of(chart) if finding.policy in ("auto", "mark")] == []
    assert heal(chart, accepting(accepted)) == (chart, [])
    times = [row.created for row in chart.rows]
    assert times == sorted(times)


def test_a_call_whose_time_is_no_time_keeps_its_place_and_its_result(tmp_path):
    path = tmp_path / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        for number in range(3):
            store.say("user", text(f"question {number}"))
            store.say("assistant", call(f"c{number}"))
            store.say("user", result(f"c{number}"))
            store.say("assistant", text(f"answer {number}"))
        store.database.execute("UPDATE messages SET created_timestamp = '[5]' WHERE id = 6")
    subject = GooseSubject(path)
    [session] = subject.sessions()
    chart, changes = heal(subject.case_of(session), accepting(()))
    subject.close()
    assert [row.number for row in chart.rows] == list(range(1, 13))
    [told] = changes
    assert (told.rule, told.place) == ("goose/unreadable-record", "messages row 6")
    assert told.after == "kept, with the time of the row before"
    assert chart.rows[5].content[0]["id"] == "c1"
    assert chart.rows[5].created == chart.rows[4].created
