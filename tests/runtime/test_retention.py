"""Retention: what is old goes, many sessions at once, and what is left is as small as what is left
(I-21, I-24).
"""

import contextlib
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from carrying import CANARY
from holdfast.runtime.catalog.maintenance import vacuum
from holdfast.runtime.changes import erase
from looking import HandWorld
from procs import child
from thorough import few_on_postgres

pytestmark = few_on_postgres(
    "what is old is judged above the engine; what it removes has its laws in the conformance suite",
    every=3,
)

OLD_S = -40 * 86_400


def told(
    where: str, number: int, *, say: str = "word", forked: bool = False, **options: Any
) -> list[str]:
    """So many sessions that had their last news forty days ago, each with an event, a debt and
    something waiting; with `forked` each one shares the past of the one before.
    """
    world = HandWorld()
    world.ahead_s = OLD_S
    ids: list[str] = []
    with holdfast.open(where, durability="process", world=world, **options) as store:
        for n in range(number):
            session = store.get(ids[-1]).fork() if forked and ids else store.session(f"old {n}")
            with session.turn(f"{say} {n}", event_id=f"event {n}", reply_to=f"{say} {n}") as turn:
                turn.say(f"{say}, {n}")
            session.append(f"{say}: {n}")
            ids.append(session.id)
    return ids


def erased(store: holdfast.Store, ids: list[str]) -> list[bool]:
    """Which of these sessions are erased; each is so whole, or not at all."""
    states = [{message.state == "erased" for message in store.get(id).transcript()} for id in ids]
    assert all(len(state) == 1 for state in states)
    return [state == {True} for state in states]


def files_with(where: str, word: str = CANARY) -> list[str]:
    place = Path(where)
    return [
        file.name
        for file in place.parent.iterdir()
        if word.lower().encode() in file.read_bytes().lower()
    ]


class Counted:
    """What is asked of a store, by the names of its questions, and how often it is written."""

    def __init__(self, store: holdfast.Store, patch: pytest.MonkeyPatch) -> None:
        engine = store._work.engine
        self.asked: list[str] = []
        self.written: list[list[str]] = []
        read = type(engine._readers).read  # type: ignore[attr-defined]

        def counted(readers: Any, name: str, *given: Any, **options: Any) -> Any:
            self.asked.append(name)
            return read(readers, name, *given, **options)

        patch.setattr(type(engine._readers), "read", counted)  # type: ignore[attr-defined]
        if hasattr(engine, "_connection"):
            engine._connection.set_exec_trace(self._run)
        else:
            from holdfast.engine.postgres.server.connection import ServerConnection

            run_all = ServerConnection.run_all

            def sent(line: Any, statements: list[Any], **options: Any) -> Any:
                self.written.append([name for name, _ in statements])
                return run_all(line, statements, **options)

            patch.setattr(ServerConnection, "run_all", sent)

    def _run(self, _cursor: Any, statement: str, _values: Any) -> bool:
        if statement.startswith("BEGIN"):
            self.written.append([])
        if self.written:
            self.written[-1].append(statement)
        return True

    def times(self, word: str) -> int:
        """How often a statement was run that begins with this word or has this name."""
        return sum(each.startswith(word) for transaction in self.written for each in transaction)


def counts(
    where: str, number: int, patch: pytest.MonkeyPatch, **options: Any
) -> tuple[int, Counted]:
    told(where, number, **options)
    with holdfast.open(
        where, **{name: value for name, value in options.items() if name == "tenant"}
    ) as store:
        store.retain(30)  # whose sessions they are is asked once in the life of a process
        with patch.context() as within:
            counted = Counted(store, within)
            assert len(store.retain(30, preview=False)) == number
        return len(counted.asked), counted


@pytest.mark.slow
def test_a_retention_asks_for_many_sessions_what_it_asks_for_one(
    where: str, monkeypatch: pytest.MonkeyPatch
):
    """On a server no question is for one session; from a file each session is read three times, and
    no more.
    """
    few, _ = counts(where, 3, monkeypatch, tenant="few")
    many, _ = counts(where, 30, monkeypatch, tenant="many")
    assert many - few <= (27 * 3 if "://" not in where else 0)


@pytest.mark.slow
def test_many_sessions_are_erased_in_few_transactions(where: str, monkeypatch: pytest.MonkeyPatch):
    """What a file has to write anew is written once for each of them."""
    _, counted = counts(where, 40, monkeypatch)
    if "://" in where:
        assert counted.times("commit") == counted.times("save_note") == counted.times("sweep") <= 4
    else:
        assert counted.times("DELETE FROM outbox") == counted.times("DELETE FROM journal_a") <= 4
        assert counted.times("COMMIT") <= 12, "each is followed by what scrubs the file"


