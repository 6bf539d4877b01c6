"""Remedies for calls and results of goose: a result for every call, next to it, and no other that
the model sees.
"""

from typing import Any

from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.goose.case import GooseCase, Rows, blocks, is_block
from holdfast.doctor.goose.heal.records import HIDDEN
from holdfast.doctor.goose.pairs import BlockPlace, Places, pairing
from holdfast.doctor.goose.synthetic_rows import (
    Edits,
    Mended,
    RowEdit,
    change,
    edits_rows,
    made,
    marked,
    with_rows,
)
from holdfast.importers.goose.records import GooseRow

UNKNOWN = "interrupted, outcome unknown"


def result_before_call(case: GooseCase) -> Mended:
    """The first result that is read too soon is put behind its call; the rest is looked
    for again.
    """
    changes: list[Change] = []
    rows = list(case.rows)
    # Every move may mend other pairs, and each mends one: as many as there are rows are enough.
    for _ in range(len(rows)):
        early = pairing(rows).early
        if not early:
            break
        call, result = early[0]
        row, asked = rows[result.row], rows[call.row]
        before, after = f"read before {asked.place}", f"read after {asked.place}"
        changes.append(change(case, result_before_call, row, before, after))
        rest, moved = _taken_out(case, row, result)
        # goose reads rows by their time: with its own it would be read too soon again.
        moved = replace(moved, created=max(row.created or 0, asked.created or 0))
        # Behind first: what stands before the call keeps its index.
        rows.insert(call.row + 1, moved)
        rows[result.row : result.row + 1] = rest
    return with_rows(case, rows), changes


@edits_rows
def duplicate_tool_result(case: GooseCase) -> Edits:
    found = pairing(case.rows).doubles
    return _hidden(case, "duplicate-tool-result", found)


@edits_rows
def orphan_tool_response(case: GooseCase) -> Edits:
    found = pairing(case.rows).strays
    return _hidden(case, "orphan-tool-response", found)


@edits_rows
def orphan_tool_request(case: GooseCase) -> Edits:
    """One row of error results behind each row with open calls, and behind the results
    that it has.
    """
    rows = case.rows
    found = pairing(rows)
    behind: dict[int, int] = {}
    # Providers want all results of a row's calls before anything else is said.
    for call, result in found.pairs:
        behind[call.row] = max(behind.get(call.row, call.row), result.row)
    open_calls: dict[int, list[str]] = {}
    for call in found.alone:
        open_calls.setdefault(call.row, []).append(call.call_id)
    for index, ids in open_calls.items():
        at = behind.get(index, index)
        at = at if _is_adjacent(case.rows, index, at) else index
        content = [_error(one) for one in ids]
        why = f"results of {','.join(ids)}"
        answer = made(case, rows[index], why, "user", content)
        # goose reads rows by their time.
        answer = replace(answer, created=rows[at].created)
        before = f"no result for {', '.join(ids)}"
        answered = [*rows[index : at + 1], answer]
        yield RowEdit(index, answered, before, UNKNOWN, at + 1)


def _hidden(case: GooseCase, why: str, places: Places) -> Edits:
    """Hides results from the model: the row, if it holds nothing else, or a row of their own beside
    it.
    """
    by_row: dict[int, list[int]] = {}
    for place in places:
        by_row.setdefault(place.row, []).append(place.block)
    for index, out in sorted(by_row.items()):
        row = case.rows[index]
        content = row.content or []
        results = [content[place] for place in out]
        if len(out) == len(content):
            hidden = [marked(row, for_model=False, hidden=True)]
        else:
            apart = made(case, row, why, row.role, results)
            apart = marked(apart, for_model=False, hidden=True)
            hidden = [without_blocks(row, out), apart]
        yield RowEdit(index, hidden, results, HIDDEN)


def without_blocks(row: GooseRow, out: list[int]) -> GooseRow:
    """The row without these of its blocks."""
    content = row.content or []
    rest = [block for place, block in enumerate(content) if place not in out]
    return replace(row, content=rest)


def _is_adjacent(rows: Rows, start: int, end: int) -> bool:
    """Whether only results stand between two rows."""
    for row in rows[start + 1 : end + 1]:
        if not all(is_block(block, "toolResponse") for block in row.content or ()):
            return False
    return True


def _error(call_id: str) -> dict[str, Any]:
    return {
        "type": "toolResponse",
        "id": call_id,
        "toolResult": {"status": "error", "error": UNKNOWN},
    }


def _taken_out(
    case: GooseCase, row: GooseRow, result: BlockPlace
) -> tuple[list[GooseRow], GooseRow]:
    """What stays where it was, and the row to be moved: the whole, if it holds results alone."""
    content = row.content or []
    if len(blocks(row, "toolResponse")) == len(content):
        return [], row
    moved = made(case, row, f"result {result.block}", "user", [content[result.block]])
    return [without_blocks(row, [result.block])], moved
