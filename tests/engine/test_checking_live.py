"""A healthy store is told to be healthy while it is used (I-6): a turn that is being taken over is
no defect.
"""

import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.domain.entry import TurnEnded
from holdfast.engine.protocol import Write, Written
from holdfast.engine.sqlite.maintenance import roll

LIMIT_S = 60.0


@pytest.fixture(params=["a file", "PostgreSQL"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        str(tmp_path / "agent.db")
        if request.param == "a file"
        else request.getfixturevalue("databases")(schema=True)
    )


def test_a_turn_that_is_seized_and_not_finished_yet_is_no_defect(
    where: str, tmp_path: Path
) -> None:
    """With the end that was asked for, and without; the same in a backup that was made
    just then.
    """
    with holdfast.open(where, durability="process") as store:
        for number, asked in enumerate((True, False)):
            session = store.session(f"k{number}")
            turn = session.turn("hello")
            session_log = session._log
            state = session_log.state()
            drafts = (
                (
                    session_log.draft(
                        "end", TurnEnded("interrupted", reason="stopped"), turn=state.turn
                    ),
                )
                if asked
                else ()
            )
            seized = Write(
                session_log.id,
                drafts=drafts,
                fence=state.fence,
                seize=True,
                renew_s=60.0,
                ended_too=True,
            )
            assert isinstance(session_log.engine.commit([(seized,)])[0], Written)
            assert store.check() == []
            assert turn.id
        if "://" not in where and "host=" not in where:
            store.backup(tmp_path / "backup.db")
            with holdfast.open(tmp_path / "backup.db", read_only=True) as copy:
                assert copy.check() == []


def test_checks_find_nothing_while_turns_are_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with (
        holdfast.open(path, durability="process") as store,
        holdfast.open(path, durability="process") as other,
    ):
        over = threading.Event()

        def take_over(mine: holdfast.Store) -> None:
            while not over.is_set():
                try:
                    with mine.session("k").turn("mine now", on_busy="interrupt") as turn:
                        turn.say("words")
                except holdfast.errors.TurnInterrupted:
                    pass

        threads = [threading.Thread(target=take_over, args=(mine,)) for mine in (store, other)]
        for thread in threads:
            thread.start()
        try:
            found = [problem for _ in range(40) for problem in store.check()]
        finally:
            over.set()
            for thread in threads:
                thread.join(LIMIT_S)
        assert found == []


def test_a_session_that_is_spoken_to_while_the_roll_is_called_is_not_astray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time of the last activity moves in the table and in the index."""
    with holdfast.open(tmp_path / "agent.db", durability="process") as store:
        session = store.session("k")
        session.append("One.")
        look = roll.is_session_id

        def speak_and_look(id: str) -> bool:
            time.sleep(0.01)
            with session.turn("Two."):
                pass
            return look(id)

        monkeypatch.setattr(roll, "is_session_id", speak_and_look)
        called = session._log.engine.roll(["default"])
        assert (called.ids, called.misled) == ([session.id], {})
        assert len(list(session.transcript())) == 2
