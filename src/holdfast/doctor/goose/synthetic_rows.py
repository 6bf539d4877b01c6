"""Rows that the doctor makes or marks: ids derived from what they belong to, times from their
neighbours, and a note in the metadata of whatever was changed.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.goose.case import MADE, GooseCase, Rows, metadata_of
from holdfast.importers.goose.convert import OWN_NOTES
from holdfast.importers.goose.records import FLAGS, GooseRow, GooseSession

Mended = tuple[GooseCase, list[Change]]
# How much of a value a report shows.
_SHOWN = 160


class RowEdit(msgspec.Struct, frozen=True):
    """New rows in the place of one row, or of all from `start` up to `end`. `before` and `after`
    tell of it in the report.
    """

    start: int
    rows: Rows
    before: Any
    after: Any
    end: int | None = None


Edits = Iterator[RowEdit]


def edits_rows(edits_of: Callable[[GooseCase], Edits]) -> Callable[[GooseCase], Mended]:
    """A remedy of edits that do not overlap. They all speak of the rows as they were, so it does
    not matter in which order they are made; changes are reported in the order of the edits.
    """

    # The name of a remedy says which rule it is for (`rule_of`), so it has to stay.
    @wraps(edits_of)
    def remedy(case: GooseCase) -> Mended:
        changes = []
        by_start: dict[int, RowEdit] = {}
        for edit in edits_of(case):
            row = case.rows[edit.start]
            changes.append(change(case, edits_of, row, edit.before, edit.after))
            by_start[edit.start] = edit
        rows: list[GooseRow] = []
        index = 0
        while index < len(case.rows):
            found = by_start.get(index)
            index += 1
            if found is None:
                rows.append(case.rows[index - 1])
            else:
                rows.extend(found.rows)
                index = found.end or index
        return with_rows(case, rows), changes

    return remedy


def rule_of(remedy: Callable[..., Any]) -> str:
    """The name of the rule that a remedy is for: its own."""
    return "goose/" + remedy.__name__.replace("_", "-")


def change(
    case: GooseCase,
    remedy: Callable[..., Any],
    at: GooseRow | GooseSession,
    before: Any,
    after: Any,
) -> Change:
    return Change(
        rule_of(remedy), case.session.id, at.place, short(before), short(after)
    )


def short(value: Any) -> str:
    """What is shown of a value in a report."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def with_rows(case: GooseCase, rows: list[GooseRow]) -> GooseCase:
    return replace(case, rows=tuple(rows))


def made(
    case: GooseCase, beside: GooseRow, why: str, role: str, content: list[Any]
) -> GooseRow:
    """A new row beside another one, seen by whom that one is seen by."""
    # From what it stands beside: healing the same store again gives the same id.
    named = f"{case.session.id}\n{beside.message_id}\n{beside.number}\n{why}"
    digest = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()
    return GooseRow(
        number=beside.number,
        place=f"after {beside.place}",
        message_id=MADE + digest[:32],
        role=role,
        content=content,
        # goose reads rows by their time: another could part it from its neighbour.
        created=beside.created,
        metadata={**_flags(beside), OWN_NOTES: {"synthetic": True}},
    )


def marked(row: GooseRow, *, for_model: bool | None = None, **notes: Any) -> GooseRow:
    """The row with something noted in its metadata, and hidden from the model or shown to it if
    asked.
    """
    noted = metadata_of(row).get(OWN_NOTES)
    # A store may be healed again: what was noted then still holds.
    if isinstance(noted, dict):
        notes = noted | notes
    metadata = {**_flags(row), **metadata_of(row), OWN_NOTES: notes}
    if for_model is not None:
        metadata["agentVisible"] = for_model
    return replace(row, metadata=metadata)


def shown(row: GooseRow, *, for_model: bool) -> GooseRow:
    """The row, hidden from the model or shown to it, as goose itself would have it."""
    flags = {**_flags(row), **metadata_of(row), "agentVisible": for_model}
    return replace(row, metadata=flags)


def kept(raw: bytes) -> dict[str, str]:
    """Bytes as a note that holds all of them."""
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:
        return {"raw_base64": base64.b64encode(raw).decode()}


def _flags(row: GooseRow) -> dict[str, Any]:
    metadata = metadata_of(row)
    # A flag that is missing hides nothing, as in goose itself.
    return {flag: metadata.get(flag) is not False for flag in FLAGS}
