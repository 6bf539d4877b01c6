"""Alignment: the longest way to lay one sequence beside another without crossing.

Prefix and suffix are taken off, items that occur once on both sides become pivots (patience), and
what lies between two pivots is aligned the same way; where nothing is unique a table is filled, and
where that table would be large, the n-th of a kind is laid beside the n-th. So the result is a
longest common subsequence wherever that can be had for little, and never costs more than some
milliseconds per thousand items. `reconcile` calls it; it knows no messages.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Sequence

CELLS_MAX = 160_000
"""The largest table that is filled for one gap."""

Items = Sequence[Hashable]
Found = list[int | None]
"""For each item that was said its place among the known ones, if it has one."""
Pairs = list[tuple[int, int]]
"""A known place, and the said one that it lies beside."""
Span = tuple[int, int, int, int]
"""Start and end in the known sequence, start and end in the said one."""


def align(known: Items, said: Items) -> Found:
    """For each item of `said` the place in `known` it lies beside, ascending; None where there is
    none.
    """
    found: Found = [None] * len(said)
    spans: list[Span] = [(0, len(known), 0, len(said))]
    while spans:
        span = _strip(known, said, spans.pop(), found)
        if span[0] == span[1] or span[2] == span[3]:
            continue
        # What occurs once on both sides is the same, whatever has moved around it.
        pivots = _pivots(known, said, span)
        if pivots:
            spans.extend(_between(pivots, span, found))
        elif (span[1] - span[0]) * (span[3] - span[2]) <= CELLS_MAX:
            _fill_table(known, said, span, found)
        else:
            for place, at in ascending(_nth_by_nth(known, said, span)):
                found[at] = place
    return _earliest(said, found)


def _earliest(said: Items, found: Found) -> Found:
    """Of equal items that could lie beside one place, the first: what is said again later is said
    anew.
    """
    free: dict[Hashable, deque[int]] = {}
    last = -1
    for at, place in enumerate(found):
        others = free.setdefault(said[at], deque())
        if place is None:
            others.append(at)
            continue
        while others and others[0] < last:
            others.popleft()
        last = at
        if others:
            last = others.popleft()
            found[last] = place
            found[at] = None
            others.append(at)
    return found


def _strip(
    known: Items,
    said: Items,
    span: Span,
    found: Found,
) -> Span:
    a, b, c, d = span
    while a < b and c < d and known[a] == said[c]:
        found[c] = a
        a += 1
        c += 1
    while a < b and c < d and known[b - 1] == said[d - 1]:
        b -= 1
        d -= 1
        found[d] = b
    return a, b, c, d


def _pivots(known: Items, said: Items, span: Span) -> Pairs:
    a, b, c, d = span
    once = _once(known, a, b)
    pairs = [(once[item], at) for item, at in _once(said, c, d).items() if item in once]
    # in the order of what was said, as it takes them
    return ascending(sorted(pairs, key=lambda pair: pair[1]))


def _once(items: Items, start: int, end: int) -> dict[Hashable, int]:
    places: dict[Hashable, int] = {}
    again: set[Hashable] = set()
    for at in range(start, end):
        if items[at] in places:
            again.add(items[at])
        places[items[at]] = at
    return {item: at for item, at in places.items() if item not in again}


def ascending(pairs: Pairs) -> Pairs:
    """The longest run of pairs, given in said order, whose known places ascend."""
    tops: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (place, _) in enumerate(pairs):
        # Patience: `tops` has the smallest end of an ascending run of each length.
        length = bisect_left(tops, place)
        tops[length : length + 1] = [place]
        ends[length : length + 1] = [index]
        before.append(ends[length - 1] if length else -1)
    run = []
    index = ends[-1] if ends else -1
    while index >= 0:
        run.append(pairs[index])
        index = before[index]
    return run[::-1]


def _between(pivots: Pairs, span: Span, found: Found) -> list[Span]:
    a, b, c, d = span
    spans = []
    for place, at in pivots:
        found[at] = place
        spans.append((a, place, c, at))
        a = place + 1
        c = at + 1
    return [*spans, (a, b, c, d)]


def _fill_table(
    known: Items,
    said: Items,
    span: Span,
    found: Found,
) -> None:
    """The textbook table. Of equally long ways the one that lies latest in `known`: a dropped head
    is the usual cut.
    """
    a, b, c, d = span
    rows = [[0] * (d - c + 1)]
    for place in range(a, b):
        above = rows[-1]
        row = [0]
        for index, item in enumerate(said[c:d]):
            if item == known[place]:
                row.append(above[index] + 1)
            else:
                row.append(max(above[index + 1], row[index]))
        rows.append(row)
    while a < b and c < d:
        here = rows[b - a][d - c]
        if here and known[b - 1] == said[d - 1]:
            b -= 1
            d -= 1
            found[d] = b
        elif rows[b - a][d - c - 1] == here:
            d -= 1
        else:
            b -= 1


def _nth_by_nth(known: Items, said: Items, span: Span) -> Pairs:
    a, b, c, d = span
    places: dict[Hashable, list[int]] = {}
    # backwards, so that the last of each list is the first of its kind
    for place in range(b - 1, a - 1, -1):
        places.setdefault(known[place], []).append(place)
    return [(places[said[at]].pop(), at) for at in range(c, d) if places.get(said[at])]
