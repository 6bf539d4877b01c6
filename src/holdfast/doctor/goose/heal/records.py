"""Remedies for single records of goose: placeholders for what can't be read, and marks on what
can't be loaded.
"""

from typing import Any

from msgspec.structs import replace

from holdfast.doctor.goose.blocks import block_problem
from holdfast.doctor.goose.case import ROLES, GooseCase, Rows, is_block
from holdfast.doctor.goose.detect.records import (
    is_in_milliseconds,
    is_odd,
    unknown_blocks,
)
from holdfast.doctor.goose.synthetic_rows import (
    Edits,
    Mended,
    RowEdit,
    change,
    edits_rows,
    kept,
    marked,
    short,
    with_rows,
)
from holdfast.importers.goose.records import MS_FROM, GooseRow, instant_of

PLACEHOLDER = "[unreadable: this record of the store could not be read]"
HIDDEN = "kept, hidden from the model"


def unreadable_record(case: GooseCase) -> Mended:
    """A placeholder for what can't be read; the time of the row before for one whose time is no
    time.
    """
    session = case.session
    case, changes = _unreadable_rows(case)
    if session.problem:
        after = "what can't be read of it is left as it was found"
        changes.append(change(case, unreadable_record, session, session.problem, after))
        case = replace(case, session=replace(session, problem=""))
    return case, changes


def _unreadable_rows(case: GooseCase) -> Mended:
    rows: list[GooseRow] = []
    changes = []
    for row in case.rows:
        if row.problem:
            # What can be read of it is kept: its time alone may be no time.
            after = "kept, with the time of the row before"
            healed = row
            if row.content is None:
                after = "a placeholder, hidden from the model"
                healed = marked(_placeholder(row), unreadable=True)
            changes.append(change(case, unreadable_record, row, row.problem, after))
            row = replace(_in_time(healed, rows, case.rows), problem="")
        rows.append(row)
    return with_rows(case, rows), changes


def content_not_json(case: GooseCase) -> Mended:
    rows: list[GooseRow] = []
    changes = []
    for row in case.rows:
        if row.content_problem:
            before = row.raw[:400].decode("utf-8", "replace")
            changes.append(change(case, content_not_json, row, before, PLACEHOLDER))
            row = _in_time(_placeholder(row), rows, case.rows)
        rows.append(row)
    return with_rows(case, rows), changes


@edits_rows
def unknown_content_type(case: GooseCase) -> Edits:
    """Blocks that goose can't load are carried in the metadata. A call of a screen's own tool
    becomes a usual one.
    """
    for index, row in enumerate(case.rows):
        unknown = unknown_blocks(row)
        if not unknown:
            continue
        content = []
        opaque = []
        blocks = row.content or []
        for place, block in enumerate(blocks):
            if place in unknown:
                opaque.append({"at": place, "block": block})
                block = _as_usual_call(block)
            if block is not None:
                content.append(block)
        # A message without a block is one more thing that goose may stumble over.
        if not content:
            content.append({"type": "text", "text": f"[{_kind(blocks[min(unknown)])}]"})
        healed = marked(replace(row, content=content), opaque=opaque)
        yield RowEdit(index, [healed], blocks, content)


@edits_rows
def metadata_unreadable(case: GooseCase) -> Edits:
    for index, row in enumerate(case.rows):
        if row.metadata_problem:
            before = row.raw_metadata.decode("utf-8", "replace") or row.metadata_problem
            healed = _with_flags(row)
            yield RowEdit(index, [healed], before, healed.metadata)


def millisecond_timestamps(case: GooseCase) -> Mended:
    """Clamped rows have the very time of the row before; when they were stored is nearer, if it is
    later.
    """
    if not any(map(is_in_milliseconds, case.rows)):
        return case, []
    rows = []
    changes = []
    clamp = None
    last = 0
    # In the order in which they were stored: with such times among them, goose reads them in
    # another.
    for row in sorted(case.rows, key=lambda row: row.number):
        created = row.created or 0
        if is_in_milliseconds(row):
            seconds = _in_seconds(created)
            stored = (instant_of(row.stored_at) or 0) // 1000
            # Never before the row that it follows.
            if created == clamp and stored >= max(last, seconds):
                seconds = stored
            clamp = created
            changes.append(
                change(case, millisecond_timestamps, row, str(created), str(seconds))
            )
            row = replace(row, created=seconds)
        # One without a time stays behind the row before it.
        when = last if row.created is None else row.created
        last = max(last, when)
        rows.append((when, row.number, row))
    rows.sort(key=lambda each: each[:2])
    return with_rows(case, [row for _, _, row in rows]), changes


@edits_rows
def empty_and_odd_roles(case: GooseCase) -> Edits:
    for index, row in enumerate(case.rows):
        if not is_odd(row):
            continue
        if row.role in ROLES:
            hidden = marked(row, for_model=False, empty=True)
            yield RowEdit(index, [hidden], short(row.content), HIDDEN)
        else:
            # goose loads two roles; the third is kept as a note.
            hidden = marked(row, for_model=False, role=row.role)
            hidden = replace(hidden, role="user")
            yield RowEdit(index, [hidden], f"role {row.role}", HIDDEN)


def _placeholder(row: GooseRow) -> GooseRow:
    if row.metadata_problem:
        row = _with_flags(row)
    notes = kept(row.raw) if row.raw else {}
    row = marked(row, for_model=False, unreadable=True, **notes)
    content = [{"type": "text", "text": PLACEHOLDER}]
    return replace(row, content=content, content_problem="", raw=b"")


def _with_flags(row: GooseRow) -> GooseRow:
    notes = {}
    if row.raw_metadata:
        for key, value in kept(row.raw_metadata).items():
            notes[f"metadata_{key}"] = value
    # For readers alone: the flags that are lost may have hidden it from the model.
    row = replace(row, metadata=None, metadata_problem="", raw_metadata=b"")
    return marked(row, for_model=False, metadata_lost=True, **notes)


def _in_time(row: GooseRow, before: Rows, rows: Rows) -> GooseRow:
    """The row with a time: its own, that of the row before it, or that of the first row that has
    one.
    """
    for other in (row, *before[-1:], *rows):
        if other.created is not None:
            return replace(row, created=other.created)
    return replace(row, created=0)


def _in_seconds(created: int) -> int:
    # Until it can be seconds, whatever it was counted in.
    while created >= MS_FROM:
        created //= 1000
    return created


def _as_usual_call(block: Any) -> Any:
    """A block that goose can load for one that it can't, if there is one."""
    if not is_block(block, "frontendToolRequest"):
        return None
    usual = {**block, "type": "toolRequest"}
    return None if block_problem(usual) else usual


def _kind(block: Any) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind[:60] if isinstance(kind, str) else "block"
