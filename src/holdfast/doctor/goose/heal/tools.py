"""Remedies for calls and results of goose: a result for every call, next to it, and no other that
the model sees.
"""

from typing import Any

import msgspec

from holdfast.doctor.finding import Change
from holdfast.doctor.goose.case import GooseCase, blocks
from holdfast.doctor.goose.pairs import BlockPlace, pairing
from holdfast.doctor.goose.synthetic_rows import Mended, change, made, marked, with_rows
from holdfast.importers.goose.records import GooseRow

UNKNOWN = "interrupted, outcome unknown"


def result_before_call(case: GooseCase) -> Mended:
    """The first result that is read too soon is put behind its call; the rest is looked
    for again.
    """
    changes: list[Change] = []
    rows = list(case.rows)
    for _ in range(len(rows)):
        early = pairing(rows).early
        if not early:
            break
        call, result = early[0]
        row, asked = rows[result.row], rows[call.row]
        before, after = f"read before {asked.place}", f"read after {asked.place}"
        changes.append(change(case, "result-before-call", row, before, after))
        rest, moved = _taken_out(case, row, result)
        moved = msgspec.structs.replace(
            moved, created=max(row.created or 0, asked.created or 0)
        )
        rows.insert(call.row + 1, moved)
        rows[result.row : result.row + 1] = rest
    return with_rows(case, rows), changes


def duplicate_tool_result(case: GooseCase) -> Mended:
    return _hidden(case, "duplicate-tool-result", pairing(case.rows).doubles)


def orphan_tool_response(case: GooseCase) -> Mended:
    return _hidden(case, "orphan-tool-response", pairing(case.rows).strays)


def orphan_tool_request(case: GooseCase) -> Mended:
    """One row of error results behind each row with open calls, and behind the results
    that it has.
    """
    found = pairing(case.rows)
    behind: dict[int, int] = {}
    for call, result in found.pairs:
        behind[call.row] = max(behind.get(call.row, call.row), result.row)
    open_calls: dict[int, list[str]] = {}
    for call in found.alone:
        open_calls.setdefault(call.row, []).append(call.call_id)
    added: dict[int, list[GooseRow]] = {}
    changes = []
    for index, ids in open_calls.items():
        row = case.rows[index]
        at = behind.get(index, index)
        at = at if _is_adjacent(case.rows, index, at) else index
        answer = made(
            case,
            row,
            f"results of {','.join(ids)}",
            "user",
            [_error(one) for one in ids],
        )
        answer = msgspec.structs.replace(answer, created=case.rows[at].created)
        added.setdefault(at, []).append(answer)
        changes.append(
            change(
                case,
                "orphan-tool-request",
                row,
                f"no result for {', '.join(ids)}",
                UNKNOWN,
            )
        )
    rows = [
        one
        for index, row in enumerate(case.rows)
        for one in (row, *added.get(index, ()))
    ]
    return with_rows(case, rows), changes


def _hidden(case: GooseCase, rule: str, places: list[BlockPlace]) -> Mended:
    """Hides results from the model: the row, if it holds nothing else, or a row of their own beside
    it.
    """
    by_row: dict[int, list[int]] = {}
    for place in places:
        by_row.setdefault(place.row, []).append(place.block)
    rows: list[GooseRow] = []
    changes = []
    for index, row in enumerate(case.rows):
        out = by_row.get(index)
        if out is None:
            rows.append(row)
            continue
        content = row.content or []
        changes.append(
            change(
                case,
                rule,
                row,
                [content[place] for place in out],
                "kept, hidden from the model",
            )
        )
        if len(out) == len(content):
            rows.append(marked(row, for_model=False, hidden=True))
            continue
        rest = [block for place, block in enumerate(content) if place not in out]
        apart = made(case, row, rule, row.role, [content[place] for place in out])
        rows += [
            msgspec.structs.replace(row, content=rest),
            marked(apart, for_model=False, hidden=True),
        ]
    return with_rows(case, rows), changes


def _is_adjacent(rows: tuple[GooseRow, ...], start: int, end: int) -> bool:
    """Whether only results stand between two rows."""
    return all(
        isinstance(block, dict) and block.get("type") == "toolResponse"
        for row in rows[start + 1 : end + 1]
        for block in row.content or ()
    )


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
    rest = [block for place, block in enumerate(content) if place != result.block]
    return [msgspec.structs.replace(row, content=rest)], moved
