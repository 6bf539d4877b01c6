"""Where damage lies: which entries of which session can't be read, so that an error can name them
(I-18).
"""

from collections.abc import Iterator
from typing import Any

import apsw

from holdfast.engine.named_sql import Values
from holdfast.engine.protocol import SessionState
from holdfast.engine.sqlite.apply_commit import NumberedSession
from holdfast.engine.sqlite.driver_errors import TROUBLE, translate
from holdfast.engine.sqlite.lease_clock import Clock
from holdfast.engine.sqlite.queries import QUERIES, UPKEEP
from holdfast.engine.sqlite.row_codec import fitted_sessions
from holdfast.errors import Damaged, HoldfastError
from holdfast.stepping_connection import SteppingConnection

PROBES_MAX = 2000


def damage_error(
    error: apsw.Error | UnicodeDecodeError,
    where: str,
    reader: apsw.Connection,
    name: str,
    values: Values,
) -> HoldfastError:
    """What a driver's error in a query means to a person, with the place if it is damage."""
    trouble = translate(error, where)
    if not isinstance(trouble, Damaged):
        return trouble
    if isinstance(values, dict) or name not in ("entries", "entries_bare"):
        return translate(error, where, place=f"the rows for `{name}`")
    session, after, limit = values
    first, last = next(
        spans(unreadable(reader, session, after, limit)), (after + 1, None)
    )
    entries = entries_named(first, last)
    return translate(
        error, where, place=f"{entries} of session `{_name_of(reader, session)}`"
    )


def entries_named(first: int, last: int | None) -> str:
    if last is None:
        return f"entries from {first} on"
    if first == last:
        return f"entry {first}"
    return f"entries {first} to {last}"


def unreadable(
    reader: apsw.Connection, session: int, after: int, limit: int
) -> list[int]:
    """The seqs after this one that can't be read, one by one; as far as the index still tells."""
    found = []
    # one by one: a page that can't be read fails every query that touches it
    for seq in range(after + 1, after + 1 + min(limit, PROBES_MAX)):
        try:
            if not reader.execute(QUERIES["entries"], (session, seq - 1, 1)).fetchall():
                break
        except TROUBLE:
            found.append(seq)
    return found


def bare_states(path: str) -> list[SessionState]:
    """The sessions of a store whose entries may be damaged; those before the first that can't be
    read. `Damaged` where its tables are: then nothing can.
    """
    found: list[SessionState] = []
    reader = SteppingConnection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        try:
            reader.execute(UPKEEP["columns"]).fetchall()
        except apsw.SQLError as error:
            raise translate(error, path) from error
        for row in reader.execute(UPKEEP["bare_sessions"]):
            texts = [_decoded(cell) for cell in row]
            for whole in fitted_sessions([tuple(texts)]):
                found.append(NumberedSession.of_row(whole).state(Clock("", 0.0, 0)))
    except apsw.Error as error:
        if not isinstance(translate(error, path), Damaged):
            raise translate(error, path) from error
    finally:
        reader.close()
    return found


def spans(seqs: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of neighbours, as first and last."""
    start = 0
    for index in range(1, len(seqs) + 1):
        if index == len(seqs) or seqs[index] != seqs[index - 1] + 1:
            yield seqs[start], seqs[index - 1]
            start = index


def _name_of(reader: apsw.Connection, session: int) -> str:
    try:
        return str(reader.execute(UPKEEP["session_name"], (session,)).get)
    except TROUBLE:
        return f"number {session}"


def _decoded(cell: Any) -> Any:
    return cell.decode(errors="surrogateescape") if isinstance(cell, bytes) else cell
