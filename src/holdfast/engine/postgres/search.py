"""Searching: which messages have which words, in a table beside the log (I-17).

It is derived. A commit never touches it; whoever searches first reads what is new in the logs of
its tenant into it, so an answer is complete as of the call. Where somebody has searched before, the
indexer does so in idle time too. Words are parted and folded here, as everywhere, so PostgreSQL's
own dictionaries have no say: it is given words one by one and finds them again. It only proposes: a
message is read from the log and judged before it is shown, for a row of words next to each other
can't be asked for in a long text.
"""

import base64
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from heapq import merge
from itertools import islice
from typing import Any

import psycopg
from msgspec.structs import replace

from holdfast.domain.entry import Entry
from holdfast.domain.search.query import Found, SearchableText, SearchScope
from holdfast.domain.search.tokenize import words_in
from holdfast.engine.closed_engine import closed
from holdfast.engine.named_sql import Rows
from holdfast.engine.postgres.batch_sql import PLACE, columns, statements
from holdfast.engine.postgres.kept_connection import KeptConnection
from holdfast.engine.postgres.readers import whole_body
from holdfast.engine.postgres.server.binary_arrays import Ids, Ints, Texts
from holdfast.engine.postgres.server.cluster import Cluster
from holdfast.engine.postgres.server.driver_errors import translate, verdict
from holdfast.engine.postgres.server.text_as_bytes import (
    is_id,
    raw,
    raw_or_none,
    text_or_none,
)
from holdfast.engine.protocol import WordsOf, no_words
from holdfast.engine.sql.search import found_in
from holdfast.engine.wake_signal import alone, is_mine

SESSIONS_AT_ONCE, ENTRIES_AT_ONCE = 64, 64
PAGE_MAX = 500
IDLE_MAX = 3
RUNNING_MAX = 64
"""So many sessions are searched one by one."""
QUIET_MS = 10_000
"""A session without news for so long, whose words were read, is looked at no more."""
_BEGIN: list[tuple[str, Any]] = [("begin", None), ("fleeting", None)]
MARK = PLACE | {"seq": Ints}
MOVED = PLACE | {"was": Ints, "seq": Ints}
WORDS = PLACE | {"seq": Ints, "at": Ints, "lexemes": Texts}
_FIRST = (1 << 62, "ffffffff-ffff-ffff-ffff-ffffffffffff", 1 << 62)

Read = Callable[..., Rows]


