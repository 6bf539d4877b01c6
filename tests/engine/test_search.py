"""The search index: derived, beside the log, and never in its way (I-17; FAULTS C7, C8,
G10, K7).
"""

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import procs
from holdfast.domain.entry import Draft, noted
from holdfast.domain.message import MessageNote, freeze
from holdfast.domain.search.query import SearchScope, asked
from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Engine, Write
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.engine.sqlite.file_guard.fair_lock import FairLock
from holdfast.engine.sqlite.search import feed, fts_question
from holdfast.engine.sqlite.search import index as search
from holdfast.engine.sqlite.search.index import SearchIndex
from holdfast.engine.sqlite.search.log_source import LogSource
from holdfast.errors import Damaged, StoreUnavailable
from holdfast.runtime.searchable_text import words_of
from holdfast.testing.conformance.builders import did, mint, named, opened
from holdfast.testing.reference import ReferenceEngine, Ticks
from thorough import examples, few_cases

LIMIT_S = 60.0
HERE = Path(__file__).parent


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@contextmanager
def at(path: str, **options: Any) -> Iterator[SqliteEngine]:
    options = {"durability": "process", "tick": Ticks(), "words_of": words_of, **options}
    engine = open_engine(path, **options)
    assert isinstance(engine, SqliteEngine)
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture
def engine(path: str) -> Iterator[SqliteEngine]:
    with at(path) as made:
        yield made


def said(text: str, *, role: str = "user", at: int = 1_000) -> Draft:
    note = noted(MessageNote(role=role))  # type: ignore[arg-type]
    return Draft("message", None, mint(), at, note, freeze({"role": role, "content": text}))


def say(engine: Engine, session: str, *texts: str, at: int = 1_000) -> None:
    did(engine, Write(session, drafts=tuple(said(text, at=at) for text in texts)))


def look(engine: Engine, text: str, *, limit: int = 1000, **filters: Any) -> list[str]:
    """The texts that answer, newest first."""
    found = engine.search(SearchScope("t", asked(text), **filters), limit=limit)
    return [one.words.text for one in found]


def search_bytes(path: str) -> bytes:
    """All that is in the search file and what may lie beside it."""
    files = Path(path).parent.glob(Path(path).name + "-search*")
    return b"".join(file.read_bytes() for file in files if file.is_file())


WRITER = """
    path, number, tests = sys.argv[1:]
    sys.path.insert(0, tests)
    import test_search as telling
    from holdfast.engine.sqlite.search import index as search

    search.BATCH = 7
    with telling.at(path) as engine:
        session = telling.opened(engine, int(number))
        for count in range(1, 61):
            telling.say(engine, session, f"kelp mine{number} {count}")
            if count % 5 == 0:
                found = telling.look(engine, f"mine{number}")
                assert len(found) == count, (count, len(found))
"""


# What is found.


SCRIPTS = [
    "Crème",
    "мир",
    "κόσμος",
    "机器",
    "学习",
    "タワー",
    "서울",
    "สวัสดี",
    "سلام",
    "שלום",
    "हिन्दी",
    "👍🏽",
]
SCRIPTS += ["kelp", "keel", "a"]
texts = st.one_of(
    st.lists(st.sampled_from(SCRIPTS), max_size=6).map(" ".join),
    st.lists(st.sampled_from(SCRIPTS), max_size=4).map("".join),
    st.text(st.characters(), max_size=20),
)
questions = st.one_of(
    st.sampled_from([*SCRIPTS, "ke", "机器学习", '"мир kelp"', "κο", "器", ""]),
    st.lists(st.sampled_from(SCRIPTS), min_size=2, max_size=3).map(" ".join),
    texts,
    texts.map('"{}"'.format),
)
stories = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["user", "assistant"]), texts), max_size=24
)


