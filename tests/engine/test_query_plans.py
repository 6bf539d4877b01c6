"""Statements that must not go through all sessions of a tenant say so by their plans: a file that
was never analysed has no statistics, and SQLite guesses (I-27).
"""

import re
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.engine.sqlite.connection import connect_reader
from holdfast.engine.sqlite.queries import QUERIES

EXPECTED = {
    "sessions_by_prefix": "USING INDEX sqlite_autoindex_session_1 (id>? AND id<?)",
    "session_by_key": "USING INDEX session_by_key (tenant=? AND key=?)",
    "sessions_of_key": "USING INDEX session_by_key (tenant=? AND key=?)",
    "sessions_by_activity": "USING INDEX session_running (tenant=?)",
    "running": "USING INDEX session_running (tenant=?)",
    "forks": "USING INDEX session_forks (tenant=? AND parent=?)",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_statement_finds_its_sessions_by_their_index(tmp_path: Path, name: str) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="process") as store:
        for number in range(20):
            store.session(f"key {number}")
    values = {value: 1 for value in re.findall(r":(\w+)", QUERIES[name])}
    with closing(connect_reader(str(path), busy_s=0.0)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", values)]
    assert any(EXPECTED[name] in step for step in plan), plan


@pytest.mark.parametrize("read_only", [False, True])
def test_a_log_that_is_read_further_is_not_planned_anew(tmp_path: Path, read_only: bool) -> None:
    """SQLite would prepare a statement again for every place to go on from: four fifths of the time
    that a small read takes.
    """
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="process") as store:
        session = store.session("k")
        for number in range(10):
            session.append(f"{number}")
    with holdfast.open(path, read_only=read_only) as store:
        session = store.session("k")
        engine = session._log.engine
        prepared: list[int] = []

        def note(*action: object) -> int:
            """Called whenever a statement is prepared."""
            prepared.append(after)
            return int(apsw.SQLITE_OK)

        with engine._readers.alone() as reader:
            reader.authorizer = note
            for after in range(8):
                values = (engine._number(session.id), after, 1)
                reader.execute(QUERIES["entries"], values).fetchall()
            reader.authorizer = None
        assert set(prepared) == {0}
