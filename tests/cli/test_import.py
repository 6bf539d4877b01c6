"""`holdfast import` and `holdfast export`: sessions come over from other programs, and go out to
them.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import goose_stores
import hermes_stores
import holdfast
import item_stores
import openviking_stores
from commanding import command, on_terminal


@pytest.fixture
def goose(tmp_path: Path) -> Path:
    return goose_stores.built(tmp_path / "sessions.db", *goose_stores.HEALTHY)


def test_importing_tells_what_came_and_importing_again_adds_nothing(
    goose: Path, tmp_path: Path
) -> None:
    into = tmp_path / "agent.db"
    first = command("import", goose, "--into", into, "--json")
    assert first.code == 0
    [store] = first.json["stores"]
    assert (
        store["kind"] == "goose"
        and store["new"] == store["sessions"] - store["empty"]
        and store["messages"] > 10
    )
    [again] = command("import", goose, "--into", into, "--json").json["stores"]
    assert (again["new"], again["grown"], again["messages"], again["labels"]) == (0, 0, 0, 0)


def test_importing_a_grown_store_adds_what_is_new(tmp_path: Path) -> None:
    path, into = tmp_path / "state.db", tmp_path / "agent.db"
    book = hermes_stores.Book(path)
    hermes_stores.plain(book)
    book.close()
    command("import", path, "--into", into)
    with holdfast.open(into) as store:
        before = [
            message.text for each in store.sessions() for message in store.get(each.id).transcript()
        ]
    columns = "session_id, role, content, timestamp"
    with closing(sqlite3.connect(path)) as hermes, hermes:
        hermes.execute(
            f"INSERT INTO messages ({columns}) VALUES ('plain', 'user', 'And tomorrow?', "
            "1789999999)"
        )
    [store_told] = command("import", path, "--into", into, "--json").json["stores"]
    assert (store_told["new"], store_told["grown"], store_told["messages"]) == (0, 1, 1)
    with holdfast.open(into) as store:
        after = [
            message.text for each in store.sessions() for message in store.get(each.id).transcript()
        ]
    assert after == [*before, "And tomorrow?"]


def test_a_session_that_goose_has_compacted_since_is_the_same_session(tmp_path: Path) -> None:
    """goose notes beside each message who may see it, and changes that; the words are the same
    ones.
    """
    path, into = (
        goose_stores.built(tmp_path / "sessions.db", goose_stores.three_calls),
        tmp_path / "agent.db",
    )
    command("import", path, "--into", into)
    with closing(sqlite3.connect(path)) as goose, goose:
        goose.execute(
            "UPDATE messages SET metadata_json = json_set(metadata_json, '$.agentVisible', "
            "json('false'))"
        )
    [told] = command("import", path, "--into", into, "--json").json["stores"]
    assert (told["new"], told["messages"]) == (0, 0) and told["labels"] > 0
    with holdfast.open(into) as store:
        [one] = store.sessions()
        assert store.get(one.id).context() == [] and list(store.get(one.id).transcript())


@pytest.mark.parametrize("into_a_child", [False, True])
def test_a_session_that_hermes_has_compacted_since_tells_each_message_once(
    tmp_path: Path, into_a_child: bool
) -> None:
    """I-11: copies are folded, the summary is a compaction, and a rotation goes on from what is
    here.
    """
    path, into = tmp_path / "state.db", tmp_path / "agent.db"
    book = hermes_stores.Book(path)
    name = book.session("one", source="telegram", session_key=hermes_stores.KEY)
    book.route(hermes_stores.KEY, name)
    rows = [
        row
        for number in range(4)
        for row in book.turn(name, f"Question {number}?", f"Answer {number}.")
    ]
    book.db.commit()
    command("import", path, "--into", into)
    child = book.session("two", source="telegram", parent_session_id=name) if into_a_child else ""
    book.compact(name, rows[:1], rows[6:], into=child)
    book.turn(child or name, "And now?", "Now this.")
    book.close()
    [told] = command("import", path, "--into", into, "--json").json["stores"]
    assert (told["new"], told["messages"], told["summaries"]) == (int(into_a_child), 2, 1)
    with holdfast.open(into) as store:
        newest = next(store.get(each.id) for each in store.sessions())
        texts = [message.text for message in newest.transcript()]
        shown = [message["content"] for message in newest.context()]
    asked = [text for number in range(4) for text in (f"Question {number}?", f"Answer {number}.")]
    assert texts == [*asked, "And now?", "Now this."]
    assert shown[-2:] == ["And now?", "Now this."] and not any(
        "Answer 1." in text for text in shown
    )


def test_a_session_that_openviking_has_committed_since_is_the_same_session(tmp_path: Path) -> None:
    folder, into = openviking_stores.Session(tmp_path / "sessions", "s"), tmp_path / "agent.db"
    folder.live(openviking_stores.messages(1, 4))
    command("import", tmp_path / "sessions", "--into", into)
    shutil.rmtree(tmp_path / "sessions")
    folder = openviking_stores.Session(tmp_path / "sessions", "s")
    folder.archive(
        1, openviking_stores.messages(1, 4), done=openviking_stores.done(1, 4), overview="What was."
    )
    folder.live(openviking_stores.messages(5, 6), total=6, commits=1)
    [told] = command("import", tmp_path / "sessions", "--into", into, "--json").json["stores"]
    assert (told["new"], told["messages"], told["summaries"]) == (0, 2, 1)


@pytest.mark.slow
def test_progress_is_shown_to_somebody_who_watches(goose: Path, tmp_path: Path) -> None:
    done = on_terminal("import", goose, "--into", tmp_path / "agent.db", columns=100)
    assert done.code == 0 and "100 %" in done.out


def test_what_is_no_store_is_not_imported_and_no_store_is_made(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    done = command("import", tmp_path / "notes.txt", "--into", tmp_path / "agent.db")
    assert done.code == 3 and not (tmp_path / "agent.db").exists()


def test_an_imported_session_goes_on_in_holdfast(goose: Path, tmp_path: Path) -> None:
    into = tmp_path / "agent.db"
    command("import", goose, "--into", into)
    with holdfast.open(into) as store:
        for each in store.sessions():
            with store.get(each.id).turn("And now?") as turn:
                assert turn.context("openai.chat")
                turn.say("Now this.")


def test_a_session_goes_to_goose_and_back(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "k.json"
    assert command("export", "key:k", "--as", "goose-json", "--out", out, "--store", path).code == 0
    assert command("doctor", out).code == 0, command("doctor", out).out
    told = json.loads(out.read_text())
    assert told["message_count"] == len(told["conversation"]) == 6
    command("import", out, "--into", tmp_path / "new.db")
    with holdfast.open(path) as old, holdfast.open(tmp_path / "new.db") as new:
        [one] = new.sessions()
        texts = [message.text for message in new.get(one.id).transcript()]
        assert texts == [message.text for message in old.session("k").transcript()]


def test_what_the_model_no_longer_sees_goes_to_goose_for_readers_alone(
    path: Path, tmp_path: Path
) -> None:
    with holdfast.open(path) as store:
        store.session("k").compact("what was", keep_turns=1)
    done = command("export", "key:k", "--as", "goose-json", "--store", path).json
    flags = [
        (message["metadata"]["userVisible"], message["metadata"]["agentVisible"])
        for message in done["conversation"]
    ]
    assert flags == [(True, False)] * 4 + [(False, True)] + [(True, True)] * 2


def test_a_page_is_for_reading_and_runs_nothing(path: Path) -> None:
    """I-20."""
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e</pre>"
    with holdfast.open(path) as store:
        store.session("k").append(hostile)
    page = command("export", "key:k", "--as", "html", "--store", path).out
    assert "<script>" not in page and "<img" not in page and "\u202e" not in page
    assert "&lt;script&gt;" in page and "default-src 'none'" in page
    assert page.count("<pre>") == page.count("</pre>") and "Answer 2." in page


def said(store: holdfast.Store) -> list[list[str]]:
    return sorted(
        [message.text for message in store.get(each.id).transcript()] for each in store.sessions()
    )


def test_stores_of_two_people_who_are_both_called_user_1_stay_apart(tmp_path: Path) -> None:
    into, names = tmp_path / "agent.db", ("ann", "bob")
    for name in names:
        (tmp_path / name).mkdir()
        goose_stores.built(tmp_path / name / "sessions.db", goose_stores.three_calls)
        [told] = command("import", tmp_path / name / "sessions.db", "--into", into, "--json").json[
            "stores"
        ]
        assert told["new"] == told["sessions"]
    with holdfast.open(into) as store:
        one, other = said(store)
        assert one == other and one


def test_a_store_that_has_moved_is_declared_to_be_the_same(goose: Path, tmp_path: Path) -> None:
    into, moved = tmp_path / "agent.db", tmp_path / "elsewhere.db"
    command("import", goose, "--into", into)
    goose.rename(moved)
    [told] = command("import", moved, "--into", into, "--same-as", goose, "--json").json["stores"]
    assert (told["new"], told["messages"]) == (0, 0)
    assert command("import", moved, moved, "--into", into, "--same-as", goose).code == 2


def agents_store(path: Path) -> Path:
    item_stores.Agents.write(path, item_stores.Agents.records())
    return path


def openviking_store(path: Path) -> Path:
    openviking_stores.Session(path, "s").live(openviking_stores.messages(1, 4))
    return path


def goose_store(path: Path) -> Path:
    return goose_stores.built(path, *goose_stores.HEALTHY)


@pytest.mark.parametrize("make", [goose_store, agents_store, openviking_store])
def test_a_store_that_has_moved_and_is_not_declared_is_told_of(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    """It comes in again, since another store may call its sessions alike, and somebody is told what
    to do instead.
    """
    path, moved, into = make(tmp_path / "one"), tmp_path / "two", tmp_path / "agent.db"
    [first] = command("import", path, "--into", into, "--json").json["stores"]
    assert first["notes"] == []
    path.rename(moved)
    done = command("import", moved, "--into", into)
    assert done.code == 0 and done.err.count("--same-as") == 1
    with holdfast.open(into) as store:
        before = {each.id for each in store.sessions(limit=500)}
    assert len(before) == 2 * first["new"]
    [told] = command("import", moved, "--into", into, "--same-as", path, "--json").json["stores"]
    assert (told["new"], told["notes"]) == (0, [])


def test_a_store_that_only_looks_alike_is_not_told_of(tmp_path: Path) -> None:
    """The same ids, and other words."""
    into = tmp_path / "agent.db"
    for name in ("one", "two"):
        session = openviking_stores.Session(tmp_path / name, "s")
        said = [{"type": "text", "text": f"This is {name}."}]
        session.live([{**each, "parts": said} for each in openviking_stores.messages(1, 2)])
        [told] = command("import", tmp_path / name, "--into", into, "--json").json["stores"]
        assert (told["new"], told["notes"]) == (1, [])


def test_what_an_exported_session_owed_is_owed_again_only_if_that_is_asked_for(
    tmp_path: Path,
) -> None:
    with holdfast.open(tmp_path / "old.db") as store:
        with store.turn("k", "Hi", reply_to="ann") as turn:
            turn.say("Hello.")
    written = tmp_path / "k.jsonl"
    exported = (
        "export",
        "key:k",
        "--as",
        "holdfast",
        "--out",
        written,
        "--store",
        tmp_path / "old.db",
    )
    assert command(*exported).code == 0
    for more, owed in (((), 0), (("--with-outbox",), 1)):
        into = tmp_path / f"new{owed}.db"
        assert command("import", written, "--into", into, *more).code == 0
        with holdfast.open(into) as store:
            assert len(store.outbox()) == owed


def exported(path: Path, out: Path) -> Path:
    assert command("export", "key:k", "--as", "holdfast", "--out", out, "--store", path).code == 0
    return out


@pytest.mark.parametrize(
    "damage", ["an entry that is cut", "an entry that is gone", "a cut header", "an odd id"]
)
def test_the_advice_for_a_damaged_export_is_true(path: Path, tmp_path: Path, damage: str) -> None:
    """What it says leads on: the file is taken from elsewhere, or written again; the doctor heals
    no exports.
    """
    file, into = exported(path, tmp_path / "k.jsonl"), tmp_path / "new.db"
    lines = file.read_bytes().splitlines(keepends=True)
    if damage == "an entry that is cut":
        lines[-1] = lines[-1][:-20]
    elif damage == "an entry that is gone":
        del lines[2]
    elif damage == "a cut header":
        lines[0] = lines[0][:40] + b"\n"
    else:
        lines[0] = lines[0].replace(b'"id":"', b'"id":"../', 1)
    file.write_bytes(b"".join(lines))
    done = command("import", file, "--into", into)
    assert done.code == 5 and "holdfast doctor" not in done.err, done.err
    assert "is damaged" in done.err and "write it again with `holdfast export`" in done.err
    with holdfast.open(into) as store:
        assert list(store.sessions()) == []
    assert "`holdfast import` vets all of it" in command("doctor", file).out
    file.unlink()
    assert command("import", exported(path, file), "--into", into).code == 0


def test_an_export_of_a_later_release_says_so(path: Path, tmp_path: Path) -> None:
    file = exported(path, tmp_path / "k.jsonl")
    file.write_bytes(file.read_bytes().replace(b'{"holdfast":1,', b'{"holdfast":2,', 1))
    done = command("import", file, "--into", tmp_path / "new.db")
    assert done.code == 5 and "Update Holdfast" in done.err


def test_the_address_of_a_database_is_pointed_to_the_command_that_copies_it(tmp_path: Path) -> None:
    done = command(
        "import", "postgresql://ann:secret@127.0.0.1/agents", "--into", tmp_path / "new.db"
    )
    assert done.code == 2 and "`holdfast copy`" in done.err and "secret" not in done.err


def test_sessions_of_claude_code_and_of_its_subagents_are_known_wherever_they_lie(
    tmp_path: Path,
) -> None:
    """What a subagent is called is drawn within its session: a copy of the folder brings nothing
    new.
    """
    real = Path(__file__).parents[1] / "samples" / "claude-2.1.325" / "sub-agents"
    into = tmp_path / "agent.db"
    for name in ("one", "two"):
        shutil.copytree(real, tmp_path / name)
    counts = []
    for name in ("one", "two"):
        told = command("import", tmp_path / name, "--into", into, "--json").json["stores"]
        assert len([store for store in told if "subagents" in store["path"]]) == 2
        counts.append([sum(store[what] for store in told) for what in ("new", "messages")])
    assert counts[0][0] >= 3 and counts[1] == [0, 0]
