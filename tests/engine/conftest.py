"""Fixtures of tests that open engines on PostgreSQL themselves."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from deaf_proxy import DeafProxy
    from postgres_engines import Open


@pytest.fixture
def opening() -> "Iterator[Open]":
    """Opens engines, and closes them after the test."""
    from postgres_engines import engines  # for those who need it: others run without a driver

    with engines() as make:
        yield make


@pytest.fixture
def place(databases: Callable[..., str]) -> str:
    """The DSN of a fresh schema: sooner made than a database."""
    return databases(schema=True)


@pytest.fixture
def proxy(postgres: str) -> "Iterator[DeafProxy]":
    """Stands before the server, and loses what the test tells it to."""
    from psycopg.conninfo import conninfo_to_dict

    from deaf_proxy import DeafProxy

    given = conninfo_to_dict(postgres)
    with DeafProxy(int(given["port"] or 5432), host=str(given["host"])) as made:
        yield made
