"""Searching: which messages have which words, in a table beside the log (I-17).

It is derived. A commit never touches it; whoever searches first reads what is new in the logs of its tenant into it, so
an answer is complete as of the call. Where somebody has searched before, the indexer does so in idle time too. Words
are parted and folded here, as everywhere, so PostgreSQL's own dictionaries have no say: it is given words one by one
and finds them again. It only proposes: a message is read from the log and judged before it is shown, for a row of words
next to each other can't be asked for in a long text.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import psycopg

from holdfast.domain.entry import Entry
from holdfast.domain.seeking import Found, Sought, Words, answers
from holdfast.domain.wording import words_in
from holdfast.engine.codec import join, names_in
from holdfast.engine.postgres.arrays import Ids, Ints, Texts
from holdfast.engine.postgres.connection import Address, Line, Watchdog
from holdfast.engine.postgres.effects import PLACE, columns
from holdfast.engine.postgres.naming import is_id, raw, text
from holdfast.engine.postgres.patience import Patience
from holdfast.engine.postgres.trouble import translate, verdict
from holdfast.engine.protocol import WordsOf
from holdfast.errors import StoreUnavailable

SESSIONS_AT_ONCE, ENTRIES_AT_ONCE = 64, 64
PAGE_MAX = 500
IDLE_MAX = 3
_FIRST = (1 << 62, "ffffffff-ffff-ffff-ffff-ffffffffffff", 1 << 62)

Read = Callable[..., list[tuple[Any, ...]]]


class Searching:
    """The search of one engine. Safe to use from many threads. Without `words_of` nothing is read: what it has passed
    over would not be found by those who can read it.
    """

    def __init__(
        self,
        address: Address,
        watchdog: Watchdog,
        *,
        read: Read,
        words_of: WordsOf | None,
        patience: Callable[[], Patience],
    ) -> None:
        self._address, self._watchdog = address, watchdog
        self._read, self._patience = read, patience
        self._words_of = words_of or (lambda *entry: None)
        self._can_read = words_of is not None
        self._closed = False
        self._gate = threading.Lock()
        self._line: Line | None = None

    def search(self, sought: Sought, *, limit: int) -> list[Found]:
        """The newest messages that answer, newest first."""
        self._catch_up(raw(sought.tenant))
        return list(islice(self._found(sought, limit + 1), limit))

    def matching(self, sought: Sought, *, limit: int) -> list[str]:
        """The sessions in which messages answer, those with the newest ones first."""
        self._catch_up(raw(sought.tenant))
        if any(len(phrase) > 1 for phrase in sought.asked.phrases):
            sessions = dict.fromkeys(found.session for found in self._found(sought, PAGE_MAX))
            return list(sessions)[:limit]
        values = _values(sought)
        return [] if values is None else [id for (id,) in self._read("sessions_found", **values, limit=limit)]

    def advance(self, sessions: Sequence[str]) -> bool:
        """Reads a piece of what is unread in these sessions; False when nothing is, or nobody has searched there."""
        if not self._can_read:
            return False
        behind = self._read("unread_among", id=Ids(filter(is_id, sessions)), limit=SESSIONS_AT_ONCE)
        return bool(behind) and self._insist(behind)

    def close(self) -> None:
        self._closed = True
        with self._gate:
            if self._line is not None:
                self._line.close()

    def _found(self, sought: Sought, size: int) -> Iterator[Found]:
        values = _values(sought)
        last = _FIRST
        while values is not None:
            place = {"at": last[0], "session_before": last[1], "seq": last[2]}
            rows = self._read("found", **values, **place, limit=size)
            for at, session, seq, key, kind, turn, id, note, body, parted in rows:
                where = {"tenant": values["tenant"], "session": session}
                whole, words = self._words(where, seq, kind, note, body, parted)
                places = answers(words, sought) if words is not None else None
                if words is not None and places is not None:
                    entry = Entry(seq, kind, turn, id, at, note, whole)
                    yield Found(session, None if key is None else text(key), entry, words, tuple(places))
            if len(rows) < size:
                return
            last = rows[-1][:3]
            size = min(2 * size, PAGE_MAX)

    def _words(
        self, place: dict[str, Any], seq: int, kind: str, note: bytes, body: bytes, parted: bool
    ) -> tuple[bytes, Words | None]:
        """The whole body of an entry, and what can be found in it. One that makes no sense hides no other (I-18)."""
        if parted:
            parts: dict[int, bytes] = dict(self._read("blob", **place, name=Ints(names_in(body))))
            body = join(body, parts.get)
        try:
            return body, self._words_of(kind, note, body, partial(self._notes, place, seq))
        except Exception:
            return b"", None

    def _notes(self, place: dict[str, Any], seq: int, needle: bytes) -> list[bytes]:
        if not needle:
            return []
        return [note for (note,) in self._read("notes_before", **place, seq=seq, needle=needle)]

    # Reading the log.

    def _catch_up(self, tenant: bytes) -> None:
        """Reads the logs of a tenant up to their heads."""
        if not self._can_read:
            return
        idle = 0  # others may read the same words; and of a log that is torn there may be nothing to read
        while idle < IDLE_MAX and (behind := self._read("unread", tenant=tenant, limit=SESSIONS_AT_ONCE)):
            idle = 0 if self._insist(behind) else idle + 1

    def _insist(self, behind: list[tuple[Any, ...]]) -> bool:
        patience = self._patience()
        while True:
            with self._gate:
                if self._closed:
                    raise StoreUnavailable(where=self._address.shown, problem="it was closed", remedy="Open it again")
                try:
                    return self._step(behind)
                except psycopg.Error as error:
                    self._drop()
                    if verdict(error) == "senseless":
                        raise translate(error, self._address.shown) from error
                    trouble = error
            patience.pause(trouble)

    def _step(self, behind: list[tuple[Any, ...]]) -> bool:
        """Reads a little of each of these logs; False when there was nothing. It is one transaction: killed at any
        point,
        all is as it was before.
        """
        line = self._line = self._line or Line(self._address.connect(), self._watchdog)
        places = [(tenant, session) for tenant, session, _ in behind]
        *_, marks = line.run_all(
            [
                ("begin", None),
                ("fleeting", None),
                ("add_marks", columns(PLACE | {"seq": Ints}, sorted(behind))),
                ("lock_marks", columns(PLACE, places)),
            ]
        )
        read = columns(PLACE | {"seq": Ints}, marks) | {"limit": ENTRIES_AT_ONCE}
        rows = line.run("unread_entries", read)
        found = [
            (tenant, session, seq, at, _lexemes(words))
            for tenant, session, seq, kind, at, note, body, parted in rows
            if (words := self._words({"tenant": tenant, "session": session}, seq, kind, note, body, parted)[1])
        ]
        moved = list({session: (tenant, session, seq) for tenant, session, seq, *_ in rows}.values())
        work: list[tuple[str, Any]] = []
        if found:
            work.append(("add_words", columns(PLACE | {"seq": Ints, "at": Ints, "text": Texts}, found)))
        if moved:
            work.append(("move_marks", columns(PLACE | {"seq": Ints}, moved)))
        line.run_all([*work, ("commit", None)])
        return bool(moved)

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def _lexemes(words: Words) -> str:
    """What is to be found of a message, in the form of a tsvector."""
    facets = [f"r:{words.role}", f"p:{int(words.partial)}", *(f"f:{tool}" for tool in words.tools)]
    return " ".join(map(_quoted, {*words_in(words.text), *facets}))


def _values(sought: Sought) -> dict[str, Any] | None:
    """What is sought in the words of the queries; None when there can be no such message."""
    asked = sought.asked
    if not asked.phrases and not asked.anything or (sought.session is not None and not is_id(sought.session)):
        return None
    terms = [_quoted(word) for phrase in asked.phrases for word in phrase]
    if asked.beginning:
        terms[-1] += ":*"
    if sought.role is not None:
        terms.append(_quoted(f"r:{sought.role}"))
    if sought.partial is not None:
        terms.append(_quoted(f"p:{int(sought.partial)}"))
    if sought.tool is not None:
        terms.append(_quoted(f"f:{sought.tool}"))
    return {
        "tenant": raw(sought.tenant),
        "query": " & ".join(terms) or None,
        "since": -(1 << 62) if sought.since is None else sought.since,
        "until": 1 << 62 if sought.until is None else sought.until,
        "session": sought.session,
        "key": None if sought.key is None else raw(sought.key),
        "state": sought.state,
    }


def _quoted(word: str) -> str:
    """A word as PostgreSQL reads it in a tsvector or a tsquery. What it can't hold is left out in both."""
    kept = word.encode("utf-8", "ignore").decode().replace("\0", "")[:500]
    return "'" + kept.replace("\\", "\\\\").replace("'", "''") + "'"
