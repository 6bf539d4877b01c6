"""A file is known by its lines, however long the first of them is and whatever stands before those
that tell.
"""

import json

import pytest

import goose_stores
import item_stores as stores
import openviking_stores
from holdfast.importers import detect, jsonl
from holdfast.importers.claude import reader as claude
from holdfast.importers.codex import reader as codex
from thorough import few_cases

MODULES = {"claude": claude, "codex": codex}
files = pytest.mark.parametrize(
    "program", [stores.Claude, stores.Codex], ids=lambda program: program.kind
)


def made(program, folder, before):
    """A session's file with something before its lines."""
    path = stores.made(program, folder, program.records())
    path.write_bytes(before + path.read_bytes())
    return path


def raw(record):
    return json.dumps(record).encode() + b"\n"


def long_first_line(program, size):
    """What is piped into Claude Code, or given to Codex as instructions, stands in one line."""
    if program is stores.Claude:
        session = "11111111-2222-4333-8444-555555555555"
        return raw(
            {
                "type": "queue-operation",
                "operation": "enqueue",
                "sessionId": session,
                "content": "x" * size,
            }
        )
    meta = {
        "id": "0199-session",
        "timestamp": stores.at(0),
        "cwd": "/orchard",
        "base_instructions": "x" * size,
    }
    return raw(stores.Codex.line(0, "session_meta", meta))


@files
@pytest.mark.parametrize("size", [300_000, 5_000_000])
def test_a_long_first_line_hides_no_session(tmp_path, program, size):
    path = made(program, tmp_path, long_first_line(program, size))
    assert detect.kind_of(path) == program.kind
    assert detect.stores_at(str(tmp_path), detect.kind_of) == [(program.kind, str(path))]


@files
def test_a_line_that_is_not_looked_at_to_its_end_is_judged_by_its_beginning(
    tmp_path, program, monkeypatch
):
    monkeypatch.setattr(jsonl.first_values, "__kwdefaults__", {"most": 1 << 20})
    path = tmp_path / "one.jsonl"
    path.write_bytes(long_first_line(program, 3 << 20))
    assert detect.kind_of(path) == program.kind
    other = stores.Claude.records()[0]
    other["message"]["content"] = "x" * (3 << 20)
    path.write_bytes(raw(other))
    assert detect.kind_of(path) == "claude"


@pytest.mark.slow
@few_cases(every=3)
@files
@pytest.mark.parametrize(
    "before",
    [
        b"garbage\n" * 200_000,
        b'{"type": "of-the-future", "n": 1}\n' * 5_000,
        b"\0" * 4096 + b"\n",
        b'{"torn',
        b'{"a": ' * 300 + b"\n",
    ],
    ids=["garbage", "unknown", "zeros", "torn", "deep"],
)
def test_what_stands_before_the_lines_of_a_session_hides_none(tmp_path, program, before):
    assert detect.kind_of(made(program, tmp_path, before)) == program.kind


def test_garbage_before_the_lines_of_goose_and_openviking_hides_none(tmp_path):
    words = goose_stores.legacy_lines(
        ("user", goose_stores.text("Hi.")), ("assistant", goose_stores.text("Hello."))
    )
    (tmp_path / "old.jsonl").write_bytes(b"garbage\n" * 50 + words)
    assert detect.kind_of(tmp_path / "old.jsonl") == "goose"
    session = tmp_path / "tree" / "s"
    session.mkdir(parents=True)
    said = b"".join(raw(message) for message in openviking_stores.messages(1, 2))
    (session / "messages.jsonl").write_bytes(
        b'{"not": "a message of role"}\n' * 50 + b"x" * (2 << 20) + b"\n" + said
    )
    assert detect.kind_of(tmp_path / "tree") == "openviking"


def test_a_session_of_which_there_are_notes_alone_is_known(tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_bytes(long_first_line(stores.Claude, 10))
    assert detect.kind_of(path) == "claude"


def test_looking_at_a_file_that_is_no_session_comes_to_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl.first_values, "__kwdefaults__", {"most": 1 << 20})
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        b'{"type": "row", "payload": 1, "sessionId": 2}\n' * 30_000
        + raw(stores.Claude.records()[0])
    )
    assert detect.kind_of(path) is None


def test_fields_at_the_beginning_of_a_line_are_told():
    fields = jsonl.first_fields(
        b'{"a": null, "b":"x\\"y" , "c":-12,"message":{"role": "user", "content": "never end'
    )
    assert fields == {"a": None, "b": 'x"y', "c": -12, "message": {}}
    assert jsonl.first_fields(b'{"a": "' + b"x" * 5000) == {}
    assert jsonl.first_fields(b'{"\xff": 1}') == {} and jsonl.first_fields(b"[1") == {}
