"""The command line on a store that a server has: what reads and changes sessions works as on a file, and what works
on the store itself says where to do it.
"""

from pathlib import Path

import pytest

import holdfast
from commanding import command, process
from holdfast.errors import StoreUnavailable
from remote_server import OPERATOR, READER, TOKEN, RemoteServers

SAID = "Book a table for two."


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The path of a store with a conversation, and the address of a server that has it."""
    path = tmp_path_factory.mktemp("http") / "agent.db"
    with (
        RemoteServers() as servers,
        holdfast.open(path, tenant="red", durability="process") as store,
    ):
        with store.session("dm:42").turn(SAID) as turn:
            list(turn.deliver(["Casa Lola ", "has one."]))
        yield path, servers.add(store._work)


def over(url, *words, token=READER, **more):
    return command(*words, "--store", url, HOLDFAST_TOKEN=token, **more)


READING = [
    ("sessions", "list"),
    ("sessions", "show", "@latest"),
    ("sessions", "show", "key:dm:42", "--json"),
    ("sessions", "search", "lola", "--role", "assistant"),
    ("sessions", "export", "dm:42", "--as", "markdown"),
    ("sessions", "export", "dm:42"),
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_what_reads_prints_the_same_as_on_the_file(served, words):
    path, url = served
    here = command(*words, "--store", path, "--tenant", "red")
    there = over(url, *words)
    assert there.code == here.code == 0, there.err
    assert there.out == here.out != ""


def test_a_session_is_followed_to_its_end(served):
    _, url = served
    with holdfast.open(url, token=TOKEN) as store:
        session = store.session("short")
        session.append("Hello.")
        session.end("over")
    told = over(url, "sessions", "tail", session.id)
    assert told.code == 0 and "Hello." in told.out


def test_what_changes_sessions_needs_a_token_that_may_write(served):
    _, url = served
    with holdfast.open(url, token=TOKEN) as store:
        store.session("changed").append("Hello.")
    words = ("reset", "changed", "--yes")
    assert over(url, *words, token=TOKEN).code == 0
    refused = over(url, *words)
    assert refused.code == 5 and "read-only" in refused.err


def test_the_operator_looks_after_the_store_from_afar(served):
    _, url = served
    checked = over(url, "store", "check", token=OPERATOR)
    assert (checked.code, checked.err) == (0, "No problems found.\n")
    info = over(url, "store", "info", "--json", token=OPERATOR).json
    assert info["where"] == url and info["sessions"] >= 1
    refused = over(url, "store", "check")
    assert refused.code == 5 and "does not allow" in refused.err


def test_the_environment_says_which_store_and_which_token(served):
    _, url = served
    done = process("sessions", "list", HOLDFAST_STORE=url, HOLDFAST_TOKEN=READER)
    assert done.code == 0 and "dm:42" in done.out


def test_without_a_token_it_is_said_where_to_put_it(served):
    _, url = served
    done = command("sessions", "list", "--store", url)
    assert done.code == 2 and "HOLDFAST_TOKEN" in done.err
    wrong = over(url, "sessions", "list", token="hf_wrong")
    assert wrong.code == 5 and "no such token" in wrong.err and "hf_wrong" not in wrong.err


ITSELF = [
    ("store", "backup", "to.db", "--store", "{}"),
    ("store", "vacuum", "--store", "{}"),
    ("store", "migrate", "--store", "{}"),
    ("copy", "{}", "to.db"),
    ("copy", "from.db", "{}"),
    ("serve", "{}"),
    ("serve-openviking", "{}"),
    ("proxy", "--upstream", "http://127.0.0.1:1", "{}"),
]


@pytest.mark.parametrize("words", ITSELF, ids=" ".join)
def test_what_works_on_the_store_itself_says_so(served, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    done = command(*(word.format(served[1]) for word in words), HOLDFAST_TOKEN=OPERATOR)
    assert done.code == 2 and "on the server's machine" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("doctor", "{}"), ("import", "{}", "--into", "to.db")])
def test_what_reads_files_says_that_this_is_none(served, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    done = command(*(word.format(served[1]) for word in words), HOLDFAST_TOKEN=OPERATOR)
    assert done.code == 2 and "is no file" in done.err


def test_a_copy_is_made_of_the_store_itself(served, tmp_path):
    for source, target in ((served[1], tmp_path / "to.db"), (served[0], served[1])):
        with pytest.raises(StoreUnavailable, match="on the server's machine"):
            holdfast.copy(source, target)
    assert list(tmp_path.iterdir()) == []


def test_other_stores_are_imported_into_a_servers(served, tmp_path):
    _, url = served
    sample = Path(__file__).parents[1] / "samples" / "claude-2.1.325" / "rewind"
    done = command("import", sample, "--into", url, HOLDFAST_TOKEN=TOKEN)
    assert done.code == 0 and "1 new session" in done.out
    # What a store has kept is laid down as it was: that is the operator's.
    with holdfast.open(tmp_path / "other.db") as store:
        store.session("exported").append("Hello.")
    file = tmp_path / "exported.json"
    assert (
        command(
            "sessions", "export", "exported", "--store", tmp_path / "other.db", "--out", file
        ).code
        == 0
    )
    words = ("import", file, "--into", url, "--tenant", "red")
    refused = command(*words, HOLDFAST_TOKEN=TOKEN)
    assert refused.code == 5 and "operator" in refused.err
    assert command(*words, HOLDFAST_TOKEN=OPERATOR).code == 0
    assert "Hello." in over(url, "sessions", "show", "exported").out
