"""What is in a store, and what is wrong with it: told, with its place, and nothing is written
(I-18).
"""

import asyncio
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import holdfast
import procs
from holdfast import Store
from holdfast.engine.sqlite.maintenance import check
from holdfast.engine.store_info import Problem, StoreInfo
from holdfast.runtime.catalog import maintenance

PAGE = 4096


def fill(path: Path) -> None:
    """A store with something of everything in it; closed, but for what a running turn
    would leave.
    """
    with holdfast.open(path, durability="process") as store:
        session = store.session("telegram:dm:42")
        session.instructions("Be kind.")
        for number in range(6):
            with session.turn(
                f"Question {number}", event_id=f"event {number}", reply_to="42"
            ) as turn:
                list(turn.deliver(["Answer ", f"{number}"]))
                turn.result(turn.call("look", {"n": number}), "seen")
        session.compact("They talked.", keep_turns=2)
        session.append({"role": "user", "content": "A picture: " + "x" * 100_000})
        fork = session.fork()
        fork.append("Elsewhere.")
        store.accept("telegram:dm:42", "It waits.", event_id="it waits")
        store.reset("gone").append("An earlier one.")
        store.reset("gone")
        store.erase(store.session("erased").id)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("healthy") / "agent.db"
    fill(path)
    return path


@pytest.fixture
def path(healthy: Path, tmp_path: Path) -> Path:
    copy = Path(shutil.copy(healthy, tmp_path))
    copy.chmod(0o600)
    return copy


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with holdfast.open(path) as opened:
        yield opened


# What is in it
# -------------------------------------------------------------------------------------------------------


def test_a_store_tells_what_is_in_it_and_how_large_it_is(store: Store, path: Path) -> None:
    info = store.info()
    assert info.where == str(path) and info.tenants == 1
    assert info.sessions == len(store.sessions()) > 3
    states = store._work.engine.find(store.tenant, "", 100)
    assert info.entries == sum(state.head - state.origin for state in states)
    assert info.files["agent.db"] == path.stat().st_size == info.page_bytes * info.pages
    assert info.bytes == sum(info.files.values()) and "agent.db-lock" in info.files
    assert info.engine == f"SQLite {apsw.sqlite_lib_version()}"
    assert info.active_at == max(state.last_at for state in states)
    assert info.version == apsw.Connection(str(path)).execute("PRAGMA user_version").get


def test_what_waits_in_the_log_is_told(store: Store) -> None:
    before = store.info().log_pages
    store.session("k").append("more")
    assert store.info().log_pages > before


def test_the_async_face_tells_the_same(path: Path, tmp_path: Path) -> None:
    async def ask() -> tuple[StoreInfo, list[Problem], int]:
        async with holdfast.open_async(path) as store:
            return (
                await store.info(),
                await store.check(),
                (await store.backup(tmp_path / "copy.db")).entries,
            )

    info, problems, copied = asyncio.run(ask())
    assert problems == [] and copied == info.entries > 20


# What is wrong with it
# -----------------------------------------------------------------------------------------------


def test_a_healthy_store_has_no_problems(store: Store) -> None:
    assert store.check() == []


def test_a_store_in_the_middle_of_a_turn_has_no_problems(store: Store) -> None:
    with store.session("k").turn("Hi") as turn:
        for _ in turn.deliver(["a", "b"]):
            assert store.check() == []


SPEAKS = """
    import holdfast
    with holdfast.open(sys.argv[1]) as store:
        with store.session("k").turn("Hi") as turn:
            for text in turn.deliver(["a", "b", "c"]):
                say("shown")
                hear()
"""


def test_a_turn_whose_process_was_killed_is_no_problem(path: Path, store: Store) -> None:
    with procs.child(SPEAKS, path) as other:
        other.wait_for("shown")
        other.kill()
    assert store.check() == []


