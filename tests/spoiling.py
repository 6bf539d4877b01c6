"""Stores whose entries are spoiled by hand, with SQL, as a bad disk, another program or a newer
release could.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast


class Spoiled:
    """A store, and how its entries are spoiled."""

    def __init__(self, where: Any, spoil: Callable[[str, int, str, bytes], None]) -> None:
        self.where, self.spoil = where, spoil

    def open(self) -> holdfast.Store:
        return holdfast.open(self.where)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Spoiled]:
    if request.param == "sqlite":
        path = tmp_path / "agent.db"

        def spoil(session: str, seq: int, column: str, value: bytes) -> None:
            with contextlib.closing(apsw.Connection(str(path))) as connection:
                here = "session = (SELECT n FROM session WHERE id = ?) AND seq = ?"
                [whole] = connection.execute(
                    f"SELECT kind, note, body FROM log WHERE {here}", (session, seq)
                )
                unpacked = f"UPDATE entry SET kind = ?, note = ?, body = ? WHERE {here}"
                connection.execute(unpacked, (*whole, session, seq))
                connection.execute(
                    f"UPDATE entry SET {column} = ? WHERE {here}", (value, session, seq)
                )

        yield Spoiled(path, spoil)
        return
    import psycopg

    where = request.getfixturevalue("databases")(schema=True)

    def spoil_there(session: str, seq: int, column: str, value: bytes) -> None:
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(
                f"UPDATE entry SET {column} = %s WHERE seq = %s AND session = %s",  # type: ignore[arg-type]
                (value, seq, session),
            )

    yield Spoiled(where, spoil_there)
