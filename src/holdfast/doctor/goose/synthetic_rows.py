"""Rows that the doctor makes or marks: ids derived from what they belong to, times from their
neighbours, and a note in the metadata of whatever was changed.
"""

import base64
import hashlib
from typing import Any

import msgspec

from holdfast.doctor.finding import Change
from holdfast.doctor.goose.case import MADE, GooseCase
from holdfast.importers.goose.convert import OWN_NOTES
from holdfast.importers.goose.records import GooseRow

Mended = tuple[GooseCase, list[Change]]
_SHOWN = 160


def made(
    case: GooseCase, beside: GooseRow, why: str, role: str, content: list[Any]
) -> GooseRow:
    """A new row beside another one, seen by whom that one is seen by."""
    named = f"{case.session.id}\n{beside.message_id}\n{beside.number}\n{why}"
    return GooseRow(
        number=beside.number,
        place=f"after {beside.place}",
        message_id=MADE
        + hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:32],
        role=role,
        content=content,
        created=beside.created,
        metadata={**_flags(beside), OWN_NOTES: {"synthetic": True}},
    )


def marked(row: GooseRow, *, for_model: bool | None = None, **notes: Any) -> GooseRow:
    """The row with something noted in its metadata, and hidden from the model or shown to it if
    asked.
    """
    metadata = {**_flags(row), **(row.metadata or {})}
    noted = metadata.get(OWN_NOTES)
    metadata[OWN_NOTES] = {**(noted if isinstance(noted, dict) else {}), **notes}
    if for_model is not None:
        metadata["agentVisible"] = for_model
    return msgspec.structs.replace(row, metadata=metadata)


def shown(row: GooseRow, *, for_model: bool) -> GooseRow:
    """The row, hidden from the model or shown to it, as goose itself would have it."""
    metadata = {**_flags(row), **(row.metadata or {}), "agentVisible": for_model}
    return msgspec.structs.replace(row, metadata=metadata)


def kept(raw: bytes) -> dict[str, str]:
    """Bytes as a note that holds all of them."""
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:
        return {"raw_base64": base64.b64encode(raw).decode()}


def change(
    case: GooseCase, rule: str, row: GooseRow, before: Any, after: Any
) -> Change:
    return Change(
        f"goose/{rule}", case.session.id, row.place, short(before), short(after)
    )


def short(value: Any) -> str:
    """What is shown of a value in a report."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def with_rows(case: GooseCase, rows: list[GooseRow]) -> GooseCase:
    return msgspec.structs.replace(case, rows=tuple(rows))


def _flags(row: GooseRow) -> dict[str, Any]:
    metadata = row.metadata or {}
    return {
        flag: metadata.get(flag) is not False
        for flag in ("userVisible", "agentVisible")
    }