@pytest.mark.slow
@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    story=stories,
    asks=st.lists(questions, min_size=1, max_size=6),
    role=st.sampled_from([None, "user"]),
    few=st.sampled_from([1, 2, 100]),
)
def test_it_finds_what_a_plain_look_at_every_message_finds(
    tmp_path_factory: pytest.TempPathFactory,
    story: list[tuple[int, str, str]],
    asks: list[str],
    role: str | None,
    few: int,
) -> None:
    reference = ReferenceEngine(words_of=words_of)
    with (
        at(str(tmp_path_factory.mktemp("search") / "agent.db")) as ours,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(feed, "VOLUME", 8)
        patch.setattr(fts_question, "ENDINGS_MAX", few)
        patch.setattr(fts_question, "LISTED_MAX", 4 * few)
        for number in (1, 2, 3):
            for engine in (reference, ours):
                opened(engine, number, tenant="t" if number < 3 else "other")
        for number, who, text in story:
            write = Write(named(number), drafts=(said(text, role=who),))
            did(reference, write)
            did(ours, write)
        for text in asks:
            wanted = SearchScope("t", asked(text), role=role)
            assert ours.search(wanted, limit=5) == reference.search(wanted, limit=5)
            assert ours.search(wanted, limit=100) == reference.search(wanted, limit=100)
            assert ours.matching(wanted, limit=2) == reference.matching(wanted, limit=2)


@pytest.mark.slow
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters()) | st.text("\"*()^:-+{}[]\\'\0 ANDORTNEx漢\ud800", max_size=80))
def test_no_question_is_an_error(story: SqliteEngine, question: str) -> None:
    look(story, question)
    look(story, f'"{question}')
    look(story, question * 200)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteEngine]:
    with at(str(tmp_path_factory.mktemp("search") / "agent.db")) as made:
        session = opened(made, 1)
        say(made, session, *SCRIPTS, "AND OR NOT x", "")
        yield made


def volumes_asked(engine: SqliteEngine, text: str, **more: Any) -> list[int]:
    """The volumes that a search opens."""
    index = engine._searching.index
    look(engine, text, **more)
    question = index._asked(SearchScope("t", asked(text), **more))
    assert question is not None
    connection = index._file.open()
    return [volume for volume, _ in question.by_volume(connection, search._ANY_TIME)]


