"""One session whose row is damaged harms nobody else: not those that are written in the same batch,
not the leases of others, and not the closing of the store (I-25, FAULTS G3).
"""

import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.engine.protocol import Write
from holdfast.errors import Damaged
from spoiling import Spoiled, place
from thorough import few_cases

__all__ = ["place"]

NO_TEXT = "CAST(x'ff80' AS TEXT)"


def set_base(place: Spoiled, session: str, base: int) -> None:
    if isinstance(place.where, Path):
        with contextlib.closing(sqlite3.connect(place.where)) as db, db:
            db.execute("UPDATE session SET base = ? WHERE id = ?", (base, session))
        return
    import psycopg

    with psycopg.connect(place.where, autocommit=True) as connection:
        connection.execute("UPDATE session SET base = %s WHERE id = %s", (base, session))


def two_sessions(place: Spoiled) -> tuple[str, str]:
    with place.open() as store:
        for key in ("bad", "good"):
            session = store.session(key)
            with session.turn(f"Question of {key}") as turn:
                turn.say("first")
            with session.turn("Next") as turn:
                turn.say("second")
            session.compact("in short", keep_turns=1)
        return store.session("bad").id, store.session("good").id


@few_cases(every=3)
@pytest.mark.parametrize("base", [40, 2**62, -1, -(2**63), 3])
def test_a_load_whose_base_is_not_there_begins_with_the_first_entry(
    place: Spoiled, base: int
) -> None:
    bad, _ = two_sessions(place)
    with place.open() as store:
        seen = list(store.get(bad).context())
    set_base(place, bad, base)
    with place.open() as store:
        session = store.get(bad)
        assert list(session.context()) == seen
        assert session.calls() == []
        with session.turn("more", reply_to="x") as turn:
            turn.say("third")
        assert [message.text for message in session.transcript()][-1] == "third"


class Round:
    """Rounds of the keeper, made by hand."""

    def __init__(self, store: holdfast.Store) -> None:
        self.keeper = store._work.keeper

    def make(self) -> None:
        for tie, _ in list(self.keeper._turns.values()):
            self.keeper._turns[tie.key] = (tie, 0.0)  # all are due
        self.keeper.round()


def breaks(*_: Any, **__: Any) -> Any:
    raise IndexError("a defect")


@pytest.mark.parametrize("step", ["renew", "finish", "desert"])
def test_the_keeper_looks_after_all_others_whatever_one_of_them_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with holdfast.open(tmp_path / "agent.db") as store:
        # The bad one is the first that is looked at.
        bad, good = store.session("bad").turn("Hi"), store.session("good").turn("Hi")
        renewed: list[Any] = []
        monkeypatch.setattr(good._work, "renew", lambda: bool(renewed.append(1)) or True)
        if step == "desert":
            monkeypatch.setattr(type(bad._work), "is_deserted", property(breaks))
        else:
            monkeypatch.setattr(bad._work, step, breaks)
        if step == "finish":
            with pytest.raises(IndexError):
                bad.__exit__(None, None, None)
        keeper = store._work.keeper._thread
        rounds = Round(store)
        for _ in range(3):
            rounds.make()
        assert len(renewed) == 3
        assert keeper is not None and keeper.is_alive()
        monkeypatch.undo()
        good.__exit__(None, None, None)
        assert store.session("good").turns()[-1].end == "completed"


def test_a_turn_that_can_not_be_ended_is_not_tried_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keeper would do nothing else any more."""
    with holdfast.open(tmp_path / "agent.db") as store:
        bad = store.session("bad").turn("Hi")
        news = store._work.keeper._news
        tried = threading.Event()

        def finish(_: Any) -> Any:
            if threading.current_thread().name == "holdfast-keeper":
                asked.append(news.qsize())
                tried.set()
            raise IndexError("a defect")

        asked: list[int] = []
        monkeypatch.setattr(bad._work, "finish", finish)
        with pytest.raises(IndexError):
            bad.__exit__(None, None, None)
        assert tried.wait(30)
        store._work.keeper.settle()  # behind what the thread does
        assert news.qsize() <= 1  # at most what `settle` has asked for itself
        monkeypatch.undo()


def test_a_store_is_closed_though_one_of_its_turns_can_not_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = holdfast.open(tmp_path / "agent.db")
    bad, good = store.session("bad").turn("Hi"), store.session("good").turn("Hi")
    monkeypatch.setattr(bad._work, "finish", breaks)
    with pytest.raises(IndexError):
        store.close()
    assert good._work.ended
    assert not [each for each in threading.enumerate() if str(tmp_path) in each.name]
    with holdfast.open(tmp_path / "agent.db") as again:
        assert again.session("good").turns()[-1].end == "interrupted"


@pytest.mark.parametrize("column", ["opened_at", "journal", "fence", "epoch", "ended", "base"])
def test_a_number_that_is_no_text_either_is_damage_of_its_session_alone(
    tmp_path: Path, column: str
) -> None:
    path = tmp_path / "agent.db"
    two_sessions(Spoiled(path, lambda *_: None))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA ignore_check_constraints=ON")
        db.execute(f"UPDATE session SET {column} = {NO_TEXT} WHERE key = 'bad'")
    with holdfast.open(path) as store:
        assert next(m.text for m in store.session("bad").transcript()) == "Question of bad"
        for work in (
            lambda: store.session("bad").append("x"),
            lambda: store.session("bad").turn("x"),
            lambda: store.accept("bad", "x"),
        ):
            with pytest.raises(Damaged):
                work()
        store.session("good").append("x")


@pytest.mark.parametrize("column", ["fence", "epoch", "origin"])
def test_a_number_behind_which_none_can_come_is_damage(tmp_path: Path, column: str) -> None:
    path = tmp_path / "agent.db"
    two_sessions(Spoiled(path, lambda *_: None))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE session SET {column} = {2**63 - 1} WHERE key = 'bad'")
    with holdfast.open(path) as store:
        with pytest.raises(Damaged):
            store.session("bad").turn("x")
        store.session("good").append("x")


def test_a_damaged_session_is_an_answer_to_its_own_writers_alone(tmp_path: Path) -> None:
    """Commits of others that are in the same batch are done."""
    path = tmp_path / "agent.db"
    bad, good = two_sessions(Spoiled(path, lambda *_: None))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE session SET fence = {NO_TEXT} WHERE id = ?", (bad,))
    with holdfast.open(path) as store:
        draft = store.get(good)._log.draft
        commits = [(Write(id, (draft("label", None, body=b"{}"),)),) for id in (good, bad, good)]
        engine = store._work.engine._engine
        first, middle, last = engine._apply(commits)
        assert isinstance(middle, Damaged)
        assert (first.seq, last.seq) == (last.seq - 1, first.seq + 1)


def test_a_reply_owed_to_nobody_who_can_be_named_keeps_no_session_from_being_erased(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path) as store:
        for key in ("owing", "erased"):
            with store.session(key).turn("Hi", reply_to="ann") as turn:
                turn.say("Hello")
        erased = store.session("erased").id
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        owing = "(SELECT n FROM session WHERE key = 'owing')"
        db.execute(f"UPDATE outbox SET reply_to = {NO_TEXT} WHERE session = {owing}")
    with holdfast.open(path) as store:
        store.erase(erased)
        assert len(store.outbox()) == 1
