"""A Holdfast store as the doctor reads it: from a private copy, session by session, past whatever
can't be read.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.doctor.holdfast.filing import Filing
from holdfast.doctor.holdfast.rebuilt import Mended, rebuild
from holdfast.domain.accepted_events import AcceptedEvent
from holdfast.domain.entry import Entry, Opened, note_of
from holdfast.domain.message import thaw
from holdfast.engine.protocol import JournalRow, OwedReply, SessionState, Waiting
from holdfast.engine.sqlite.connection import APPLICATION_ID
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.engine.sqlite.maintenance.damage import bare_states
from holdfast.engine.sqlite.row_codec import ODD_VALUES, UNREADABLE
from holdfast.engine.store_info import Problem
from holdfast.errors import Damaged, OperatorNeeded
from holdfast.formats import registry
from holdfast.importers.private_copy import PrivateCopy, is_sqlite, read_start

PAGE = 500


class SessionRecord(msgspec.Struct):
    """A session as far as it can be read. `entries` are its own; `past` those that it shares,
    without their words, all of them if `past_is_whole`; `lost` the seqs at which nothing can be read,
    with what is wrong there.
    """

    state: SessionState
    entries: list[Entry]
    past: list[Entry]
    past_is_whole: bool
    lost: dict[int, str]
    inbox: list[Waiting]
    debts: list[OwedReply]
    events: list[AcceptedEvent]
    journal: list[JournalRow]
    misfiled: str | None = None
    """What is wrong with the tenants that it is kept under, if anything is."""


def recognises(path: Path) -> bool:
    """Whether this is a store of ours, by what its first page says."""
    try:
        return (
            path.is_file()
            and is_sqlite(path)
            # SQLite's file header keeps the application id here.
            and read_start(path, 100)[68:72] == APPLICATION_ID.to_bytes(4, "big")
        )
    except OSError:
        return False


class HoldfastRecords:
    """All sessions of a store. Its engine works on the private copy, and may migrate it; on a file
    that is rebuilt from its tables, if there is anything wrong with it. `mended` tells what is
    not in that as it was in the store.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copy = PrivateCopy(path)
        self.left_out = self._copy.left_out
        self.mended: list[Mended] = []
        self._rebuilt = self._copy.path.with_name("rebuilt.db")
        try:
            self.engine = self._opened(self._copy.path)
            self._problems = self._checked()
            if self._problems:
                self._rebuild()
            states = self._bare_states()
        except OperatorNeeded as error:
            # It names a private copy, which is gone when somebody reads this.
            self._copy.close()
            if error.fields.get("where") not in self._private():
                raise
            raise type(error)(**error.fields | {"where": str(path)}) from error
        except BaseException:
            self._copy.close()
            raise
        self._events: dict[str, list[AcceptedEvent]] | None = None
        self._filing = Filing(self.engine, states)
        self._states = {state.id: state for state in self._filing.states}

    def _private(self) -> tuple[str, str]:
        return str(self._copy.path), str(self._rebuilt)

    def _opened(self, path: Path) -> SqliteEngine:
        return SqliteEngine(str(path), durability="process", tick=lambda: 0.0)

    def _rebuild(self) -> None:
        # After the engine was opened, which may have migrated the copy.
        self.engine.close()
        if any(problem.rule == "damaged-page" for problem in self._problems):
            before = "pages or rows that are not what was written"
            after = "all tables read row by row, all indexes made anew"
            self.mended.append(Mended("", str(self._path), before, after))
        self.mended += rebuild(str(self._copy.path), str(self._rebuilt))
        self.engine = self._opened(self._rebuilt)

    def _bare_states(self) -> list[SessionState]:
        try:
            return bare_states(self.engine.where)
        except BaseException:
            self.engine.close()
            raise

    def close(self) -> None:
        self.engine.close()
        self._copy.close()

    def problems(self) -> list[Problem]:
        """What the engine's own check tells of the store."""
        return self._problems

    def _checked(self) -> list[Problem]:
        """All but the rights of the private copy, which are ours. A place in the copy is told as
        that in the store: the copy is gone when somebody reads this.
        """
        found = []
        copy, original = str(self._copy.path), str(self._path)
        try:
            problems = self.engine.check()
        except BaseException:
            self.engine.close()
            raise
        for problem in problems:
            if problem.rule == "open-to-others":
                continue
            place = problem.place.replace(copy, original)
            said = problem.problem.replace(copy, original)
            found.append(msgspec.structs.replace(problem, place=place, problem=said))
        return found

    def states(self) -> list[SessionState]:
        """All sessions, in an order that does not change."""
        return sorted(
            self._states.values(), key=lambda state: (state.opened_at, state.id)
        )

    def record(self, state: SessionState) -> SessionRecord:
        """One session, whole."""
        entries, lost = self._read(state.id, state.origin, state.head)
        journal = []
        # Only a running turn has words that are not in the log.
        if state.turn is not None:
            # All of it: a message is put together from every row that it has there.
            journal = _or_none(self.engine.journal, state.id, limit=1_000_000)
        past, past_is_whole = self._past(state)
        return SessionRecord(
            state,
            entries,
            past=past,
            past_is_whole=past_is_whole,
            lost=lost,
            inbox=_or_none(self.engine.inbox, state.id),
            debts=_or_none(self.engine.debts, state.id),
            events=self._events_of(state.id),
            journal=journal,
            misfiled=self._filing.problems.get(state.id),
        )

    def opened(self, state: SessionState) -> Opened | None:
        """The note of its first entry, if that can be read."""
        page, _ = self._page(state.id, state.origin, 1, bodies=False)
        for entry in page:
            if entry.kind == "opened" and _wrong(entry) is None:
                opened: Opened = note_of("opened", entry.note)
                return opened
        return None

    def parent(self, state: SessionState) -> SessionState | None:
        """The session that a fork says it shares its past with, if its tenant has it."""
        opened = self.opened(state) if state.origin else None
        parent = None if opened is None else self._states.get(opened.parent or "")
        return parent if parent is not None and parent.tenant == state.tenant else None

    def _past(self, state: SessionState) -> tuple[list[Entry], bool]:
        """What a fork shares, from the first entry on, and whether that is all of it: it is less
        where it is not there or can't be read.
        """
        past: list[Entry] = []
        is_whole = True
        # A damaged store can have forks in a ring: none is gone through twice.
        seen = {state.id}
        parent = self.parent(state)
        while parent is not None and parent.id not in seen:
            seen.add(parent.id)
            end = min(parent.head, state.origin)
            own, lost = self._read(parent.id, parent.origin, end, bodies=False)
            past = [*own, *past]
            is_whole = is_whole and not lost
            state = parent
            parent = self.parent(state)
        return past, is_whole

    def _read(
        self, session: str, after: int, head: int, *, bodies: bool = True
    ) -> tuple[list[Entry], dict[int, str]]:
        found: list[Entry] = []
        lost: dict[int, str] = {}
        while after < head:
            # Never beyond `head`: behind the point where a fork parted, its parent's log is another
            # story.
            page, problem = self._page(session, after, min(PAGE, head - after), bodies)
            if problem is not None:
                # One by one, to see which of them can't be read.
                page, problem = self._page(session, after, 1, bodies)
            # Everything before the first entry that came is lost. If none came, only
            # the next one counts as lost, and reading goes on behind it.
            for seq in range(after + 1, page[0].seq if page else after + 2):
                lost[seq] = problem or "there is no such entry"
            for entry in page:
                wrong = _wrong(entry)
                if wrong is None:
                    found.append(entry)
                else:
                    lost[entry.seq] = wrong
            lost |= {seq: "there is no such entry" for seq in _missing(page)}
            after = page[-1].seq if page else after + 1
        return found, lost

    def _page(
        self, session: str, after: int, limit: int, bodies: bool
    ) -> tuple[list[Entry], str | None]:
        try:
            return self.engine.entries(
                session, after=after, limit=limit, bodies=bodies
            ), None
        except Damaged as error:
            return [], error.problem

    def _events_of(self, session: str) -> list[AcceptedEvent]:
        if self._events is None:
            self._events, after = {}, b""
            # Read once for all sessions: events are kept by name, not by session.
            while page := _or_none(self.engine.events, after=after):
                for event in page:
                    self._events.setdefault(event.session, []).append(event)
                after = page[-1].name
        return self._events.get(session, [])


def _or_none(read: Callable[..., list[Any]], *place: str, **page: Any) -> list[Any]:
    """What is there, or nothing where it can't be read."""
    try:
        return read(*place, **page)
    except Damaged:
        return []


def _missing(page: list[Entry]) -> Iterator[int]:
    for one, two in zip(page, page[1:], strict=False):
        yield from range(one.seq + 1, two.seq)


def _wrong(entry: Entry) -> str | None:
    """What makes this no entry any more, if anything."""
    if entry.note == UNREADABLE:
        return ODD_VALUES
    # Decoded and thrown away: that it can be is all that is asked.
    try:
        note = note_of(entry.kind, entry.note) if entry.note else None
        if entry.body:
            thaw(entry.body)
        # Of a format that this release does not know it keeps what is there.
        if entry.kind == "message" and entry.body:
            note = note or note_of(entry.kind, entry.note)
            if registry.is_known(note.format) and not note.erased:
                registry.insist_on(note, entry.body)
    except Damaged as error:
        return error.problem
    except (KeyError, ValueError) as error:
        return f"it is not an entry that this release knows ({error!r})"
    return None