class PostgresSearch:
    """The search of one engine. Safe to use from many threads. Without `words_of` nothing is read:
    what it has passed over would not be found by those who can read it. One that is `read_only`
    finds what others have read.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        read: Read,
        words_of: WordsOf | None,
        read_only: bool,
    ) -> None:
        self._cluster, self._read = cluster, read
        self._kept = KeptConnection(cluster)
        self._words_of = words_of or no_words
        self._can_read = words_of is not None and not read_only
        self._closed = False
        self._gate = threading.RLock()

    def search(self, sought: SearchScope, *, limit: int) -> list[Found]:
        """The newest messages that answer, newest first."""
        self._catch_up(raw(sought.tenant))
        found = [self._found(each, limit + 1) for each in self._narrowed(sought)]
        newest = merge(*found, key=_time_and_place, reverse=True)
        return list(islice(newest, limit))

    def matching(self, sought: SearchScope, *, limit: int) -> list[str]:
        """The sessions in which messages answer, those with the newest ones first."""
        self._catch_up(raw(sought.tenant))
        # a row of words is judged in the message itself; single words are the index's
        # alone to tell
        if any(len(phrase) > 1 for phrase in sought.asked.phrases):
            sessions = dict.fromkeys(
                found.session for found in self._found(sought, PAGE_MAX)
            )
            return list(sessions)[:limit]
        rows: Rows = []
        for each in self._narrowed(sought):
            values = _values(each)
            if values is not None:
                rows += self._read("sessions_found", **values, limit=limit)
        rows.sort(key=lambda row: (-row[1], row[0]))
        return [id for id, _ in rows[:limit]]

    def _narrowed(self, sought: SearchScope) -> list[SearchScope]:
        """The same in each of the sessions that run, if only those are asked for: they are few, and
        have an index. Else all messages with these words would be gone through for them.
        """
        if sought.state != "running" or sought.session is not None:
            return [sought]
        running = self._read("running", tenant=raw(sought.tenant))
        if len(running) > RUNNING_MAX:
            return [sought]
        return [replace(sought, session=id) for (id,) in running]

    def advance(self, sessions: Sequence[str]) -> bool:
        """Reads a piece of what is unread in these sessions; False when nothing is, or nobody has
        searched there.
        """
        if not self._can_read:
            return False
        behind = self._read(
            "unread_among", id=Ids(filter(is_id, sessions)), limit=SESSIONS_AT_ONCE
        )
        return bool(behind) and self._insist(behind)

    def close(self) -> None:
        self._closed = True
        # A signal handler in the middle of a search can't: that goes on with the connection.
        if not is_mine(self._gate):
            with self._gate:
                self._kept.drop()

    def _found(self, sought: SearchScope, size: int) -> Iterator[Found]:
        values = _values(sought)
        last = _FIRST
        while values is not None:
            place = {"at": last[0], "session_before": last[1], "seq": last[2]}
            rows = self._read("found", **values, **place, limit=size)
            for at, session, seq, key, kind, turn, id, note, body, parted in rows:
                where = {"tenant": values["tenant"], "session": session}
                whole, words = self._words(where, seq, kind, note, body, parted)
                entry = Entry(seq, kind, turn, id, at, note, whole)
                yield from found_in(session, text_or_none(key), entry, words, sought)
            if len(rows) < size:
                return
            last = rows[-1][:3]
            # few of the proposals may answer: the further back it goes, the more it
            # asks for at once
            size = min(2 * size, PAGE_MAX)

    def _words(
        self,
        place: dict[str, Any],
        seq: int,
        kind: str,
        note: bytes,
        body: bytes,
        parted: bool,
    ) -> tuple[bytes, SearchableText | None]:
        """The whole body of an entry, and what can be found in it. One that makes no sense hides no
        other (I-18).
        """
        if parted:
            body = whole_body(self._read, place, body)
        try:
            return body, self._words_of(
                kind, note, body, partial(self._notes, place, seq)
            )
        except Exception:
            return b"", None

    def _notes(self, place: dict[str, Any], seq: int, needle: bytes) -> list[bytes]:
        if not needle:
            return []
        return [
            note
            for (note,) in self._read("notes_before", **place, seq=seq, needle=needle)
        ]

    # Reading the log.

    def _catch_up(self, tenant: bytes) -> None:
        """Reads the logs of a tenant up to their heads."""
        if not self._can_read:
            return
        # others may read the same words; and of a log that is torn there may be nothing
        # to read
        idle = 0
        while idle < IDLE_MAX and (behind := self._unread(tenant)):
            idle = 0 if self._insist(behind) else idle + 1

    def _unread(self, tenant: bytes) -> Rows:
        behind = self._read(
            "unread", tenant=tenant, limit=SESSIONS_AT_ONCE, quiet=QUIET_MS
        )
        if behind and behind[-1][1] is None:
            self._read("forget_read", tenant=tenant)
            return self._unread(tenant)
        return behind

    def _insist(self, behind: Rows) -> bool:
        retry = self._cluster.retry()
        while True:
            with alone(self._gate, self._cluster.where):
                if self._closed:
                    raise closed(self._cluster.where)
                try:
                    return self._step(behind)
                except psycopg.Error as error:
                    self._kept.drop()
                    if verdict(error) == "senseless":
                        raise translate(error, self._cluster.where) from error
                    trouble = error
            retry.pause(trouble)

    def _step(self, behind: Rows) -> bool:
        """Reads a little of each of these logs; False when there was nothing to do. No lock is held
        while it reads: what it has read counts if the marks are where they were then, and is one
        transaction.
        """
        line = self._kept.get()
        places = columns(PLACE, [(tenant, session) for tenant, session, _ in behind])
        *_, marks, _ = line.run_all(
            [
                *_BEGIN,
                ("add_marks", columns(MARK, sorted(behind))),
                ("marks", places),
                ("commit", None),
            ]
        )
        rows = line.run(
            "unread_entries", columns(MARK, marks) | {"limit": ENTRIES_AT_ONCE}
        )
        found: Rows = []
        read: dict[str, int] = {}
        for tenant, session, seq, kind, at, note, body, parted in rows:
            read[session] = seq
            place = {"tenant": tenant, "session": session}
            _, words = self._words(place, seq, kind, note, body, parted)
            if words is not None:
                found.append((tenant, session, seq, at, _lexemes(tenant, words)))
        moved = [(*mark, read.get(mark[1], mark[2])) for mark in marks]
        work = statements((("move_marks", MOVED, moved), ("add_words", WORDS, found)))
        read_so_far = columns(MOVED, moved) | {"quiet": QUIET_MS}
        *_, settled, _ = line.run_all(
            [*_BEGIN, *work, ("note_read", read_so_far), ("commit", None)]
        )
        return bool(read or settled[0][0])


def _time_and_place(found: Found) -> tuple[int, str, int]:
    """What a list of messages is ordered by."""
    return found.entry.at, found.session, found.entry.seq


def _lexemes(tenant: bytes, words: SearchableText) -> str:
    """What is to be found of a message, in the form of a tsvector."""
    facets = [
        f"r:{words.role}",
        f"p:{int(words.partial)}",
        *(f"f:{tool}" for tool in words.tools),
    ]
    mark = _mark_of(tenant)
    return " ".join(_quoted(word, mark) for word in {*words_in(words.text), *facets})


@lru_cache(1024)
def _mark_of(tenant: bytes) -> str:
    """What the words of a tenant begin with. Two tenants may have the same: it only keeps most of
    the others out.
    """
    return base64.b64encode(hashlib.sha256(tenant).digest()[:3]).decode()


def _values(sought: SearchScope) -> dict[str, Any] | None:
    """What is sought in the words of the queries; None when there can be no such message."""
    asked = sought.asked
    if (
        not asked.phrases
        and not asked.anything
        or (sought.session is not None and not is_id(sought.session))
    ):
        return None
    mark = _mark_of(raw(sought.tenant))
    terms = [_quoted(word, mark) for phrase in asked.phrases for word in phrase]
    if asked.beginning:
        terms[-1] += ":*"
    if sought.role is not None:
        terms.append(_quoted(f"r:{sought.role}", mark))
    if sought.partial is not None:
        terms.append(_quoted(f"p:{int(sought.partial)}", mark))
    if sought.tool is not None:
        terms.append(_quoted(f"f:{sought.tool}", mark))
    return {
        "tenant": raw(sought.tenant),
        "query": " & ".join(terms) or None,
        "since": -(1 << 62) if sought.since is None else sought.since,
        "until": 1 << 62 if sought.until is None else sought.until,
        "session": sought.session,
        "key": raw_or_none(sought.key),
        "state": sought.state,
    }


def _quoted(word: str, mark: str) -> str:
    """A word of a tenant as PostgreSQL reads it in a tsvector or a tsquery. What it can't hold is
    left out in both.
    """
    kept = mark + word.encode("utf-8", "ignore").decode().replace("\0", "")[:500]
    return "'" + kept.replace("\\", "\\\\").replace("'", "''") + "'"
