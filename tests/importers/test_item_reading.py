"""What files of Claude Code, Codex and the Agents SDK tell: every message in order, and nothing can
break it.
"""

import json
import os
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import item_stores as stores
from holdfast.domain.message import Usage, freeze
from holdfast.domain.repair import StoredMessage, repair
from holdfast.errors import StoreUnavailable
from holdfast.formats import registry
from holdfast.importers import detect
from holdfast.importers.agents_sdk import reader as agents
from holdfast.importers.claude import reader as claude
from holdfast.importers.codex import reader as codex
from holdfast.importers.foreign_session import Summary
from holdfast.testing.providers import check
from thorough import examples, few_cases

MODULES = {"claude": claude, "codex": codex, "agents": agents}
PROVIDERS = ("openai.chat", "openai.responses", "anthropic", "holdfast")
programs = pytest.mark.parametrize("program", stores.PROGRAMS, ids=lambda program: program.kind)


def told(kind, path):
    """The one story at a path with its lines, and what could not be read."""
    shelf = detect.open_reader(kind, path)
    try:
        stories = [(story, list(story.lines)) for story in shelf.sessions()]
        return stories, shelf.unreadable()
    finally:
        shelf.close()


def told_of(program, folder, records):
    [(story, lines)], unread = told(program.kind, stores.made(program, folder, records))
    assert unread == []
    return story, lines


def seen(lines):
    noted = [
        (line, registry.get(line.format).note(line.payload))
        for line in lines
        if not isinstance(line, Summary)
    ]
    shown = [(line, note) for line, note in noted if line.labels.get("visible_to_model", True)]
    return [
        StoredMessage(id=line.origin, seq=seq, turn=None, note=note, body=freeze(line.payload))
        for seq, (line, note) in enumerate(shown, 1)
    ]


@programs
def test_a_file_is_known_by_what_is_in_it(tmp_path, program):
    path = stores.made(program, tmp_path, program.records())
    other = path.rename(tmp_path / "something")
    assert [kind for kind, module in MODULES.items() if module.recognises(other)] == [program.kind]
    (tmp_path / program.name).write_text("not at all")
    assert not MODULES[program.kind].recognises(tmp_path / program.name)
    assert not MODULES[program.kind].recognises(tmp_path)


@programs
def test_a_session_is_told_in_order(tmp_path, program):
    story, lines = told_of(program, tmp_path, program.records())
    assert [line.role for line in lines] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert len({line.origin for line in lines}) == 6 and all(line.at for line in lines)
    assert story.opened_at is not None


@programs
def test_a_grown_file_tells_what_it_told_before(tmp_path, program):
    records = program.records()
    _, whole = told_of(program, tmp_path, records)
    for length in range(max(1, len(records) - 6), len(records)):
        _, lines = told_of(program, tmp_path, records[:length])
        assert [line.origin for line in lines] == [line.origin for line in whole][: len(lines)]


@few_cases(every=2)
@programs
@pytest.mark.parametrize("target", PROVIDERS)
def test_its_contexts_are_valid_everywhere(tmp_path, program, target):
    for records in (program.records(), *(damage(program) for damage in stores.DAMAGED.values())):
        [(_, lines)], _ = told(program.kind, stores.made(program, tmp_path, records))
        form = registry.get(target)
        shaped = form.shape(repair(seen(lines), registry.read), used=set(), first=True)
        assert check(target, form.close([payload for payload, _ in shaped], None)) == []


def test_a_line_of_claude_code_stays_whole(tmp_path):
    records = stores.Claude.records()
    story, lines = told_of(stores.Claude, tmp_path, records)
    for line, record in zip(lines, records, strict=True):
        about = line.payload["_line"]
        message = {
            **about["message"],
            "role": line.payload["role"],
            "content": line.payload["content"],
        }
        assert {**about, "message": message} == record
    assert (
        story.id == stores.Claude.name.removesuffix(".jsonl") and story.facts["cwd"] == "/orchard"
    )
    assert lines[1].usage == Usage(input=10, output=5, cached=3) and lines[1].model == "claude-x"


