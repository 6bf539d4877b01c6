"""goose's stores are read as they are: every release, every shape, every row, and nothing of the
original changes.
"""

import json
import os
import tracemalloc
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from commanding import command
from goose_stores import (
    DAMAGED,
    HEALTHY,
    START,
    GooseStore,
    built,
    export,
    legacy_lines,
    one_call,
    stranded_messages,
    text,
    thread_tables_present,
    token_split_rows,
    two_prompts,
)
from holdfast.domain.message import freeze
from holdfast.errors import StoreUnavailable
from holdfast.formats import registry
from holdfast.importers.goose import database, files
from holdfast.importers.goose.reader import GooseReader, recognises
from thorough import examples, few_cases


def stories(path):
    """Each session's story with its lines, by id."""
    shelf = GooseReader(path)
    try:
        return {story.id: (story, list(story.lines)) for story in shelf.sessions()}
    finally:
        shelf.close()


def said(lines):
    return ["".join(block.get("text", "") for block in line.payload["content"]) for line in lines]


@pytest.fixture
def store(tmp_path):
    with GooseStore(tmp_path / "sessions.db") as store:
        store.session("20260921_1")
        yield store


def test_a_store_is_known_by_what_is_in_it(tmp_path):
    database = built(tmp_path / "any.name", one_call)
    lines = tmp_path / "20250430_080000.jsonl"
    lines.write_bytes(legacy_lines(("user", text("How many poles?"))))
    headless = tmp_path / "torn.jsonl"
    headless.write_bytes(
        b'{"working_dir": "/ho\n' + legacy_lines(("user", text("Hm?"))).split(b"\n")[1]
    )
    exported = tmp_path / "export.json"
    exported.write_text(json.dumps(export(("user", text("How many poles?"))), indent=1))
    assert all(map(recognises, (database, lines, headless, exported)))


def test_what_others_keep_is_not_taken_for_gooses(tmp_path):
    other = tmp_path / "sessions.db"
    apsw.Connection(str(other)).execute("CREATE TABLE messages (session_id, content, timestamp)")
    strange = {
        "empty.jsonl": b"",
        "claude.jsonl": b'{"type":"user","message":{"role":"user","content":"Hi"},"uuid":"1"}\n',
        "codex.jsonl": b'{"timestamp":"2026","type":"session_meta","payload":{}}\n',
        "viking.jsonl": b'{"id":"msg_1","role":"user","parts":[],"created_at":"2026"}\n',
        "any.json": b'{"conversation": []}',
        "any.bin": os.urandom(300),
    }
    for name, raw in strange.items():
        (tmp_path / name).write_bytes(raw)
    assert not any(
        recognises(tmp_path / name) for name in ("sessions.db", "not there", ".", *strange)
    )


@pytest.mark.parametrize("schema", range(6, 17))
def test_every_release_tells_the_same_words(tmp_path, schema):
    found, lines = stories(built(tmp_path / "sessions.db", one_call, schema=schema))["20260921_1"]
    assert said(lines)[0] == "How many pear trees?"
    assert said(lines)[-1] == "There are 41."
    assert (found.title, len(lines), len({line.origin for line in lines})) == (
        "About 20260921_1",
        5,
        5,
    )


def test_rows_are_told_by_their_time_and_then_by_their_number(store):
    for words, at in (("third", 30), ("first", 10), ("second", 10), ("fourth", 30)):
        store.say("user", text(words), at=START + at)
    assert said(stories(store.path)["20260921_1"][1]) == ["first", "second", "third", "fourth"]


def test_rows_that_lie_in_the_log_alone_are_read_and_the_original_stays_as_it_was(store, tmp_path):
    store.database.execute("PRAGMA journal_mode=WAL")
    store.say("user", text("Only in the log."))
    kept = tmp_path / "kept"
    kept.mkdir()
    for file in (store.path, Path(f"{store.path}-wal")):
        (kept / file.name).write_bytes(file.read_bytes())
        os.utime(kept / file.name, ns=(1_000_000_000, 2_000_000_000))

    def times():
        return {
            path.name: (path.stat().st_atime_ns, path.stat().st_mtime_ns) for path in kept.iterdir()
        }

    before = times()
    assert recognises(kept / "sessions.db")
    assert said(stories(kept / "sessions.db")["20260921_1"][1]) == ["Only in the log."]
    assert times() == before
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {
        path.name: path.read_bytes() for path in (store.path, Path(f"{store.path}-wal"))
    }