def meddle(path: Path, *statements: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        for statement in statements:
            connection.execute(statement).fetchall()


def looks(path: Path) -> list[tuple[int, int]]:
    """How long the files are and when they were written; to open them would let go of the store's
    locks on them.
    """
    stats = [os.stat(f"{path}{suffix}") for suffix in ("", "-wal")]
    return [(stat.st_size, stat.st_mtime_ns) for stat in stats]


FIRST = "(SELECT n FROM session WHERE key = 'telegram:dm:42')"
TURN = f"(SELECT min(turn) FROM entry WHERE session = {FIRST})"

BROKEN = {
    "a gap": (f"DELETE FROM entry WHERE session = {FIRST} AND seq = 5", "I-1"),
    "no beginning": (f"DELETE FROM entry WHERE session = {FIRST} AND seq = 1", "I-1"),
    "no entries": ("DELETE FROM entry WHERE session = (SELECT max(n) FROM session)", "I-1"),
    "entries of nobody": (
        "UPDATE entry SET session = 999 WHERE n = (SELECT max(n) FROM entry)",
        "I-1",
    ),
    "an id twice": (
        f"UPDATE entry SET id = x'aa' WHERE session = {FIRST} AND seq IN (4, 6)",
        "I-2",
    ),
    "an event for nothing": ("UPDATE event SET seq = 999", "I-2"),
    "an event for another": ("UPDATE event SET message = x'00'", "I-2"),
    "an inbox row for nothing": ("UPDATE inbox SET seq = 999", "I-4"),
    "an inbox row for another": ("UPDATE inbox SET message = x'00'", "I-4"),
    "chunks of nobody": ("INSERT INTO journal_a VALUES (9999, 999, 1, x'00', 0, x'00')", "I-5"),
    "two ends": (
        f"UPDATE entry SET kind = 'end', note = NULL, body = NULL WHERE session = {FIRST} AND "
        "seq = 7",
        "I-6",
    ),
    "no end": (f"UPDATE entry SET kind = 'call' WHERE kind = 'end' AND turn = {TURN}", "I-6"),
    "an end of the running turn": (
        f"UPDATE session SET turn = {TURN}, fence = {TURN} WHERE n = {FIRST}",
        "I-6",
    ),
    "a running turn that never started": (
        f"UPDATE session SET fence = 99, turn = 99 WHERE n = {FIRST}",
        "I-6",
    ),
    "two sessions of a key": ("UPDATE session SET ended = 0 WHERE key = 'gone'", "I-8"),
    "a base that is not there": (f"UPDATE session SET base = 999 WHERE n = {FIRST}", "I-11"),
    "a past that is not there": ("UPDATE session SET origin = 999 WHERE origin > 0", "I-1"),
    "a large part that is gone": ("DELETE FROM blob", "I-14"),
    "a large part that was changed": ("UPDATE blob SET body = x'00'", "I-14"),
    "a large part that is not named": ("DELETE FROM blob_use", "I-18"),
    "a payload that is none": (
        f"UPDATE entry SET body = x'7b7b' WHERE session = {FIRST} AND seq = 6",
        "I-18",
    ),
    "a note that is none": (
        f"UPDATE entry SET note = x'7b7b' WHERE session = {FIRST} AND seq = 6",
        "I-18",
    ),
    "an entry of no known kind": (
        f"UPDATE entry SET kind = 'odd', note = x'7b7d' WHERE session = {FIRST} AND seq = 6",
        "I-18",
    ),
    "a reply owed by nobody": ("UPDATE outbox SET turn = 999", "I-23"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_invariant_is_found_with_its_place(path: Path, what: str) -> None:
    statement, invariant = BROKEN[what]
    meddle(path, statement)
    with holdfast.open(path) as store:
        before = looks(path)
        problems = store.check()
        assert looks(path) == before, "looking changes nothing"
    assert invariant in {problem.invariant for problem in problems}, problems
    for problem in problems:
        assert problem.place and problem.problem and problem.remedy
        assert str(problem).startswith(problem.place) and str(problem).endswith(".")


def test_looking_goes_on_after_what_it_finds(path: Path) -> None:
    """All of them at once: each is still found."""
    worst = [
        statement for what, (statement, _) in BROKEN.items() if "DELETE FROM blob" not in statement
    ]
    meddle(path, *worst)
    with holdfast.open(path) as store:
        found = {problem.invariant for problem in store.check()}
    assert found >= {"I-1", "I-2", "I-4", "I-5", "I-6", "I-8", "I-11", "I-14", "I-18", "I-23"}


@pytest.mark.slow
def test_damaged_pages_are_told_with_the_entries_that_they_hit(path: Path) -> None:
    """I-18: which page of which table, and what was on it."""
    with closing(apsw.Connection(str(path))) as connection:
        rows = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'entry' AND pagetype = 'leaf' ORDER BY 1"
        )
        pages = [page for (page,) in rows]
    with open(path, "r+b") as file:
        file.seek((pages[0] - 1) * PAGE)
        file.write(bytes(PAGE))
    with holdfast.open(path) as store:
        problems = store.check()
        hit = store.session("telegram:dm:42").id
    assert any(f"page {pages[0]} (entry)" in problem.place for problem in problems)
    assert any(hit in problem.place and "entries" in problem.place for problem in problems)
    assert {problem.invariant for problem in problems} >= {"I-18"}


def test_looking_takes_no_more_memory_than_a_page(tmp_path: Path) -> None:
    """I-24: a session of four thousand messages costs no more than one of four hundred."""

    def peak(messages: int) -> int:
        with holdfast.open(tmp_path / f"{messages}.db", durability="process") as store:
            session = store.session("k")
            session.record(
                [
                    {"role": "user", "content": f"{number} " + "x" * 1000}
                    for number in range(messages)
                ]
            )
            del session
            store.check()
            tracemalloc.start()
            try:
                assert store.check() == []
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert peak(4000) < peak(400) + 100_000


def test_no_more_problems_are_told_than_somebody_can_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meddle(path, f"UPDATE entry SET body = x'7b7b' WHERE session = {FIRST}")
    for module in (check, maintenance):
        monkeypatch.setattr(module, "PROBLEMS_MAX", 3)
    with holdfast.open(path) as store:
        assert len(store.check()) == 3


def test_a_check_does_not_keep_writers_waiting(path: Path, store: Store) -> None:
    """Between what it finds, others write; it tells of the moment it began."""
    meddle(path, f"UPDATE entry SET body = x'7b7b' WHERE session = {FIRST} AND seq = 6")
    with store._work.engine._readers.alone() as reader:  # type: ignore[attr-defined]
        reader.execute("BEGIN")
        looking = check._problems(reader, str(path))
        first = next(looking)
        for number in range(50):
            store.session("busy").append(f"{number}" * 1000)
        assert [first, *looking] == [first]
        reader.execute("ROLLBACK")
    assert os.path.exists(f"{path}-wal")
