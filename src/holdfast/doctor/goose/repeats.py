"""Rows of goose that share a message's id: stored again as they were, or one answer in pieces."""

import hashlib
import json
from itertools import chain
from typing import Any

from holdfast.doctor.goose.case import Rows, blocks, is_block
from holdfast.importers.goose.records import GooseRow


def split_runs(rows: Rows) -> list[range]:
    """Assistant rows next to each other with one id and different content: one answer, in
    pieces.
    """
    found = []
    start = 0
    # One step beyond the last row, to close the last run.
    for index in range(1, len(rows) + 1):
        if index < len(rows) and _continues(rows[start], rows[index]):
            continue
        if index - start > 1 and _is_split(rows[start:index]):
            found.append(range(start, index))
        start = index
    return found


def repeated_rows(rows: Rows) -> list[int]:
    """Rows that say what an earlier row of the same id has said; not pieces of an answer, of which
    two may be alike.
    """
    pieces = set(chain.from_iterable(split_runs(rows)))
    met: dict[str, set[str]] = {}
    found = []
    for index, row in enumerate(rows):
        # Without an id, two rows with the same words may be two messages.
        if row.message_id is None or row.content is None or index in pieces:
            continue
        said = met.setdefault(row.message_id, set())
        gist = _gist(row.content)
        if gist in said:
            found.append(index)
        said.add(gist)
    return found


def _gist(content: list[Any]) -> str:
    """A digest, equal for equal blocks: rows of one id are looked up by it and not compared with
    each other.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def without_repeats(rows: Rows) -> tuple[GooseRow, ...]:
    """The rows without those that only repeat: what else is wrong with a session is seen
    in these.
    """
    again = set(repeated_rows(rows))
    return tuple(row for index, row in enumerate(rows) if index not in again)


def signatures(row: GooseRow) -> list[tuple[int, str]]:
    """The signed thinking of a row, by block."""
    found = []
    for index, block in enumerate(row.content or ()):
        if is_block(block, "thinking") and block.get("signature"):
            found.append((index, block["signature"]))
    return found


def _continues(first: GooseRow, row: GooseRow) -> bool:
    if first.message_id is None:
        return False
    return first.message_id == row.message_id and first.role == row.role


def _is_split(run: Rows) -> bool:
    if run[0].role != "assistant" or any(row.content is None for row in run):
        return False
    signed: list[str] = []
    for row in run:
        signed += [str(signature) for _, signature in signatures(row)]
    # Pieces of one answer have each signature once; the same one twice is another defect.
    if len(signed) != len(set(signed)):
        return False
    is_one_in_copies = all(row.content == run[0].content for row in run)
    return not is_one_in_copies and any(blocks(row, "text") for row in run)
