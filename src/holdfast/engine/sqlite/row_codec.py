"""How rows are kept and read back.

What nearly every message repeats is left out of an entry's row, and put back by the view `log`.

A message of a few words should cost little more than its words. `schema.sql` has the other half of
this, in the same order:

    kind    nothing for a message
    note    1 for a plain answer of an assistant, nothing for a plain message of a user, else as it is
    body    as text, without `{"role":…,"content":"` and `"}`, where that is all there is around it, else as it is

SQLite keeps any type in any column, and one bit can make a text of a number. So what is read is
looked at here, all of it: a cell of another type than it was written with is damage of its row, and
of nothing else (I-25). An entry is then one that can't be read, a session has a neutral value there,
and other rows are left out; `maintenance.check` tells of all of them.
"""

from collections.abc import Callable
from itertools import product
from operator import countOf
from types import NoneType
from typing import Any

from holdfast.domain.entry import NOTES, Draft
from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.sqlite.spoilt_texts import text_in

ASSISTANT_NOTE = b'{"role":"assistant"}'
USER_HEAD = b'{"role":"user","content":"'
ASSISTANT_HEAD = b'{"role":"assistant","content":"'
TAIL = b'"}'


def packed(draft: Draft, body: bytes) -> tuple[str, Any, Any]:
    """Kind, note and body of an entry as they are kept."""
    note = draft.note
    if draft.kind != "message":
        return draft.kind, note or None, body or None
    if not note:
        return "", None, _words(body, USER_HEAD)
    # 1 stands for this note: it is by far the most frequent one
    if note == ASSISTANT_NOTE:
        return "", 1, _words(body, ASSISTANT_HEAD)
    return "", note, body or None


def _words(body: bytes, head: bytes) -> Any:
    """What stands between this head and the tail; the whole body when it is another one."""
    if (
        body.startswith(head)
        and body.endswith(TAIL)
        and len(body) >= len(head) + len(TAIL)
    ):
        try:
            return body[len(head) : -len(TAIL)].decode()
        # bytes that are no text stay as they were given (I-14)
        except UnicodeDecodeError:
            pass
    return body or None


# Rows as they are read.

FEW = 16
"""So few rows are sooner looked at one by one."""
UNREADABLE = b"\xff"
"""Stands for what is of another type: these bytes are no JSON, and no text."""
ODD_VALUES = "it has values that are not what they were written as"

Cells = tuple[type, ...]
_INT, _TEXT, _BYTES = (int,), (str,), (bytes,)
_ADDRESS = (str, bytes)
"""An address with halves of characters in it is kept as bytes."""
_INT_OR_NOT, _TEXT_OR_NOT = (int, NoneType), (str, NoneType)
_NUMBER_OR_NOT = (int, float, NoneType)
_LEASE = (_NUMBER_OR_NOT, _TEXT_OR_NOT, _NUMBER_OR_NOT, _NUMBER_OR_NOT)
_ENTRY = (_INT, _TEXT, _INT_OR_NOT, _BYTES, _INT, _BYTES, _BYTES)

SESSION: tuple[tuple[Cells, Any], ...] = (
    (_INT, 0),  # n
    (_TEXT, ""),  # id
    (_TEXT, ""),  # tenant
    (_TEXT_OR_NOT, None),  # key
    (_INT, 1),  # epoch
    (_INT, 0),  # ended
    (_INT, 0),  # fence
    (_INT_OR_NOT, None),  # turn
    (_TEXT_OR_NOT, None),  # holder
    *((cells, None) for cells in _LEASE),
    (_INT, 0),  # journal
    (_INT, 0),  # base: a load begins with the first entry
    (_INT, 0),  # origin
    (_INT, 0),  # opened_at
    (_INT, 0),  # active_at
    (_TEXT_OR_NOT, None),  # parent
    (_INT, 0),  # head
    (_INT_OR_NOT, None),  # last_at
)
"""The columns of the view `session_state`: what their cells are, and what is read in the place of
another.
"""


def _shapes(*cells: Cells) -> frozenset[tuple[type, ...]]:
    return frozenset(product(*cells))


_ENTRIES = _shapes(*_ENTRY)
_ROWS = {
    "journal": _shapes(_INT, _INT, _BYTES, _INT, _BYTES),
    "debts_of": _shapes(_BYTES, _INT, _ADDRESS, _INT),
    "outbox": _shapes(_BYTES, _TEXT, _INT, _ADDRESS, _INT),
    "events": _shapes(_BYTES, _TEXT, _INT, _BYTES),
    "accepted": _shapes(_TEXT, _INT, _BYTES),
    "inbox": _shapes(_BYTES, _TEXT_OR_NOT, _INT, *_LEASE),
    "pending": _shapes(_TEXT, _TEXT_OR_NOT, *_ENTRY),
    "blob": _shapes(_BYTES),
    "running": _shapes(_TEXT),
    "all_tenants": _shapes(_TEXT),
}


