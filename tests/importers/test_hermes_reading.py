"""Hermes stores, read: what their sessions said, in order, once each, and nothing of the original
is touched.
"""

import os
import shutil
import sqlite3
import sys
from pathlib import Path

import msgspec
import pytest

import holdfast
from hermes_stores import DAMAGE, HEALTHY, KEY, SUMMARY, Book, compacted, damaged, healthy, plain
from holdfast.errors import StoreUnavailable
from holdfast.importers.foreign_session import ForeignMessage, ForeignSession, Summary
from holdfast.importers.hermes.reader import HermesReader, recognises
from holdfast.testing.providers import check


def read(path: Path) -> dict[str, ForeignSession]:
    """The stories of a store, their lines held."""
    shelf = HermesReader(path)
    try:
        return {story.id: _held(story) for story in shelf.sessions()}
    finally:
        shelf.close()


def _held(story: ForeignSession) -> ForeignSession:
    return msgspec.structs.replace(story, lines=list(story.lines))


def texts(story: ForeignSession) -> list[str]:
    return [
        line.text if isinstance(line, Summary) else str(line.payload["content"])
        for line in story.lines
    ]


def traces(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """All that reading could leave: names, bytes and times."""
    found = {}
    for path in sorted(folder.iterdir()):
        stamp = path.stat()
        found[path.name] = (path.read_bytes(), stamp.st_mtime_ns, stamp.st_size)
    return found


def test_a_store_is_known_by_its_tables_and_not_by_its_name(tmp_path):
    store = healthy(tmp_path / "notes.txt")
    assert recognises(store)
    other = tmp_path / "state.db"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, content_json TEXT)")
    database.commit()
    database.close()
    text = tmp_path / "text.db"
    text.write_text("messages, sessions, gateway_routing")
    assert not any(recognises(path) for path in (other, text, tmp_path, tmp_path / "nowhere"))


def test_a_session_is_told_in_the_order_of_its_rows(tmp_path):
    story = read(healthy(tmp_path / "state.db"))["plain"]
    assert texts(story)[:3] == [
        "Which berth is free tonight?",
        "Berth 4 is free until noon.",
        "Thanks.",
    ]
    assert [line.role for line in story.lines] == ["user", "assistant"] * 4
    assert story.instructions == "You keep the harbour book." and story.title == "plain"
    assert story.lines[1].model == "lantern-1" and story.lines[1].at > story.lines[0].at
    assert story.facts["source"] == "cli" and story.ended is None


def test_a_branch_begins_behind_what_it_shares_with_its_parent(tmp_path):
    stories = read(healthy(tmp_path / "state.db"))
    branch, trunk = stories["branch"], stories["trunk"]
    assert (branch.parent, branch.lineage) == ("trunk", "branch")
    assert branch.parent_origin == trunk.lines[-1].origin
    assert texts(branch) == ["And for a boat of 15 metres?", "Only the outer mole, berth 12."]
    assert list(stories).index("trunk") < list(stories).index("branch")


def test_a_compaction_in_place_is_a_summary_that_keeps_the_originals(tmp_path):
    story = read(healthy(tmp_path / "state.db"))["compacted"]
    names = {text: line.origin for text, line in zip(texts(story), story.lines, strict=True)}
    (summary,) = [line for line in story.lines if isinstance(line, Summary)]
    kept = [
        "Log the ferry at 9.",
        "Log the yacht at 11.",
        "Logged, no pilot.",
        "Log the barge at 12. \n",
    ]
    assert summary.text == SUMMARY
    assert summary.keeps == tuple(names[text] for text in (*kept, "Logged, two hands."))
    assert texts(story)[-3:] == [SUMMARY, "How many so far?", "Four."]
    assert len(story.lines) == 12


