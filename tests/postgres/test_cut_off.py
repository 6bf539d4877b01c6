"""Connections that are cut off: by the server, by an operator, by its limits; under load, over and
over.
"""

import psycopg
import pytest

import holdfast
from loading import loading
from thorough import SWEEP, few_cases

OTHERS = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def assert_nothing_is_wrong(dsn, loads):
    with holdfast.open(dsn) as store:
        assert loads.wrong(store) == []


@pytest.mark.slow
def test_terminated_connections_lose_nothing_and_double_nothing(database):
    """I-2, I-3, I-6: all of them at once, over and over, whatever they are doing."""
    with (
        psycopg.connect(database, autocommit=True) as operator,
        loading(database, sessions=8 if SWEEP else 4) as loads,
    ):
        loads.go_on()
        for _ in range(5 if SWEEP else 3):
            [cut] = operator.execute(OTHERS).fetchone()
            assert cut > 0
            loads.go_on()
    assert_nothing_is_wrong(database, loads)


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize(
    "limit", ["idle_in_transaction_session_timeout", "transaction_timeout", "statement_timeout"]
)
def test_a_server_with_strict_limits_loses_nothing_and_doubles_nothing(database, limit):
    """A transaction that the server ends between two of its statements was not done, and is done
    again.
    """
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with holdfast.open(database) as store, psycopg.connect(database, autocommit=True) as operator:
        store.session("first")
        operator.execute(f"ALTER DATABASE {name} SET {limit} = '50ms'")
        with loading(database, sessions=8 if SWEEP else 4) as loads:
            loads.go_on(turns=3 if SWEEP else 2)
        operator.execute(f"ALTER DATABASE {name} RESET {limit}")
    assert_nothing_is_wrong(database, loads)