def test_side_chains_left_branches_and_notices_are_hidden(tmp_path):
    line = stores.Claude.line
    records = [
        line(1, "user", "Water row one."),
        line(2, "assistant", [{"type": "text", "text": "Which can?"}]),
        line(3, "user", "An old thought."),
        line(4, "assistant", [{"type": "text", "text": "An old answer."}]),
        line(5, "user", "A better thought.", parentUuid="u2"),
        line(6, "user", "A subagent's task.", isSidechain=True, parentUuid=None),
        {
            "type": "system",
            "subtype": "local_command",
            "content": "ls",
            "uuid": "u7",
            "timestamp": stores.at(7),
        },
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
        line(8, "assistant", [{"type": "text", "text": "Done."}], parentUuid="u5"),
        {"type": "summary", "summary": "Watering", "leafUuid": "u8"},
    ]
    story, lines = told_of(stores.Claude, tmp_path, records)
    shown = [one.origin for one in lines if one.labels.get("visible_to_model", True)]
    assert shown == ["u1", "u2", "u5", "u8"] and len(lines) == 8
    assert story.title == "Watering" and story.facts["other_lines"]["file-history-snapshot"] == 1


def test_results_of_calls_side_by_side_are_one_branch(tmp_path):
    use = [{"type": "tool_use", "id": f"c{n}", "name": "look", "input": {}} for n in (1, 2)]
    got = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "wet"} for n in (1, 2)]
    line = stores.Claude.line
    records = [
        line(1, "user", "Look."), line(2, "assistant", [use[0]]), line(3, "assistant", [use[1]]),
        line(4, "user", [got[0]], parentUuid="u2"), line(5, "user", [got[1]], parentUuid="u3"),
        line(6, "assistant", [{"type": "text", "text": "Wet."}]),
    ]  # fmt: skip
    _, lines = told_of(stores.Claude, tmp_path, records)
    assert not any(one.labels for one in lines)


def test_a_compaction_of_claude_code_is_a_summary(tmp_path):
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "Compacted",
        "uuid": "b",
    }
    boundary |= {"parentUuid": None, "logicalParentUuid": "u6", "timestamp": stores.at(7)}
    summary = stores.Claude.line(
        8, "user", "All rows are wet.", parentUuid="b", isCompactSummary=True
    )
    records = [
        *stores.Claude.records(),
        boundary,
        summary,
        stores.Claude.line(9, "user", "Good.", parentUuid="u8"),
    ]
    _, lines = told_of(stores.Claude, tmp_path, records)
    assert lines[-2] == Summary(
        "u8", "line 8", "All rows are wet.", (), lines[-2].at, is_shown=True
    )
    assert all("left" not in line.labels for line in lines if not isinstance(line, Summary))


def test_a_rollout_tells_its_instructions_model_and_usage(tmp_path):
    story, lines = told_of(stores.Codex, tmp_path, stores.Codex.records())
    assert (story.id, story.instructions) == ("0199-session", "Be brief.")
    assert lines[3].usage == Usage(input=10, output=5, cached=3) and lines[3].model == "gpt-x"


def test_a_compaction_of_codex_keeps_what_its_new_history_repeats(tmp_path):
    records = stores.Codex.records()
    first = next(record["payload"] for record in records if record["payload"].get("role") == "user")
    payload = {"message": "Rows are wet.", "replacement_history": [first]}
    records += [stores.Codex.line(20, "compacted", payload), stores.Codex.records()[2]]
    _, lines = told_of(stores.Codex, tmp_path, records)
    [summary] = [line for line in lines if isinstance(line, Summary)]
    assert (summary.text, summary.keeps) == ("Rows are wet.", (lines[0].origin,))


def test_turns_that_were_rolled_back_are_hidden(tmp_path):
    back = stores.Codex.line(9, "event_msg", {"type": "thread_rolled_back", "num_turns": 1})
    _, lines = told_of(stores.Codex, tmp_path, [*stores.Codex.records(), back])
    assert [line.labels.get("left", False) for line in lines] == [False] * 4 + [True] * 2


def test_the_oldest_rollouts_are_read(tmp_path):
    records = stores.Codex.records()
    items = [record["payload"] for record in records if record["type"] == "response_item"]
    path = stores.made(
        stores.Codex,
        tmp_path,
        [{"id": "old", "timestamp": stores.at(0), "instructions": None}, *items],
    )
    assert codex.recognises(path)
    [(story, lines)], _ = told("codex", path)
    assert story.id == "old" and len(lines) == 6