def test_of_a_rare_word_only_the_volumes_are_opened_that_have_it(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-27: a search costs the same, however many volumes there are."""
    monkeypatch.setattr(feed, "VOLUME", 8)
    one, other = opened(engine, 1), opened(engine, 2)
    for number in range(40):
        say(engine, one, f"kelp stone{number}")
    say(engine, other, "kelp pebble")
    every = volumes_asked(engine, "kelp")
    assert len(every) > 4
    assert [len(volumes_asked(engine, text)) for text in ("stone7", "stone7 kelp")] == [1, 1]
    # The beginning of twelve words.
    assert len(volumes_asked(engine, "stone1")) < len(every)
    for few in (2, 100):
        monkeypatch.setattr(fts_question, "ENDINGS_MAX", few)
        assert look(engine, "stone1") == [f"kelp stone{n}" for n in (*range(19, 9, -1), 1)]
        monkeypatch.setattr(fts_question, "LISTED_MAX", few)
        assert look(engine, "stone1") == [f"kelp stone{n}" for n in (*range(19, 9, -1), 1)]
    assert volumes_asked(engine, "sand") == []
    assert len(volumes_asked(engine, "kelp", session=other)) == 1


def test_a_volume_that_is_full_is_in_one_piece(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-27: a word is looked for in each piece."""
    monkeypatch.setattr(feed, "VOLUME", 32)
    monkeypatch.setattr(search, "BATCH", 4)
    session = opened(engine, 1)
    for number in range(70):
        say(engine, session, f"kelp stone{number}")
        look(engine, "kelp")
    connection = engine._searching.index._file.open()
    pieces = "SELECT count(DISTINCT segid) FROM words_{}_idx"
    assert [connection.execute(pieces.format(volume)).get for volume in (0, 1)] == [1, 1]


def test_a_word_that_was_erased_and_is_said_again_is_found(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "VOLUME", 8)
    gone, kept = opened(engine, 1), opened(engine, 2)
    for number in range(10):
        say(engine, gone, f"kelp stone{number}")
    assert len(look(engine, "stone")) == 10
    erase(engine, gone)
    engine._searching.forget([number_of(engine, gone)])
    assert look(engine, "stone") == [] and volumes_asked(engine, "stone3") == []
    say(engine, kept, "kelp stone3")
    assert look(engine, "stone") == look(engine, "stone3") == ["kelp stone3"]


def test_a_time_is_looked_for_in_the_volumes_that_have_it(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks step back: the order of arrival is not that of times."""
    monkeypatch.setattr(feed, "VOLUME", 4)
    session = opened(engine, 1)
    times = [10, 20, 30, 25, 5, 40, 40, 7, 60, 50, 15, 70]
    for time in times:
        say(engine, session, f"at {time}", at=time)
    for since in (None, *range(0, 80, 5)):
        for until in (None, *range(0, 80, 5)):
            wanted = [
                t
                for t in reversed(times)
                if (since is None or t >= since) and (until is None or t < until)
            ]
            assert look(engine, "at", since=since, until=until) == [f"at {time}" for time in wanted]


def test_many_sessions_in_a_state_are_many_to_search(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "FEW", 2)
    sessions = [opened(engine, number) for number in range(1, 10)]
    for session in sessions:
        say(engine, session, f"kelp {session[0]}")
    for session in sessions[:5]:
        did(engine, Write(session, close=True))
    assert look(engine, "kelp", state="ended") == [f"kelp {n}" for n in (5, 4, 3, 2, 1)]
    assert look(engine, "kelp", state="open") == [f"kelp {n}" for n in (9, 8, 7, 6)]


# Off the write path.


def test_who_only_writes_has_no_search_file(path: str, engine: SqliteEngine) -> None:
    say(engine, opened(engine, 1), "kelp")
    assert not os.path.exists(path + "-search")
    look(engine, "kelp")
    assert stat.S_IMODE(os.stat(path + "-search").st_mode) == 0o600


@pytest.mark.slow
def test_in_idle_time_the_log_is_read_if_somebody_has_searched_before(path: str) -> None:
    read = threading.Event()

    def told(kind: str, note: bytes, body: bytes, earlier: Callable[..., Any]) -> Any:
        if b"later" in body:
            read.set()
        return words_of(kind, note, body, earlier)

    with at(path) as engine:
        session = opened(engine, 1)
        look(engine, "kelp")
    with at(path, words_of=told) as engine:
        say(engine, session, "later")
        assert read.wait(LIMIT_S), "nobody searched, and it was read all the same"
        assert look(engine, "later") == ["later"]


# Damage.


def spoilt_by(path: str, how: str) -> None:
    """Does something bad to the search file, as a person or a disk would."""
    place = Path(path + "-search")
    size = place.stat().st_size
    match how:
        case "deleted":
            place.unlink()
        case "emptied":
            os.truncate(place, 0)
        case "cut short":
            os.truncate(place, size // 2)
        case "cut in a page":
            os.truncate(place, size - 1000)
        case "noise":
            place.write_bytes(bytes(range(256)) * (size // 256))
        case "noise behind the first page":
            with place.open("r+b") as file:
                file.seek(4096)
                file.write(b"\xa5" * (size - 4096))
        case "zeros behind the first page":
            with place.open("r+b") as file:
                file.seek(4096)
                file.write(bytes(size - 4096))
        case "a few bytes":
            with place.open("r+b") as file:
                for at in range(3 * 4096 + 700, size, 4096):
                    file.seek(at)
                    file.write(b"\x01")
        case "a folder":
            place.unlink()
            place.mkdir()
            (place / "something").write_text("of somebody")
        case "a text":
            place.write_text("It is not a database.\n" * 1000)
        case "another database":
            place.unlink()
            connection = apsw.Connection(str(place))
            connection.execute("CREATE TABLE mark (n, id); INSERT INTO mark VALUES (100000, x'00')")
            connection.close()
        case "another version":
            connection = apsw.Connection(str(place))
            connection.execute("PRAGMA user_version=99").fetchall()
            connection.close()
        case "no tables":
            connection = apsw.Connection(str(place))
            connection.execute("DROP TABLE words_0; DROP TABLE volume")
            connection.close()
        case "no list of words":
            connection = apsw.Connection(str(place))
            connection.execute("DROP TABLE word")
            connection.close()
        case "a dead link":
            place.unlink()
            place.symlink_to("nowhere")


DAMAGE = [
    "a few bytes",
    "deleted",
    "emptied",
    "cut short",
    "cut in a page",
    "noise",
    "noise behind the first page",
    "zeros behind the first page",
    "a folder",
    "a text",
    "another database",
    "another version",
    "no tables",
    "no list of words",
    "a dead link",
]


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("when", ["open", "closed"])
def test_a_spoilt_search_file_is_made_anew_and_writes_go_on(path: str, how: str, when: str) -> None:
    """I-17. FAULTS C7, G10."""
    texts = [f"kelp {number} word{number * 7919}" for number in range(400)]
    with at(path) as engine:
        session = opened(engine, 1)
        say(engine, session, *texts)
        assert look(engine, "kelp") == texts[::-1]
        if when == "open":
            spoilt_by(path, how)
            say(engine, session, "kelp more")
            assert look(engine, "kelp") == ["kelp more", *texts[::-1]]
            assert look(engine, '"word7919"') == [texts[1]]
    if when == "closed":
        spoilt_by(path, how)
        with at(path) as engine:
            say(engine, session, "kelp more")
            assert look(engine, "kelp") == ["kelp more", *texts[::-1]]
            assert look(engine, '"word7919"') == [texts[1]]
    aside = Path(path + "-search-aside-1")
    assert not aside.exists() or (aside / "something").read_text() == "of somebody"


def test_a_file_that_another_process_made_anew_is_the_one_to_use(
    path: str, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SCAN_MAX", 0)
    session = opened(engine, 1)
    say(engine, session, "kelp")
    assert look(engine, "kelp") == ["kelp"]
    os.unlink(path + "-search")
    with at(path) as other:
        assert look(other, "kelp") == ["kelp"]
    made = os.stat(path + "-search").st_ino
    say(engine, session, "kelp more")
    assert look(engine, "kelp") == ["kelp more", "kelp"]
    assert os.stat(path + "-search").st_ino == made


@pytest.mark.slow
def test_a_good_file_is_never_made_anew(path: str) -> None:
    with at(path) as engine:
        session = opened(engine, 1)
        assert look(engine, "kelp") == []
        made = os.stat(path + "-search").st_ino
        with procs.child(WRITER, path, 2, HERE) as one, procs.child(WRITER, path, 3, HERE) as two:
            for number in range(40):
                say(engine, session, f"kelp {number}")
                assert look(engine, "kelp", session=session, limit=1) == [f"kelp {number}"]
            one.end()
            two.end()
    with at(path) as engine:
        assert len(look(engine, "kelp")) == 160
    assert os.stat(path + "-search").st_ino == made


def test_a_journal_of_a_file_that_was_deleted_is_not_played_into_the_new_one(
    path: str, tmp_path: Path
) -> None:
    with at(path) as engine:
        session = opened(engine, 1)
        say(engine, session, *(f"kelp {number}" for number in range(300)))
        look(engine, "kelp")
        connection = apsw.Connection(path + "-search")
        connection.execute("PRAGMA cache_size=1; BEGIN IMMEDIATE; CREATE TABLE more (x)").fetchall()
        connection.executemany("INSERT INTO more VALUES (zeroblob(?))", [(4000,)] * 200)
        connection.execute("UPDATE words_0_data SET block = zeroblob(length(block))")
        shutil.copy(path + "-search-journal", tmp_path / "left")
        connection.execute("ROLLBACK")
        connection.close()
        os.unlink(path + "-search")
        shutil.copy(tmp_path / "left", path + "-search-journal")
        assert len(look(engine, "kelp")) == 300
    with at(path) as engine:
        assert len(look(engine, "kelp")) == 300


def test_a_store_that_was_restored_from_a_backup_is_searched_as_it_is_now(
    path: str, tmp_path: Path
) -> None:
    with at(path) as engine:
        session = opened(engine, 1)
        say(engine, session, "kelp before")
    shutil.copy(path, tmp_path / "backup")
    with at(path) as engine:
        say(engine, session, "kelp ghost")
        assert look(engine, "kelp") == ["kelp ghost", "kelp before"]
    shutil.copy(tmp_path / "backup", path)
    with at(path) as engine:
        assert look(engine, "kelp") == ["kelp before"]
        assert look(engine, "kelp") == ["kelp before"]
    shutil.copy(tmp_path / "backup", path)
    with at(path) as engine:
        say(engine, session, "kelp instead", "kelp after")
        assert look(engine, "kelp") == ["kelp after", "kelp instead", "kelp before"]
        assert look(engine, "instead") == ["kelp instead"]
        assert look(engine, "ghost") == []


def test_a_search_file_of_another_store_is_not_believed(path: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.db")
    for place, words in ((path, "ours"), (other, "theirs")):
        with at(place) as engine:
            say(engine, opened(engine, 1), f"kelp {words}")
            look(engine, "kelp")
    shutil.copy(other + "-search", path + "-search")
    with at(path) as engine:
        assert look(engine, "ours") == ["kelp ours"]
        assert look(engine, "theirs") == []


def test_an_entry_that_cannot_be_read_hides_no_other(path: str, engine: SqliteEngine) -> None:
    """I-18: the rest stays readable, and can be found."""
    session = opened(engine, 1)
    say(engine, session, *(f"kelp {number}" for number in range(10)))

    def read(name: str, values: tuple[Any, ...]) -> Any:
        rows = engine._read_values(name, values)
        if name in ("log_after", "log_pick") and any(row[0] in (4, 11) for row in rows):
            raise Damaged(where=path, problem="a page")
        return rows

    index = SearchIndex(path + "-search", LogSource(read, bytes, words_of), lock_s=5)
    found = index.search(SearchScope("t", asked("kelp")), limit=100)
    assert [one.words.text for one in found] == [
        f"kelp {number}" for number in (8, 7, 6, 5, 4, 3, 1, 0)
    ]
    index.close()
    assert len(look(engine, "kelp")) == 8, "what was passed over is not looked at again"
    say(engine, session, "kelp more")
    assert look(engine, "kelp")[0] == "kelp more"


# When it can't be had.


@pytest.fixture
def in_the_way(path: str) -> None:
    """The new file can't be made: a folder has its name."""
    os.mkdir(path + "-search-new")


@pytest.mark.usefixtures("in_the_way")
def test_a_short_log_is_searched_without_an_index(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PAGE", 3)
    session = opened(engine, 1)
    say(engine, session, *(f"kelp {number}" for number in range(20)))
    assert look(engine, "kelp") == [f"kelp {number}" for number in range(19, -1, -1)]
    assert look(engine, "kelp", limit=3, until=1) == []
    assert engine.matching(SearchScope("t", asked("kelp")), limit=9) == [session]


@pytest.mark.usefixtures("in_the_way")
def test_a_long_one_says_what_to_do_and_all_else_goes_on(
    path: str, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS G10."""
    monkeypatch.setattr(search, "SCAN_MAX", 5)
    session = opened(engine, 1)
    say(engine, session, *(f"kelp {number}" for number in range(20)))
    with pytest.raises(StoreUnavailable) as refused:
        look(engine, "kelp")
    assert refused.value.where == path + "-search"
    say(engine, session, "kelp more")
    assert len(engine.entries(session)) == 22
    os.rmdir(path + "-search-new")
    assert len(look(engine, "kelp")) == 21


def test_when_its_lock_is_held_what_is_missing_is_read_from_the_log(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SCAN_MAX", 5)
    with at(path, lock_s=0.05) as engine:
        session = opened(engine, 1)
        say(engine, session, *(f"kelp {number}" for number in range(20)))
        assert len(look(engine, "kelp")) == 20
        lock = FairLock(path + "-search-lock")
        assert lock.acquire(LIMIT_S)
        say(engine, session, "kelp more")
        assert look(engine, "kelp", limit=3) == ["kelp more", "kelp 19", "kelp 18"]
        say(engine, session, *(f"kelp after {number}" for number in range(5)))
        with pytest.raises(StoreUnavailable):
            look(engine, "kelp")
        lock.release()
        lock.close()
        assert len(look(engine, "kelp")) == 26


FULL = """
    import os, resource

    path, tests = sys.argv[1:]
    sys.path.insert(0, tests)
    import test_search as telling
    from holdfast.engine.sqlite.search import index as search

    with telling.at(path) as engine:
        session = telling.opened(engine, 1)
        for n in range(2000):
            telling.say(engine, session, f"kelp {n * 7919} " + f"{n}x{n * n} " * 20)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with telling.at(path) as engine:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
        assert len(telling.look(engine, "kelp")) == 1000
        assert len(telling.look(engine, '"0x0"')) == 1
        telling.say(engine, session, "kelp more")
        assert telling.look(engine, "kelp", limit=1) == ["kelp more"]
        search.SCAN_MAX = 10
        try:
            telling.look(engine, "kelp")
        except telling.StoreUnavailable as error:
            say("refused", error)
        telling.say(engine, session, "kelp and more")
        assert os.path.getsize(path + "-search") <= 150_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert telling.look(engine, "kelp", limit=2) == ["kelp and more", "kelp more"]
        assert len(telling.look(engine, '"0x0"')) == 1
"""


@pytest.mark.slow
def test_a_disk_that_is_full_stops_neither_short_searches_nor_writes(path: str) -> None:
    """FAULTS G10. A limit on the size of files is a full disk for the index alone."""
    with procs.child(FULL, path, HERE) as child:
        assert path + "-search" in child.wait_for("refused")
        child.end()


# Several processes.


@pytest.mark.slow
def test_processes_that_search_and_write_at_once_each_find_all_of_their_own(path: str) -> None:
    with at(path) as engine:
        with procs.child(WRITER, path, 1, HERE) as one, procs.child(WRITER, path, 2, HERE) as two:
            one.end()
            two.end()
        assert len(look(engine, "kelp")) == 120


CATCHING_UP = """
    path, tests = sys.argv[1:]
    sys.path.insert(0, tests)
    import test_search as telling
    from holdfast.engine.sqlite.search import index as search
    from holdfast.runtime.searchable_text import words_of

    search.BATCH = 20
    read = 0

    def told(*entry):
        global read
        read += 1
        if read % 10 == 0:
            say("read", read)
        return words_of(*entry)

    with telling.at(path, words_of=told) as engine:
        telling.look(engine, "kelp")
"""


@pytest.mark.slow
def test_a_process_killed_while_it_indexes_harms_nothing(path: str) -> None:
    texts = [f"kelp {number}" for number in range(600)]
    with at(path) as engine:
        session = opened(engine, 1)
        say(engine, session, *texts)
    for kill_after in (10, 50, 110, 170):
        with procs.child(CATCHING_UP, path, HERE) as child:
            while (line := child.line()) is not None and line.startswith("read"):
                if int(line.split()[1]) >= kill_after:
                    child.kill()
                    break
    with at(path) as engine:
        say(engine, session, "kelp more")
        assert look(engine, "kelp") == ["kelp more", *texts[::-1]]


# Erasure.


def erase(engine: Engine, session: str) -> None:
    """As the log does it."""
    entries = engine.entries(session, limit=10_000)
    draft = Draft("erased", None, mint(), 2_000, b"{}")
    did(
        engine,
        Write(
            session,
            drafts=(draft,),
            close=True,
            ended_too=True,
            erase=tuple((e.seq, b"") for e in entries),
        ),
    )


def number_of(engine: SqliteEngine, session: str) -> int:
    return engine._number(session)


def test_what_is_forgotten_is_in_no_byte_of_the_file(
    path: str, engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-21. FAULTS K7."""
    monkeypatch.setattr(feed, "VOLUME", 200)
    monkeypatch.setattr(search, "BATCH", 16)
    kept, gone, later = opened(engine, 1), opened(engine, 2), opened(engine, 3)
    for number in range(150):
        say(engine, kept, f"kelp xylograph{number}")
        say(engine, gone, f"kelp XyloCanary{number} Ünïcanary")
        say(engine, later, f"kelp qqzebra{number}")
    assert len(look(engine, "kelp")) == 450
    assert b"ocanary" in search_bytes(path) and b"unicanary" in search_bytes(path)
    engine._searching.forget([number_of(engine, gone)])
    assert b"canary" not in search_bytes(path).lower()
    assert len(look(engine, "xylograph")) == 150
    assert not os.path.exists(path + "-search-new")
    erase(engine, later)
    engine._searching.forget([number_of(engine, later)])
    assert b"qqzebra" not in search_bytes(path)
    assert look(engine, "kelp") == [f"kelp xylograph{number}" for number in range(149, -1, -1)]
    assert stat.S_IMODE(os.stat(path + "-search").st_mode) == 0o600


def test_what_was_erased_is_not_found_even_if_the_index_was_not_told(
    path: str, engine: SqliteEngine
) -> None:
    kept, gone = opened(engine, 1), opened(engine, 2)
    say(engine, kept, "kelp kept")
    say(engine, gone, "kelp xylocanary")
    assert len(look(engine, "kelp")) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._searching, "forget", lambda gone, blanked: None)
        erase(engine, gone)
    assert b"canary" in search_bytes(path)
    assert look(engine, "kelp") == ["kelp kept"]
    assert b"canary" not in search_bytes(path), "the erasure was read in the log"


def test_what_was_blanked_is_in_no_byte_of_the_file_even_if_the_index_was_not_told(
    path: str, engine: SqliteEngine
) -> None:
    """I-21: whoever blanked it was killed before it said so to the index."""
    session = opened(engine, 1)
    say(engine, session, "kelp kept", "kelp xylocanary")
    assert len(look(engine, "kelp")) == 2
    last = engine.entries(session)[-1]
    blank = Draft("blanked", None, mint(), 2_000, b"{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._searching, "forget", lambda gone, blanked: None)
        did(engine, Write(session, drafts=(blank,), blank=((last.seq, b'{"erased":true}'),)))
    assert b"canary" in search_bytes(path)
    assert look(engine, "kelp") == ["kelp kept"]
    assert b"canary" not in search_bytes(path), "the blanking was read in the log"


def test_who_is_killed_while_it_forgets_leaves_no_traces_to_the_next(path: str) -> None:
    with at(path) as engine:
        kept, gone = opened(engine, 1), opened(engine, 2)
        say(engine, kept, "kelp kept")
        say(engine, gone, *(f"kelp {n}xylocanary {n * 7919}" for n in range(2000)))
        look(engine, "kelp")

        left: list[bytes] = []

        def killed() -> None:
            left.append(search_bytes(path))
            raise KeyboardInterrupt

        with at(path) as killed_one, pytest.MonkeyPatch.context() as patch:
            patch.setattr(killed_one._searching.index._file, "rewrite", killed)
            with pytest.raises(KeyboardInterrupt):
                killed_one._searching.forget([number_of(engine, gone)])
        assert b"canary" in left[0], "it is in pages that nothing refers to"
        shutil.copy(path + "-search", path + "-search-new")
        erase(engine, gone)
        assert b"canary" not in search_bytes(path)
        assert look(engine, "kelp") == ["kelp kept"]


def test_an_index_that_cannot_forget_is_thrown_away(path: str, engine: SqliteEngine) -> None:
    session = opened(engine, 1)
    say(engine, session, "kelp xylocanary")
    look(engine, "kelp")
    with open(path + "-search", "r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 4096)
    engine._searching.forget([number_of(engine, session)])
    assert b"canary" not in search_bytes(path)
