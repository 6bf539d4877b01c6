"""A session that was written out is that session again, and nothing is lost on the way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from commanding import command
from holdfast.domain.log.fold import Log
from holdfast.errors import Conflict, Damaged, NotApproved
from holdfast.runtime.transfer import exported_file
from holdfast.runtime.transfer import restore as restoring
from holdfast.runtime.transfer.restore import restore
from holdfast.testing.histories import hidden
from holdfast.testing.oracle import judge
from looking import raw_entries
from thorough import few_cases


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A store with a session that has all that a session can have."""
    path = tmp_path / "source.db"
    with holdfast.open(path) as store:
        session = store.session("k")
        session.instructions("Be kind.")
        for number in range(6):
            with session.turn(
                f"question {number}\ud800\0", event_id=f"e{number}", reply_to="somebody"
            ) as turn:
                turn.call("look", "{}", call_id=f"c{number}")
                turn.result(f"c{number}", "found " * 9000)
                turn.say(f"answer {number}")
        session.compact("what was", keep_turns=2)
        session.label(next(iter(session.transcript())).id, starred=True)
        store.accept("k", "waits", event_id="w")
    return path


def written(source: Path, to: Path, session: str = "key:k") -> Path:
    assert (
        command(
            "export", session, "--as", "holdfast", "--out", str(to), "--store", str(source)
        ).code
        == 0
    )
    return to


def test_a_restored_session_is_the_same_session(source: Path, tmp_path: Path) -> None:
    """I-14: entries, inbox, outbox, events, the view and what it costs to load it."""
    lines = written(source, tmp_path / "k.jsonl")
    with holdfast.open(source) as old, holdfast.open(tmp_path / "new.db") as new:
        brought = restore(new, lines, outbox=True)
        assert (brought.new, brought.messages) == (1, 25)
        one, other = old.session("k"), new.session("k", create=False)
        assert raw_entries(new, other.id) == raw_entries(old, one.id)
        assert other.id == one.id and list(other.context()) == list(one.context())
        assert [message.id for message in other.pending()] == [
            message.id for message in one.pending()
        ]
        owed = [(debt.text, debt.reply_to) for debt in new.outbox()]
        assert owed == [(debt.text, debt.reply_to) for debt in old.outbox()]
        assert new.accept("k", "waits", event_id="w").again
        found = judge(new)
        assert not found, "\n".join(found)


def test_restoring_again_adds_nothing_and_a_longer_one_adds_what_is_new(
    source: Path, tmp_path: Path
) -> None:
    first = written(source, tmp_path / "first.jsonl")
    with holdfast.open(source) as store:
        with store.session("k").turn("more") as turn:
            turn.say("indeed")
    second = written(source, tmp_path / "second.jsonl")
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, first, outbox=True)
        assert restore(new, first).messages == 0
        assert restore(new, second).messages == 2
        assert restore(new, first).messages == 0
        session = new.session("k", create=False)
        assert [message.text for message in session.transcript()][-1] == "indeed"
        found = judge(new)
        assert not found, "\n".join(found)


def test_two_histories_are_not_made_one(source: Path, tmp_path: Path) -> None:
    first = written(source, tmp_path / "first.jsonl")
    with holdfast.open(source) as store:
        store.session("k").append("there")
    second = written(source, tmp_path / "second.jsonl")
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, first)
        new.session("k").append("here")
        before = raw_entries(new, new.session("k").id)
        with pytest.raises(Conflict, match="went on differently"):
            restore(new, second)
        assert raw_entries(new, new.session("k").id) == before


def test_a_key_that_is_in_use_is_not_taken_away(source: Path, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "new.db") as new:
        mine = new.session("k")
        brought = restore(new, written(source, tmp_path / "k.jsonl"))
        assert new.session("k").id == mine.id
        assert "in use" in brought.notes[0]


def test_a_fork_is_restored_with_the_past_that_it_shared(source: Path, tmp_path: Path) -> None:
    with holdfast.open(source) as store:
        fork = store.session("k").fork(key="branch")
        fork.append("only here")
        texts = [message.text for message in fork.transcript()]
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, written(source, tmp_path / "b.jsonl", "key:branch"))
        assert [
            message.text for message in new.session("branch", create=False).transcript()
        ] == texts


def test_a_line_that_was_cut_is_told_and_the_store_stays_sound(
    source: Path, tmp_path: Path
) -> None:
    lines = written(source, tmp_path / "k.jsonl")
    lines.write_bytes(lines.read_bytes()[:-200])
    with holdfast.open(tmp_path / "new.db") as new:
        with pytest.raises(Damaged, match=r"line \d+"):
            restore(new, lines)
        found = judge(new)
        assert not found, "\n".join(found)


def test_debts_are_restored_only_if_that_is_asked_for(source: Path, tmp_path: Path) -> None:
    """A gateway sends whatever is owed, to whomever a file names."""
    lines = written(source, tmp_path / "k.jsonl")
    with holdfast.open(tmp_path / "new.db") as new:
        assert "not owed here: 6" in restore(new, lines).notes[0]
        assert new.outbox() == []


