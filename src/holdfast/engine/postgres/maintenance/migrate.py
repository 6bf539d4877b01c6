"""Making a store, and bringing one of an older version up to this one: in one transaction, so it is
as it was or as it should be.

Two machines may do this at once. PostgreSQL lets one of them make the first table, or lock the row
with the version, and stops the other there, which then finds it done. A role that may not make
tables can use a store that is there.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import errors

from holdfast.engine.named_sql import Rows
from holdfast.engine.postgres.queries import MIGRATIONS, QUERIES, SCHEMA
from holdfast.engine.postgres.server.cluster import Cluster
from holdfast.engine.postgres.server.connection import ServerConnection
from holdfast.engine.postgres.server.driver_errors import (
    is_missing,
    refusal,
    translate,
    verdict,
)
from holdfast.engine.postgres.server.primary import Connection
from holdfast.engine.postgres.server.retry import Retry
from holdfast.errors import SchemaMismatch, StoreUnavailable

SCHEMA_VERSION = 2
LEAST = 2
"""The oldest version whose programs may still work on these tables: the next release may be here
already while this one runs on, if what it has added does not matter to this one.
"""
ATTEMPTS_MAX = 5

_RACES = (
    errors.UniqueViolation,
    errors.DuplicateTable,
    errors.DuplicateObject,
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.InternalError_,  # "tuple concurrently updated"
)


def prepare(
    connect: Callable[[], ServerConnection], where: str, retry: Retry
) -> int | None:
    """Makes the store if there is none, migrates an older one, refuses a newer one; the version
    that was there. A server that is not there yet, or only reads, is waited for: a fail-over may be
    under way.
    """
    while True:
        try:
            return _prepare(connect(), where)
        except psycopg.Error as error:
            if verdict(error) == "senseless" or refusal(error):
                raise translate(error, where) from error
            retry.pause(error)


def _prepare(line: ServerConnection, where: str) -> int | None:
    problem: psycopg.Error | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            with line.asking() as connection:
                found = refuse_newer(connection, where)
            if found is None or found < SCHEMA_VERSION:
                _bring_up(line, where, found)
            return found
        except (
            _RACES
        ) as error:  # another machine is at it, or has just done it: look again
            problem = error
        except errors.InsufficientPrivilege as error:
            raise StoreUnavailable(
                where=where,
                problem=f"this role may not make its tables ({error.diag.message_primary})",
                remedy="Run `holdfast store migrate` with a role that may, then grant this one "
                "SELECT, INSERT, UPDATE "
                "and DELETE on them",
            ) from error
    raise StoreUnavailable(
        where=where,
        problem="it has tables of another program "
        f"({problem.diag.message_primary if problem else ''})",
        remedy="Give Holdfast a schema of its own: create one and say "
        "?options=-csearch_path%3Dits_name in the address",
    ) from problem


def reach(cluster: Cluster, *, prepared: bool) -> ServerConnection:
    """A connection to a store that this release knows: it may have been migrated while we were
    away. One to any other is closed, so that nobody can go on with it. Raises the driver's errors.
    """
    line = cluster.line(prepared=prepared)
    try:
        with line.asking() as connection:
            refuse_newer(connection, cluster.where)
    except BaseException:
        line.close()
        raise
    return line


def refuse_newer(connection: Connection, where: str) -> int | None:
    """The version of the store, if this release knows it."""
    found = version(connection)
    # a newer store says down to which version its tables may still be used
    if found is not None and found > SCHEMA_VERSION < (
        version(connection, "format_least") or found
    ):
        raise SchemaMismatch(where=where, found=found, known=SCHEMA_VERSION)
    return found


def refuse_other(read: Callable[[str, dict[str, Any]], Rows], where: str) -> None:
    """Refuses a store of another version, for one who may not bring it up to this one."""
    try:
        rows = read("get_fact", {"name": "format"})
    except StoreUnavailable as error:
        if not (
            isinstance(error.__cause__, psycopg.Error) and is_missing(error.__cause__)
        ):
            raise
        rows = []
    found = int(rows[0][0]) if rows else 0
    if found > SCHEMA_VERSION:
        raise SchemaMismatch(where=where, found=found, known=SCHEMA_VERSION)
    if found < SCHEMA_VERSION:
        problem = f"it has the older format {found}" if found else "there is no store"
        remedy = (
            "Open it once without `read_only`, or run `holdfast store migrate`"
            if found
            else "Check the address"
        )
        raise StoreUnavailable(where=where, problem=problem, remedy=remedy)


def version(connection: Connection, fact: str = "format") -> int | None:
    """The version of the store in this database, or the least that may work on it; None when there
    is none.
    """
    try:
        row = connection.execute(QUERIES["get_fact"], {"name": fact}).fetchone()
    except psycopg.Error as error:
        if is_missing(error):
            return None
        raise
    return int(row[0]) if row else None


def _bring_up(line: ServerConnection, where: str, found: int | None) -> None:
    """All steps, in one transaction. A new store is made in no time, while a migration may take its
    own; the COMMIT of either may have to wait for other servers.
    """
    connection = line.connection
    line.harmless = True
    try:
        with line.asking() if found is None else contextlib.nullcontext():
            connection.execute(QUERIES["begin"])
            if found is not None:  # it may take its time
                connection.execute(
                    QUERIES["limits"], {"lock": "0", "whole": "0", "once": True}
                )
            for script in _steps(connection, where, found):
                _script(connection, script)
            for name, value in (("format", SCHEMA_VERSION), ("format_least", LEAST)):
                connection.execute(
                    QUERIES["set_fact"], {"name": name, "value": str(value)}
                )
        # from here on it may be a commit: it is never cancelled
        line.harmless = False
        with line.asking():
            connection.execute(QUERIES["commit"])
    except BaseException:
        with contextlib.suppress(psycopg.Error):
            connection.rollback()
        raise


def _steps(connection: Connection, where: str, found: int | None) -> list[str]:
    """What is to be done. Of two machines that migrate, the second waits here, and finds
    it done.
    """
    if found is None:
        return [SCHEMA]
    # waits for another machine that is at it
    connection.execute(QUERIES["lock_format"])
    found = refuse_newer(connection, where) or 0
    return [script for step, script in MIGRATIONS.items() if step > found]


_script: Callable[[Connection, Any], Any] = psycopg.Connection.execute
"""A script of our own, in one go and without parameters."""
