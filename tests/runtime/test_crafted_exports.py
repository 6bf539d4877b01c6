"""Whatever stands anywhere in a file that claims to be an export: it is imported, or it is refused
as damaged, and then nothing of it is stored (I-20, I-25).
"""

import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import holdfast
from commanding import command
from holdfast.errors import Damaged, StoreUnavailable
from holdfast.runtime.transfer.restore import restore
from thorough import few_cases

HALF = "\ud800"
ODD = [None, -1, 2**70, 1.5, [], {}, [HALF], {HALF: HALF}, True]
Place = tuple[Any, ...]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A session that was written out, with nearly all that one can have."""
    folder = tmp_path_factory.mktemp("export")
    with holdfast.open(folder / "s.db") as store:
        session = store.session("k")
        session.instructions("Be kind.")
        store.accept("k", "hello", event_id="e", reply_to=7, labels={"n": 1})
        with session.turn() as turn:
            turn.call("look", "{}", call_id="c")
            turn.result("c", "found")
            turn.say("a")
        with session.turn("more", reply_to="7\ud800") as turn:
            turn.say("b")
        session.record(list(session.context())[2:])
        first = next(iter(session.transcript())).id
        session.label(first, starred=True)
        session.rewind(first)
        session.compact("a summary", keep_turns=0)
        store.accept("k", "waits")
        assert [owed.reply_to for owed in store.outbox()] == ["7", "7\ud800"]
    out = folder / "s.jsonl"
    told = command("export", "key:k", "--out", str(out), "--store", str(folder / "s.db"))
    assert told.code == 0
    return out.read_text().splitlines()


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """All places in a piece of JSON."""
    if path:
        yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, each in items:
        yield from places(each, (*path, key))


def crafted(line: str) -> Iterator[tuple[str, Place, Any]]:
    """The line with something odd in one place, for all places: a half of a character, and one of
    the others in its turn.
    """
    others = cycle(ODD)
    for path in places(json.loads(line)):
        for odd in (HALF, next(others)):
            value = json.loads(line)
            inside = value
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = odd
            yield json.dumps(value), path, odd


def outcome(tmp_path: Path, told: list[str], number: int) -> str:
    file = tmp_path / "crafted.jsonl"
    file.write_text("\n".join(told) + "\n")
    with holdfast.open(tmp_path / f"{number}.db", durability="process") as store:
        try:
            restore(store, file, outbox=True)
        except (Damaged, StoreUnavailable):
            assert list(store.sessions()) == []
            return "refused"
        for session in map(store.get, [listed.id for listed in store.sessions()]):
            list(session.context())
            session.turns()
        store.outbox()
    return "restored"


@pytest.mark.parametrize("field", ["id", "turn", "reply_to", "at"])
@pytest.mark.parametrize("with_outbox", [[], ["--with-outbox"]])
def test_a_reply_that_can_not_be_owed_is_refused_by_the_command(
    tmp_path: Path, lines: list[str], field: str, with_outbox: list[str]
) -> None:
    header = json.loads(lines[0])
    header["standing"]["outbox"][0][field] = [] if field == "reply_to" else HALF
    file = tmp_path / "s.jsonl"
    file.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    told = command("import", str(file), "--into", str(tmp_path / "new.db"), *with_outbox)
    assert told.code == 5, told
    assert "line 1" in told.err


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("part", range(6))
def test_anything_may_stand_anywhere(tmp_path: Path, lines: list[str], part: int) -> None:
    number = 0
    for at in range(part, len(lines), 6):
        for told, path, odd in crafted(lines[at]):
            number += 1
            try:
                outcome(tmp_path, [*lines[:at], told, *lines[at + 1 :]], number)
            except Exception as error:
                raise AssertionError(f"{odd!r} in line {at + 1}, {path}: {error!r}") from error


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"role": None, "content": "a"},
        {"role": 5, "content": "a"},
        {"role": "user", "content": {}},
    ],
)
def test_a_summary_that_is_no_message_is_refused(
    tmp_path: Path, lines: list[str], body: Any
) -> None:
    [at] = [at for at, line in enumerate(lines) if json.loads(line).get("kind") == "compaction"]
    told = json.dumps({**json.loads(lines[at]), "body": body})
    assert outcome(tmp_path, [*lines[:at], told, *lines[at + 1 :]], 0) == "refused"


def test_a_line_with_a_half_character_and_no_number_is_refused(
    tmp_path: Path, lines: list[str]
) -> None:
    at = next(at for at, line in enumerate(lines) if '"kind":"message"' in line.replace(" ", ""))
    entry = json.loads(lines[at])
    entry["body"]["odd"] = [HALF, "HERE"]
    told = json.dumps(entry).replace('"HERE"', "NaN")
    assert outcome(tmp_path, [*lines[:at], told, *lines[at + 1 :]], 0) == "refused"
