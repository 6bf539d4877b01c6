"""Every row of a table that SQLite can find, in a file that may be damaged.

A pass over a table ends at the first page that can't be read. The walk goes on behind it: it asks
for one id after the other until a row is found, and lets the pass go on from there. It asks for
`rowid >= id`, which reads the page where that row would lie; `rowid > id - 1` would read the page
before it. Where `NEAR` ids in a row give nothing, the steps are doubled until something can be
read, and the stretch is halved until its end is known.

A damaged page may also hold ids that are out of order, so that a pass leaps over rows that can be
found by their ids. So once there was any trouble, the ids that were passed over are asked for too.
All this work is bounded: what was not looked at because of a limit is told, as is every stretch of
ids that can't be read.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from holdfast.importers.values import Row

TROUBLE = (apsw.Error, UnicodeDecodeError, OverflowError, MemoryError)
# So many ids in a row are asked for one by one.
NEAR = 4_096
# So many of the ids that a pass went by, where nothing was out of order.
FEW = 64
# So many ids of a table are asked for one by one: a second of work.
ASKED_MAX = 100_000
# After so many stretches that can't be read, the rest of a table is told as unread.
GAPS_MAX = 10_000
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_OF_A_VALUE = (UnicodeDecodeError, apsw.TooBigError, MemoryError, OverflowError)
_NO_ORDER = "its rows are out of order"
_STRIDES = "; not every id of the stretch was tried"
_NOT_TRIED = "its rows are out of order, and not every id of the stretch was tried"


class Lost(NamedTuple):
    """Stands for the value of a column that can't be read."""

    problem: str


class Gap(NamedTuple):
    """Ids between which nothing can be read, the first and the last of them; None: from the first
    row, to the end.
    """

    first: int | None
    last: int | None
    problem: str


class Walk:
    """One walk over a table. `wanted` are expressions of its columns; gaps are handed to `on_gap`
    as they are met.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        table: str,
        wanted: Sequence[str],
        on_gap: Callable[[Gap], None],
    ) -> None:
        self._connection = connection
        self._table = table
        self._wanted = wanted
        self._on_gap = on_gap
        place = f"FROM {quoted(table)} NOT INDEXED WHERE rowid >= ? ORDER BY rowid"
        self._pass = f"SELECT {', '.join(('rowid', *wanted))} {place}"
        self._seek = f"SELECT rowid {place} LIMIT 1"
        self._met = array("q")
        self._asked = 0
        self._gaps = 0
        self._unread: dict[int, int] = {}
        self._troubled = False
        self._odd: int | None = None
        self.why_not = ""

    def rows(self) -> Iterator[Row]:
        """Rows, each with its rowid first; in the order of the ids, but for those of a damaged page
        that the pass leapt over: they come last.
        """
        yield from self._onwards(_LOWEST, _HIGHEST)
        # A pass that met no trouble has read all there is, in order.
        if self._troubled and self._met:
            yield from self._passed_over(sorted(self._met))
        if self._odd is not None and not self._gaps:
            self._report(self._odd, self._odd, _NO_ORDER)

    def _onwards(self, start: int, last: int) -> Iterator[Row]:
        """Rows from an id on up to another one, over whatever can't be read."""
        at = start
        while at <= last and self._gaps <= GAPS_MAX:
            trouble: BaseException | None = None
            try:
                for row in self._connection.execute(self._pass, (at,)):
                    rowid = row[0]
                    # SQLite goes by the order of the page, and this page has none.
                    if type(rowid) is not int or rowid < at:
                        self._odd = at - 1
                        break
                    if rowid > last:
                        return
                    at = rowid + 1
                    self._met.append(rowid)
                    yield row
                else:
                    return
            except apsw.SQLError as error:
                # A table without rowids, or a definition that makes no sense.
                self._report(None, None, reason(error))
                return
            except TROUBLE as error:
                trouble = error
            found = self._next(at, last, trouble)
            if found is None:
                return
            at = found + 1
            values = row_at(self._connection, self._table, found, self._wanted)
            if values is None:
                # The index of rows leads to it, and it is not there.
                self._odd = found
                self._troubled = True
                continue
            self._met.append(found)
            yield (found, *values)

    def _passed_over(self, known: list[int]) -> Iterator[Row]:
        """Rows among the ids between those that are known."""
        first = min(known[0], 0) - 1
        for before, following in zip([first, *known], known, strict=False):
            if following - before > 1:
                yield from self._between(before, following)
            if self._asked >= ASKED_MAX:
                if self._odd is not None:
                    self._report(before + 1, known[-1], _NOT_TRIED)
                return

    def _between(self, before: int, following: int) -> Iterator[Row]:
        at = before + 1
        # Ids that nobody uses are common; only where rows were out of order are many looked for.
        enough = FEW if self._odd is None else NEAR
        search = _Search(self)
        while at < following and search.missed < enough and self._asked < ASKED_MAX:
            # This stretch was found to be unreadable by the pass.
            if at in self._unread:
                at = self._unread[at] + 1
            elif search.is_hit(at):
                count = len(self._met)
                yield from self._onwards(at, following - 1)
                at = max([at, *self._met[count:]]) + 1
            else:
                at += 1
        search.end(at - 1)
        if search.missed >= enough and self.found(at) != following:
            self._report(at, following - 1, _NOT_TRIED)

    def _next(self, at: int, last: int, trouble: BaseException | None) -> int | None:
        """The first id from this one on whose row can be found; None when there is none. Tells what
        can't be read.
        """
        first = self.found(at)
        # The row is there, and only a value of it is broken: no page has to be passed over.
        if isinstance(trouble, _OF_A_VALUE) and first is not None and first >= at:
            return first if first <= last else None
        self._troubled = True
        # Without a row before it there is no telling where ids begin; programs count from 1.
        start = at if self._met else max(at, 0)
        search = _Search(self)
        for id in range(start, min(start + NEAR, last + 1)):
            if self._asked >= ASKED_MAX:
                return self._far(id, last, search.run)
            if search.is_hit(id):
                return id
        if start > last:
            return None
        return self._far(min(start + NEAR, last + 1), last, search.run)

    def _far(self, at: int, last: int, run: int | None) -> int | None:
        """The first id from this one on whose row can be found, where none is near: in steps that
        grow.
        """
        bad = at - 1
        step = 1
        good = bad + step
        while good <= last and not self._can_read(good):
            bad = good
            step *= 2
            good = bad + step
        if good > last:
            self.report_run(run, None if last == _HIGHEST else last, self.why_not)
            return None
        while good - bad > 1:
            middle = (bad + good) // 2
            if self._can_read(middle):
                good = middle
            else:
                bad = middle
        problem = self.why_not
        if good > at or self._asked >= ASKED_MAX:
            problem += _STRIDES
        self.report_run(run, good - 1, problem)
        found = self.found(good)
        if found is None or not good <= found <= last:
            return None
        return found

    def _can_read(self, id: int) -> bool:
        """Whether the page where this id would lie can be read."""
        found = self.found(id)
        return found is None or found >= id

    def found(self, id: int) -> int | None:
        """The first id from this one on; None when there is none; one below it when that can't be
        read.
        """
        self._asked += 1
        try:
            rows: list[Any] = self._connection.execute(self._seek, (id,)).fetchall()
        except TROUBLE as error:
            self.why_not = reason(error)
            return _LOWEST
        if rows and (type(rows[0][0]) is not int or rows[0][0] < id):
            self.why_not = _NO_ORDER
            return _LOWEST
        return int(rows[0][0]) if rows else None

    def report_run(self, first: int | None, last: int | None, problem: str) -> None:
        if first is not None:
            self._report(first if self._met else None, last, problem, at=first)

    def _report(
        self,
        first: int | None,
        last: int | None,
        problem: str,
        *,
        at: int | None = None,
    ) -> None:
        self._gaps += 1
        if self._gaps > GAPS_MAX:
            problem = (
                f"more than {GAPS_MAX} stretches of it can't be read: the rest was left"
            )
            self._on_gap(Gap(first, None, problem))
            return
        if at is not None:
            self._unread[at] = _HIGHEST - 1 if last is None else last
        self._on_gap(Gap(first, last, problem))