def test_a_retention_looks_at_nothing_that_was_erased_before(
    where: str, monkeypatch: pytest.MonkeyPatch
):
    """However many sessions are long gone, the next one costs the same: no page of it has one of
    them.
    """
    monkeypatch.setattr(erase, "BATCH", 2)
    told(where, 9)
    pages: list[list[str]] = []
    with holdfast.open(where) as store:
        store.retain(30, preview=False)
        engine = type(store._work.engine.check.__self__)  # type: ignore[attr-defined]
        states = engine._states

        def counted(*given: Any, **options: Any) -> Any:
            page = states(*given, **options)
            pages.append([state.id for state in page])
            return page

        monkeypatch.setattr(engine, "_states", counted)
        assert store.retain(30) == store.retain(30, preview=False) == []
    assert pages == [[], []]


def test_erasing_a_session_looks_at_no_fork_but_its_own(
    where: str, monkeypatch: pytest.MonkeyPatch
):
    with holdfast.open(where) as store:
        asked = []
        for forks in (1, 12):
            session, others = store.session(f"with forks {forks}"), store.session(f"others {forks}")
            session.append("shared")
            others.append("shared by others")
            own = session.fork().id
            for _ in range(forks):
                others.fork().append("mine")
            with monkeypatch.context() as within:
                counted = Counted(store, within)
                assert store.erase(session.id, preview=True).forks == (own,)
                asked.append(len(counted.asked))
        assert asked[0] == asked[1]


def test_a_retention_forgets_events_and_an_erasure_does_not(where: str):
    told(where, 2)
    with holdfast.open(where) as store:
        store.erase(store.session("old 0", create=False).id)
        assert store.accept("old 0", "redelivered", event_id="event 0").again
        assert len(store.retain(30, preview=False)) == 1
        assert not store.accept("old 1", "redelivered", event_id="event 1").again
        assert store.accept("old 0", "redelivered", event_id="event 0").again
        assert store.check() == []


def test_a_chain_of_old_forks_goes_as_a_whole(where: str, monkeypatch: pytest.MonkeyPatch):
    ids = told(where, 12, forked=True)
    monkeypatch.setattr(erase, "BATCH", 5)
    with holdfast.open(where) as store:
        assert {found.session_id for found in store.retain(30, preview=False)} == set(ids)
        assert store.check() == []


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2, 500])
def test_all_that_a_young_fork_shares_is_kept(
    where: str, monkeypatch: pytest.MonkeyPatch, batch: int
):
    """In whatever order and company its ancestors are met; a branch that nobody needs goes."""
    ids = told(where, 6, forked=True)
    monkeypatch.setattr(erase, "BATCH", batch)
    with holdfast.open(where) as store:
        young = store.get(ids[3]).fork()
        young.append("still here")
        assert {found.session_id for found in store.retain(30)} == set(ids[4:])
        assert {found.session_id for found in store.retain(30, preview=False)} == set(ids[4:])
        assert [message.state for message in young.transcript()] == ["complete"] * 13


def test_a_session_of_many_entries_stands_alone(where: str, monkeypatch: pytest.MonkeyPatch):
    """Notes of a retention are held until they are written: not more of them than so many."""
    ids = told(where, 6)
    monkeypatch.setattr(erase, "ENTRIES_MAX", 7)
    monkeypatch.setattr(erase, "PAGE", 3)
    with holdfast.open(where) as store:
        assert {found.session_id for found in store.retain(30, preview=False)} == set(ids)
        assert erased(store, ids) == [True] * 6 and store.check() == []


RETAINS = """
    import os, signal
    import holdfast
    from holdfast.runtime.changes import erase

    erase.BATCH, left = 8, int(sys.argv[2])
    store = holdfast.open(sys.argv[1])
    engine = store._work.engine
    submit = engine.submit

    def counted(commit):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return submit(commit)

    engine.submit = counted
    store.retain(30, preview=False)
"""


@pytest.mark.slow
def test_a_retention_that_was_killed_is_resumed(where: str):
    """At any point: each session is as it was or erased whole, and the next retention erases the
    rest.
    """
    ids = told(where, 30, say=CANARY)
    for left in (3, 12):
        with child(RETAINS, where, left) as other:
            other.end(code=-signal.SIGKILL)
        with holdfast.open(where) as store:
            assert store.check() == []
            assert len(store.retain(30)) == erased(store, ids).count(False)
    with holdfast.open(where) as store:
        done = store.retain(30, preview=False)
        assert erased(store, ids) == [True] * 30 and 0 < len(done) < 30 and store.outbox() == []
        assert store.check() == [] and store.retain(30) == []
    if "://" not in where:
        assert files_with(where) == []


