"""Files of Claude Code, Codex and the Agents SDK, examined and healed: each defect is named, and
none is left.
"""

import json

import pytest
from msgspec.structs import replace

import item_stores as stores
from holdfast.doctor.detect import open_subject
from holdfast.doctor.items.detect import item_findings, looked_at
from holdfast.doctor.items.heal import ItemHealing
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.importers.foreign_session import ForeignMessage
from holdfast.importers.item_store import Item
from holding import kept_open

programs = pytest.mark.parametrize("program", stores.PROGRAMS, ids=lambda program: program.kind)
damages = pytest.mark.parametrize(
    "rule, damage", stores.DAMAGED.items(), ids=lambda one: one if isinstance(one, str) else ""
)


def usual(rule):
    return rule.policy in ("auto", "mark")


@pytest.fixture
def patients(tmp_path):
    opened = []

    def patient(program, records):
        opened.append(open_subject(program.kind, str(stores.made(program, tmp_path, records))))
        return opened[-1]

    yield patient
    for one in opened:
        one.close()


def rules_of(patient):
    return sorted({finding.rule.name for one in patient.examine() for finding in one.findings})


@programs
@damages
def test_a_defect_is_named_and_nothing_else(patients, program, rule, damage):
    assert rules_of(patients(program, damage(program))) == [f"{program.kind}/{rule}"]


@programs
def test_a_healthy_session_and_each_of_its_beginnings_give_no_finding(patients, program, tmp_path):
    records = program.records()
    with kept_open(tmp_path / program.name):
        for length in range(1, len(records) + 1):
            assert rules_of(patients(program, records[:length])) == []


@programs
def test_calls_side_by_side_are_healthy_wherever_the_file_of_a_running_program_ends(
    patients, program, tmp_path
):
    records = program.records(("ask", "call", "call", "call", "result"))
    with kept_open(tmp_path / program.name):
        for length in range(len(records) - 3, len(records) + 1):
            assert rules_of(patients(program, records[:length])) == []


@pytest.mark.parametrize("program", stores.PROGRAMS[:2], ids=lambda program: program.kind)
def test_a_call_that_a_session_ends_on_is_open_when_nobody_runs_it(patients, program):
    patient = patients(program, program.records(("ask", "call")))
    assert rules_of(patient) == [f"{program.kind}/tool-call-without-result"]
    [story] = patient.healed(usual).sessions()
    assert [line.role for line in story.lines] == ["user", "assistant", "tool"]


def test_a_call_may_wait_for_a_person_in_a_session_of_the_agents_sdk(patients):
    assert rules_of(patients(stores.Agents, stores.Agents.records(("ask", "call")))) == []


@programs
@damages
def test_what_was_healed_has_nothing_left_to_heal(patients, program, rule, damage):
    patient = patients(program, damage(program))
    healed = patient.healed(usual)
    [story] = healed.sessions()
    first = list(story.lines)
    assert {change.rule for change in healed.changes()} == {f"{program.kind}/{rule}"}
    assert list(story.lines) == first
    [again] = patient.healed(usual).sessions()
    assert list(again.lines) == first
    [item_session] = patient.reader.item_sessions()
    accepted = {each.name for each in patient.rules if usual(each)}
    healing = ItemHealing(program.kind, "s", patient.case(item_session), accepted)
    assert (
        item_findings(patient.rules, "s", "", looked_at(healing.heal(item_session.items()))) == ()
    )


@programs
def test_an_unanswered_call_gets_its_answer_next_to_it(patients, program):
    [story] = patients(program, stores.unanswered(program)).healed(usual).sessions()
    lines = list(story.lines)
    assert [line.role for line in lines] == ["user", "assistant", "tool", "user", "assistant"]
    assert lines[2].labels == {"interrupted": True} and "interrupted" in str(lines[2].payload)


