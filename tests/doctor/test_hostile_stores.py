"""Stores that were made to do harm, and those that Hermes made itself: nothing of a stranger's is
run, and all ends.
"""

import gzip
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import goose_stores
import hermes_stores
from commanding import command, surroundings
from holdfast.errors import StoreUnavailable
from holdfast.importers import guarded_sqlite
from holdfast.importers.goose.files import _elements
from holdfast.importers.sqlite_file import SqliteFile
from procs import child

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "hermes-0.19.0.db.gz"
"""Made with `SessionDB` of hermes-agent 0.19.0: two sessions, a tool call, a question without an
answer.
"""
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    path = tmp_path / "state.db"
    path.write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    return path


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as store:
        for statement in statements:
            store.execute(statement)
        store.commit()
    return path


def schema(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as store:
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {
            (kind, name) for kind, name in store.execute("SELECT type, name FROM sqlite_schema")
        }


def test_a_store_that_hermes_made_is_healed_as_a_store_of_hermes(
    real: Path, tmp_path: Path
) -> None:
    out = tmp_path / "healed.db"
    done = command("doctor", real, "--heal", out, "--as", "hermes", "--json")
    assert [change["rule"] for change in done.json["healed"]["changes"]] == ["hermes/orphan-user"]
    assert schema(out) == schema(real)
    with closing(sqlite3.connect(out)) as store, closing(sqlite3.connect(real)) as before:
        query = "SELECT id, source, model, title, started_at FROM sessions"
        assert store.execute(query).fetchall() == before.execute(query).fetchall()
        for name in ("messages_fts", "messages_fts_trigram"):
            [(found,)] = store.execute(f"SELECT count(*) FROM {name} WHERE {name} MATCH 'berth'")
            assert found == 2
        for table in (
            "sessions",
            "messages",
            "session_model_usage",
            "gateway_routing",
            "async_delegations",
        ):
            query = (
                f"SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('{table}')"
            )
            assert store.execute(query).fetchall() == before.execute(query).fetchall()
    assert command("doctor", out).code == 0


@pytest.mark.parametrize("kind", ["index", "trigger", "table"])
def test_the_schema_of_a_store_is_never_run(real: Path, tmp_path: Path, kind: str) -> None:
    """SQLite reads the first statement of a definition; whoever runs the text runs the
    others too.
    """
    victim = changed(tmp_path / "victim.db", "CREATE TABLE t (x)", "INSERT INTO t VALUES ('mine')")
    more = f"; ATTACH '{victim}' AS v; DELETE FROM v.t; DETACH v"
    changed(
        real,
        "PRAGMA writable_schema = 1",
        f"UPDATE sqlite_schema SET sql = sql || \"{more}\" WHERE type = '{kind}' AND sql NOT LIKE "
        "'%VIRTUAL%'",
    )
    command("doctor", real, "--heal", tmp_path / "healed.db", "--as", "hermes")
    command("doctor", real)
    command("import", real, "--into", tmp_path / "agent.db")
    with closing(sqlite3.connect(victim)) as store:
        assert store.execute("SELECT x FROM t").fetchall() == [("mine",)]


@pytest.fixture
def guarded(real: Path, tmp_path: Path) -> Iterator[apsw.Connection]:
    changed(
        real, "CREATE VIEW v AS SELECT 1 AS x", f"CREATE VIEW endless AS {ENDLESS} SELECT i FROM n"
    )
    file = SqliteFile(real)
    yield file.connection
    file.close()


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH '{folder}/other.db' AS other",
        "SELECT * FROM v",
        "SELECT * FROM endless",
        "SELECT * FROM messages_fts",
        "INSERT INTO state_meta VALUES ('a', 'b')",
        "CREATE TABLE t (x)",
        "DROP TABLE messages",
        "PRAGMA writable_schema = 1",
        "PRAGMA journal_mode = DELETE",
        "VACUUM INTO '{folder}/other.db'",
    ],
)
def test_a_guarded_connection_reads_tables_and_does_nothing_else(
    guarded: apsw.Connection, tmp_path: Path, statement: str
) -> None:
    with pytest.raises(apsw.Error):
        guarded.execute(statement.format(folder=tmp_path)).fetchall()
    assert not (tmp_path / "other.db").exists()


