"""Statements that must not go through all sessions of a tenant say so by their plans: a file that
was never analysed has no statistics, and SQLite guesses (I-27).
"""

import re
from pathlib import Path

import apsw
import pytest

import holdfast
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
    connection = apsw.Connection(str(path))
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", values)]
    assert any(EXPECTED[name] in step for step in plan), plan
