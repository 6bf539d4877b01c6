"""A record that is not what its note says, a turn that has only an end, a time that is none: one bad
record takes away nothing but itself, is told, and is not imported (I-6, I-18, I-25).
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import commanding
import holdfast
from holdfast.domain.message import CallNote, MessageNote
from holdfast.errors import Damaged
from holdfast.formats import registry
from holdfast.formats.notes import disagreement

FORMATS = ("openai.chat", "openai.responses", "anthropic", "holdfast", "goose")
CALL = {"id": "c0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OF_CALLS, OF_ANSWERS = "'%\"calls\"%'", "'%answers%'"

# What is changed of a record, to what, and of which.
ODD = {
    "a result is words": (
        "body",
        b'{"role":"tool","parts":[{"type":"text","text":"x"}]}',
        f"cast(note AS text) LIKE {OF_ANSWERS}",
    ),
    "its calls are gone": (
        "body",
        b'{"role":"assistant","content":[{"type":"text","text":"e"}]}',
        f"cast(note AS text) LIKE {OF_CALLS}",
    ),
    "the calls are others": (
        "body",
        json.dumps({"role": "assistant", "tool_calls": [CALL | {"id": "c9"}]}).encode(),
        f"cast(note AS text) LIKE {OF_CALLS}",
    ),
    "an answer is a result": ("note", b'{"role":"tool","answers":["c0"]}', "note=1"),
    "its format is another": (
        "note",
        b'{"role":"assistant","format":"anthropic"}',
        f"cast(note AS text) LIKE {OF_ANSWERS}",
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        for key in ("one", "two"):
            with store.session(key).turn(f"question of {key}") as turn:
                turn.add({"role": "assistant", "content": "look", "tool_calls": [CALL]})
                turn.call("f", "{}", call_id="c0")
                turn.result("c0", "the result")
                turn.say(f"answer of {key}")
    return path


def change(path: Path, column: str, value: Any, where: str) -> None:
    connection = sqlite3.connect(path)
    statement = f"UPDATE entry SET {column}=? WHERE session=1 AND {where}"
    assert connection.execute(statement, (value,)).rowcount == 1
    connection.commit()
    connection.close()


def go_through(path: Path) -> None:
    with holdfast.open(path) as store:
        for key in ("one", "two"):
            session = store.session(key, create=False)
            assert len(list(session.transcript())) >= 4
            for format in FORMATS:
                assert session.context(format)
            with session.turn("go on") as turn:
                assert turn.context("openai.chat")
                turn.say("on")


@pytest.mark.parametrize("case", ODD)
def test_a_record_that_is_not_what_its_note_says_is_told_and_passed_over(
    path: Path, case: str
) -> None:
    change(path, *ODD[case])
    checked = commanding.command("store", "check", "--store", str(path))
    assert checked.code == 1 and "can't be read" in checked.out
    healed = path.parent / "healed.db"
    told = commanding.command("doctor", str(path), "--heal", str(healed))
    assert "unreadable-entry" in told.out
    go_through(path)
    go_through(healed)
    assert "can't be read" not in commanding.command("store", "check", "--store", healed).out


def exported(path: Path) -> list[dict[str, Any]]:
    out = path.parent / "one.jsonl"
    assert commanding.command("export", "key:one", "--store", path, "--out", out).code == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def imported(path: Path, lines: list[dict[str, Any]]) -> commanding.Done:
    changed = path.parent / "changed.jsonl"
    changed.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return commanding.command("import", changed, "--into", path.parent / "into.db")


def test_an_export_whose_body_lost_what_its_note_names_is_refused(path: Path) -> None:
    lines = exported(path)
    results = [line for line in lines if "answers" in (line.get("note") or {})]
    for line in results:
        for part in line["body"]["parts"]:
            del part["call_id"]
    done = imported(path, lines)
    assert done.code == 5 and "its note answers other calls than its body" in done.err


@pytest.mark.parametrize("turn", [77, None])
def test_an_end_of_a_turn_that_never_started_is_refused(path: Path, turn: int | None) -> None:
    lines = exported(path)
    for line in lines:
        if line.get("kind") == "end":
            line["turn"] = turn
    done = imported(path, lines)
    assert done.code == 5 and "which does not run" in done.err


def test_a_second_end_of_a_turn_is_refused(path: Path) -> None:
    lines = exported(path)
    end = lines[-1]
    assert end["kind"] == "end"
    done = imported(path, [*lines, end | {"seq": end["seq"] + 1, "id": "ab" * 16}])
    assert done.code == 5 and "which does not run" in done.err
    assert imported(path, lines).code == 0


def test_a_turn_that_has_only_an_end_is_no_reason_not_to_show_the_rest(path: Path) -> None:
    change(path, "turn", 77, "kind='end'")
    shown = commanding.command("sessions", "show", "key:one", "--store", path)
    assert shown.code == 0 and "answer of one" in shown.out
    for form in ("markdown", "html"):
        written = commanding.command("export", "key:one", "--as", form, "--store", path)
        assert written.code == 0 and "answer of one" in written.out


@pytest.mark.parametrize("at", [b"1", "x", 1.5])
def test_a_time_that_is_none_hides_nothing_else_from_a_search(path: Path, at: Any) -> None:
    change(path, "at", at, "kind='' AND seq=2")
    with holdfast.open(path) as store:
        found = [hit.snippet for hit in store.search("answer")]
    assert sorted(found) == ["answer of one", "answer of two"]


def test_a_note_and_a_body_agree_on_what_a_dialogue_is_made_of() -> None:
    body = json.dumps({"role": "assistant", "tool_calls": [CALL]}).encode()
    note = MessageNote(role="assistant", plain=False, calls=(CallNote("c0", "f"),))
    registry.insist_on(note, body)
    for other in (
        MessageNote(role="assistant"),
        MessageNote(role="user", plain=False, calls=note.calls),
        MessageNote(role="assistant", plain=False),
        MessageNote(role="assistant", plain=False, calls=note.calls, answers=("c0",)),
        MessageNote(role="assistant", format="acp", plain=False, calls=note.calls),
    ):
        with pytest.raises(Damaged):
            registry.insist_on(other, body)


def test_a_note_of_an_earlier_release_may_know_fewer_calls_of_a_response() -> None:
    calls = (CallNote("c0", "f"), CallNote("c1", "shell"))
    said = MessageNote(role="assistant", format="openai.responses", plain=False, calls=calls)
    noted = MessageNote(role="assistant", format="openai.responses", plain=False, calls=calls[:1])
    assert disagreement(noted, said) is None
    assert disagreement(said, noted) is not None