def test_debts_that_the_log_does_not_tell_of_are_invented(source: Path, tmp_path: Path) -> None:
    lines = written(source, tmp_path / "k.jsonl")

    def invent(header: dict[str, Any]) -> None:
        [first, *_] = header["standing"]["outbox"]
        header["standing"]["outbox"] += [
            {**first, "id": "ab" * 16, "reply_to": "mallory"},
            {**first, "id": "cd" * 16, "turn": 7000},
        ]

    crafted = changed(lines, 0, invent)
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, crafted, outbox=True)
        assert [owed.reply_to for owed in new.outbox()] == ["somebody"] * 6


def test_a_reply_that_was_sent_is_not_owed_again(source: Path, tmp_path: Path) -> None:
    before = json.loads(written(source, tmp_path / "before.jsonl").read_text().splitlines()[0])
    with holdfast.open(source) as store:
        store.outbox()[0].sent("42")
    lines = written(source, tmp_path / "k.jsonl")
    crafted = changed(lines, 0, lambda header: header.update(standing=before["standing"]))
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, crafted, outbox=True)
        assert len(new.outbox()) == 5


def test_nothing_of_a_long_file_is_stored_that_can_not_be_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "AT_ONCE_BYTES", 1000)  # long enough for several commits
    with holdfast.open(tmp_path / "long.db") as store:
        store.session("k").append_all(
            [{"role": "user", "content": f"{number}"} for number in range(1100)]
        )
    lines = written(tmp_path / "long.db", tmp_path / "k.jsonl")
    with open(lines, "a") as file:
        file.write('{"seq": 7}\n')
    with holdfast.open(tmp_path / "new.db") as new:
        with pytest.raises(Damaged):
            restore(new, lines)
        assert list(new.sessions()) == []


def test_a_log_is_arranged_once_however_many_pages_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(tmp_path / "hidden.db", durability="process") as store:
        hidden(store, store.session("k"), 40)
    lines = written(tmp_path / "hidden.db", tmp_path / "k.jsonl")
    arranged: list[int] = []
    arrange = Log._arrange

    def counted(log: Log) -> Any:
        arranged.append(len(log.natural))
        return arrange(log)

    monkeypatch.setattr(exported_file, "PAGE", 5)
    monkeypatch.setattr(Log, "_arrange", counted)
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, lines)
    assert arranged == [40]


def test_a_call_that_was_asked_about_is_bound_in_the_restored_session_too(tmp_path: Path) -> None:
    """I-22: through the resets that come after."""
    with holdfast.open(tmp_path / "old.db") as store:
        with store.turn("k", "Pay.") as turn:
            assert turn.call("pay", {"euros": 80}, call_id="c1", needs_approval=True).waiting
    lines = written(tmp_path / "old.db", tmp_path / "k.jsonl")
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, lines)
        new.reset("k")
        with new.turn("k", "Pay.") as turn, pytest.raises(NotApproved):
            turn.call("pay", {"euros": 80}, call_id="c1")


def changed(lines: Path, number: int, how: Callable[[dict[str, Any]], Any]) -> Path:
    """The same file with one line changed."""
    told = lines.read_text().splitlines()
    value = json.loads(told[number])
    how(value)
    told[number] = json.dumps(value)
    crafted = lines.with_suffix(".crafted.jsonl")
    crafted.write_text("\n".join(told) + "\n")
    return crafted


def line_of(lines: Path, kind: str) -> int:
    return next(
        at
        for at, told in enumerate(lines.read_text().splitlines())
        if json.loads(told).get("kind") == kind
    )


CRAFTED: dict[str, tuple[str, dict[str, Any]]] = {
    "a kind that is none": ("message", {"kind": "gift"}),
    "an id of one byte": ("message", {"id": "00"}),
    "an id that is no hex": ("message", {"id": "z" * 32}),
    "a time before time": ("message", {"at": -5}),
    "a time beyond time": ("message", {"at": 2**62}),
    "a turn beyond counting": ("turn", {"turn": 2**62}),
    "a turn below the first": ("turn", {"turn": -1}),
    "a note that is a list": ("message", {"note": [1]}),
    "a note of another type": ("turn", {"note": {"takes": 7}}),
    "a taken message that is none": ("turn", {"note": {"takes": ["zz"]}}),
    "a label on no message": ("label", {"note": {"message": "no", "labels": {}, "seq": 1}}),
    "a role that is none": ("message", {"note": {"role": "emperor"}}),
    "a format that is none": ("message", {"note": {"format": "morse"}}),
    "a body that is a number": ("message", {"body": 5}),
    "a body that is no message": ("message", {"body": {"role": "user", "content": 7}}),
    "no body": ("message", {"body": None}),
    "a body where there is none": ("turn", {"body": {"a": 1}}),
    "instructions that are no text": ("instructions", {"body": {"a": 1}}),
    "a summary of the future": ("compaction", {"note": {"covers": [[1, 999_999]]}}),
    "an event id that is a number": ("message", {"note": {"event": 7}}),
}


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_line_is_refused_and_nothing_is_written(
    source: Path, tmp_path: Path, case: str
) -> None:
    kind, change = CRAFTED[case]
    lines = written(source, tmp_path / "k.jsonl")
    crafted = changed(lines, line_of(lines, kind), lambda entry: entry.update(change))
    with holdfast.open(tmp_path / "new.db") as new:
        with pytest.raises(Damaged):
            restore(new, crafted)
        assert list(new.sessions()) == []