@programs
def test_a_stray_result_is_hidden_and_bytes_are_kept(patients, program):
    [story] = patients(program, stores.stray(program)).healed(usual).sessions()
    assert [line.labels.get("visible_to_model", True) for line in story.lines] == [
        True,
        False,
        True,
    ]
    [story] = patients(program, stores.unreadable(program)).healed(usual).sessions()
    [*_, kept] = story.lines
    assert kept.labels["unreadable"] and "cut in the midd" in kept.payload["parts"][0]["raw"]


@programs
def test_no_file_of_another_program_is_written(patients, program, tmp_path):
    with pytest.raises(HoldfastError, match="Heal into a Holdfast store"):
        patients(program, program.records()).healed(usual).write(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@programs
def test_a_file_without_a_message_is_unreadable(tmp_path, program):
    path = tmp_path / program.name
    for raw in (b"", b"no words\n\xff\xfe\n", b"SQLite format 3\x00" + b"\x00" * 200):
        path.write_bytes(raw)
        try:
            patient = open_subject(program.kind, str(path))
        except StoreUnavailable:
            continue
        assert rules_of(patient) == [f"{program.kind}/unreadable-store"]
        patient.close()


@programs
def test_items_that_say_nothing_do_not_close_a_call(program):
    """The law behind it: only words after a call show that nobody waits for it any more."""
    items = [Item(line, calls=("c",)) if n == 0 else Item(line) for n, line in enumerate(_lines(3))]
    assert not looked_at(items).open_calls
    assert looked_at([*items, Item(_lines(4)[3], says=True)]).open_calls


def _lines(count):
    return [ForeignMessage(f"o{n}", f"p{n}", "assistant", {}, "holdfast") for n in range(count)]


def test_messages_with_one_id_and_other_words_are_other_messages(patients):
    """The Agents SDK gives every message of a chat-completions model the id `__fake_id__`."""
    said = [
        {"type": "message", "role": "assistant", "status": "completed", "id": "__fake_id__"}
        | {"content": [{"type": "output_text", "text": text, "annotations": []}]}
        for text in ("Berth 4.", "At 21:40.", "Berth 4.")
    ]
    asked = [
        {"role": "user", "content": text}
        for text in ("Which berth?", "When?", "Which berth again?")
    ]
    records = [one for pair in zip(asked, said, strict=True) for one in pair]
    patient = patients(stores.Agents, records)
    assert rules_of(patient) == []
    [story] = patient.healed(lambda rule: True).sessions()
    assert [line.payload for line in story.lines] == records


@programs
def test_a_row_with_a_known_id_and_other_words_is_kept(patients, program):
    """A remedy that removes anything looks at what it removes."""
    records = stores.repeated(program)
    again = next(at for at, record in enumerate(records) if records.index(record) != at)
    records[again] = json.loads(json.dumps(records[again]).replace("wet", "something else"))
    assert records[again] not in records[:again]
    patient = patients(program, records)
    assert f"{program.kind}/repeated-message" not in rules_of(patient)
    [story] = patient.healed(lambda rule: True).sessions()
    assert "something else" in str([line.payload for line in story.lines])


def test_words_beside_a_stray_result_are_still_shown(patients):
    records = stores.stray(stores.Claude)
    records[1]["message"]["content"].append({"type": "text", "text": "And look at row 9."})
    [story] = patients(stores.Claude, records).healed(usual).sessions()
    assert [line.labels.get("visible_to_model", True) for line in story.lines] == [True, True, True]
    assert "And look at row 9." in str([line.payload for line in story.lines])


@programs
def test_a_call_that_was_answered_is_not_open(program):
    """Whether its result came at once, after another call, or after words."""
    called, other, result, words = (Item(line) for line in _lines(4))
    called, other = replace(called, calls=("c",)), replace(other, calls=("d",), answers=("d",))
    result, words = replace(result, answers=("c",)), replace(words, says=True)
    for order in (
        (called, result, words),
        (called, other, result, words),
        (called, words, result, words),
    ):
        assert not looked_at(order, may_run=False).open_calls
    assert looked_at((called, other, words), may_run=False).open_calls == {"p0": ("c",)}
