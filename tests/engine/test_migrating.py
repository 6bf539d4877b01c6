"""Migrating: a store that an older release wrote is read by this one, and no word or promise in it
is lost.
"""

import multiprocessing
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.engine.sqlite import queries
from holdfast.engine.sqlite.connection import APPLICATION_ID
from holdfast.engine.sqlite.maintenance import migrate
from holdfast.errors import AlreadyAccepted, SchemaMismatch, StoreUnavailable
from holdfast.runtime.catalog import maintenance

SESSION = "11111111-0000-4000-8000-000000000000"
FORK = "{0}{0}{0}{0}{0}{0}{0}{0}-0000-4000-8000-000000000000"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store as version 1 wrote it: plain rows, events by their text."""
    path = tmp_path / "old.db"
    path.touch(0o600)
    old = apsw.Connection(str(path))
    old.execute("PRAGMA journal_mode=WAL").fetchall()
    old.execute(queries.MIGRATIONS[1])
    old.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1").fetchall()
    old.execute(
        "INSERT INTO session (id, tenant, key, epoch, opened_at, active_at) VALUES (?, 'default', "
        "'k', 1, 5, 5)",
        (SESSION,),
    )
    rows = [
        (1, "opened", b"0" * 16, 5, b'{"key":"k"}', None),
        (2, "message", b"1" * 16, 6, None, b'{"role":"user","content":"asked"}'),
        (
            3,
            "message",
            b"2" * 16,
            7,
            b'{"role":"assistant"}',
            b'{"role":"assistant","content":"answered"}',
        ),
    ]
    old.executemany(
        "INSERT INTO entry (session, seq, kind, id, at, note, body) VALUES (1, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    scope = "7 default key k"
    old.execute("INSERT INTO event VALUES (?, 'e1', 1, 2, ?)", (scope, b"1" * 16))
    old.close()
    return path


def test_what_waited_in_an_old_store_still_waits(path):
    old = apsw.Connection(str(path))
    waiting = (
        4,
        "message",
        b"3" * 16,
        8,
        b'{"inbox":true}',
        b'{"role":"user","content":"still waits"}',
    )
    old.execute(
        "INSERT INTO entry (session, seq, kind, id, at, note, body) VALUES (1, ?, ?, ?, ?, ?, ?)",
        waiting,
    )
    old.execute("INSERT INTO inbox (session, seq, message) VALUES (1, 4, ?)", (b"3" * 16,))
    old.close()
    with holdfast.open(path) as store:
        assert [message.text for message in store.session("k").pending()] == ["still waits"]
    with holdfast.open(path) as store, store.session("k").turn() as turn:
        assert turn.context()[-1]["content"] == "still waits"


def test_a_store_of_version_1_is_read_and_goes_on(path):
    with holdfast.open(path) as store:
        session = store.session("k")
        assert session.id == SESSION
        assert [message.text for message in session.transcript()] == ["asked", "answered"]
        session.append("more")
        assert [payload["content"] for payload in session.context()] == [
            "asked",
            "answered",
            "more",
        ]
    assert apsw.Connection(str(path)).execute("PRAGMA user_version").get == migrate.SCHEMA_VERSION


def test_an_event_that_version_1_accepted_is_still_accepted_once(path):
    with holdfast.open(path) as store:
        with pytest.raises(AlreadyAccepted):
            store.session("k").append("again", event_id="e1")
        assert store.accept("k", "again", event_id="e1").again


def test_a_fork_in_an_old_store_knows_its_parent(path):
    """One whose first note can't be read knows none, and keeps nobody from migrating."""
    old = apsw.Connection(str(path))
    for number, opened in (
        (2, b'{"parent":"%s","parent_seq":2}' % SESSION.encode()),
        (3, b'{"parent":'),
    ):
        old.execute(
            "INSERT INTO session (id, tenant, epoch, origin, opened_at, active_at) VALUES (?, "
            "'default', 1, 2, 9, 9)",
            (FORK.format(number),),
        )
        row = (number, opened, number.to_bytes(16, "big"))
        old.execute(
            "INSERT INTO entry (session, seq, kind, note, id, at) VALUES (?, 3, 'opened', ?, ?, 9)",
            row,
        )
    old.close()
    with holdfast.open(path) as store:
        engine = store._work.engine
        assert [fork.id for fork in engine.forks("default", [SESSION])] == [FORK.format(2)]
        assert engine.state(FORK.format(3)).parent is None
        assert [message.text for message in store.get(FORK.format(2)).transcript()] == ["asked"]
        assert store.erase(SESSION, preview=True).forks == (FORK.format(2),)


def test_a_migration_can_be_asked_for_and_says_what_it_did(path):
    assert maintenance.migrate(path) == maintenance.Migrated(1, migrate.SCHEMA_VERSION)
    assert maintenance.migrate(path) == maintenance.Migrated(
        migrate.SCHEMA_VERSION, migrate.SCHEMA_VERSION
    )
    with pytest.raises(StoreUnavailable):
        maintenance.migrate(path.with_name("nothing.db"))
    assert not path.with_name("nothing.db").exists()


@pytest.mark.slow
def test_several_processes_that_open_an_old_store_at_once_migrate_it_once(path):
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(4) as pool:
        assert pool.map(_appended, [str(path)] * 8) == [True] * 8
    with holdfast.open(path) as store:
        assert len(list(store.session("k").transcript())) == 2 + 8


def test_a_migration_that_fails_leaves_the_store_as_it_was(path, monkeypatch):
    broken = {2: queries.MIGRATIONS[2], 3: queries.MIGRATIONS[3] + "; BROKEN"}
    monkeypatch.setattr(migrate, "MIGRATIONS", broken)
    before = (
        apsw.Connection(str(path)).execute("SELECT * FROM sqlite_master ORDER BY name").fetchall()
    )
    with pytest.raises(holdfast.HoldfastError):
        holdfast.open(path)
    database = apsw.Connection(str(path))
    assert database.execute("PRAGMA user_version").get == 1
    assert database.execute("SELECT * FROM sqlite_master ORDER BY name").fetchall() == before


def _appended(path: str) -> bool:
    with holdfast.open(path) as store:
        store.session("k").append("hello")
    return True


def test_a_store_that_a_newer_release_migrates_while_it_is_open_is_not_written(
    tmp_path: Path,
) -> None:
    """FAULTS H3."""
    place = tmp_path / "agent.db"
    with holdfast.open(place) as store:
        session = store.session("k")
        session.append("Before.")
        other = apsw.Connection(str(place))
        newer = migrate.SCHEMA_VERSION + 1
        other.execute(f"PRAGMA user_version={newer}").fetchall()
        with pytest.raises(SchemaMismatch):
            session.append("After.")
        other.execute(f"PRAGMA user_version={migrate.SCHEMA_VERSION}").fetchall()
        other.close()
        assert [message.text for message in session.transcript()] == ["Before."]
