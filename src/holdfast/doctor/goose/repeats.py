"""Rows of goose that share a message's id: stored again as they were, or one answer in pieces."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from holdfast.doctor.goose.case import blocks
from holdfast.importers.goose.records import GooseRow


def split_runs(rows: Sequence[GooseRow]) -> list[range]:
    """Assistant rows next to each other with one id and different content: one answer, in
    pieces.
    """
    found, start = [], 0
    for index in range(1, len(rows) + 1):
        if index < len(rows) and _continues(rows[start], rows[index]):
            continue
        if index - start > 1 and _is_split(rows[start:index]):
            found.append(range(start, index))
        start = index
    return found


def repeated_rows(rows: Sequence[GooseRow]) -> list[int]:
    """Rows that say what an earlier row of the same id has said; not pieces of an answer, of which
    two may be alike.
    """
    pieces = {index for run in split_runs(rows) for index in run}
    met: dict[str, set[str]] = {}
    found = []
    for index, row in enumerate(rows):
        if row.message_id is None or row.content is None or index in pieces:
            continue
        said, gist = met.setdefault(row.message_id, set()), _gist(row.content)
        if gist in said:
            found.append(index)
        said.add(gist)
    return found


def _gist(content: list[Any]) -> str:
    """The same for blocks that are equal: rows of one id are looked up, not compared with each
    other.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def without_repeats(rows: Sequence[GooseRow]) -> tuple[GooseRow, ...]:
    """The rows without those that only repeat: what else is wrong with a session is seen
    in these.
    """
    again = set(repeated_rows(rows))
    return tuple(row for index, row in enumerate(rows) if index not in again)


def signatures(row: GooseRow) -> list[tuple[int, str]]:
    """The signed thinking of a row, by block."""
    return [
        (index, block["signature"])
        for index, block in enumerate(row.content or ())
        if isinstance(block, dict)
        and block.get("type") == "thinking"
        and block.get("signature")
    ]


def _continues(first: GooseRow, row: GooseRow) -> bool:
    return first.message_id is not None and (first.message_id, first.role) == (
        row.message_id,
        row.role,
    )


def _is_split(run: Sequence[GooseRow]) -> bool:
    if run[0].role != "assistant" or any(row.content is None for row in run):
        return False
    signed = [signature for row in run for _, signature in signatures(row)]
    doubled = len(signed) != len(set(map(str, signed)))
    return (
        not doubled
        and any(row.content != run[0].content for row in run)
        and any(blocks(row, "text") for row in run)
    )
