"""`holdfast copy`: what it prints, how it ends, and that it shows how far it is where somebody
looks.
"""

import contextlib
import re
import shutil

import apsw
import pytest

import holdfast
from commanding import command, on_terminal, process
from copies import fill, told

DONE = re.compile(
    r"The same in both: ([\d,]+) sessions?, ([\d,]+) entries, ([\d,]+) of them new; digest [0-9a-f]{32}\.\n"
)


def test_a_copy_tells_what_is_the_same_in_both_stores(world, tmp_path):
    done = command("copy", world.path, tmp_path / "moved.db")
    assert (done.code, done.out) == (0, "")
    sessions, entries, added = DONE.fullmatch(done.err).groups()
    assert (int(sessions), entries) == (4, added)
    assert told(tmp_path / "moved.db") == told(world.path)
    again = command("copy", world.path, tmp_path / "moved.db")
    assert again.err == done.err.replace(f"{added} of them new", "0 of them new")


def test_one_tenant_is_copied_when_one_is_named(world, tmp_path):
    done = command("copy", world.path, tmp_path / "moved.db", "--tenant", "acme", "--json")
    assert (done.code, done.json["sessions"]) == (0, 1)
    assert list(told(tmp_path / "moved.db")["sessions"]) == [world.other]


def test_json_has_the_fields_of_the_library(world, tmp_path):
    printed = command("copy", world.path, tmp_path / "moved.db", "--json").json
    copied = holdfast.copy(world.path, tmp_path / "other.db")
    assert printed == {name: getattr(copied, name) for name in copied.__struct_fields__} | {
        "in_use": [],
        "differences": [],
        "salvaged": [],
    }


def test_an_entry_that_can_not_be_read_is_1_and_told_with_its_place(world, tmp_path):
    spoilt = shutil.copy(world.path, tmp_path / "spoilt.db")  # other tests read that world, too
    with contextlib.closing(apsw.Connection(str(spoilt))) as connection:
        [(session, seq)] = connection.execute(
            "UPDATE entry SET note = '{' WHERE n = (SELECT max(n) FROM entry WHERE kind = 'end') "
            "RETURNING "
            "(SELECT id FROM session WHERE session.n = entry.session), seq"
        )
    done = command("copy", spoilt, tmp_path / "moved.db")
    assert done.code == 1
    [line] = done.out.splitlines()
    assert line.startswith(f"session {session[:8]}")
    assert line.endswith(
        f", entry {seq}: it can't be read as it was written; the target says so in its place"
    )
    assert "With damage: 1 session." in done.err
    [salvaged] = command("copy", spoilt, tmp_path / "moved.db", "--json").json["salvaged"]
    assert (salvaged["session_id"], salvaged["seqs"]) == (session, [seq])


def test_a_session_that_went_on_in_the_target_is_1_and_told_with_both_digests(path, tmp_path):
    moved = tmp_path / "moved.db"
    command("copy", path, moved)
    for where, text in ((path, "Ours."), (moved, "Theirs.")):
        with holdfast.open(where, durability="process") as store:
            session = store.session("k")
            session.append(text)
            head = list(session.entries())[-1].seq
    done = command("copy", path, moved)
    assert done.code == 1
    assert (
        done.out.splitlines()[0]
        == f"session {session.id[:8]} (k), entry {head}: it went on differently there"
    )
    assert re.fullmatch(r"    source [0-9a-f]{32}, target [0-9a-f]{32}", done.out.splitlines()[1])
    assert "Left as they are: 1 session." in done.err
    [difference] = command("copy", path, moved, "--json").json["differences"]
    assert (difference["session_id"], difference["seq"]) == (session.id, head)


def test_a_session_in_use_is_told_of(path, tmp_path):
    with holdfast.open(path, durability="process") as store, store.session("k").turn("Wait."):
        done = command("copy", path, tmp_path / "moved.db")
    assert done.code == 0
    assert (
        "In use: 1 session, copied up to the turn that is running. Copy again when it is over."
        in done.err
    )


def test_a_source_that_is_not_there_is_3_and_nothing_is_made(tmp_path):
    done = command("copy", tmp_path / "none.db", tmp_path / "moved.db")
    assert (done.code, done.out) == (3, "")
    assert "There is no store at" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_can_not_be_used_is_5(path, tmp_path):
    (tmp_path / "moved.db").touch(0o600)
    (tmp_path / "moved.db").write_text("not a database, " * 100)
    done = command("copy", path, tmp_path / "moved.db")
    assert (done.code, done.out) == (5, "")
    assert (tmp_path / "moved.db").read_text().startswith("not a database")


@pytest.mark.slow
def test_how_far_it_is_is_shown_on_a_terminal_and_nowhere_else(tmp_path):
    fill(tmp_path / "agent.db")
    shown = on_terminal("copy", tmp_path / "agent.db", tmp_path / "moved.db", columns=100)
    assert shown.code == 0
    assert re.search(
        r"\r\[#+\.*\] +\d+ %, [\d,]+ of \d+ sessions, [\d,]+ of [\d,]+ entries", shown.out
    )
    assert DONE.search(shown.out.rpartition("\x1b[K")[2]), "the bar is gone when it is done"
    piped = process("copy", tmp_path / "agent.db", tmp_path / "piped.db")
    assert DONE.fullmatch(piped.err) and piped.out == ""