@pytest.mark.parametrize("seq", [-1, 2**53 + 1, 2**62])
def test_a_crafted_place_that_nothing_can_have_is_refused(
    source: Path, tmp_path: Path, seq: int
) -> None:
    lines = written(source, tmp_path / "k.jsonl")
    at = line_of(lines, "label")
    crafted = changed(lines, at, lambda entry: entry["note"].update(seq=seq))
    with holdfast.open(tmp_path / "new.db") as new:
        with pytest.raises(Damaged):
            restore(new, crafted)
        assert list(new.sessions()) == []


@pytest.mark.parametrize("digits", [5_000, 100_000])
def test_a_number_of_thousands_of_digits_is_refused(
    source: Path, tmp_path: Path, digits: int
) -> None:
    lines = written(source, tmp_path / "k.jsonl")
    told = lines.read_text().splitlines()
    at = line_of(lines, "message")
    told[at] = json.dumps(
        {**json.loads(told[at]), "body": {"role": "user", "content": "x", "n": "HERE"}}
    )
    lines.write_text("\n".join(told).replace('"HERE"', "9" * digits) + "\n")
    with holdfast.open(tmp_path / "new.db") as new:
        with pytest.raises(Damaged):
            restore(new, lines)
        assert list(new.sessions()) == []


@pytest.mark.parametrize(
    "change", [{"key": 7}, {"key": ""}, {"key": ["k"]}, {"id": 5}, {"id": "../x"}, {"id": None}]
)
def test_a_crafted_name_is_refused(source: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    crafted = changed(
        written(source, tmp_path / "k.jsonl"), 0, lambda header: header["session"].update(change)
    )
    with holdfast.open(tmp_path / "new.db") as new:
        with pytest.raises(Damaged):
            restore(new, crafted)
        assert list(new.sessions()) == []


def test_a_fence_that_is_out_of_reach_does_not_stop_the_next_turn(
    source: Path, tmp_path: Path
) -> None:
    lines = written(source, tmp_path / "k.jsonl")
    crafted = changed(
        lines, 0, lambda header: header["standing"].update(fence=2**63 - 1, base=2**60)
    )
    with holdfast.open(tmp_path / "new.db") as new:
        restore(new, crafted, outbox=True)
        with new.session("k", create=False).turn("next") as turn:
            turn.say("fine")
        assert turn.id.endswith(":7")
        found = judge(new)
        assert not found, "\n".join(found)


def test_what_another_tenant_has_is_as_if_it_were_not_there(source: Path, tmp_path: Path) -> None:
    """I-19: an export of a session that somebody else has comes in as it would without them, and
    they keep theirs.
    """
    with holdfast.open(source) as store:
        with store.session("k").turn("sent", reply_to="ann") as turn:
            turn.say("as it was said")
            turn.sent()
    lines = written(source, tmp_path / "k.jsonl")
    with holdfast.open(source) as store:
        before = raw_entries(store, store.session("k").id)
        store.session("k").append("more")
    longer = written(source, tmp_path / "longer.jsonl")
    shared, alone = tmp_path / "shared.db", tmp_path / "alone.db"
    with holdfast.open(shared, tenant="alice") as alice:
        restore(alice, lines)
    for file in (lines, longer, longer):
        more = ("--tenant", "mallory", "--with-outbox")
        told = [command("import", file, "--into", into, *more) for into in (shared, alone)]
        assert told[0] == told[1] and told[0].code == 0
    with (
        holdfast.open(shared, tenant="mallory") as mallory,
        holdfast.open(alone, tenant="mallory") as free,
    ):
        [mine], [own] = mallory.sessions(), free.sessions()
        assert (mine.key, mine.head, mine.state) == (
            own.key,
            own.head,
            own.state,
        ) and mine.id != own.id
        texts = [
            [message.text for message in store.session("k").transcript()]
            for store in (mallory, free)
        ]
        assert texts[0] == texts[1] and texts[0][-1] == "more"
        assert [owed.text for owed in mallory.outbox()] == [owed.text for owed in free.outbox()]
        found = judge(mallory)
        assert not found, "\n".join(found)
    with holdfast.open(shared, tenant="alice") as alice:
        assert raw_entries(alice, alice.session("k", create=False).id) == before
