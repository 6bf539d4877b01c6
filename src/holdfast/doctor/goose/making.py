"""Rows that the doctor makes or marks: ids derived from what they belong to, times from their neighbours, and a note in
the metadata of whatever was changed.
"""

import base64
import hashlib
from typing import Any

import msgspec

from holdfast.doctor.finding import Change
from holdfast.doctor.goose.chart import MADE, Chart
from holdfast.foreign.goose.records import Row
from holdfast.foreign.goose.stories import OWN_NOTES

Mended = tuple[Chart, list[Change]]
_SHOWN = 160


def made(chart: Chart, beside: Row, why: str, role: str, content: list[Any]) -> Row:
    """A new row beside another one, seen by whom that one is seen by."""
    named = f"{chart.session.id}\n{beside.message_id}\n{beside.number}\n{why}"
    return Row(
        number=beside.number,
        place=f"after {beside.place}",
        message_id=MADE + hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:32],
        role=role,
        content=content,
        created=beside.created,
        metadata={**_flags(beside), OWN_NOTES: {"synthetic": True}},
    )


def marked(row: Row, *, for_model: bool | None = None, **notes: Any) -> Row:
    """The row with something noted in its metadata, and hidden from the model or shown to it if asked."""
    metadata = {**_flags(row), **(row.metadata or {})}
    noted = metadata.get(OWN_NOTES)
    metadata[OWN_NOTES] = {**(noted if isinstance(noted, dict) else {}), **notes}
    if for_model is not None:
        metadata["agentVisible"] = for_model
    return msgspec.structs.replace(row, metadata=metadata)


def shown(row: Row, *, for_model: bool) -> Row:
    """The row, hidden from the model or shown to it, as goose itself would have it."""
    metadata = {**_flags(row), **(row.metadata or {}), "agentVisible": for_model}
    return msgspec.structs.replace(row, metadata=metadata)


def kept(raw: bytes) -> dict[str, str]:
    """Bytes as a note that holds all of them."""
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:
        return {"raw_base64": base64.b64encode(raw).decode()}


def change(chart: Chart, rule: str, row: Row, before: Any, after: Any) -> Change:
    return Change(f"goose/{rule}", chart.session.id, row.place, short(before), short(after))


def short(value: Any) -> str:
    """What is shown of a value in a report."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def with_rows(chart: Chart, rows: list[Row]) -> Chart:
    return msgspec.structs.replace(chart, rows=tuple(rows))


def _flags(row: Row) -> dict[str, Any]:
    metadata = row.metadata or {}
    return {flag: metadata.get(flag) is not False for flag in ("userVisible", "agentVisible")}