def fitted(query: str, rows: Rows) -> Rows:
    """The rows of a question, as far as their cells are what they were written as."""
    if query in _FITTED:
        return _FITTED[query](rows)
    shapes = _ROWS.get(query)
    if shapes is None:
        return rows
    return [row for row in rows if _shape(row) in shapes]


def fitted_entries(rows: Rows) -> Rows:
    """Rows of entries. One with a cell of another type says nothing but its place; one without a
    place is left out.
    """
    # Nearly all are whole: those are handed on as they are.
    if not rows or _are_whole(rows):
        return rows
    found: Rows = []
    for row in rows:
        if _shape(row) in _ENTRIES:
            found.append(row)
        elif type(row[0]) is int:
            found.append(_unreadable(row))
    return found


def _are_whole(rows: Rows) -> bool:
    """What `is_whole` says of each, in a fraction of the time: a first load has many rows."""
    if len(rows) < FEW:
        # Spelt out: a warm session reads a few rows at a time, and often.
        return {tuple(map(type, row)) for row in rows} <= _ENTRIES
    seqs, kinds, turns, ids, times, notes, bodies = zip(*rows, strict=True)
    try:
        number = sum(seqs) + sum(times)
        "".join(kinds)
        b"".join(ids)
        b"".join(notes)
    except TypeError:
        return False
    # Outside turns there is no number of a turn; bodies are large, and not joined.
    others = len(rows) - turns.count(None)
    return (
        type(number) is int
        and (not others or others == countOf(map(type, turns), int))
        and len(rows) == countOf(map(type, bodies), bytes)
    )


def is_whole(row: Row) -> bool:
    """Whether all cells of an entry's row are what they were written as."""
    return _shape(row) in _ENTRIES


def _unreadable(row: Row) -> Row:
    seq, kind, turn, id, at, _, _ = row
    return (
        seq,
        kind if kind in NOTES else "message",
        turn if type(turn) is int else None,
        # one of its own: ids are told apart
        id
        if type(id) is bytes
        else b"\xff" * 8 + (seq & (1 << 64) - 1).to_bytes(8, "big"),
        at if type(at) is int else 0,
        UNREADABLE,
        UNREADABLE,
    )


def fitted_sessions(rows: Rows) -> Rows:
    """Rows of the view `session_state`. A session without an id that it can be found by, or with a
    tenant that is no text, is left out; one whose key is no text has none.
    """
    found: Rows = []
    for row in rows:
        # Nearly all are whole: each turn reads one.
        if row[1] and _shape(row) in _whole_sessions:
            found.append(row)
        elif row[1] and type(row[1]) is str and not _is_spoilt(row[2]):
            if _is_spoilt(row[3]):
                row = (*row[:3], None, *row[4:])
            found.append(tuple(map(_fitting, row, SESSION)))
            if is_whole_session(row):
                _whole_sessions.add(_shape(row))
    return found


_whole_sessions: set[tuple[type, ...]] = set()
"""The types of rows of sessions that were whole. There are few: most columns have one."""


def _is_spoilt(cell: Any) -> bool:
    return type(cell) is bytes and text_in(cell) is None


def _fitting(cell: Any, column: tuple[Cells, Any]) -> Any:
    cells, neutral = column
    if type(cell) in cells:
        return cell
    # one bit makes bytes of a text, and they are the same bytes
    if str in cells and type(cell) is bytes:
        # what is no text stays recognisable as that
        return cell.decode(errors="surrogateescape")
    return neutral


def is_whole_session(row: Row) -> bool:
    return all(
        type(cell) in cells for cell, (cells, _) in zip(row, SESSION, strict=True)
    )


def _shape(row: Row) -> tuple[type, ...]:
    return tuple(map(type, row))


_FITTED: dict[str, Callable[[Rows], Rows]] = {
    **dict.fromkeys(("entries", "entries_bare", "labels"), fitted_entries),
    **dict.fromkeys(
        (
            "session_by_id",
            "session_by_key",
            "sessions_by_prefix",
            "sessions_under",
            "sessions_by_activity",
            "sessions_of_key",
            "sessions_kept",
            "forks",
        ),
        fitted_sessions,
    ),
}