def test_sessions_of_the_sdk_are_told_one_by_one(tmp_path):
    path = stores.made(stores.Agents, tmp_path, stores.Agents.records())
    with sqlite3.connect(path) as connection:
        connection.execute(
            "INSERT INTO agent_messages (session_id, message_data) VALUES ('t', ?)",
            ('{"role": "user"}',),
        )
        calls = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}],
        }
        for item in (calls, {"role": "tool", "tool_call_id": "c", "content": "wet"}):
            query = "INSERT INTO agent_messages (session_id, message_data) VALUES ('t', ?)"
            connection.execute(query, (json.dumps(item),))
    connection.close()
    stories, unread = told("agents", path)
    assert [(story.id, len(lines)) for story, lines in stories] == [
        ("s", 6),
        ("t", 3),
    ] and unread == []
    assert [line.format for line in stories[1][1]] == [
        "openai.responses",
        "openai.chat",
        "openai.chat",
    ]


def test_branches_of_an_advanced_session_are_hidden(tmp_path):
    path = stores.made(stores.Agents, tmp_path, stores.Agents.records())
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE message_structure (id INTEGER PRIMARY KEY, message_id INTEGER, "
            "branch_id TEXT)"
        )
        rows = [(number, "main" if number < 5 else "branch_1") for number in range(1, 7)]
        connection.executemany(
            "INSERT INTO message_structure (message_id, branch_id) VALUES (?, ?)", rows
        )
    connection.close()
    [(_, lines)], _ = told("agents", path)
    assert [line.labels.get("left", False) for line in lines] == [False] * 4 + [True] * 2


@programs
def test_the_original_is_left_as_it_was(tmp_path, program):
    path = stores.made(program, tmp_path, program.records())
    before, names = path.read_bytes(), sorted(os.listdir(tmp_path))
    os.utime(path, (1_700_000_000, 1_700_000_001))
    assert MODULES[program.kind].recognises(path)
    told(program.kind, path)
    assert (path.stat().st_atime, path.stat().st_mtime) == (1_700_000_000, 1_700_000_001)
    assert path.read_bytes() == before and sorted(os.listdir(tmp_path)) == names


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = (
    "type",
    "role",
    "content",
    "message",
    "payload",
    "uuid",
    "parentUuid",
    "call_id",
    "tool_calls",
    "output",
    "id",
)
WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "message",
        "function_call",
        "response_item",
        "compacted",
        "event_msg",
        "system",
    ]
)
RECORD = JUNK | st.fixed_dictionaries(
    {},
    optional={
        name: WORDS
        | JUNK
        | st.fixed_dictionaries({}, optional={inner: WORDS | JUNK for inner in NAMES})
        for name in NAMES
    },
)


@pytest.mark.slow
@programs
@settings(max_examples=examples(25), deadline=None)
@given(records=st.lists(RECORD, max_size=6))
def test_whatever_a_record_says_nothing_is_raised(tmp_path_factory, program, records):
    folder = tmp_path_factory.mktemp("fuzz")
    raw = [json.dumps(record).encode() for record in records]
    stories, _ = told(program.kind, stores.made(program, folder, raw))
    for _, lines in stories:
        seen(lines)


@pytest.mark.slow
@pytest.mark.parametrize("program", stores.PROGRAMS[:2], ids=lambda program: program.kind)
def test_a_file_cut_anywhere_is_read_up_to_there(tmp_path, program):
    path = stores.made(program, tmp_path, program.records())
    whole = path.read_bytes()
    ends = [index for index, byte in enumerate(whole) if byte == 10]
    for cut in range(1, len(whole), 37):
        path.write_bytes(whole[:cut])
        _, unread = told(program.kind, path)
        assert len(unread) == (cut not in ends and cut - 1 not in ends)


@programs
def test_deep_nesting_is_told(tmp_path, program):
    deep = b'{"type": "message", "role": "user", "content": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    [(_, lines)], [unread] = told(
        program.kind, stores.made(program, tmp_path, [*program.records(), deep])
    )
    assert len(lines) == 6 and "deep" in unread.problem


@programs
def test_nesting_that_a_decoder_takes_and_nobody_else_would_is_told(tmp_path, program):
    deep = b'{"type": "message", "role": "user", "content": ' + b"[" * 300 + b"]" * 300 + b"}"
    [(_, lines)], [unread] = told(
        program.kind, stores.made(program, tmp_path, [*program.records(), deep])
    )
    assert len(lines) == 6 and "deep" in unread.problem


def test_a_damaged_database_is_read_as_far_as_it_goes(tmp_path):
    path = stores.made(stores.Agents, tmp_path, stores.Agents.records(stores.STEPS * 200))
    whole = bytearray(path.read_bytes())
    for page in (9, 12):
        whole[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(whole)
    [(_, lines)], unread = told("agents", path)
    assert unread and 600 < len(lines) < 1200
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreUnavailable):
        told("agents", path)