UNSCRUBBED = """
    import os, signal
    import holdfast
    from holdfast.engine.sqlite.search.access import SqliteSearch

    SqliteSearch.forget = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    holdfast.open(sys.argv[1]).retain(30, preview=False)
"""


def test_what_a_killed_retention_left_in_the_files_goes_with_the_next(tmp_path: Path):
    """All sessions are erased then, and their words still lie in the search file."""
    where = str(tmp_path / "agent.db")
    ids = told(where, 5, say=CANARY)
    with holdfast.open(where) as store:
        assert len(store.search(CANARY)) == 15
    with child(UNSCRUBBED, where) as other:
        other.end(code=-signal.SIGKILL)
    with holdfast.open(where) as store:
        # an index shortens what words have in common
        assert any(erased(store, ids)) and files_with(where, CANARY[-8:])
        store.retain(30, preview=False)
        assert erased(store, ids) == [True] * 5 and files_with(where, CANARY[-8:]) == []


def test_a_retention_that_somebody_stands_in_the_way_of_says_so_until_it_is_done(tmp_path: Path):
    import apsw

    where = str(tmp_path / "agent.db")
    ids = told(where, 3, say=CANARY)
    with holdfast.open(where) as store:
        reader = apsw.Connection(where)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entry").fetchall()
        store._work.engine._connection.set_busy_timeout(1)  # type: ignore[attr-defined]
        for _ in range(2):
            with pytest.raises(holdfast.errors.StoreUnavailable, match="retention again"):
                store.retain(30, preview=False)
        reader.close()
        assert len(store.retain(30, preview=False)) + 3 >= len(ids)
        assert erased(store, ids) == [True] * 3 and files_with(where) == []


@pytest.mark.slow
def test_what_a_retention_frees_can_be_given_back(
    where: str, databases: Callable[..., str], tmp_path: Path
):
    """After it, a store is about as small as one that never had the rest."""
    words = random.Random(3).randbytes(1500).hex()  # a server makes what repeats itself smaller
    alone = databases(schema=True) if "://" in where else str(tmp_path / "alone.db")
    told(where, 40, say=words)
    for place in (where, alone):
        with holdfast.open(place) as store:
            for number in range(4):
                store.session(f"kept {number}").append(words)
    with holdfast.open(where) as store:
        before = store.info().bytes
        assert len(store.retain(30, preview=False)) == 40
    assert vacuum(where) > 0
    with holdfast.open(where) as store, holdfast.open(alone) as other:
        after, least = store.info().bytes, other.info().bytes
        assert after - least < (before - least) / 4, (before, after, least)
        assert store.check() == [] and len(list(store.session("kept 0").transcript())) == 1


def test_a_file_is_made_smaller_while_others_use_it(tmp_path: Path):
    where = str(tmp_path / "agent.db")
    told(where, 20, say="x" * 5000)
    with holdfast.open(where) as store:
        kept = store.session("kept")
        kept.append("Before.")
        store.retain(30, preview=False)
        assert store.info().free_pages > 20
        vacuum(where)
        assert store.info().free_pages == 0 and [message.text for message in kept.transcript()] == [
            "Before."
        ]
        kept.append("After.")
        assert store.check() == []
    assert Path(where).stat().st_size < 40 * 4096
    with pytest.raises(holdfast.errors.StoreUnavailable):
        vacuum(tmp_path / "nothing.db")
    assert not (tmp_path / "nothing.db").exists()


@pytest.mark.slow
def test_two_who_retain_at_once_erase_each_session_once(where: str):
    """While others go on, one of them in a session that is old until then: that one is kept, or
    ended.
    """
    ids = told(where, 30)
    with holdfast.open(where) as one, holdfast.open(where) as other, holdfast.open(where) as third:
        together = threading.Barrier(3)

        def retains(store: holdfast.Store) -> list[str]:
            together.wait(60)
            return [found.session_id for found in store.retain(30, preview=False)]

        def goes_on() -> list[bool]:
            together.wait(60)
            taken = []
            for id in [*ids[:2], *[third.session(f"new {number}").id for number in range(5)]]:
                with contextlib.suppress(holdfast.errors.SessionEnded):
                    third.get(id).append("news")
                    taken.append(id)
            return taken

        with ThreadPoolExecutor(3) as pool:
            work = [pool.submit(retains, one), pool.submit(retains, other), pool.submit(goes_on)]
            first, second, taken = (each.result(60) for each in work)
        assert not set(first) & set(second) and len(first) + len(second) == len({*first, *second})
        assert {*first, *second} == set(ids) - set(taken)
        assert one.check() == []
        assert all("news" in [message.text for message in one.get(id).transcript()] for id in taken)
