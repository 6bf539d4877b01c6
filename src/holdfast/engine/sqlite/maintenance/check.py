"""Looking for damage and broken invariants, without writing anything (I-18).

It looks at one moment of the store, through a connection that can't write; whoever writes meanwhile
is not in its way. It reads everything once, a row at a time: it takes as long as reading the file
does, and as much memory as a page (I-24). What it finds it tells, with its place, and goes on
behind it.

    the files       who may read them
    the pages       SQLite's own check of its trees
    the cells       that a number is a number, and a text one
    each session    the log is dense and can be read, ids are single, turns have one end, what it refers to is there
    the rest        rows that refer to nothing; large parts that are missing or are not what their names say
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import apsw

from holdfast.domain.entry import note_of
from holdfast.domain.ids import is_session_id
from holdfast.domain.message import thaw
from holdfast.engine.blobs import join, name_of, names_in
from holdfast.engine.named_sql import Row
from holdfast.engine.sqlite.driver_errors import TROUBLE, translate
from holdfast.engine.sqlite.maintenance.damage import entries_named, spans, unreadable
from holdfast.engine.sqlite.maintenance.sizes import files_of
from holdfast.engine.sqlite.queries import UPKEEP
from holdfast.engine.sqlite.row_codec import ODD_VALUES, is_whole
from holdfast.engine.sqlite.spoilt_texts import text_in
from holdfast.engine.store_info import PROBLEMS_MAX, REPORT, RESTORE, Law, Problem
from holdfast.errors import Damaged

PAGES_MAX = 100
SESSIONS_AT_ONCE = 500


def check(reader: apsw.Connection, path: str) -> list[Problem]:
    """All that is wrong with the store; the first thousand, if there are more."""
    # what is sorted here may be larger than memory
    reader.execute("PRAGMA temp_store=FILE").fetchall()
    reader.execute("BEGIN")
    try:
        return list(islice(_problems(reader, path), PROBLEMS_MAX))
    finally:
        reader.execute("ROLLBACK")


def _problems(reader: apsw.Connection, path: str) -> Iterator[Problem]:
    yield from _files(path)
    # each by itself: a damaged table must not hide what is wrong with the others
    for part in (_pages, _cells, _sessions, _strays, _blobs):
        try:
            yield from part(reader, path)
        except TROUBLE as error:
            yield _damaged_page(path, str(translate(error, path)).rstrip("."))


def _damaged_page(place: str, problem: str) -> Problem:
    return Problem(
        rule="damaged-page",
        place=place,
        problem=problem,
        invariant="I-18",
        remedy=RESTORE,
    )


def _files(path: str) -> Iterator[Problem]:
    for name, found in files_of(path):
        mode = found.st_mode & 0o777
        if mode & 0o077:
            problem = f"others than its owner may use it (its mode is {mode:o})"
            yield Problem(
                rule="open-to-others",
                place=name,
                problem=problem,
                invariant=None,
                remedy=f"Run `chmod 600 {name}`",
            )


def _pages(reader: apsw.Connection, path: str) -> Iterator[Problem]:
    tables = {root: name for root, name in reader.execute(UPKEEP["tables"])}
    for (text,) in reader.execute(f"PRAGMA integrity_check({PAGES_MAX})"):
        for line in text.splitlines():
            # headings of SQLite's report begin with stars
            if line != "ok" and not line.startswith("***"):
                yield _damaged_page(_page_place(line, path, tables), line)


def _page_place(line: str, path: str, tables: dict[int, str]) -> str:
    tree, page = re.search(r"Tree (\d+)", line), re.search(r"[Pp]age (\d+)", line)
    inside = f" ({tables.get(int(tree[1]), 'unknown')})" if tree else ""
    return f"{path}, page {page[1]}{inside}" if page else path


def _cells(reader: apsw.Connection, path: str) -> Iterator[Problem]:
    """What is in a row is of the type it was written as; entries are looked at with their session."""
    odd = "has values that are not what they were written as"
    for n, id in reader.execute(UPKEEP["odd_sessions"]):
        name = text_or_name(id, n)
        yield Problem(
            rule="damaged-page",
            place=f"session {name}",
            problem=f"its row {odd}",
            invariant="I-25",
            remedy=RESTORE,
            session=name,
        )
    for table, count in reader.execute(UPKEEP["odd_rows"]):
        if count:
            problem = f"{count} of its rows have values that are not what they were written as"
            yield _damaged_page(f"{path}, table {table}", problem)


def text_or_name(id: Any, number: int) -> str:
    """The id of a session, or its number where it has none that is text."""
    if isinstance(id, bytes):
        return id.decode(errors="replace")
    return f"number {number}"


# Each session.


class _CheckedSession(NamedTuple):
    n: int
    id: str
    ended: int
    fence: int
    turn: int | None
    base: int
    origin: int


def _checked(row: Row) -> _CheckedSession:
    """A session by its row; what is no number there counts as none, and is told by itself."""
    n, id, _, _, *numbers = row
    ended, fence, turn, base, origin = (
        number if type(number) is int else None for number in numbers
    )
    return _CheckedSession(
        n,
        text_or_name(id, n),
        ended or 0,
        fence or 0,
        turn,
        base or 0,
        origin or 0,
    )


def _sessions(reader: apsw.Connection, path: str) -> Iterator[Problem]:
    last: Any = 0
    while rows := reader.execute(
        UPKEEP["some_sessions"], (last, SESSIONS_AT_ONCE)
    ).fetchall():
        for row in rows:
            session = _checked(row)
            yield from _names(session, row)
            for law in (_dense, _readable, _single, _turns, _roots):
                try:
                    yield from law(reader, session)
                except TROUBLE as error:
                    problem = f"{law.__doc__} can't be told ({error})"
                    yield _problem(session, "damaged-page", problem, "I-18", RESTORE)
        last = rows[-1][0]


def _names(session: _CheckedSession, row: Row) -> Iterator[Problem]:
    """What no session can be called can't be asked for, either."""
    _, id, tenant, key, *_ = row
    wrong = [] if is_session_id(text_in(id)) else ["id"]
    wrong += [] if text_in(tenant) else ["tenant"]
    wrong += [] if key is None or text_in(key) is not None else ["key"]
    if wrong:
        problem = f"its {' and its '.join(wrong)} can't be that of a session"
        yield _problem(session, "damaged-page", problem, "I-25", RESTORE)


