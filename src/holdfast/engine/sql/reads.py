"""What can be read of a store: the questions of `protocol.Engine` that both engines answer alike.

A question is a named statement, with the same name and the same values in both engines' `.sql`
files. An engine says how a statement is run, and how texts and ids are kept; what is made of the
rows is said here, once. What differs between a file and a server stands in the engines.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.domain.accepted_events import AcceptedEvent
from holdfast.domain.entry import Entry
from holdfast.engine.closed_engine import forked
from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.protocol import (
    PAGE_BYTES_MAX,
    JournalRow,
    OwedReply,
    Pending,
    RowsCallback,
    SessionState,
    State,
)
from holdfast.engine.watchers import Watchers

if TYPE_CHECKING:
    from holdfast.domain.search.query import Found, SearchScope

FAR_FUTURE = 1 << 62
MISLED = "an index of the store is damaged and hides some of it; see `holdfast doctor`"
LARGEST = "\U0010ffff"
"""The largest character: behind a prefix, it stands after all that begins so."""


class Searcher(Protocol):
    """What finds messages by their words."""

    def search(self, sought: "SearchScope", *, limit: int) -> "list[Found]": ...
    def matching(self, sought: "SearchScope", *, limit: int) -> list[str]: ...


class EngineReads:
    """The reading half of an engine, on the caller's thread."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._watchers = Watchers()
        self._forked = False

    def _check_fork(self) -> None:
        if self._forked:
            raise forked(self.where)

    # What an engine says.

    def _read(self, query: str, /, **values: Any) -> Rows:
        """All rows of a question."""
        raise NotImplementedError

    def _about(self, query: str, session: str, /, **values: Any) -> Rows:
        """All rows of a question about one session; none if there is no such session."""
        raise NotImplementedError

    def _states(self, query: str, /, **values: Any) -> list[SessionState]:
        raise NotImplementedError

    def _name(self, given: str) -> Any:
        """A tenant or a key, as it is kept."""
        return given

    def _text(self, kept: Any) -> Any:
        """A caller's text as it was given, from what is kept of it; None stays None."""
        raise NotImplementedError

    def _id(self, session: str) -> str:
        """The id to go on after. One that no session has stands before all others."""
        return session

    def _ids(self, sessions: Sequence[str]) -> Any:
        """Ids as one value of a question; empty if none of them can be that of a session."""
        raise NotImplementedError

    def _span(self, prefix: str) -> tuple[str, str] | None:
        """The bounds of the ids that begin so; None if no id can."""
        raise NotImplementedError

    def _clock_values(self) -> dict[str, Any]:
        """What the question for free replies has to know of the time: nothing where the store has
        a clock of its own.
        """
        return {}

    def _whole(self, tenant: str, session: str, row: Row) -> Entry:
        """An entry with its large parts put back."""
        raise NotImplementedError

    def _first_pages(
        self, sessions: Sequence[str], limit: int, bodies: bool
    ) -> Iterable[tuple[str, list[Entry]]]:
        """The first entries of each of these sessions."""
        raise NotImplementedError

    def _searcher(self) -> Searcher:
        raise NotImplementedError

    # Sessions.

    def state(self, session: str) -> SessionState | None:
        return _first(self._states("session_by_id", id=session))

    def current(self, tenant: str, key: str) -> SessionState | None:
        place = {"tenant": self._name(tenant), "key": self._name(key)}
        return _first(self._states("session_by_key", **place))

    def find(self, tenant: str, prefix: str, limit: int = 2) -> list[SessionState]:
        ids = self._span(prefix)
        if ids is None:
            return []
        first, last = ids
        return self._states(
            "sessions_by_prefix",
            tenant=self._name(tenant),
            first=first,
            last=last,
            limit=limit,
        )

    def sessions(
        self,
        tenant: str,
        *,
        key: str | None = None,
        state: State | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> list[SessionState]:
        values = self._before(tenant, before or (FAR_FUTURE, ""), limit)
        values["state"] = state
        if key is not None:
            return self._states("sessions_of_key", key=self._name(key), **values)
        return self._states("sessions_by_activity", **values)

    def under(
        self, tenant: str, prefix: str, *, after: str = "", limit: int = 50
    ) -> list[SessionState]:
        return self._states(
            "sessions_under",
            tenant=self._name(tenant),
            first=self._name(prefix),
            last=self._name(prefix + LARGEST),
            after=self._name(after),
            limit=limit,
        )

    def kept(
        self, tenant: str, *, before: tuple[int, str], limit: int
    ) -> list[SessionState]:
        return self._states("sessions_kept", **self._before(tenant, before, limit))

    def _before(
        self, tenant: str, before: tuple[int, str], limit: int
    ) -> dict[str, Any]:
        at, id = before
        return {
            "tenant": self._name(tenant),
            "at": at,
            "id": self._id(id),
            "limit": limit,
        }

    def forks(self, tenant: str, parents: Sequence[str]) -> list[SessionState]:
        ids = self._ids(parents)
        if not ids:
            return []
        return self._states("forks", tenant=self._name(tenant), parent=ids)

    def running(self, tenant: str) -> list[str]:
        return [id for (id,) in self._read("running", tenant=self._name(tenant))]

    def tenants(self) -> list[str]:
        return [self._text(tenant) for (tenant,) in self._read("all_tenants")]

    # Of one session.

    def beginnings(
        self, sessions: Sequence[str], *, limit: int, bodies: bool = True
    ) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        size = 0
        for id, page in self._first_pages(sessions, limit, bodies):
            own = sum(len(entry.body) for entry in page)
            # one that is left out is read by itself; smaller ones behind it may still
            # fit
            if page and size + own < PAGE_BYTES_MAX:
                found[id] = page
                size += own
        return found

    def labels(self, session: str, *, after: int = 0) -> list[Entry]:
        return list(starmap(Entry, self._about("labels", session, after=after)))

    def journal(
        self, session: str, *, after: int = 0, limit: int = 1000
    ) -> list[JournalRow]:
        rows = self._about("journal", session, after=after, limit=limit)
        return list(starmap(JournalRow, rows))

    def debts(self, session: str) -> list[OwedReply]:
        return [
            OwedReply(id, session, turn, self._text(reply_to), at)
            for id, turn, reply_to, at in self._about("debts_of", session)
        ]

    # Of a tenant, or of all.

    def outbox(
        self,
        tenant: str,
        *,
        after: OwedReply | None = None,
        limit: int = 50,
        free: bool = False,
    ) -> list[OwedReply]:
        last = after or OwedReply(b"", "", 0, "", -1)
        rows = self._read(
            "outbox",
            tenant=self._name(tenant),
            at=last.at,
            session=self._id(last.session),
            turn=last.turn,
            id=last.id,
            limit=limit,
            free=free,
            **self._clock_values(),
        )
        return [
            OwedReply(id, session, turn, self._text(reply_to), at)
            for id, session, turn, reply_to, at in rows
        ]

    def pending(
        self,
        tenant: str,
        *,
        after: tuple[bytes, str, int] | None = None,
        limit: int = 50,
    ) -> list[Pending]:
        message, last, seq = after or (b"", "", 0)
        found: list[Pending] = []
        size = 0
        for session, key, *row in self._read(
            "pending",
            tenant=self._name(tenant),
            message=message,
            session=self._id(last),
            seq=seq,
            limit=limit,
        ):
            entry = self._whole(tenant, session, tuple(row))
            found.append(Pending(session, self._text(key), entry))
            size += len(entry.body)
            if size >= PAGE_BYTES_MAX:
                break
        return found

    def events(self, *, after: bytes = b"", limit: int = 1000) -> list[AcceptedEvent]:
        rows = self._read("events", after=after, limit=limit)
        return list(starmap(AcceptedEvent, rows))

    def search(self, sought: "SearchScope", *, limit: int = 20) -> "list[Found]":
        self._check_fork()
        return self._searcher().search(sought, limit=limit)

    def matching(self, sought: "SearchScope", *, limit: int) -> list[str]:
        self._check_fork()
        return self._searcher().matching(sought, limit=limit)

    def watch(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self.watch_rows(session, lambda _: callback())

    def watch_rows(self, session: str, callback: RowsCallback) -> Callable[[], None]:
        return self._watchers.add_for_rows(session, callback)


def _first(states: list[SessionState]) -> SessionState | None:
    return states[0] if states else None
