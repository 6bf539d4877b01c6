"""Claude Code's files: which of their lines the model sees, and what lies beside them."""

import item_stores as stores
from holdfast.importers import detect
from holdfast.importers.foreign_session import Summary

line = stores.Claude.line
SESSION = stores.Claude.name.removesuffix(".jsonl")


def told(path):
    shelf = detect.open_reader("claude", path)
    try:
        [story] = shelf.sessions()
        return story, list(story.lines), shelf
    finally:
        shelf.close()


def told_of(folder, *records):
    story, lines, shelf = told(stores.made(stores.Claude, folder, records))
    assert shelf.unreadable() == []
    return story, lines


def shown(lines):
    return [
        one.origin
        for one in lines
        if isinstance(one, Summary) or one.labels.get("visible_to_model", True)
    ]


def say(number, text, **more):
    return line(number, "assistant", [{"type": "text", "text": text}], **more)


def note(number, parent, type="prompt_snapshot", **held):
    attached = {"parentUuid": parent, "type": "attachment", "attachment": {"type": type, **held}}
    return {**attached, "uuid": f"u{number}", "sessionId": SESSION, "timestamp": stores.at(number)}


def test_a_prompt_typed_while_claude_works_is_a_message(tmp_path):
    call = {"type": "tool_use", "id": "c", "name": "water", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "wet"}
    _, lines = told_of(
        tmp_path,
        line(1, "user", "Water row one."),
        line(2, "assistant", [call]),
        line(3, "user", [result]),
        note(4, "u3"),
        note(5, "u4", "queued_command", prompt="Row two as well.", commandMode="prompt"),
        note(
            6,
            "u5",
            "queued_command",
            prompt=[{"type": "text", "text": "And row three."}],
            commandMode="prompt",
        ),
        say(7, "All rows are wet."),
    )
    assert shown(lines) == ["u1", "u2", "u3", "u5", "u6", "u7"]
    assert [one.role for one in lines] == ["user", "assistant", "tool", "user", "user", "assistant"]
    assert lines[3].payload["content"] == "Row two as well."
    assert lines[4].payload["content"] == [{"type": "text", "text": "And row three."}]


def test_what_one_answer_cost_is_told_once_though_all_of_its_lines_say_it(tmp_path):
    about = {"id": "msg_1", "model": "claude-x", "usage": {"input_tokens": 10, "output_tokens": 5}}
    parts = [say(number, f"part {number}") for number in (2, 3)]
    for part in parts:
        part["message"] |= about
    _, lines = told_of(tmp_path, line(1, "user", "Hi."), *parts)
    assert [one.usage is not None for one in lines] == [False, True, False]


def test_a_line_ends_at_a_line_feed_and_nowhere_else(tmp_path):
    """JSON may hold what other readers take for the end of a line."""
    path = stores.made(stores.Claude, tmp_path, [line(1, "user", "one, two"), say(2, "Three.")])
    path.write_bytes(path.read_bytes().replace(b"one, two", "one\u2028two".encode()))
    _, lines, _ = told(path)
    assert lines[0].payload["content"] == "one\u2028two" and len(lines) == 2


def test_a_rewind_is_seen_through_what_claude_notes_between(tmp_path):
    _, lines = told_of(
        tmp_path,
        line(1, "user", "Is the pear ripe?"),
        say(2, "It is."),
        note(3, "u2"),
        line(4, "user", "And the apple?"),
        say(5, "It is not."),
        line(6, "user", "Another question.", parentUuid="u2"),
        say(7, "Another answer."),
    )
    assert shown(lines) == ["u1", "u2", "u6", "u7"]
    assert [one.labels.get("left", False) for one in lines] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_a_first_prompt_that_was_edited_leaves_all_that_followed_it(tmp_path):
    first = [line(1, "user", "Is the pear ripe?"), say(2, "It is.")]
    again = [line(3, "user", "Is the plum ripe?", parentUuid=None), say(4, "It is not.")]
    assert shown(told_of(tmp_path, *first, *again)[1]) == ["u3", "u4"]


def test_lines_whose_beginning_is_lost_stay(tmp_path):
    lost = [
        line(1, "user", "Is the pear ripe?"),
        say(2, "It is."),
        line(4, "user", "And the plum?"),
        say(5, "Yes."),
    ]
    assert shown(told_of(tmp_path, *lost)[1]) == ["u1", "u2", "u4", "u5"]


def test_a_rewind_into_a_turn_keeps_the_result_of_its_call(tmp_path):
    call = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "ripe"}
    _, lines = told_of(
        tmp_path,
        line(1, "user", "Is the pear ripe?"),
        line(2, "assistant", [call]),
        line(3, "user", [result]),
        say(4, "It is."),
        line(5, "user", "Another question.", parentUuid="u2"),
        say(6, "Another answer."),
    )
    assert shown(lines) == ["u1", "u2", "u3", "u5", "u6"]


