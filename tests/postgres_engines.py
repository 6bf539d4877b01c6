"""Engines of one test on PostgreSQL, opened with what is usual, and questions to the server behind
them. The fixtures that use this are in `engine/conftest.py`.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.testing.reference import Ticks

Open = Callable[..., PostgresEngine]


@contextlib.contextmanager
def engines() -> Iterator[Open]:
    """Opens engines, and closes them at the end."""
    with contextlib.ExitStack() as stack:

        def make(dsn: str, **options: Any) -> PostgresEngine:
            usual: dict[str, Any] = {"durability": "power", "tick": Ticks(), "chance": os.urandom}
            engine = PostgresEngine(dsn, **{**usual, "writers": 2, "spread_at": 0, **options})
            stack.callback(engine.close)
            return engine

        yield make


def ask(dsn: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement, values or None)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


def waited(dsn: str, question: str) -> list[tuple[Any, ...]]:
    """The rows of a query, once there are some."""
    for _ in range(600):
        if rows := ask(dsn, question):
            return rows
        threading.Event().wait(0.05)
    raise AssertionError(f"nothing came of {question}")