class _Search:
    """Ids that are asked for one after the other. Stretches that can't be read are told once their
    end is known; so are ids that were said to be followed by a row far ahead, when one is found
    before it.
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._claims: list[tuple[int, int]] = []
        self.run: int | None = None
        self.missed = 0

    def is_hit(self, id: int) -> bool:
        """Whether there is a row with this id that can be found."""
        found = self._walk.found(id)
        if found is not None and found < id:
            if self.run is None:
                self.run = id
            self._claims.clear()
        else:
            self.end(id - 1)
        if found == id:
            # An id before this one was said to be followed by a row behind it: that was no order.
            leapt = [one for one, claim in self._claims if claim > id]
            if leapt:
                self._walk.report_run(leapt[0], id - 1, _NO_ORDER)
            self._claims.clear()
            self.missed = 0
            return True
        if self.run is None:
            self._claims.append((id, _HIGHEST if found is None else found))
        self.missed += 1
        return False

    def end(self, last: int) -> None:
        """Tells of the stretch that can't be read, if one is open."""
        self._walk.report_run(self.run, last, self._walk.why_not)
        self.run = None


def row_at(
    connection: apsw.Connection, table: str, rowid: int, wanted: Sequence[str]
) -> list[Any] | None:
    """The values of one row; None when it isn't there. A text that is not UTF-8 comes as bytes, and
    a value that can't be read as `Lost`: each costs itself alone.
    """
    place = f"FROM {quoted(table)} WHERE rowid = ?"
    try:
        rows: list[Any] = connection.execute(
            f"SELECT {', '.join(('1', *wanted))} {place}", (rowid,)
        ).fetchall()
        return list(rows[0][1:]) if rows else None
    except TROUBLE:
        values = [_cell(connection, expression, place, rowid) for expression in wanted]
        return values or None


def _cell(connection: apsw.Connection, expression: str, place: str, rowid: int) -> Any:
    try:
        try:
            rows: list[Any] = connection.execute(
                f"SELECT {expression} {place}", (rowid,)
            ).fetchall()
        except UnicodeDecodeError:
            # As bytes, which any text is.
            rows = connection.execute(
                f"SELECT CAST({expression} AS BLOB) {place}", (rowid,)
            ).fetchall()
    except TROUBLE as error:
        return Lost(reason(error))
    return rows[0][0] if rows else Lost("it is not there")


def named(value: Any) -> str:
    """A name for what stands where an id should: text as it is; bytes, which may not be text, as
    SQL writes them.
    """
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return str(value)


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def reason(error: BaseException) -> str:
    """Why something could not be read, in a few words."""
    if isinstance(error, apsw.TooBigError):
        return "it is larger than any row that is read"
    if isinstance(error, UnicodeDecodeError):
        return f"its text is not UTF-8 (byte {error.start})"
    return f"SQLite says: {error}"
