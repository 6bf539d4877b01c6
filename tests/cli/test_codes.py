"""Exit codes: every error has one, the first help text lists them, and no error is a traceback."""

import re
import sqlite3
import subprocess
import sys

import pytest

import holdfast
from commanding import SOURCE, command, process, surroundings
from holdfast import errors
from holdfast.cli import codes
from holdfast.cli.command_table import COMMANDS, GROUPS
from tidy.faces import error_classes


def test_every_error_has_an_exit_code():
    assert set(codes.OF_ERROR) == set(error_classes(errors.HoldfastError))
    assert set(codes.OF_ERROR.values()) <= set(codes.MEANINGS)


def test_each_branch_of_the_tree_has_its_code():
    told = {kind.__name__: codes.code_of(kind()) for kind in codes.OF_ERROR}
    assert told["InvalidMessage"] == 2
    assert told["NotFound"] == told["CursorExpired"] == 3
    assert told["SessionBusy"] == told["Conflict"] == told["SessionEnded"] == 4
    assert told["StoreUnavailable"] == told["SchemaMismatch"] == told["Damaged"] == 5


@pytest.mark.parametrize("name", ["", *GROUPS, *COMMANDS])
def test_every_help_text_says_what_the_command_does_and_the_first_one_lists_the_codes(name):
    done = command(*name.split(), "--help", COLUMNS="80")
    assert (done.code, done.err) == (0, "")
    for code, meaning in codes.MEANINGS.items():
        assert bool(re.search(rf"^  {code} +{re.escape(meaning)}$", done.out, re.M)) == (name == "")
    assert done.out.startswith(f"usage: holdfast {name}".rstrip())
    assert max(map(len, done.out.splitlines())) <= 80
    if name in COMMANDS:
        assert "--json" in done.out


def test_the_first_help_names_every_command():
    for arguments in ((), ("--help",), ("-h",), ("help",)):
        out = command(*arguments).out
        assert all(
            re.search(rf"^  {word} +[A-Z]", out, re.M)
            for word in ("sessions", "store", "reset", "demo")
        )
    for group in GROUPS:
        names = {name.split()[1] for name in COMMANDS if name.startswith(f"{group} ")}
        assert names == set(re.findall(r"^  (\w+) +[A-Z]", command(group).out, re.M))


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("sesions",), "did you mean `holdfast sessions`?"),
        (("sessions", "lst"), "did you mean `holdfast sessions list`?"),
        (("list",), "did you mean `holdfast sessions list`?"),
        (("backup", "to.db"), "did you mean `holdfast store backup`?"),
        (("--stoer", "agent.db", "sessions", "list"), "did you mean `--store`?"),
        (("sessions", "list", "--stoer=agent.db"), "did you mean `--store`?"),
        (("sessions", "frobnicate"), "there are list, show,"),
        (("sessions", "--nope"), "no option `--nope`"),
        (("--nope",), "no option `--nope`"),
        (("sessions", "show"), "SESSION"),
        (("sessions", "list", "--limit", "0"), "1 or more"),
        (("sessions", "list", "--limit", "many"), "not a whole number"),
        (("sessions", "list", "--lim", "3"), "--lim"),
        (("sessions", "list", "--state", "asleep"), "asleep"),
        (("sessions", "list", "--after", "garbage"), "`next` of the page"),
        (("sessions", "search", "x", "--since", "yesterday-ish"), "is not a time"),
        (("sessions", "compact", "@latest"), "--summary"),
        (("sessions", "compact", "@latest", "--summary", "  "), "says nothing"),
        (("sessions", "compact", "@latest", "--summary-file", "no/such/file"), "No such file"),
        (("sessions", "rm"), "SESSION"),
        (("sessions", "rm", "--idle-days", "soon"), "not a number of days"),
        (("completion", "tcsh"), "tcsh"),
    ],
)
def test_a_wrong_command_line_is_2_and_one_sentence(world, arguments, said):
    done = command(*arguments, HOLDFAST_STORE=str(world.path))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("holdfast: ")
    assert done.err.count("\n") == 1
    assert said in done.err