def test_origins_outlive_growth_and_a_rewriting_of_the_history(store):
    one_call(store)
    before = [line.origin for line in stories(store.path)["20260921_1"][1]]
    rows = store.database.execute(
        "SELECT message_id, session_id, role, content_json, created_timestamp FROM messages"
    )
    rows = rows.fetchall()
    store.database.execute("DELETE FROM messages")
    for row in rows:
        names = ("message_id", "session_id", "role", "content_json", "created_timestamp")
        store.insert("messages", dict(zip(names, row, strict=True)))
    store.say("user", text("More."))
    assert [line.origin for line in stories(store.path)["20260921_1"][1]][: len(before)] == before


def test_rows_of_the_first_releases_keep_their_origin_when_goose_names_them(tmp_path):
    old = [
        line.origin
        for line in stories(built(tmp_path / "old.db", two_prompts, schema=6))["20260921_1"][1]
    ]
    with GooseStore(tmp_path / "new.db", 7) as store:
        store.session("20260921_1")
        two_prompts(store)
        store.database.execute("UPDATE messages SET message_id = 'msg_' || session_id || '_' || id")
    assert [line.origin for line in stories(tmp_path / "new.db")["20260921_1"][1]] == old


def test_an_id_that_comes_again_is_numbered(tmp_path):
    lines = stories(built(tmp_path / "sessions.db", token_split_rows))["20260921_1"][1]
    assert [line.origin for line in lines[1:3]] == ["chatcmpl-bees", "chatcmpl-bees#2"]


def test_flags_are_labels_and_facts_of_a_reply_are_beside_it(store):
    store.say("user", text("For the model."), seen=(False, True))
    store.say(
        "assistant",
        text("For readers."),
        seen=(True, False),
        metadata={"inference": {"requestedModel": "pear"}},
    )
    first, second = stories(store.path)["20260921_1"][1]
    assert (first.labels, second.labels) == (
        {"visible_to_user": False},
        {"visible_to_model": False},
    )
    assert (second.usage.output, second.model, second.at) == (40, "pear", store.now * 1000)


def test_a_sub_agents_session_follows_from_the_one_that_asked_for_it(tmp_path):
    with GooseStore(tmp_path / "sessions.db") as store:
        store.session("20260921_9", session_type="sub_agent", parent_session_id="20260921_1")
        two_prompts(store)
        store.session("20260921_1")
        two_prompts(store)
    found = stories(tmp_path / "sessions.db")
    assert list(found) == ["20260921_1", "20260921_9"]
    assert (found["20260921_9"][0].parent, found["20260921_9"][0].lineage) == (
        "20260921_1",
        "delegate",
    )


def test_messages_that_goose_does_not_show_are_told_too(tmp_path):
    found = stories(built(tmp_path / "sessions.db", stranded_messages, thread_tables_present))
    assert said(found["20260921_1"][1])[-1] == "About 2.4 m."
    assert said(found["thread:t-1"][1]) == ["Are there bees?", "There are."]


def test_lines_and_exports_tell_a_session(tmp_path):
    spoken = (("user", text("How many poles?")), ("assistant", text("Sixty-four.")))
    (tmp_path / "20250430_080000.jsonl").write_bytes(legacy_lines(*spoken))
    (tmp_path / "export.json").write_text(json.dumps(export(*spoken)))
    old, lines = stories(tmp_path / "20250430_080000.jsonl")["20250430_080000"]
    new, messages = stories(tmp_path / "export.json")["20260921_1"]
    assert said(lines) == said(messages) == ["How many poles?", "Sixty-four."]
    assert (old.title, new.title, new.opened_at) == ("Bean poles", "Poles", 1789981200000)


def test_a_cut_export_gives_the_messages_that_are_whole(tmp_path):
    path = tmp_path / "export.json"
    path.write_bytes(
        json.dumps(export(*(("user", text(f"Line {number}.")) for number in range(3)))).encode()[
            :-90
        ]
    )
    found, lines = stories(path)["20260921_1"]
    assert said(lines)[:2] == ["Line 0.", "Line 1."]
    assert found.title == "Poles"


@pytest.mark.slow
def test_a_long_session_is_read_without_holding_it(store):
    with store.database:
        for _ in range(3000):
            store.say("user", text("x" * 3000))
    shelf = GooseReader(store.path)
    story = next(shelf.sessions())
    next(iter(story.lines))
    tracemalloc.start()
    try:
        assert sum(1 for _ in story.lines) == 3000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
        shelf.close()


