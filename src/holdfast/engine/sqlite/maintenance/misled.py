"""Which sessions an index leads astray: those of which the table has more, or other, than the index
says (I-18). What is read through the index would be wrong without a word.
"""

from collections.abc import Iterator
from typing import Any

import apsw

from holdfast.engine.reads import MISLED
from holdfast.engine.sqlite.driver_errors import TROUBLE
from holdfast.engine.sqlite.maintenance.check import is_session_id, text_or_name
from holdfast.engine.sqlite.queries import UPKEEP

ROWS_AT_ONCE = 10_000
SPANS_MAX = 100_000
ODD_NAME = "its id, its tenant or its key is damaged; `holdfast doctor --heal` gives it a new one"


def misled(reader: apsw.Connection, tenants: set[str]) -> dict[str, str]:
    """Sessions of these tenants, or of one that can't be read, and what is wrong with each."""
    found: dict[str, str] = {}
    astray = set(_with_entries_astray(reader))
    try:
        rows: list[Any] = reader.execute(UPKEEP["named_sessions"]).fetchall()
    except TROUBLE:
        return found
    for n, kind, id, tenant, key, active_at in rows:
        whose = _text(tenant)
        if whose is not None and whose not in tenants:
            continue
        name = text_or_name(id, n) or f"number {n}"
        is_named = kind == "text" and is_session_id(id) and whose is not None
        if whose is None or not is_named or (key is not None and _text(key) is None):
            found[name] = ODD_NAME
        elif n in astray or not _is_found(reader, n, name, whose, active_at):
            found[name] = MISLED
    return found


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


def _text(kept: Any) -> str | None:
    try:
        return kept.decode() if isinstance(kept, bytes) else None
    except UnicodeDecodeError:
        return None