def _problem(
    session: _CheckedSession,
    rule: str,
    problem: str,
    invariant: str,
    remedy: str = REPORT,
    *,
    at: str = "",
) -> Problem:
    return Problem(
        rule=rule,
        place=f"session {session.id}{at}",
        problem=problem,
        invariant=invariant,
        remedy=remedy,
        session=session.id,
    )


def _dense(reader: apsw.Connection, session: _CheckedSession) -> Iterator[Problem]:
    """whether its log is dense"""
    odd = reader.execute(UPKEEP["odd_seqs"], (session.n,)).get
    if odd:
        problem = f"the places of {odd} of its entries are no numbers"
        yield _problem(session, "gap-in-log", problem, "I-1", RESTORE)
    count, first, last = reader.execute(UPKEEP["seqs"], (session.n,)).get
    if not count:
        yield _problem(session, "no-entries", "it has no entries", "I-1", RESTORE)
    elif first != session.origin + 1 or last - first + 1 != count:
        problem = f"{count} entries stand at the seqs {first} to {last}, after {session.origin}"
        yield _problem(session, "gap-in-log", problem, "I-1", RESTORE)


def _readable(reader: apsw.Connection, session: _CheckedSession) -> Iterator[Problem]:
    """whether its entries can be read"""
    blobs = {row[0] for row in reader.execute(UPKEEP["blobs_of"], (session.n,))}
    after = session.origin
    while True:
        try:
            rows: Any = reader.execute(UPKEEP["whole_log"], (session.n, after))
            for row in rows:
                after = seq = row[0]
                problem = _entry_problem(row, blobs)
                if problem:
                    yield _unreadable(session, seq, seq, problem)
            return
        except (apsw.CorruptError, UnicodeDecodeError) as error:
            last = _last(reader, session) or after + 1
            lost = unreadable(reader, session.n, after, last - after)
            for first, last in spans(lost):
                problem = f"they can't be read ({error})"
                yield _unreadable(session, first, last, problem)
            if not lost:
                raise
            # go on behind what can't be read
            after = lost[-1]


def _unreadable(
    session: _CheckedSession, first: int, last: int, problem: str
) -> Problem:
    at = f", {entries_named(first, last)}"
    return _problem(session, "unreadable-entry", problem, "I-18", RESTORE, at=at)


def _last(reader: apsw.Connection, session: _CheckedSession) -> int | None:
    try:
        last: int | None = reader.execute(UPKEEP["seqs"], (session.n,)).get[2]
        return last
    except apsw.Error:
        return None


def _entry_problem(row: Row, blobs: set[int]) -> str | None:
    if not is_whole(row):
        return ODD_VALUES
    _, kind, _, _, _, note, body = row
    try:
        note_of(kind, note) if note else None
        missing = [name for name in names_in(body) if name not in blobs]
        if missing:
            return f"it refers to {len(missing)} large parts that its session does not name"
        thaw(join(body, lambda name: b"")) if body else None
    except Damaged as error:
        return error.problem
    except (KeyError, ValueError) as error:
        return f"it is not an entry that this release knows ({error!r})"
    return None


