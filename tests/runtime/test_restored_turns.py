"""A session that is brought back from its file is whole or not there: no turn without an end, nothing
that waits again, nothing half that somebody goes on with (I-4, I-6, I-14).
"""

import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from commanding import command
from holdfast.errors import Damaged, TurnInterrupted
from holdfast.runtime.transfer import restore as restoring
from holdfast.runtime.transfer.restore import restore
from holdfast.testing.oracle import judge
from thorough import few_on_postgres

pytestmark = few_on_postgres(
    "what a file is brought back as is decided in `runtime/transfer`",
    every=3,
)


def written(store: holdfast.Store, session: holdfast.Session, to: Path) -> Path:
    place = store._work.engine.where
    told = command("export", session.id, "--as", "holdfast", "--out", str(to), "--store", place)
    assert told.code == 0, told
    return to


def is_sound(store: holdfast.Store) -> None:
    assert judge(store) == []
    assert store.check() == []


def test_a_fork_from_the_middle_of_a_turn_is_restored_with_that_turn_over(
    where: str, tmp_path: Path
) -> None:
    with holdfast.open(tmp_path / "old.db") as old:
        session = old.session("k")
        with session.turn("question") as turn:
            turn.say("one")
            turn.say("two")
        one = next(each for each in session.transcript() if each.text == "one")
        fork = session.fork(one.id, key="branch")
        fork.append("mine")
        lines = written(old, fork, tmp_path / "fork.jsonl")
        ends = [turn.end for turn in fork.turns()]
    with holdfast.open(where) as new:
        restore(new, lines)
        restored = new.session("branch", create=False)
        assert [turn.end for turn in restored.turns()] == ends == ["interrupted"]
        is_sound(new)
        with restored.turn("more") as turn:
            turn.say("yes")
        is_sound(new)


@pytest.mark.parametrize("at", ["before", "at what waits"])
def test_what_waits_in_the_parent_of_a_fork_does_not_wait_in_the_restored_fork(
    where: str, tmp_path: Path, at: str
) -> None:
    with holdfast.open(tmp_path / "old.db") as old:
        session = old.session("k")
        with session.turn("question") as turn:
            turn.say("answer")
        waits = old.accept("k", "waits", reply_to="chat")
        place = waits.message_id
        if at == "before":
            with session.turn(take=[]) as turn:
                turn.say("later")
            place = list(session.transcript())[-1].id
        fork = session.fork(place, key="branch")
        lines = written(old, fork, tmp_path / "fork.jsonl")
        context = list(fork.context())
        states = [message.state for message in fork.transcript()]
    with holdfast.open(where) as new:
        restore(new, lines)
        restored = new.session("branch", create=False)
        assert restored.info().pending == 0
        assert new.pending().items == []
        assert list(restored.context()) == context
        assert [message.state for message in restored.transcript()] == states
        is_sound(new)


@pytest.mark.parametrize("skips", [False, True])
def test_a_turn_that_ran_when_it_was_written_out_is_settled_by_who_looks_next(
    where: str, tmp_path: Path, skips: bool
) -> None:
    with holdfast.open(tmp_path / "old.db") as old:
        session = old.session("k")
        with session.turn("first") as turn:
            turn.say("done")
        if skips:
            # A number is used up by whoever stops a turn.
            with contextlib.suppress(TurnInterrupted), session.turn("stopped") as turn:
                session.stop()
        with session.turn("second") as turn:
            turn.say("half of it")
            early = written(old, session, tmp_path / "early.jsonl")
            turn.say("the rest")
        late = written(old, session, tmp_path / "late.jsonl")
    with holdfast.open(where) as new:
        restore(new, early)
        assert new.check() == []
        # Nobody has looked at it yet: a later file brings what is new.
        assert restore(new, late).messages == 1
        session = new.session("k", create=False)
        assert [turn.end for turn in session.turns()][-1] == "completed"
        is_sound(new)
    with holdfast.open(where) as new:
        other = new.for_tenant("other")
        restore(other, early)
        session = other.session("k", create=False)
        texts = [message.text for message in session.transcript()]
        assert texts[-2:] == ["second", "half of it"]
        assert [turn.end for turn in session.turns()][-1] == "abandoned"
        with session.turn("third") as turn:
            turn.say("on we go")
        is_sound(other)