def test_a_rotation_continues_its_parent_with_a_summary_and_no_copies(tmp_path):
    stories = read(healthy(tmp_path / "state.db"))
    before, after = stories["before"], stories["after"]
    assert (after.parent, after.lineage, after.parent_origin) == ("before", "continues", None)
    assert texts(after) == [
        SUMMARY,
        "Merle and Otter.",
        "Send them a note.",
        "Both notes are in the outbox.",
    ]
    origins = [line.origin for line in before.lines]
    assert after.lines[0].keeps == (origins[0], *origins[4:])
    assert (before.ended, before.current, after.current) == ("compression", False, True)


def test_every_generation_of_a_compaction_keeps_originals(tmp_path):
    story = read(damaged(tmp_path / "state.db", "repeated_tail"))["compacted"]
    first, second = (line for line in story.lines if isinstance(line, Summary))
    names = {text: line.origin for text, line in zip(texts(story), story.lines, strict=True)}
    assert second.keeps[:2] == first.keeps[-2:]
    assert second.keeps[2:] == (names["How many so far?"], names["Four."])
    assert len(set(texts(story))) == len(texts(story)) - 1  # 'Logged.' was said twice


def test_what_was_taken_back_and_what_nobody_said_is_kept_and_hidden(tmp_path):
    stories = read(healthy(tmp_path / "state.db"))
    back = [line for line in stories["undone"].lines if line.labels]
    assert [line.payload["content"] for line in back] == [
        "Name it after the mayor.",
        "Done, buoy 17 is the mayor.",
    ]
    assert all(line.labels == {"visible_to_model": False, "taken_back": True} for line in back)
    (meta,) = [line for line in stories["first"].lines if line.role == "system"]
    assert meta.labels == {"visible_to_model": False, "session_meta": True}
    assert meta.payload["_hermes"]["role"] == "session_meta"
    assert [line.labels for line in stories["group"].lines][:2] == [{"observed": True}] * 2


def test_routes_give_the_key_and_which_session_it_means(tmp_path):
    stories = read(healthy(tmp_path / "state.db"))
    assert stories["compacted"].key == KEY and stories["compacted"].current
    assert not stories["first"].current and stories["second"].current
    assert stories["plain"].key is None


def test_nothing_of_a_row_is_lost(tmp_path):
    book = Book(tmp_path / "state.db")
    name = book.session("one")
    columns = {
        "reasoning": "Look.",
        "reasoning_details": '[{"text": "Look."}]',
        "api_content": "exact",
        "token_count": 7,
    }
    row = book.say(name, "assistant", "Berth 4.", **columns)
    (line,) = read(book.close())["one"].lines
    assert line.payload["content"] == "Berth 4." and line.payload["reasoning"] == "Look."
    kept = {
        "id": row,
        "token_count": 7,
        "api_content": "exact",
        "reasoning_details": '[{"text": "Look."}]',
    }
    assert kept.items() <= line.payload["_hermes"].items()
    assert line.payload["_hermes"]["finish_reason"] == "stop"


@pytest.mark.slow
def test_contexts_made_of_any_store_are_valid_in_every_format(tmp_path):
    paths = [
        healthy(tmp_path / "healthy.db"),
        *(damaged(tmp_path / f"{name}.db", name) for name in DAMAGE),
    ]
    with holdfast.open(tmp_path / "own.db", durability="process") as store:
        for path in paths:
            for story in read(path).values():
                if story.id == "plain" and path.name != "healthy.db":
                    continue
                session = store.session(f"{path.name} {story.id}")
                for line in story.lines:
                    if isinstance(line, ForeignMessage) and line.labels.get(
                        "visible_to_model", True
                    ):
                        session.append(line.payload, format=line.format)
                for format in ("openai.chat", "openai.responses", "anthropic"):
                    assert check(format, list(session.context(format))) == []


