"""Which result of a session of goose answers which call, and which of them are alone.

Ids are the providers' and come again in later turns: a result takes the latest open call of its id
before it. What the model sees is paired first, then what is hidden from it, then what is left of
both.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

import msgspec

from holdfast.doctor.goose.blocks import block_problem
from holdfast.doctor.goose.case import ROLES, Rows, for_model, is_block
from holdfast.importers.goose.records import GooseRow

CALLS = ("toolRequest", "frontendToolRequest")


class BlockPlace(msgspec.Struct, frozen=True):
    """A block: the index of its row, its own index there, and the id of the call that it makes or
    answers.
    """

    row: int
    block: int
    call_id: str


Places = list[BlockPlace]
# A block, and whether it is a call.
CallOrResult = tuple[BlockPlace, bool]
# Calls without a result, by their id, in the order in which they were made.
Waiting = dict[str, Places]


class Pairing(msgspec.Struct):
    """`pairs` are calls with their results; `early` those whose result is read first. `alone` are
    calls without a result, `strays` results without a call, `doubles` further results of a call
    that has one.
    """

    pairs: list[tuple[BlockPlace, BlockPlace]]
    early: list[tuple[BlockPlace, BlockPlace]]
    alone: Places
    strays: Places
    doubles: Places


def pairing(rows: Rows) -> Pairing:
    """Who answers whom. What may be answered, or called, by a record that can't be read is not said
    to be alone.
    """
    found = Pairing([], [], [], [], [])
    places: list[CallOrResult] = []
    for index, row in enumerate(rows):
        places += _places(index, row)
    known = {place.call_id for place, is_call in places if is_call}
    waiting, left = _matched(places, [for_model(row) for row in rows], found)
    for place in left:
        calls = waiting[place.call_id]
        later = [call for call in calls if call.row >= place.row]
        if later:
            calls.remove(later[0])
            found.early.append((later[0], place))
        elif not for_model(rows[place.row]):
            # A result that the model does not see is in no request that could be refused.
            continue
        elif place.call_id in known:
            found.doubles.append(place)
        # The row before it that can't be read may hold its call.
        elif not (place.row and _is_doubtful(rows[place.row - 1])):
            found.strays.append(place)
    found.alone = _without_result(rows, waiting)
    return found


def _without_result(rows: Rows, waiting: Waiting) -> Places:
    alone = []
    for call in chain.from_iterable(waiting.values()):
        # A row behind it that can't be read may hold its result.
        if not any(map(_is_doubtful, rows[call.row + 1 : call.row + 2])):
            alone.append(call)
    return sorted(alone, key=lambda call: (call.row, call.block))


def _matched(
    places: list[CallOrResult], visible: list[bool], found: Pairing
) -> tuple[Waiting, Places]:
    """Pairs what has one visibility, then the rest; calls that are still open, and results that
    found none.
    """
    # A compaction hides a call together with its result; ids come again, so the other copy of an
    # id must not take the result first.
    for alike in (True, False):
        waiting: Waiting = defaultdict(list)
        left: Places = []
        for place, is_call in places:
            calls = waiting[place.call_id]
            if is_call:
                calls.append(place)
                continue
            for call in reversed(calls):
                if not alike or visible[call.row] == visible[place.row]:
                    calls.remove(call)
                    found.pairs.append((call, place))
                    break
            else:
                left.append(place)
        paired = set(chain.from_iterable(found.pairs))
        places = [one for one in places if one[0] not in paired]
    found.pairs.sort(key=lambda pair: (pair[1].row, pair[1].block))
    return waiting, left


def _places(index: int, row: GooseRow) -> Iterator[CallOrResult]:
    if row.role not in ROLES:  # goose does not read it
        return
    for place, block in enumerate(row.content or ()):
        is_call = is_block(block, *CALLS)
        if is_call or is_block(block, "toolResponse"):
            if isinstance(block.get("id"), str):
                yield BlockPlace(index, place, block["id"]), is_call


def _is_doubtful(row: GooseRow) -> bool:
    return row.content is None or any(block_problem(block) for block in row.content)
