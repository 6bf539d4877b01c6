"""The usual batch on its shortest way: a statement that is prepared once, and libpq's own call.

The driver reads a statement's text and looks at its values every time, and waits for the answer in
Python: that takes longer than the server needs. Here the order of the values and their form are
known beforehand, and libpq waits without the interpreter's lock. Behind a pooler the server may not
know what was prepared: there everything goes through the driver, unprepared.
"""

import re
import struct
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import DiagnosticField, ExecStatus, Format

from holdfast.engine import named_sql
from holdfast.engine.postgres.server.binary_arrays import Array
from holdfast.engine.postgres.server.connection import ServerConnection
from holdfast.engine.postgres.server.primary import Connection

_STATEMENTS = named_sql.load(named_sql.beside(__file__, "batching.sql"))
_DONE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_named = re.compile(r"%\((\w+)\)s")
_int = struct.Struct(">q").pack


class _Prepared(NamedTuple):
    name: bytes
    values: tuple[str, ...]
    formats: tuple[Format, ...]


class PreparedAppend:
    """The statements that one connection has prepared. Used by the thread that uses the
    connection.
    """

    def __init__(self, connection: Connection) -> None:
        self._libpq = connection.pgconn
        self._prepared: dict[str, _Prepared] = {}

    @classmethod
    def on(cls, line: ServerConnection) -> "PreparedAppend | None":
        """None where the way is not open: behind a pooler, or at a server that can't be told how to
        plan.
        """
        if line.connection.prepare_threshold is None:
            return None
        try:
            line.run("steady")
        # another database that speaks this language may not know the setting
        except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.DataError):
            return None
        return cls(line.connection)

    def run(self, name: str, values: dict[str, Any]) -> None:
        """Runs a statement whose answer is that it was done. Raises what the driver would."""
        prepared = self._prepared.get(name) or self._prepare(name)
        given = [_encoded(values[each]) for each in prepared.values]
        _check(
            self._libpq.exec_prepared(
                prepared.name, given, prepared.formats, Format.BINARY
            )
        )

    def _prepare(self, name: str) -> _Prepared:
        text = _STATEMENTS[name]
        # a name that stands in it twice is one value
        values = tuple(dict.fromkeys(_named.findall(text)))
        numbered = _named.sub(lambda found: f"${values.index(found[1]) + 1}", text)
        made = _Prepared(
            f"holdfast_{name}".encode(), values, (Format.BINARY,) * len(values)
        )
        _check(self._libpq.prepare(made.name, numbered.encode()))
        self._prepared[name] = made
        return made


def _encoded(value: Any) -> bytes:
    if isinstance(value, Array):
        return value.encoded()
    return (b"\1" if value else b"\0") if isinstance(value, bool) else _int(value)


def _check(result: Any) -> None:
    if result.status in _DONE:
        return
    # not the server's words: the connection is lost
    if result.error_field(DiagnosticField.SQLSTATE) is None:
        raise psycopg.OperationalError(result.get_error_message())
    raise error_from_result(result)