def test_tables_that_are_none_are_not_read(guarded: apsw.Connection) -> None:
    """They are programs: what they give is not in the file."""
    for statement in ("SELECT * FROM json_each('[1, 2]')", "SELECT * FROM pragma_database_list"):
        with pytest.raises(apsw.Error):
            guarded.execute(statement).fetchall()


def test_functions_that_make_much_of_little_give_nothing(guarded: apsw.Connection) -> None:
    given = guarded.execute(
        "SELECT zeroblob(9), hex('a'), randomblob(9), printf('%9d', 1), typeof('a')"
    ).fetchall()
    assert given == [(None, None, None, None, "text")]


VIEWS = {
    "hermes": (
        ("messages", "id", "session_id", "role", "content", "timestamp"),
        ("sessions", "id", "source"),
    ),
    "goose": (("messages", "session_id", "content_json", "created_timestamp", "role"),),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_in_place_of_a_table_is_not_read(tmp_path: Path, kind: str) -> None:
    """It has rows without end, and each is large."""
    path = tmp_path / "store.db"
    if kind == "goose":
        goose_stores.built(path, goose_stores.one_call)
    else:
        hermes_stores.healthy(path)
    for table, *columns in VIEWS[kind]:
        each = ", ".join(f"hex(zeroblob(15000000)) AS {column}" for column in columns)
        changed(
            path, f"DROP TABLE {table}", f"CREATE VIEW {table} AS {ENDLESS} SELECT {each} FROM n"
        )
    for words in (("doctor",), ("import", "--into", tmp_path / "agent.db")):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.cli.main", *map(str, (words[0], path, *words[1:]))],
            env=surroundings(), timeout=60, capture_output=True,
        )  # fmt: skip
        assert done.returncode in (0, 1, 3), done.stderr


def test_columns_that_are_computed_are_not_read(real: Path) -> None:
    changed(real, "ALTER TABLE messages ADD COLUMN large TEXT AS (hex(zeroblob(30000000))) VIRTUAL")
    assert command("doctor", real).code == 1


def test_work_without_a_row_ends(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_sqlite, "LOOKS_MAX", 20)
    file = SqliteFile(real)
    with pytest.raises(StoreUnavailable, match="does not come to an end"):
        crossed = ", ".join(f"messages AS m{number}" for number in range(12))
        file.connection.execute(f"SELECT count(*) FROM {crossed}").fetchall()
    file.close()


def test_more_than_a_file_can_hold_does_not_come_out_of_it(
    real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SqliteFile(real)
    monkeypatch.setattr(guarded_sqlite, "PASSES_MAX", 0)
    with pytest.raises(StoreUnavailable, match="than a file of its size"):
        file.connection.execute("SELECT content FROM messages").fetchall()
    file.close()


def test_ctrl_c_is_seen_while_sqlite_works(real: Path) -> None:
    script = """
    import signal
    from pathlib import Path
    from holdfast.importers.sqlite_file import SqliteFile
    signal.signal(signal.SIGINT, signal.default_int_handler)
    file = SqliteFile(Path(sys.argv[1]))
    crossed = ", ".join(f"messages AS m{number}" for number in range(12))
    try:
        say("working")
        file.connection.execute(f"SELECT count(*) FROM {crossed}").fetchall()
    except KeyboardInterrupt:
        say("seen")
    """
    with child(script, real) as other:
        other.wait_for("working")
        other.interrupt()
        other.wait_for("seen")


def test_a_cut_export_is_scanned_once(tmp_path: Path) -> None:
    """A string without its end, with many quotes in it: ten megabytes, where a search from each
    quote takes days.
    """
    raw = b'[{"role": "user", "content": "' + b'say \\"this\\" and \\"that\\" ' * 400_000
    found, end = _elements(raw, 1)
    assert (len(found), end) == (1, len(raw))
