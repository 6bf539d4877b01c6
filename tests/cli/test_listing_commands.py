"""`holdfast sessions list` and `search`: what is found, page by page, and what looking leaves
alone.
"""

import re
import shlex

import pytest

import holdfast
from commanding import command, on_terminal
from holdfast.exporters.safe_text import cells
from looking import raw_entries
from thorough import few_cases
from worlds import HandWorld


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Twelve sessions, begun a minute apart; most of them were reset."""
    path = tmp_path_factory.mktemp("many") / "many.db"
    world = HandWorld()
    with holdfast.open(path, durability="process", world=world) as store:
        ids = []
        for number in range(12):
            world.advance(minutes=1)
            session = store.reset("odd 7" if number == 7 else f"key:{number % 3}")
            with session.turn(f"Question {number} about tables") as turn:
                turn.say(f"Answer {number}, " + "with many words " * 8)
            ids.append(session.id)
    return path, ids


def test_sessions_are_listed_newest_activity_first(many):
    path, ids = many
    told = command("sessions", "list", "--store", path, "--json").json
    with holdfast.open(path) as store:
        assert [session["id"] for session in told["sessions"]] == [
            session.id for session in store.sessions()
        ]
    assert told["sessions"][0]["id"] == ids[-1]
    assert told["next"] is None
    assert set(told["sessions"][0]) == {
        "id", "key", "epoch", "tenant", "state", "title", "head", "opened_at", "active_at"
    }  # fmt: skip


def test_the_pages_together_are_the_whole_list_and_the_next_line_is_told(many):
    path, _ = many
    whole = [
        session["id"]
        for session in command("sessions", "list", "--store", path, "--json").json["sessions"]
    ]
    words, seen, pages = (
        ["holdfast", "sessions", "list", "--store", str(path), "--limit", "2"],
        [],
        0,
    )
    while words:
        done = command(*words[1:])
        seen += re.findall(r"^([0-9a-f]{8})  ", done.out, re.M)
        line = re.fullmatch(r"More: (.*)\n", done.err)
        words = shlex.split(line[1]) if line else []
        pages += 1
    assert seen == [id[:8] for id in whole]
    assert pages == (len(whole) + 1) // 2


def test_the_line_for_the_next_page_keeps_the_filters(many):
    path, _ = many
    done = command(
        "sessions", "list", "--store", path, "--key", "key:0", "--limit", "1", "--state", "ended"
    )
    assert (
        f"holdfast sessions list --store {path} --key=key:0 --state=ended --limit=1 --after="
        in done.err
    )


def test_a_list_can_be_filtered(many):
    path, _ = many

    def keys(*filters: str) -> set[str]:
        told = command("sessions", "list", "--store", path, "--json", *filters).json
        return {session["key"] for session in told["sessions"]}

    assert keys("--key", "key:1") == {"key:1"}
    assert keys("--state", "ended") == {"key:0", "key:1", "key:2"}
    assert keys("--state", "running") == set()
    assert keys("--text", "Question 7") == {"odd 7"}


def test_another_tenants_sessions_are_not_there(world):
    """I-19."""
    ours = command("sessions", "list", "--store", world.path, "--json").json
    theirs = command("sessions", "list", "--store", world.path, "--json", "--tenant", "acme").json
    assert world.other not in {session["id"] for session in ours["sessions"]}
    assert [session["id"] for session in theirs["sessions"]] == [world.other]
    assert command("sessions", "show", world.other, "--store", world.path).code == 3
    assert (
        command("sessions", "show", world.other, "--store", world.path, "--tenant", "acme").code
        == 0
    )


def test_the_latest_is_the_one_with_the_newest_activity(path):
    """FAULTS C6: a session that was opened earlier and spoken in later."""
    with holdfast.open(path, durability="process") as store:
        store.session("younger")
        with store.session("k").turn("Again.") as turn:
            turn.say("Here.")
        expected = store.session("k").id
    told = command("sessions", "show", "@latest", "--store", path, "--json").json
    assert told["session"]["id"] == expected


def test_options_of_the_store_may_stand_before_the_command(world):
    told = command("--store", world.path, "--json", "--tenant=acme", "sessions", "list").json
    assert [session["id"] for session in told["sessions"]] == [world.other]


def test_the_store_is_named_by_option_then_environment_then_folder(world, tmp_path, monkeypatch):
    monkeypatch.chdir(world.path.parent)
    assert "holdfast.db" in command("sessions", "list").err
    assert command("sessions", "list", HOLDFAST_STORE="agent.db").code == 0
    assert (
        command("sessions", "list", "--store", tmp_path / "no.db", HOLDFAST_STORE="agent.db").code
        == 3
    )
    assert command("sessions", "list", "--store", f"sqlite:///{world.path}").code == 0


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("columns", [70, 80, 120])
def test_a_list_keeps_to_the_terminal(many, columns):
    path, _ = many
    out = on_terminal("sessions", "list", "--store", path, columns=columns, NO_COLOR="1").out
    assert len(out.splitlines()) == 13
    assert max(map(cells, out.splitlines())) <= columns
    assert out.splitlines()[0].split() == [
        "ID",
        "KEY",
        "EPOCH",
        "STATE",
        "ENTRIES",
        "ACTIVE",
        "TITLE",
    ]


def test_nothing_to_list_is_said_and_is_no_error(tmp_path):
    holdfast.open(tmp_path / "new.db").close()
    done = command("sessions", "list", "--store", tmp_path / "new.db")
    assert (done.code, done.out, done.err) == (0, "", "No sessions yet.\n")
    assert command("sessions", "list", "--store", tmp_path / "new.db", "--json").json == {
        "sessions": [],
        "next": None,
    }
    assert command("sessions", "show", "@latest", "--store", tmp_path / "new.db").code == 3


def test_words_are_found_with_their_place(many):
    path, ids = many
    done = command("sessions", "search", "Question 5", "--store", path)
    assert re.search(rf"^{ids[5][:8]}  key:2  \d+ user  20\d\d-", done.out, re.M)
    assert "Question 5 about tables" in done.out
    (hit,) = command(
        "sessions", "search", "Question 5", "--store", path, "--json", "--role", "user"
    ).json["hits"]
    assert (hit["session_id"], hit["role"]) == (ids[5], "user")
    assert hit["snippet"][slice(*hit["marks"][0])].lower() in "question 5"


def test_a_search_can_be_filtered(many, world):
    path, ids = many

    def found(*filters: object) -> list[str]:
        told = command("sessions", "search", *filters, "--store", path, "--json").json
        return [hit["session_id"] for hit in told["hits"]]

    assert set(found("tables", "--key", "odd 7")) == {ids[7]}
    assert set(found("tables", "--session", ids[4][:8])) == {ids[4]}
    assert len(found("tables", "--limit", "3")) == 3
    assert found("tables", "--state", "running") == []
    assert found("tables", "--since", "1h") == []
    assert found("tables", "--until", "2000-01-01") == []
    assert len(found("tables", "--since", "2020-01-01", "--until", "1m", "--role", "user")) == 12
    calls = command(
        "sessions", "search", "Lola", "--tool", "find_table", "--store", world.path, "--json"
    ).json["hits"]
    assert calls


def test_nothing_found_is_said_and_is_no_error(world):
    done = command("sessions", "search", "zebra", "--store", world.path)
    assert (done.code, done.out, done.err) == (0, "", "No matches.\n")
    assert command("sessions", "search", "zebra", "--store", world.path, "--json").json == {
        "hits": []
    }


def test_looking_changes_no_log(world):
    """I-18: not even the session of a key that has ended is replaced."""

    def logs():
        with holdfast.open(world.path) as store:
            return {
                id: raw_entries(store, id) for id in (world.table, world.long, world.fork)
            }, len(store.sessions())

    before = logs()
    for arguments in (
        ("list",),
        ("show", "key:cli:fork"),
        ("tail", "key:cli:fork"),
        ("search", "Question"),
        ("export", "key:cli:fork"),
        ("export", world.table, "--as", "anthropic"),
        ("export", world.table, "--as", "markdown"),
        ("rewind", world.long, "2"),
        ("compact", world.long, "--summary", "x", "--keep-turns", "0"),
        ("rm", world.fork),
    ):
        assert command("sessions", *arguments, "--store", world.path).code in (0, 1)
    assert command("reset", "cli:ada", "--store", world.path).code == 1
    assert logs() == before
