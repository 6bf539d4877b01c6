"""Rows with a text that is no UTF-8 any more: it takes its own cell, and nothing else (I-25).

The driver hands out no row of such a question. So it is asked again, with every text as its bytes;
those that are texts are made texts here, and what is left as bytes is judged as any cell of another
type (`row_codec`).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from holdfast.engine.named_sql import Row, Rows, Values


def rows_of(reader: apsw.Connection, sql: str, values: Values) -> Rows:
    """The rows of a question, with bytes where a text should be that is none."""
    try:
        return reader.execute(sql, values).fetchall()
    except UnicodeDecodeError:
        return _read_as_bytes(reader, sql, values)


def _read_as_bytes(reader: apsw.Connection, sql: str, values: Values) -> Rows:
    cursor = reader.execute(sql, values)
    names = [f"c{number}" for number in range(len(cursor.get_description()))]
    cursor.close(True)
    wanted = ", ".join(as_bytes(names))
    asked = f"WITH asked ({', '.join(names)}) AS ({sql}) SELECT {wanted} FROM asked"
    rows: list[Any] = reader.execute(asked, values).fetchall()
    return [cells_of(row) for row in rows]


def as_bytes(columns: Iterable[str]) -> list[str]:
    """What is asked for these columns: of each its type, and its cell, a text as its bytes."""
    wanted = []
    for name in columns:
        wanted.append(f"typeof({name})")
        wanted.append(f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name})")
    return wanted


def cells_of(row: Sequence[Any]) -> Row:
    """The cells of a row that was asked for `as_bytes`; a text that is none stays bytes."""
    return tuple(map(_cell, row[::2], row[1::2]))


def _cell(kind: Any, cell: Any) -> Any:
    text = text_in(cell) if kind == "text" else None
    return cell if text is None else text


def text_in(cell: Any) -> str | None:
    """The text that these bytes are; None where they are none, or this is something else."""
    try:
        return cell.decode() if isinstance(cell, bytes) else None
    except UnicodeDecodeError:
        return None