def _single(reader: apsw.Connection, session: _CheckedSession) -> Iterator[Problem]:
    """whether its ids are single"""
    for first, last in reader.execute(UPKEEP["doubled_ids"], (session.n,)):
        yield _problem(
            session,
            "doubled-id",
            "they have the same id",
            "I-2",
            at=f", entries {first} and {last}",
        )


def _turns(reader: apsw.Connection, session: _CheckedSession) -> Iterator[Problem]:
    """whether its turns have one end"""
    for turn, starts, ends in reader.execute(
        UPKEEP["odd_turns"], (session.n, session.turn, session.fence)
    ):
        running = " and is said to be running" if turn == session.turn else ""
        problem = f"it has {starts} starts and {ends} ends{running}"
        yield _problem(
            session, "turn-without-one-end", problem, "I-6", at=f", turn {turn}"
        )
    if session.turn is None:
        return
    place = (session.n, session.turn)
    if not reader.execute(UPKEEP["turn_started"], place).fetchall():
        problem = "it is said to be running and never started"
        yield _problem(
            session, "turn-without-one-end", problem, "I-6", at=f", turn {session.turn}"
        )
    if session.ended:
        problem = f"it has ended, and its turn {session.turn} is said to be running"
        yield _problem(session, "ended-and-running", problem, "I-8")


def _roots(reader: apsw.Connection, session: _CheckedSession) -> Iterator[Problem]:
    """whether what it begins with is there"""
    if session.base and not session.origin < session.base <= (
        _last(reader, session) or 0
    ):
        problem = f"a load begins with entry {session.base}, which is not there"
        yield _problem(session, "lost-base", problem, "I-11", RESTORE)
    if session.origin:
        row = reader.execute(
            UPKEEP["whole_log"], (session.n, session.origin)
        ).fetchone()
        parent = None
        if row and is_whole(row) and row[1] == "opened":
            # one that can't be read is told as that
            with suppress(Damaged):
                parent = note_of("opened", row[5]).parent
        yield from _past(reader, session, parent)


def _past(
    reader: apsw.Connection, session: _CheckedSession, parent: str | None
) -> Iterator[Problem]:
    found: Any = reader.execute(UPKEEP["past_in"], (session.n, parent)).fetchone()
    head, is_of_tenant = found or (None, True)
    if type(head) is not int or head < session.origin:
        problem = (
            f"it shares {session.origin} entries of a session that does not have them"
        )
        yield _problem(session, "lost-past", problem, "I-1", RESTORE)
    elif not is_of_tenant:
        problem = f"it shares {session.origin} entries of a session of another tenant"
        yield _problem(session, "other-tenants", problem, "I-19", RESTORE)


# The rest.

_STRAYS = (
    Law("stray_entries", "{0} has entries, and there is no such session", "I-1"),
    Law(
        "stray_chunks",
        "{0} has chunks in the journal, and there is no such session",
        "I-5",
    ),
    Law("stray_inbox", "the inbox names entry {1}, which is no such message", "I-4"),
    Law("stray_outbox", "a reply is owed by turn {1}, which never was", "I-23"),
    Law(
        "other_tenants",
        "its {1} is kept under another tenant than the session itself",
        "I-19",
        RESTORE,
    ),
    Law(
        "stray_events",
        "an event names entry {1}, which is not what it was accepted as",
        "I-2",
    ),
    Law(
        "doubled_keys",
        "the key {1!r} has several sessions that have not ended",
        "I-8",
        place="tenant",
    ),
    Law("lost_blobs", "the large part {1:016x} is missing", "I-14", RESTORE),
)


def _strays(reader: apsw.Connection, path: str) -> Iterator[Problem]:
    for law in _STRAYS:
        try:
            rows: list[Any] = reader.execute(UPKEEP[law.query]).fetchall()
        except TROUBLE as error:
            problem = f"what {law.query} looks for can't be told ({error})"
            yield _damaged_page(path, problem)
            continue
        for row in rows:
            yield law.broken(row)


def _blobs(reader: apsw.Connection, path: str) -> Iterator[Problem]:
    for name, body in reader.execute(UPKEEP["all_blobs"]):
        if name_of(body) != name:
            yield Problem(
                rule="altered-blobs",
                place=f"{path}, large part {name:016x}",
                problem="its bytes are not what its name says",
                invariant="I-14",
                remedy=RESTORE,
            )
