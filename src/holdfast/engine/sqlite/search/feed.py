"""How the search index is fed: it reads the log, in the order of arrival, from the mark where it
last stopped.

Everything here is done by one process at a time, under the lock of the search file, and a piece of
it is one transaction: killed at any point, the index is as it was before that piece. What is erased
in the log goes from the index too.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import repeat
from typing import Any

import apsw

from holdfast.domain.search.query import SearchableText
from holdfast.domain.search.tokenize import parted, spaced
from holdfast.engine.named_sql import Rows
from holdfast.engine.sqlite.queries import SEARCH, transaction
from holdfast.engine.sqlite.search.file import SearchFile, Spoiled
from holdfast.engine.sqlite.search.log_source import LogSource
from holdfast.errors import Damaged, StoreUnavailable

VOLUME = 1 << 16
"""So many entries of the log have their words in one table."""
FEW = 64
RENEWALS_MAX = 3


class SearchFeed:
    """What brings the log into a search file. Not to be used by two threads at once."""

    def __init__(self, file: SearchFile, log: LogSource) -> None:
        self._file, self._log = file, log
        self._read = log.read

    def is_caught_up(self, head: int) -> bool:
        with contextlib.suppress(Spoiled), self._file.judged():
            n, id = self._file.open().execute(SEARCH["mark"]).get
            return n >= head and self.is_of_this_log(n, id)
        return False

    def is_of_this_log(self, n: int, id: bytes) -> bool:
        """The log may have been restored from a backup, or be another one."""
        # an index that has read nothing yet is of every log
        return not id or self._read("log_id", (n,)) == [(id,)]

    def step(self, size: int) -> bool:
        """Indexes the next entries of the log, at most so many; False when there are none."""
        with self._file.judged(), self._file.locked():
            for _ in range(RENEWALS_MAX):
                try:
                    with self._file.judged():
                        return self._extend(size)
                except Spoiled:
                    self._file.renew()
            raise Spoiled("it is no good as soon as it is made")

    def _extend(self, size: int) -> bool:
        connection = self._file.open()
        # under the lock nobody else moves it
        n, id = connection.execute(SEARCH["mark"]).get
        if not self.is_of_this_log(n, id):
            raise Spoiled("it is of another log")
        rows = self._next(n, size)
        erased = [row[1] for row in rows if row[5] == "erased"]
        blanked = [row[1] for row in rows if row[5] == "blanked"]
        if erased or blanked:
            # whoever erased them may have been killed before it did this
            self.forget(erased, blanked)
            connection = self._file.open()
        if rows:
            with transaction(connection, "IMMEDIATE"):
                self._add(connection, rows)
                _put_together(connection, range(n // VOLUME, rows[-1][0] // VOLUME))
            self._file.seal(rows[-1][0])
        return bool(rows)

    def _next(self, n: int, size: int) -> Rows:
        """What comes next in the log. Entries that can't be read any more are passed over: whoever
        reads their session is told, and the rest can be found (I-18).
        """
        try:
            return self._read("log_after", (n, size))
        except Damaged:
            rows: Rows = []
            for one in range(n + 1, n + 1 + size):
                with contextlib.suppress(Damaged):
                    rows += [
                        row
                        for row in self._read("log_after", (one - 1, 1))
                        if row[0] == one
                    ]
            # the mark moves past them, or the index would never get behind the damage
            last = min(n + size, self._read("log_head", ())[0][0])
            return rows or [(last, 0, "", None, 0, "", b"", 0, b"", b"")]

    def _add(self, connection: apsw.Connection, rows: Rows) -> None:
        volumes: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
        listed: dict[int, set[str]] = defaultdict(set)
        times: dict[int, list[int]] = defaultdict(list)
        for n, number, tenant, key, seq, kind, _id, at, note, body in rows:
            _, words = self.words(number, seq, kind, note, body)
            if words is not None:
                # damaged cells hide no other message
                facets = list(_facets(number, _name(tenant), _name(key), words))
                text = spaced(words.text)
                volumes[n // VOLUME].append((n, text, " ".join(facets)))
                listed[n // VOLUME].update(map(as_listed, facets), parted(text))
                times[n // VOLUME].append(at if type(at) is int else 0)
        for volume, added in volumes.items():
            connection.execute(SEARCH["add_words_table"].format(volume=volume))
            connection.execute(
                SEARCH["add_volume"], (volume, min(times[volume]), max(times[volume]))
            )
            connection.executemany(SEARCH["add_words"].format(volume=volume), added)
        for volume, names in listed.items():
            # In order: neighbours are on one page.
            connection.executemany(
                SEARCH["list_word"], zip(sorted(names), repeat(volume))
            )
        connection.execute(SEARCH["set_mark"], (rows[-1][0], rows[-1][6]))

    def words(
        self, session: int, seq: int, kind: str, note: bytes, body: bytes
    ) -> tuple[bytes, SearchableText | None]:
        """The whole body of an entry, and what can be found in it. One that makes no sense hides no
        other (I-18).
        """
        try:
            whole = self._log.whole(body)
            notes = partial(self._notes, session, seq)
            return whole, self._log.words_of(kind, note, whole, notes)
        # that the log can't be read now says nothing about the entry
        except StoreUnavailable:
            raise
        except Exception:
            return b"", None

    def _notes(self, session: int, seq: int, needle: bytes) -> list[bytes]:
        """Notes of messages that came before this one in its session and have these bytes
        in them.
        """
        if not needle:
            return []
        with contextlib.suppress(Damaged):
            rows = self._read("log_notes", (session, seq, needle))
            return [note for (note,) in rows]
        return []

    def forget(self, sessions: Sequence[int], blanked: Sequence[int] = ()) -> None:
        """Takes sessions out of every byte of the file, and messages of the `blanked` ones that
        have lost their words, or throws it away and says that it is `Spoiled`; only under the lock.
        """
        try:
            with self._file.judged():
                self._take_out(sessions, blanked)
        except (Spoiled, StoreUnavailable) as error:
            self._file.remove()
            raise Spoiled("it held words that were erased") from error
        finally:
            self._file.sweep()

    def _take_out(self, sessions: Sequence[int], blanked: Sequence[int]) -> None:
        wordless = [
            n for session in blanked for (n,) in self._read("log_wordless", (session,))
        ]
        connection = self._file.open()
        touched = False
        with transaction(connection, "IMMEDIATE"):
            for (volume,) in connection.execute(SEARCH["all_volumes"]).fetchall():
                gone: Rows = []
                for n in wordless:
                    if n // VOLUME == volume:
                        at = SEARCH["words_at"].format(volume=volume)
                        gone += connection.execute(at, (n,)).fetchall()
                for start in range(0, len(sessions), FEW):
                    expression = any_of(sessions[start : start + FEW])
                    gone += connection.execute(
                        SEARCH["words"].format(volume=volume), (expression,)
                    ).fetchall()
                if gone:
                    connection.executemany(
                        SEARCH["remove_words"].format(volume=volume), gone
                    )
                    # FTS5 marks words as deleted and keeps them until segments are
                    # merged
                    connection.execute(SEARCH["optimize"].format(volume=volume))
                    connection.execute(SEARCH["list_words"].format(volume=volume))
                    touched = True
            if touched:
                self._file.condemn(connection)
        if touched:
            self._file.rewrite()


def _put_together(connection: apsw.Connection, full: range) -> None:
    """A volume to which nothing is added any more is written in one piece: in each piece that it has,
    a word is looked for by itself.
    """
    for (volume,) in connection.execute(SEARCH["all_volumes"]).fetchall():
        if volume in full:
            connection.execute(SEARCH["optimize"].format(volume=volume))


@lru_cache(maxsize=4096)
def facet(kind: str, name: str) -> str:
    """A thing one can filter by, as a word. Names are hashed: they may be anything, and are
    nobody's business here.
    """
    return (
        kind + blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    )


def as_listed(facet: str) -> str:
    """A facet as it is listed among the words: no word begins like it."""
    return ":" + facet


def _name(cell: Any) -> Any:
    """A cell that was written as text. One bit makes bytes of it, and a number says nothing."""
    if isinstance(cell, bytes):
        return cell.decode(errors="surrogateescape")
    return cell if isinstance(cell, str | None) else ""


def _facets(
    session: int, tenant: str, key: str | None, words: SearchableText
) -> Iterator[str]:
    yield f"s{session}"
    yield facet("t", tenant)
    yield facet("r", words.role)
    yield f"p{int(words.partial)}"
    if key is not None:
        yield facet("k", key)
    for tool in words.tools:
        yield facet("f", tool)


def any_of(sessions: Sequence[int]) -> str:
    """Messages of one of these sessions, in the words of FTS5."""
    return "facet : (" + " OR ".join(f'"s{session}"' for session in sessions) + ")"