def test_nobody_goes_on_with_half_of_a_session(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody writes under its key as soon as there is anything under it."""
    with holdfast.open(tmp_path / "old.db") as old:
        session = old.session("k")
        for number in range(700):
            session.append(f"word {number}")
        lines = written(old, session, tmp_path / "long.jsonl")
    with holdfast.open(where) as new, holdfast.open(where) as others:
        found: list[int] = []

        def write() -> None:
            while not found:
                for listed in others.sessions().items:
                    found.append(listed.head)
                    others.session("k").append("mine")

        writer = threading.Thread(target=write)
        writer.start()
        restore(new, lines)
        writer.join()
        assert found == [701]
        assert [each.text for each in new.session("k").transcript()][-2:] == ["word 699", "mine"]
        is_sound(new)


def test_a_session_that_comes_in_pieces_is_never_left_within_a_turn(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "AT_ONCE_BYTES", 2000)
    with holdfast.open(tmp_path / "old.db") as old:
        session = old.session("k")
        for number in range(30):
            with session.turn(f"question {number}") as turn:
                for part in range(number % 7):
                    turn.say(f"answer {number}.{part}")
        lines = written(old, session, tmp_path / "k.jsonl")
        texts = [message.text for message in session.transcript()]
    with holdfast.open(where) as new:
        add, heads = restoring._Restoring._add, []

        def watched(self: Any, *given: Any, **options: Any) -> None:
            add(self, *given, **options)
            heads.append(new._work.engine.state(self._id).head)  # type: ignore[union-attr]
            assert new.check() == []

        monkeypatch.setattr(restoring._Restoring, "_add", watched)
        restore(new, lines)
        assert len(heads) > 3
        restored = new.session("k", create=False)
        assert [message.text for message in restored.transcript()] == texts
        is_sound(new)


def changed(lines: Path, change: Any) -> Path:
    """The file with its entries changed."""
    header, *entries = [json.loads(line) for line in lines.read_text().splitlines()]
    entries = change(entries)
    lines.write_text("\n".join(json.dumps(each) for each in [header, *entries]) + "\n")
    return lines


def _of_another(entries: list[Any]) -> list[Any]:
    note = {**(entries[0]["note"] or {}), "parent": "0" * 8 + "-0000-0000-0000-" + "0" * 12}
    return [{**entries[0], "note": {**note, "parent_seq": 0}}, *entries[1:]]


def _label(entries: list[Any]) -> list[Any]:
    made = {**entries[-1], "seq": len(entries) + 1, "kind": "label", "id": "ab" * 16, "body": None}
    note = {"message": "cd" * 16, "seq": 1, "labels": {"a": 1}}
    return [*entries, {**made, "turn": None, "note": note}]


def _rewind(entries: list[Any]) -> list[Any]:
    made = {**entries[-1], "seq": len(entries) + 1, "kind": "rewind", "id": "ab" * 16, "body": None}
    return [*entries, {**made, "turn": None, "note": {"to": "cd" * 16}}]


@pytest.mark.parametrize("forge", [_of_another, _label, _rewind])
def test_a_file_that_tells_of_what_is_not_in_it_is_refused_whole(
    where: str, tmp_path: Path, forge: Any
) -> None:
    with holdfast.open(tmp_path / "old.db") as old:
        session = old.session("k")
        with session.turn("question") as turn:
            turn.say("answer")
        lines = changed(written(old, session, tmp_path / "k.jsonl"), forge)
    with holdfast.open(where) as new:
        with pytest.raises(Damaged):
            restore(new, lines)
        assert new.sessions().items == []
        assert new.check() == []