@pytest.mark.parametrize("name", ["ffffffff", "%", "key:nobody", "日本"])
def test_a_session_that_is_not_there_is_3(world, name):
    done = command("sessions", "show", name, "--store", world.path)
    assert (done.code, done.out) == (3, "")


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_what_can_be_no_name_of_a_session_is_2(world, name):
    done = command("sessions", "show", name, "--store", world.path)
    assert (done.code, done.out) == (2, "")


def test_a_session_is_named_by_its_key_as_it_is(world):
    with holdfast.open(world.path) as store:
        key = next(each.key for each in store.sessions() if each.key)
    shown = command("sessions", "show", key, "--store", world.path)
    assert (shown.code, shown.out) == (
        0,
        command("sessions", "show", f"key:{key}", "--store", world.path).out,
    )


def test_a_message_that_is_not_there_is_3(world):
    for name in ("999", "2", "0fffffff", ""):  # 2 is an entry, but not a message
        done = command("sessions", "fork", world.table, "--at", name, "--store", world.path)
        assert (done.code, done.out) == (3, ""), name
        assert "There is no message" in done.err


def test_a_name_that_fits_several_is_3_and_lists_them(tmp_path):
    with holdfast.open(tmp_path / "s.db", durability="process") as store:
        ids = sorted(store.session(f"key {number}").id for number in range(17))
    first = next(id[0] for id in ids if sum(other[0] == id[0] for other in ids) > 1)
    done = command("sessions", "show", first, "--store", tmp_path / "s.db")
    assert done.code == 3
    fitting = [id for id in ids if id[0] == first]
    assert re.findall(r"^  (\S+)  key \d+$", done.err, re.M) == fitting
    assert command("sessions", "show", fitting[0][:13], "--store", tmp_path / "s.db").code == 0


def test_a_cursor_that_can_not_be_served_is_3(world):
    done = command("sessions", "tail", world.table, "--after", "garbage", "--store", world.path)
    assert (done.code, done.out) == (3, "")


def test_a_busy_or_ended_session_is_4(path):
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        message = next(session.transcript())
        with session.turn("busy"):
            for arguments in (
                ("rewind", "key:k", message.seq),
                ("compact", "key:k", "--summary", "x"),
            ):
                done = command("sessions", *arguments, "--yes", "--store", path)
                assert done.code == 4, done.err
                assert "is in turn" in done.err
        taken = command("sessions", "fork", "key:k", "--key", "k", "--store", path)
        session.end("over")
    assert taken.code == 4
    done = command("sessions", "rewind", "key:k", message.seq, "--yes", "--store", path)
    assert done.code == 4
    assert "has ended (over)" in done.err


def test_a_store_that_is_not_there_is_3_and_is_not_made(tmp_path):
    for name in COMMANDS:
        arguments = {
            "show": "x",
            "tail": "x",
            "fork": "x",
            "export": "x",
            "rm": "x",
            "search": "x",
            "backup": "to",
        }
        more = {"rewind": ("x", "1"), "compact": ("x", "--summary", "y"), "reset": ("x",)}
        word = name.split()[-1]
        served = ("serve", "token", "serve-openviking", "proxy", "record")
        elsewhere = ("copy", "demo", "completion", "doctor", "import", *served)
        if name in elsewhere or name.startswith("hermes "):
            continue
        given = more.get(word, (arguments[word],) if word in arguments else ())
        done = command(*name.split(), *given, "--store", tmp_path / "none.db")
        assert (done.code, done.out) == (3, ""), name
        assert "There is no store at" in done.err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    assert command("sessions", "list", "--store", tmp_path / "empty.db").code == 3
    assert (tmp_path / "empty.db").stat().st_size == 0


