"""Rows with a text that is no UTF-8 any more: it takes its own cell, and nothing else (I-25).

The driver hands out no row of such a question. So it is asked again, with every text as its bytes;
those that are texts are made texts here, and what is left as bytes is judged as any cell of another
type (`row_codec`).
"""

from typing import Any

import apsw

from holdfast.engine.named_sql import Rows
from holdfast.engine.sqlite.queries import Values


def read_as_bytes(reader: apsw.Connection, sql: str, values: Values) -> Rows:
    """The rows of a question, with bytes where a text should be that is none."""
    cursor = reader.execute(sql, values)
    names = [f"c{number}" for number in range(len(cursor.get_description()))]
    cursor.close(True)
    wanted = []
    for name in names:
        wanted.append(f"typeof({name})")
        wanted.append(f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name})")
    asked = f"WITH asked ({', '.join(names)}) AS ({sql}) SELECT {', '.join(wanted)} FROM asked"
    rows: list[Any] = reader.execute(asked, values).fetchall()
    return [tuple(map(_cell, row[::2], row[1::2])) for row in rows]


def _cell(kind: str, cell: Any) -> Any:
    if kind != "text":
        return cell
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return cell