def test_a_record_that_is_too_large_is_told_and_not_loaded(store, monkeypatch):
    monkeypatch.setattr(database, "LINE_MAX", 1000)
    store.say("user", text("x" * 2000))
    store.say("user", text("Small."))
    shelf = GooseReader(store.path)
    lines = list(next(shelf.sessions()).lines)
    told = shelf.unreadable()
    shelf.close()
    assert said(lines) == ["", "Small."]
    assert [("bytes long" in one.problem, one.place) for one in told] == [(True, "messages row 1")]


def test_a_damaged_page_costs_its_own_rows_alone(store):
    with store.database:
        for number in range(400):
            store.say("user", text(f"{number} " + "x" * 900))
    store.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw = bytearray(store.path.read_bytes())
    page = int.from_bytes(raw[16:18], "big")
    raw[page * 60 : page * 61] = b"\x55" * page
    broken = store.path.with_name("broken.db")
    broken.write_bytes(raw)
    shelf = GooseReader(broken)
    lines = list(next(shelf.sessions()).lines)
    told = shelf.unreadable()
    shelf.close()
    assert told
    assert len(lines) > 350


def test_a_store_that_lost_its_end_tells_the_rest(store):
    with store.database:
        for number in range(400):
            store.say("user", text(f"{number} " + "x" * 900))
    cut = store.path.with_name("cut.db")
    cut.write_bytes(store.path.read_bytes()[:-100_000])
    shelf = GooseReader(cut)
    lines = list(next(shelf.sessions()).lines)
    told = shelf.unreadable()
    shelf.close()
    assert "the last 100000 bytes of the file are not there" in {one.problem for one in told}
    assert 250 < len(lines) < 400


def test_a_checkpoint_that_was_cut_off_has_lost_nothing(store, tmp_path):
    """A killed goose leaves a file whose first page tells of pages that only the log has yet."""
    store.database.execute("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0")
    with store.database:
        for number in range(400):
            store.say("user", text(f"{number} " + "x" * 900))
    cut, whole = tmp_path / "cut.db", tmp_path / "whole.db"
    for path in (cut, whole):
        path.write_bytes(store.path.read_bytes())
        Path(f"{path}-wal").write_bytes(Path(f"{store.path}-wal").read_bytes())
    apsw.Connection(str(whole)).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with open(cut, "r+b") as file:
        file.write(whole.read_bytes()[:4096])
    assert cut.stat().st_size < whole.stat().st_size - 100_000
    shelf = GooseReader(cut)
    lines = list(next(shelf.sessions()).lines)
    assert (shelf.unreadable(), len(lines)) == ([], 400)
    shelf.close()
    Path(f"{cut}-wal").write_bytes(Path(f"{cut}-wal").read_bytes()[:100_000])
    shelf = GooseReader(cut)
    list(shelf.sessions())
    assert any("are not there" in one.problem for one in shelf.unreadable())
    shelf.close()


def test_texts_that_are_not_utf8_stop_nothing(store):
    store.say("user", text("Hello."), role=b"\xff\xfe", timestamp=b"\xff")
    store.say("user", text("Hello."))
    store.database.execute("UPDATE sessions SET name = CAST(x'ff41' AS TEXT)")
    store.database.execute("UPDATE messages SET role = CAST(x'ff' AS TEXT) WHERE id = 1")
    assert len(stories(store.path)["20260921_1"][1]) == 2


@few_cases(every=3)
@pytest.mark.parametrize("case", [*HEALTHY, *DAMAGED], ids=lambda case: case.__name__)
def test_every_payload_is_a_message_of_its_format(tmp_path, case):
    for _, lines in stories(built(tmp_path / "sessions.db", case)).values():
        for line in lines:
            body = freeze(line.payload)
            assert registry.get(line.format).note(line.payload)
            assert registry.read(line.format, body) is not None


def read_all(path):
    """Every story and line; a store that can't be opened at all says so."""
    try:
        shelf = GooseReader(path)
    except StoreUnavailable:
        return False
    try:
        for story in shelf.sessions():
            for line in story.lines:
                registry.get(line.format).note(line.payload)
                freeze(line.payload)
        return True
    finally:
        shelf.close()