def test_a_store_that_can_not_be_used_is_5(tmp_path):
    for name in ("text", "theirs"):
        (tmp_path / f"{name}.db").touch(0o600)
    (tmp_path / "text.db").write_text("not a database, " * 100)
    with sqlite3.connect(tmp_path / "theirs.db") as theirs:
        theirs.execute("CREATE TABLE t (a)")
    theirs.close()
    holdfast.open(tmp_path / "newer.db").close()
    with sqlite3.connect(tmp_path / "newer.db") as newer:
        newer.execute("PRAGMA user_version = 9999")
    newer.close()
    for name in ("text", "theirs", "newer"):
        done = command("sessions", "list", "--store", tmp_path / f"{name}.db")
        assert (done.code, done.out) == (5, ""), (name, done)
        assert done.err.startswith("holdfast: The store at")
    assert command("sessions", "list", "--store", tmp_path).code == 5


def test_a_defect_is_70_and_a_sentence_with_the_way_to_see_more(world, monkeypatch):
    monkeypatch.setattr("holdfast.Store.get", lambda *_: {}["a defect"])
    done = command("sessions", "show", "x", "--store", world.path)
    assert done.code == 70
    assert (
        done.err
        == "holdfast: this is a defect (KeyError: 'a defect'); HOLDFAST_DEBUG=1 shows where.\n"
    )
    assert (
        "Traceback"
        in command("sessions", "show", "x", "--store", world.path, HOLDFAST_DEBUG="1").err
    )


def test_a_traceback_can_not_steer_the_terminal(world):
    """What an error quotes may be stored text (I-20)."""
    name = "x\x1b]0;owned\x07\x9b2J\u202e"
    done = command("sessions", "show", name, "--store", world.path, HOLDFAST_DEBUG="1")
    assert "Traceback" in done.err
    assert not set("\x1b\x07\x9b\u202e") & set(done.err)


@pytest.mark.slow
def test_an_error_of_the_world_is_a_sentence_unless_a_traceback_is_asked_for(tmp_path):
    done = process("sessions", "list", "--store", tmp_path / "none.db")
    assert (done.code, done.out) == (3, "")
    assert "Traceback" not in done.err
    assert (
        "Traceback"
        in process("sessions", "list", "--store", tmp_path / "none.db", HOLDFAST_DEBUG="1").err
    )


def test_output_that_can_not_be_written_is_5_and_a_sentence(world):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "holdfast.cli.main",
                "sessions",
                "show",
                world.table,
                "--store",
                str(world.path),
            ],
            env=surroundings(),
            cwd=SOURCE,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 5
    assert done.stderr == "holdfast: No space left on device: the output.\n"


def test_an_option_after_the_command_wins_over_one_before_it(tmp_path):
    for name in ("before", "after"):
        with holdfast.open(tmp_path / f"{name}.db", durability="process") as store:
            store.session(name)
    before, after = (str(tmp_path / f"{name}.db") for name in ("before", "after"))
    done = command("--store", before, "sessions", "list", "--store", after, "--json")
    assert [one["key"] for one in done.json["sessions"]] == ["after"]
    done = command("--store", before, "sessions", "list", "--json")
    assert [one["key"] for one in done.json["sessions"]] == ["before"]


@pytest.mark.parametrize("group", sorted(set(GROUPS) - {""}))
def test_an_empty_word_behind_a_group_is_a_mistake_and_no_defect(group):
    done = command(group, "")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"`holdfast {group}` has no command ``; there are" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("--store", "a.db", "copy", "a.db", "b.db"),
        ("copy", "a.db", "b.db", "--store=a.db"),
        ("doctor", "a.db", "--store", "a.db"),
        ("import", "a.db", "--store", "a.db"),
    ],
)
def test_a_store_that_is_named_for_a_command_without_the_option_is_told_by_its_option(words):
    done = command(*words)
    assert done.code == 2
    assert "has no option `--store`: its store is named" in done.err
