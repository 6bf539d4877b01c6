"""Where the entries of a damaged store stand: their sessions and their seqs.

The table says it of each entry, and the index says it again. Where the two differ, where two rows
say the same place, or where the place is one that no log can have, the order of arrival decides:
the entries of a session have row numbers that grow with their seqs. And a log is no longer than
the table: an entry's seq is at most the number of its row, not counting a past that is another's.
"""

from typing import Any, NamedTuple

import apsw

from holdfast.engine.sqlite.driver_errors import TROUBLE

# A row of an entry has an id of sixteen bytes in it.
ROW_BYTES_MIN = 16

Places = list[tuple[int, str, str, str]]
"""Entries that were moved: the number of the session, the place, what was there, what is now."""

_CLAIMS = "SELECT n, session, seq FROM entry INDEXED BY entry_by_seq ORDER BY session {0}, seq {0}"
_TABLES = """
CREATE INDEX arrival ON entry (session, n);
CREATE INDEX place ON entry (session, seq);
CREATE TEMP TABLE claim (n INTEGER, session INTEGER, seq INTEGER);
CREATE TEMP TABLE known (n INTEGER PRIMARY KEY, origin INTEGER);
CREATE TEMP TABLE doubt (n INTEGER PRIMARY KEY);
"""
_DOUBTS = """
INSERT INTO doubt
SELECT entry.n FROM entry JOIN known ON known.n = entry.session
WHERE entry.seq <= known.origin OR entry.seq - known.origin > min(entry.n, ?1)
UNION
SELECT n FROM (
    SELECT n, session, seq FROM entry WHERE n IN (SELECT n FROM claim)
    UNION
    SELECT entry.n, entry.session, entry.seq FROM entry JOIN (
        SELECT session, seq FROM entry GROUP BY session, seq HAVING count(*) > 1
    ) USING (session, seq)
) AS row
WHERE NOT EXISTS (
    SELECT 1 FROM claim
    WHERE claim.n = row.n AND claim.session = row.session AND claim.seq = row.seq)
"""
_BEFORE = """
SELECT seq FROM entry WHERE session = ? AND n < ? AND n NOT IN (SELECT n FROM doubt)
ORDER BY n DESC LIMIT 1
"""
_BEHIND = """
SELECT seq FROM entry WHERE session = ? AND n > ? AND n NOT IN (SELECT n FROM doubt)
ORDER BY n LIMIT 1
"""
_HOLDER = """
SELECT 1 FROM entry WHERE session = ? AND seq = ? AND n NOT IN (SELECT n FROM doubt)
"""
_LAST = """
SELECT max(seq) FROM entry WHERE session = ? AND n NOT IN (SELECT n FROM doubt)
"""


class _Row(NamedTuple):
    n: int
    session: int
    seq: int


def settle_places(
    here: apsw.Connection, there: apsw.Connection, origins: dict[int, int]
) -> Places:
    """Gives each entry of these sessions in `there` a place that no other has; `here` is the
    damaged file, `origins` the seqs after which its sessions begin.
    """
    there.execute(_TABLES)
    there.executemany("INSERT INTO known VALUES (?, ?)", list(origins.items()))
    _take_claims(here, there)
    there.execute("CREATE INDEX temp.claim_of ON claim (n)")
    there.execute(_DOUBTS, (rows_max(here),))
    settling = _Settling(there, origins)
    doubtful: list[Any] = there.execute(
        "SELECT n, session, seq FROM entry JOIN doubt USING (n) ORDER BY n"
    ).fetchall()
    for row in doubtful:
        settling.settle(_Row(*row))
    there.execute(
        "DROP INDEX arrival; DROP INDEX place; "
        "DROP TABLE claim; DROP TABLE known; DROP TABLE doubt"
    )
    return settling.moved


def rows_max(here: apsw.Connection) -> int:
    """So many entries a file of this size can have."""
    pages: int = here.execute("PRAGMA page_count").get
    size: int = here.execute("PRAGMA page_size").get
    return pages * size // ROW_BYTES_MIN


def _take_claims(here: apsw.Connection, there: apsw.Connection) -> None:
    """What the index says of all entries, before the first place that can't be read and behind the
    last.
    """
    for order in ("ASC", "DESC"):
        try:
            for row in here.execute(_CLAIMS.format(order)):
                if {type(cell) for cell in row} == {int}:
                    there.execute("INSERT INTO claim VALUES (?, ?, ?)", row)
        except TROUBLE:
            continue
        return


class _Settling:
    def __init__(self, there: apsw.Connection, origins: dict[int, int]) -> None:
        self._there = there
        self._origins = origins
        self.moved: Places = []

    def settle(self, row: _Row) -> None:
        claims: list[Any] = self._there.execute(
            "SELECT session, seq FROM claim WHERE n = ?", (row.n,)
        ).fetchall()
        sessions = {row.session, *(session for session, _ in claims)}
        # The row of its session is lost, and nothing says that it is another's.
        if sessions.isdisjoint(self._origins):
            return
        found = self._best(row, [(row.session, row.seq), *claims])
        if found is None and len(sessions & self._origins.keys()) == 1:
            [session] = sessions & self._origins.keys()
            found = session, self._hole(session, row.n)
        if found is None:
            # Nobody says whose it is: it is not put among the words of somebody else.
            self._there.execute("DELETE FROM entry WHERE n = ?", (row.n,))
            before = f"row {row.n} of the entries, whose session can't be told"
            self.moved.append((row.session, f"entry {row.seq}", before, "left out"))
        else:
            self._there.execute(
                "UPDATE entry SET session = ?, seq = ? WHERE n = ?", (*found, row.n)
            )
            if found != (row.session, row.seq):
                before = f"a row that says it is entry {row.seq}"
                if found[0] != row.session:
                    before += " of another session"
                after = f"entry {found[1]}"
                self.moved.append((found[0], after, before, after))
        self._there.execute("DELETE FROM doubt WHERE n = ?", (row.n,))

    def _best(self, row: _Row, places: list[tuple[int, int]]) -> tuple[int, int] | None:
        """The place that fits into its session's order of arrival; the nearest to the entry
        before it, if several do.
        """
        fitting = []
        for session, seq in places:
            if session not in self._origins:
                continue
            before, behind = self._neighbours(session, row.n)
            if before < seq <= self._origins[session] + row.n and (
                behind is None or seq < behind
            ):
                if not self._there.execute(_HOLDER, (session, seq)).get:
                    fitting.append((seq - before, (session, seq)))
        return min(fitting, key=lambda each: each[0])[1] if fitting else None

    def _hole(self, session: int, n: int) -> int:
        """The seq behind that of the entry that arrived before, or behind all of them."""
        before, behind = self._neighbours(session, n)
        if behind is None or before + 1 < behind:
            if not self._there.execute(_HOLDER, (session, before + 1)).get:
                return before + 1
        last: int = self._there.execute(_LAST, (session,)).get
        return last + 1

    def _neighbours(self, session: int, n: int) -> tuple[int, int | None]:
        """The seqs of the entries that arrived before this row and behind it."""
        before: int | None = self._there.execute(_BEFORE, (session, n)).get
        behind: int | None = self._there.execute(_BEHIND, (session, n)).get
        return before if before is not None else self._origins[session], behind
