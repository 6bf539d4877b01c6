"""Which result of a session of goose answers which call, and which of them are alone.

Ids are the providers' and come again in later turns: a result takes the latest open call of its id
before it. What the model sees is paired first, then what is hidden from it, then what is left of
both.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from holdfast.doctor.goose.blocks import block_problem
from holdfast.doctor.goose.case import ROLES, for_model
from holdfast.importers.goose.records import GooseRow

CALLS = ("toolRequest", "frontendToolRequest")


class BlockPlace(msgspec.Struct, frozen=True):
    """A block: the index of its row, its own index there, and the id of the call that it makes or
    answers.
    """

    row: int
    block: int
    call_id: str


class Pairing(msgspec.Struct):
    """`pairs` are calls with their results; `early` those whose result is read first. `alone` are
    calls without a result, `strays` results without a call, `doubles` further results of a call
    that has one.
    """

    pairs: list[tuple[BlockPlace, BlockPlace]]
    early: list[tuple[BlockPlace, BlockPlace]]
    alone: list[BlockPlace]
    strays: list[BlockPlace]
    doubles: list[BlockPlace]


def pairing(rows: Sequence[GooseRow]) -> Pairing:
    """Who answers whom. What may be answered, or called, by a record that can't be read is not said
    to be alone.
    """
    found = Pairing([], [], [], [], [])
    places: list[tuple[BlockPlace, bool]] = []
    for index, row in enumerate(rows):
        places += _places(index, row)
    known = {place.call_id for place, is_call in places if is_call}
    waiting, left = _matched(places, [for_model(row) for row in rows], found)
    for place in left:
        later = next(
            (call for call in waiting[place.call_id] if call.row >= place.row), None
        )
        if later is not None:
            waiting[place.call_id].remove(later)
            found.early.append((later, place))
        elif not for_model(rows[place.row]):
            continue
        elif place.call_id in known:
            found.doubles.append(place)
        elif not (place.row and _is_doubtful(rows[place.row - 1])):
            found.strays.append(place)
    found.alone = _without_result(rows, waiting)
    return found


def _without_result(
    rows: Sequence[GooseRow], waiting: dict[str, list[BlockPlace]]
) -> list[BlockPlace]:
    alone = []
    for calls in waiting.values():
        for call in calls:
            # A row behind it that can't be read may hold its result.
            is_last = call.row + 1 == len(rows)
            if is_last or not _is_doubtful(rows[call.row + 1]):
                alone.append(call)
    return sorted(alone, key=lambda call: (call.row, call.block))


def _matched(
    places: list[tuple[BlockPlace, bool]], visible: list[bool], found: Pairing
) -> tuple[dict[str, list[BlockPlace]], list[BlockPlace]]:
    """Pairs what has one visibility, then the rest; calls that are still open, and results that
    found none.
    """
    waiting: dict[str, list[BlockPlace]] = {}
    for alike in (True, False):
        waiting, left = defaultdict(list), []
        for place, is_call in places:
            if is_call:
                waiting[place.call_id].append(place)
                continue
            calls = waiting[place.call_id]
            call = next(
                (
                    c
                    for c in reversed(calls)
                    if not alike or visible[c.row] == visible[place.row]
                ),
                None,
            )
            if call is None:
                left.append(place)
            else:
                calls.remove(call)
                found.pairs.append((call, place))
        paired = {place for pair in found.pairs for place in pair}
        places = [(place, is_call) for place, is_call in places if place not in paired]
    found.pairs.sort(key=lambda pair: (pair[1].row, pair[1].block))
    return waiting, left


def _places(index: int, row: GooseRow) -> list[tuple[BlockPlace, bool]]:
    if row.role not in ROLES:  # goose does not read it
        return []
    out = []
    for place, block in enumerate(row.content or ()):
        kind = block.get("type") if isinstance(block, dict) else None
        if (kind in CALLS or kind == "toolResponse") and isinstance(
            block.get("id"), str
        ):
            out.append((BlockPlace(index, place, block["id"]), kind in CALLS))
    return out


def _is_doubtful(row: GooseRow) -> bool:
    return row.content is None or any(block_problem(block) for block in row.content)
