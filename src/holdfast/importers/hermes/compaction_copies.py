"""Which rows are copies that a compaction made.

Hermes compacts by writing the protected head, a summary and the protected tail as new rows, in one
batch: into the same session, whose old rows are archived, or into a child. So a message that was
said once is stored again, with its own time (a user's row) or with the batch's (all others,
microseconds apart). Folding finds each summary's batch and matches its rows, in order, with the
rows they are copies of: the head from the front, the tail from the end.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.importers.hermes.records import (
    HermesRow,
    call_ids,
    calls,
    is_summary,
    is_taken_back,
    words,
)

# Rows of one batch are microseconds apart; a batch has some hundred rows at most.
BATCH_S = 0.005
Key = tuple[str, ...]


class Generation(msgspec.Struct, frozen=True):
    """A compaction: its summary's row, and the names of the messages that stay beside it, in order:
    `heads` of them stand before it.
    """

    summary: int
    keeps: tuple[str, ...]
    heads: int = 0


class Folded(msgspec.Struct, frozen=True):
    """A session's rows, folded. `copy_of` names the original of each copy; `kept` is all that was
    not taken back.
    """

    kept: list[HermesRow]
    copy_of: dict[int, str]
    generations: dict[int, Generation]

    def context(self) -> list[tuple[HermesRow, str]]:
        """What a compaction of this session can copy: its live rows, each with the name of the
        message it is.
        """
        live = []
        for row in self.kept:
            if row.active and not is_summary(row):
                live.append((row, self.copy_of.get(row.id, row.name)))
        return live


def key(row: HermesRow) -> Key:
    """What a copy has in common with its original."""
    return row.role, words(row), row.tool_call_id or "", *_ids(row)


def loose_key(row: HermesRow) -> Key | None:
    """What is still common when a tool's output or a call's arguments were shortened."""
    ids = (row.tool_call_id or "", *_ids(row))
    return (row.role, *ids) if any(ids) else None


def fold(
    rows: Sequence[HermesRow], before: Sequence[tuple[HermesRow, str]] = ()
) -> Folded:
    """Folds a session's rows; `before` is what its parent's context held, when a compaction of that
    made it.
    """
    kept = [row for row in rows if not is_taken_back(row)]
    copy_of: dict[int, str] = {}
    generations: dict[int, Generation] = {}
    summaries = [index for index, row in enumerate(kept) if is_summary(row)]
    if not summaries:
        return Folded(kept, copy_of, generations)
    originals = Originals(before)
    seen = _first_places(kept)
    done = 0
    for summary in summaries:
        first = _head(kept, summary, done, seen, is_child=bool(before))
        originals.add((row, row.name) for row in kept[done:first])
        last = _tail(kept, summary, originals)
        copies = originals.match(kept[first:summary], kept[summary + 1 : last])
        copy_of |= copies
        # Named once each: a batch may hold two copies of one message.
        keeps = dict.fromkeys(
            copies.get(row.id, row.name) for row in kept[first:summary]
        )
        heads = len(keeps)
        for row in kept[summary + 1 : last]:
            if row.id in copies:
                keeps[copies[row.id]] = None
        id = kept[summary].id
        generations[id] = Generation(id, tuple(keeps), heads)
        # What follows the batch within its time is new, and can be copied by the next one.
        for row in kept[first:last]:
            if row.id not in copies and not is_summary(row):
                originals.add([(row, row.name)])
        done = last
    return Folded(kept, copy_of, generations)


def _first_places(kept: list[HermesRow]) -> dict[tuple[float, Key], int]:
    found: dict[tuple[float, Key], int] = {}
    for index, row in enumerate(kept):
        found.setdefault((row.timestamp, key(row)), index)
    return found


def _head(
    kept: list[HermesRow],
    summary: int,
    done: int,
    seen: dict[tuple[float, Key], int],
    *,
    is_child: bool,
) -> int:
    """Where the batch of a summary begins. A batch is live, or archived, as a whole. A compaction
    archives all that is live, so live rows before a live summary are of its batch; and a child
    begins with its batch.
    """
    whole = kept[summary]
    # Whatever the times say: then all rows before the summary are of its batch.
    is_all = bool(whole.active) or (is_child and done == 0)
    first = summary
    while first > done:
        row = kept[first - 1]
        is_near = abs(row.timestamp - whole.timestamp) < BATCH_S
        is_copy = seen[row.timestamp, key(row)] < first - 1
        if row.active != whole.active or not (is_near or is_copy or is_all):
            break
        first -= 1
    return first


def _tail(kept: list[HermesRow], summary: int, originals: "Originals") -> int:
    """Where the batch of a summary ends."""
    last = summary + 1
    while last < len(kept):
        row = kept[last]
        is_near = abs(row.timestamp - kept[summary].timestamp) < BATCH_S
        if (
            is_summary(row)
            or row.active != kept[summary].active
            or not (is_near or originals.has(row))
        ):
            break
        last += 1
    return last


class Originals:
    """Messages in the order in which they were said, to be found by what they say."""

    def __init__(self, before: Sequence[tuple[HermesRow, str]]) -> None:
        self._names: list[str] = []
        self._times: list[float] = []
        self._places: dict[Key, list[int]] = {}
        self.add(before)

    def add(self, rows: Iterable[tuple[HermesRow, str]]) -> None:
        for row, name in rows:
            place = len(self._names)
            self._names.append(name)
            self._times.append(row.timestamp)
            for found in (key(row), loose_key(row)):
                if found is not None:
                    self._places.setdefault(found, []).append(place)

    def has(self, row: HermesRow) -> bool:
        """Whether one has these words and this very time."""
        return self._timely(row, self._places.get(key(row), [])) != []

    def match(
        self, head: Sequence[HermesRow], tail: Sequence[HermesRow]
    ) -> dict[int, str]:
        """Copies with the names of their originals: the head from the front, the tail
        from the end.
        """
        found: dict[int, str] = {}
        low = 0
        for row in head:
            place = self._find(row, low, len(self._names), first=True)
            if place is not None:
                found[row.id] = self._names[place]
                low = place + 1
        high = len(self._names)
        # From the end, where a batch keeps what was said last: words that are said twice are then
        # the last of them.
        for row in reversed(tail):
            place = self._find(row, low, high, first=False)
            if place is not None:
                found[row.id] = self._names[place]
                high = place
        return found | self._again([row for row in tail if row.id not in found])

    def _again(self, rows: Sequence[HermesRow]) -> dict[int, str]:
        """Copies of what the batch has already: a user's row with its words and its very time, and
        the rows after it in step.
        """
        found: dict[int, str] = {}
        place = -1
        for row in rows:
            places = self._places.get(key(row), [])
            if row.role == "user":
                # Only a user's row keeps its own time when it is copied.
                timely = self._timely(row, places)
                place = timely[0] if timely else -1
            elif place >= 0:
                place = place + 1 if place + 1 in places else -1
            if place >= 0:
                found[row.id] = self._names[place]
        return found

    def _find(self, row: HermesRow, low: int, high: int, *, first: bool) -> int | None:
        for wanted in (key(row), loose_key(row)):
            if wanted is None:
                continue
            places = self._places.get(wanted, [])
            inside = places[bisect_left(places, low) : bisect_left(places, high)]
            if inside:
                choice = self._timely(row, inside) or inside
                return choice[0] if first else choice[-1]
        return None

    def _timely(self, row: HermesRow, places: list[int]) -> list[int]:
        """Those of these places that have the very time of a row."""
        return [place for place in places if self._times[place] == row.timestamp]


def _ids(row: HermesRow) -> tuple[str, ...]:
    return tuple(name for call in calls(row) or () for name in call_ids(call)[:1])
