"""Remedies for single records of goose: placeholders for what can't be read, and marks on what
can't be loaded.
"""

from typing import Any

import msgspec

from holdfast.doctor.finding import Change
from holdfast.doctor.goose.case import ROLES, GooseCase
from holdfast.doctor.goose.detect.records import (
    is_in_milliseconds,
    is_odd,
    unknown_blocks,
)
from holdfast.doctor.goose.synthetic_rows import (
    Mended,
    change,
    kept,
    marked,
    short,
    with_rows,
)
from holdfast.importers.goose.records import GooseRow, instant_of

PLACEHOLDER = "[unreadable: this record of the store could not be read]"


def unreadable_record(case: GooseCase) -> Mended:
    """A placeholder for what can't be read; the time of the row before for one whose time is no
    time.
    """
    rows: list[GooseRow] = []
    changes: list[Change] = []
    for row in case.rows:
        if row.problem:
            after = "a placeholder, hidden from the model"
            changes.append(change(case, "unreadable-record", row, row.problem, after))
            row = _in_time(
                row if row.content is not None else _placeholder(row), rows, case.rows
            )
            row = msgspec.structs.replace(marked(row, unreadable=True), problem="")
        rows.append(row)
    session = case.session
    if session.problem:
        after = "what can't be read of it is left as it was found"
        changes.append(
            Change(
                "goose/unreadable-record",
                session.id,
                session.place,
                session.problem,
                after,
            )
        )
        case = msgspec.structs.replace(
            case, session=msgspec.structs.replace(session, problem="")
        )
    return with_rows(case, rows), changes


def content_not_json(case: GooseCase) -> Mended:
    rows: list[GooseRow] = []
    changes = []
    for row in case.rows:
        if row.content_problem:
            before = row.raw[:400].decode("utf-8", "replace")
            changes.append(change(case, "content-not-json", row, before, PLACEHOLDER))
            row = _in_time(_placeholder(row), rows, case.rows)
        rows.append(row)
    return with_rows(case, rows), changes


def unknown_content_type(case: GooseCase) -> Mended:
    """Blocks that goose can't load are carried in the metadata. A call of a screen's own tool
    becomes a usual one.
    """
    rows, changes = list(case.rows), []
    for index, row in enumerate(rows):
        unknown = unknown_blocks(row)
        if not unknown:
            continue
        left = {place for place, _ in unknown}
        blocks = row.content or []
        content = [
            _loadable(block, place in left) for place, block in enumerate(blocks)
        ]
        content = [block for block in content if block is not None]
        if not content:
            content = [{"type": "text", "text": f"[{_kind(blocks[unknown[0][0]])}]"}]
        opaque = [{"at": place, "block": blocks[place]} for place, _ in unknown]
        changes.append(change(case, "unknown-content-type", row, blocks, content))
        rows[index] = marked(
            msgspec.structs.replace(row, content=content), opaque=opaque
        )
    return with_rows(case, rows), changes


def metadata_unreadable(case: GooseCase) -> Mended:
    rows, changes = list(case.rows), []
    for index, row in enumerate(rows):
        if row.metadata_problem:
            before = row.raw_metadata.decode("utf-8", "replace") or row.metadata_problem
            rows[index] = _with_flags(row)
            changes.append(
                change(case, "metadata-unreadable", row, before, rows[index].metadata)
            )
    return with_rows(case, rows), changes


def millisecond_timestamps(case: GooseCase) -> Mended:
    """Clamped rows have the very time of the row before; when they were stored is nearer, if it is
    later.
    """
    if not any(is_in_milliseconds(row) for row in case.rows):
        return case, []
    rows, changes = [], []
    clamp, last = None, 0
    for row in sorted(case.rows, key=lambda row: row.number):
        created = row.created
        if is_in_milliseconds(row):
            assert created is not None
            seconds = _in_seconds(created)
            stored = (instant_of(row.stored_at) or 0) // 1000
            if created == clamp and stored >= max(last, seconds):
                seconds = stored
            clamp = created
            changes.append(
                change(case, "millisecond-timestamps", row, str(created), str(seconds))
            )
            row = msgspec.structs.replace(row, created=seconds)
        last = max(last, row.created or 0)
        rows.append(row)
    rows.sort(key=lambda row: (row.created or 0, row.number))
    return with_rows(case, rows), changes


def empty_and_odd_roles(case: GooseCase) -> Mended:
    rows, changes = list(case.rows), []
    for index, row in enumerate(rows):
        if is_odd(row):
            if row.role in ROLES:
                before = short(row.content)
                rows[index] = marked(row, for_model=False, empty=True)
            else:
                before = f"role {row.role}"
                hidden = marked(row, for_model=False, role=row.role)
                rows[index] = msgspec.structs.replace(hidden, role="user")
            after = "kept, hidden from the model"
            changes.append(change(case, "empty-and-odd-roles", row, before, after))
    return with_rows(case, rows), changes


def _placeholder(row: GooseRow) -> GooseRow:
    content = [{"type": "text", "text": PLACEHOLDER}]
    row = _with_flags(row) if row.metadata_problem else row
    row = marked(
        row, for_model=False, unreadable=True, **(kept(row.raw) if row.raw else {})
    )
    return msgspec.structs.replace(row, content=content, content_problem="", raw=b"")


def _with_flags(row: GooseRow) -> GooseRow:
    notes = {}
    if row.raw_metadata:
        notes = {
            f"metadata_{key}": value for key, value in kept(row.raw_metadata).items()
        }
    row = msgspec.structs.replace(
        row, metadata=None, metadata_problem="", raw_metadata=b""
    )
    return marked(row, for_model=False, metadata_lost=True, **notes)


def _in_time(
    row: GooseRow, before: list[GooseRow], rows: tuple[GooseRow, ...]
) -> GooseRow:
    """The row with a time: its own, that of the row before it, or that of the first row that has
    one.
    """
    if row.created is not None:
        return row
    created = before[-1].created if before else None
    if created is None:
        created = next((one.created for one in rows if one.created is not None), 0)
    return msgspec.structs.replace(row, created=created)


def _in_seconds(created: int) -> int:
    while created >= 10_000_000_000:
        created //= 1000
    return created


def _loadable(block: Any, is_unknown: bool) -> Any:
    if not is_unknown:
        return block
    if isinstance(block, dict) and block.get("type") == "frontendToolRequest":
        usual = {**block, "type": "toolRequest"}
        if not unknown_blocks(GooseRow(0, "", None, "assistant", [usual], 0, None)):
            return usual
    return None


def _kind(block: Any) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind[:60] if isinstance(kind, str) else "block"