def test_the_original_keeps_its_bytes_its_times_and_its_neighbours(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    path = healthy(folder / "state.db")
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('plain', 'user', "
        "'New.', 2e9)"
    )
    writer.commit()
    os.utime(path, ns=(10**18, 10**18))
    before = traces(folder)
    accessed = path.stat().st_atime_ns
    assert recognises(path)
    assert path.stat().st_atime_ns == accessed or sys.platform != "linux"
    assert texts(read(path)["plain"])[-1] == "New."
    assert path.stat().st_atime_ns == accessed or sys.platform != "linux"
    assert traces(folder) == before
    writer.close()


def test_a_line_has_the_same_origin_however_much_the_store_grows(tmp_path):
    book = Book(tmp_path / "state.db")
    rows = compacted(book)
    small = read(Path(shutil.copy(_committed(book), tmp_path / "small.db")))["compacted"]
    more = book.turn("compacted", "And the tug?", "Logged too.")
    book.compact("compacted", [], [rows[-1], *more], "[CONTEXT COMPACTION] More.")
    grown = read(book.close())["compacted"]
    assert [line.origin for line in grown.lines][: len(small.lines)] == [
        line.origin for line in small.lines
    ]
    assert texts(grown)[len(small.lines) :] == [
        "And the tug?",
        "Logged too.",
        "[CONTEXT COMPACTION] More.",
    ]


def _committed(book: Book) -> Path:
    book.db.commit()
    return book.path


def test_lines_can_be_gone_through_again(tmp_path):
    shelf = HermesReader(healthy(tmp_path / "state.db"))
    for story in shelf.sessions():
        assert list(story.lines) == list(story.lines)
    assert [story.id for story in shelf.sessions("after")] == ["after"]
    shelf.close()


@pytest.mark.parametrize("schema", [18, 19, 20, 21])
def test_older_schemas_are_read_by_the_columns_they_have(tmp_path, schema):
    book = Book(tmp_path / "state.db", schema=schema)
    makes = [
        make
        for make in HEALTHY
        if schema >= 20 or make.__name__ in ("plain", "branch", "tools", "undone")
    ]
    for make in makes:
        make(book)
    stories = read(book.close())
    assert texts(stories["plain"])[0] == "Which berth is free tonight?"
    assert stories["undone"].lines[2].labels["taken_back"]


def test_a_bad_record_stops_nothing_else(tmp_path):
    shelf = HermesReader(damaged(tmp_path / "state.db", "unreadable_record"))
    told = {story.id: texts(story) for story in shelf.sessions()}
    assert told["sick"] == ["Is the crane free?", "Yes.", "And the slip?", "All day."]
    (problem,) = shelf.unreadable()
    assert (problem.session, problem.place) == ("sick", "messages.id=11")
    assert b"bytes" in problem.raw
    shelf.close()


def test_a_damaged_page_costs_the_rows_on_it_and_no_others(tmp_path):
    book = Book(tmp_path / "state.db")
    name = book.session("long")
    for number in range(400):
        book.say(
            name, "user" if number % 2 == 0 else "assistant", f"Line {number}. " + "word " * 40
        )
    path = book.close()
    data = bytearray(path.read_bytes())
    place = data.index(b"Line 200. word")
    page = place // 4096 * 4096
    data[page : page + 100] = b"\xff" * 100
    path.write_bytes(data)
    shelf = HermesReader(path)
    (story,) = shelf.sessions()
    told = texts(story)
    assert (
        350 < len(told) < 400 and told[0].startswith("Line 0.") and told[-1].startswith("Line 399.")
    )
    assert not any(text.startswith("Line 200.") for text in told)
    assert [
        problem.place for problem in shelf.unreadable() if problem.place.startswith("messages, row")
    ]
    shelf.close()


def test_a_row_that_is_too_large_is_told_and_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.importers.sqlite_file.ROW_BYTES_MAX", 1 << 20)
    book = Book(tmp_path / "state.db")
    plain(book)
    book.say("plain", "user", "x" * (2 << 20))
    shelf = HermesReader(book.close())
    (story,) = shelf.sessions()
    assert len(list(story.lines)) == 8
    assert "larger than" in shelf.unreadable()[0].problem
    shelf.close()


def test_a_file_that_is_no_store_is_an_error_that_says_so(tmp_path):
    (tmp_path / "state.db").write_bytes(b"SQLite format 3\x00" + b"?" * 4000)
    with pytest.raises(StoreUnavailable, match="state.db"):
        HermesReader(tmp_path / "state.db")
