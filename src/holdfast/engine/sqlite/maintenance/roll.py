"""All sessions of some tenants, as the table alone tells them, and which of them an index leads
astray: those of which the table has more, or other, than the index says (I-18). What is read through
the index would be wrong without a word.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import apsw

from holdfast.domain.ids import is_session_id
from holdfast.engine.sql.reads import MISLED
from holdfast.engine.sqlite.driver_errors import TROUBLE
from holdfast.engine.sqlite.maintenance.check import text_or_name
from holdfast.engine.sqlite.queries import UPKEEP
from holdfast.engine.sqlite.spoilt_texts import text_in

ROWS_AT_ONCE = 10_000
SPANS_MAX = 100_000
ODD_NAME = (
    "its id or its tenant is damaged; `holdfast doctor --heal` gives it a new one"
)


class Roll(NamedTuple):
    """`ids` of sessions that can be asked for. `misled`: what is wrong with those that can't be
    read as they are, by their ids or what is left of them. `keys`: what is left of keys that are no
    text any more, by the ids of their sessions.
    """

    ids: list[str]
    misled: dict[str, str]
    keys: dict[str, str]


def call_roll(reader: apsw.Connection, tenants: set[str]) -> Roll:
    """The sessions of these tenants, or of one that can't be read."""
    # All as of one moment: the index would be ahead of the table where somebody writes.
    reader.execute("BEGIN")
    try:
        return _called(reader, tenants)
    finally:
        if reader.in_transaction:
            reader.execute("ROLLBACK")


def _called(reader: apsw.Connection, tenants: set[str]) -> Roll:
    roll = Roll([], {}, {})
    astray = set(_with_entries_astray(reader))
    try:
        rows: list[Any] = reader.execute(UPKEEP["named_sessions"]).fetchall()
    except TROUBLE:
        return roll
    for n, kind, id, tenant, key, active_at in rows:
        # Nobody can have an empty name, so none is another's.
        whose = text_in(tenant) or None
        if whose is not None and whose not in tenants:
            continue
        name = text_or_name(id, n) or f"number {n}"
        if whose is None or kind != "text" or not is_session_id(text_in(id)):
            roll.misled[name] = ODD_NAME
            continue
        roll.ids.append(name)
        if key is not None and text_in(key) is None:
            roll.keys[name] = key.decode(errors="replace")
        if n in astray or not _is_found(reader, n, name, whose, active_at):
            roll.misled[name] = MISLED
    return roll


def _with_entries_astray(reader: apsw.Connection) -> Iterator[int]:
    try:
        first, last = reader.execute(UPKEEP["entry_span"]).get
    except TROUBLE:
        return
    # One page that can't be read hides no more than its neighbours.
    for start in range(first or 0, (last or 0) + 1, ROWS_AT_ONCE)[:SPANS_MAX]:
        span = (start, start + ROWS_AT_ONCE - 1)
        try:
            for (session,) in reader.execute(UPKEEP["misled_entries"], span):
                yield session
        except TROUBLE:
            continue


def _is_found(
    reader: apsw.Connection, n: int, id: str, tenant: str, active_at: Any
) -> bool:
    try:
        if reader.execute(UPKEEP["found_by_id"], (id,)).get != n:
            return False
        place = (tenant, active_at, n)
        return bool(reader.execute(UPKEEP["found_by_activity"], place).get)
    except TROUBLE:
        return False