@pytest.mark.slow
@few_cases(every=5)
@pytest.mark.parametrize("part", range(1, 24))
def test_a_cut_store_is_read_as_far_as_it_goes(tmp_path, part):
    whole = built(tmp_path / "sessions.db", one_call, three_calls_and_more).read_bytes()
    cut = tmp_path / "cut.db"
    cut.write_bytes(whole[: len(whole) * part // 24 + part])
    read_all(cut)


def three_calls_and_more(store):
    for _ in range(20):
        one_call(store)


@given(
    raw=st.one_of(st.binary(max_size=400), st.text(max_size=200).map(str.encode)),
    kind=st.integers(0, 3),
)
@settings(max_examples=examples(60))
def test_any_bytes_are_read_or_refused(tmp_path_factory, raw, kind):
    path = tmp_path_factory.mktemp("any") / "store"
    begin = (
        b"",
        b"SQLite format 3\x00",
        b'{"working_dir":"/","conversation":[',
        b'{"message_count":1}\n',
    )[kind]
    path.write_bytes(begin + raw)
    recognises(path)
    read_all(path)


values = st.one_of(
    st.none(),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.sampled_from(
        ["[" * 5000, '[{"type":"text"}]', "[1, null]", '{"a":1}', '"\\ud800"', "[1e999]", "nul"]
    ),
)


columns = ("message_id", "role", "content_json", "metadata_json", "created_timestamp", "tokens")


@pytest.mark.slow
@given(row=st.fixed_dictionaries({name: values for name in columns}))
@settings(max_examples=examples(60))
def test_any_value_in_any_column_is_told(tmp_path_factory, row):
    path = tmp_path_factory.mktemp("any") / "sessions.db"
    with GooseStore(path) as store:
        store.session("20260921_1")
        store.say("user", text("Before."))
        store.say(
            "user",
            **{
                name: "" if row[name] is None and name in columns[1:5] else row[name]
                for name in row
            },
        )
        store.say("user", text("After."))
    lines = stories(path)["20260921_1"][1]
    assert len(lines) == 3
    assert {"Before.", "After."} <= {block.get("text") for line in lines for block in _texts(line)}
    for line in lines:
        registry.get(line.format).note(line.payload)
        freeze(line.payload)


def _texts(line):
    return [
        block
        for block in line.payload["content"]
        if isinstance(block, dict) and block.get("type") == "text"
    ]


def test_a_large_export_is_taken_apart_message_by_message(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LINE_MAX", 100)
    path = tmp_path / "export.json"
    path.write_text(
        json.dumps(
            export(*(("user", text(f"Line [{number}].")) for number in range(3)), schedule_id=None)
        )
    )
    story, lines = stories(path)["20260921_1"]
    assert said(lines) == ["Line [0].", "Line [1].", "Line [2]."]
    assert (story.title, story.facts["message_count"]) == ("Poles", 3)


NO_TIMES = ["[5]", b"\xff", -5, 1 << 62, float("inf")]


@pytest.mark.parametrize("odd", NO_TIMES, ids=repr)
def test_a_row_without_a_time_stands_behind_the_one_stored_before_it(store, odd):
    for number in range(6):
        store.say("user", text(f"{number}"))
    store.database.execute("UPDATE messages SET created_timestamp = ? WHERE id IN (1, 4)", (odd,))
    shelf = GooseReader(store.path)
    try:
        [story] = shelf.sessions()
        assert said(story.lines) == ["0", "1", "2", "3", "4", "5"]
        # Nothing of them is left out.
        assert shelf.unreadable() == []
    finally:
        shelf.close()


def grown(tmp_path, files):
    """What is stored of a file that is imported each time it has grown."""
    path = tmp_path / "20250430_080000.jsonl"
    for raw in files:
        path.write_bytes(raw)
        assert command("import", path, "--into", tmp_path / "agent.db").code == 0
    with holdfast.open(tmp_path / "agent.db") as store:
        [one] = store.sessions()
        return [message.text for message in store.get(one.id).transcript()]


def test_a_line_that_is_being_written_is_no_message_yet(tmp_path):
    """Imported while goose writes it, and again when it is there: each message once."""
    whole = legacy_lines(*[("user", text(f"message {number}")) for number in range(4)])
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    cuts = [whole[: end + 20] for end in ends[1:-1]]
    cuts.append(whole[:-1])  # the message is whole, and its line feed is not there yet
    assert grown(tmp_path, [*cuts, whole, whole]) == [f"message {n}" for n in range(4)]


def test_a_line_that_is_not_finished_is_told(tmp_path):
    path = tmp_path / "20250430_080000.jsonl"
    path.write_bytes(legacy_lines(("user", text("one")), ("user", text("two")))[:-20])
    shelf = GooseReader(path)
    try:
        [story] = shelf.sessions()
        assert said(story.lines) == ["one"]
        [unread] = shelf.unreadable()
        assert unread.place.endswith("line 3") and unread.raw.startswith(b"{")
    finally:
        shelf.close()