def test_an_answer_stays_together_when_its_calls_ran_while_it_was_spoken(tmp_path):
    call = [{"type": "tool_use", "id": f"c{n}", "name": "look", "input": {}} for n in (1, 2)]
    result = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "ripe"} for n in (1, 2)]
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x"}
    _, lines = told_of(
        tmp_path,
        line(1, "user", "Look."),
        line(2, "assistant", [], message={**answer, "content": [call[0]]}),
        line(3, "user", [result[0]]),
        line(4, "assistant", [], message={**answer, "content": [call[1]]}),
        line(5, "user", [result[1]]),
        say(6, "Both are ripe."),
    )
    assert shown(lines) == ["u1", "u2", "u4", "u3", "u5", "u6"]


def test_a_compaction_keeps_the_messages_that_it_names(tmp_path):
    kept = {"preservedMessages": {"anchorUuid": "u8", "uuids": ["u6"]}}
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "content": "",
        "uuid": "b",
        "compactMetadata": kept,
    }
    boundary |= {"parentUuid": None, "logicalParentUuid": "u6", "timestamp": stores.at(7)}
    summary = line(8, "user", "All rows are wet.", parentUuid="b", isCompactSummary=True)
    _, lines = told_of(tmp_path, *stores.Claude.records(), boundary, summary)
    assert lines[-1].keeps == ("u6",)
    older = {"preservedSegment": {"headUuid": "u5", "anchorUuid": "u8", "tailUuid": "u6"}}
    _, lines = told_of(
        tmp_path, *stores.Claude.records(), {**boundary, "compactMetadata": older}, summary
    )
    assert lines[-1].keeps == ("u5", "u6")


def test_a_subagent_has_a_parent(tmp_path):
    folder = tmp_path / SESSION / "subagents"
    folder.mkdir(parents=True)
    path = folder / "agent-a1.jsonl"
    aside = {"isSidechain": True}
    stores.Claude.write(
        path, [line(1, "user", "Count the bees.", **aside), say(2, "Twelve.", **aside)]
    )
    path.with_name("agent-a1.meta.json").write_text(
        '{"agentType": "counter", "toolUseId": "toolu_1"}'
    )
    story, lines, _ = told(path)
    assert (story.id, story.parent, story.lineage) == (f"{SESSION}/agent-a1", SESSION, "delegate")
    assert story.facts["agent"]["toolUseId"] == "toolu_1" and shown(lines) == ["u1", "u2"]


def test_a_subagent_is_called_by_what_its_lines_say_whatever_its_file_is_called(tmp_path):
    path = tmp_path / "copy of an agent.jsonl"
    aside = {"isSidechain": True, "agentId": "a3677f021342e156c"}
    stores.Claude.write(
        path, [line(1, "user", "Count the bees.", **aside), say(2, "Twelve.", **aside)]
    )
    story, _, _ = told(path)
    assert (story.id, story.parent) == (f"{SESSION}/agent-a3677f021342e156c", SESSION)
    shelf = detect.open_reader("claude", path)
    try:
        assert [
            len(list(shelf.sessions(id))) for id in (story.id, "agent-a3677f021342e156c", "agent-b")
        ] == [1, 1, 0]
    finally:
        shelf.close()


def test_outputs_too_large_for_a_line_are_carried(tmp_path):
    folder = tmp_path / SESSION / "tool-results"
    folder.mkdir(parents=True)
    (folder / "b1.txt").write_text("row\n" * 20_000)
    (tmp_path / "secret.txt").write_text("not of this session")
    (folder / "b2.txt").symlink_to(tmp_path / "secret.txt")
    said = "Full output saved to: /orchard/.claude/projects/p/s/tool-results/"
    results = [
        {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"{said}{name}\n\nPreview"}
        for n, name in enumerate(("b1.txt", "b2.txt", "../../secret.txt", "gone.txt"))
    ]
    _, lines = told_of(tmp_path, line(1, "user", "List all."), line(2, "user", results))
    assert lines[1].payload["_outputs"] == {"tool-results/b1.txt": "row\n" * 20_000}


def test_lines_of_a_type_that_nobody_knows_are_counted(tmp_path):
    odd = {"type": "telepathy", "sessionId": SESSION}
    path = stores.made(
        stores.Claude, tmp_path, [*stores.Claude.records(), odd, odd, note(9, "u6", "whisper")]
    )
    assert told(path)[2].not_examined() == {"attachment/whisper": 1, "telepathy": 2}
    known = [
        {"type": "queue-operation", "sessionId": SESSION},
        {"type": "cost-state"},
        note(9, "u6", "date"),
    ]
    assert (
        told(stores.made(stores.Claude, tmp_path, [*stores.Claude.records(), *known]))[
            2
        ].not_examined()
        == {}
    )
