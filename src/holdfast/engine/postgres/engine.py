"""The PostgreSQL engine: a pool of writers, and readers beside them."""

import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import psycopg

from holdfast.domain.accepted_events import event_name
from holdfast.domain.entry import Entry
from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.postgres.acknowledged_heads import AcknowledgedHeads
from holdfast.engine.postgres.background.indexer import PostgresIndexer
from holdfast.engine.postgres.background.notifier import Notifier
from holdfast.engine.postgres.background.poller import Poller
from holdfast.engine.postgres.batch import StampedSession
from holdfast.engine.postgres.batch_sql import PLACE, columns
from holdfast.engine.postgres.batch_writer import BatchWriter
from holdfast.engine.postgres.blocked_commits import BlockedCommits
from holdfast.engine.postgres.maintenance import migrate, sizes
from holdfast.engine.postgres.readers import Check, PostgresReaders, whole_body
from holdfast.engine.postgres.search import PostgresSearch
from holdfast.engine.postgres.server.binary_arrays import Blobs, Ids, Ints
from holdfast.engine.postgres.server.cluster import ANSWER_S, RETRY_S, Cluster
from holdfast.engine.postgres.server.driver_errors import translate
from holdfast.engine.postgres.server.primary import Outdated
from holdfast.engine.postgres.server.replication import Replication
from holdfast.engine.postgres.server.text_as_bytes import (
    FIRST,
    is_id,
    raw,
    span,
    text_or_none,
)
from holdfast.engine.postgres.tenant_cache import TenantCache
from holdfast.engine.postgres.writer_pool import Apply, WriterPool
from holdfast.engine.protocol import (
    PAGE_BYTES_MAX,
    Accepted,
    Chance,
    Commit,
    Commits,
    Outcome,
    RowsCallback,
    SessionState,
    Tick,
    Waiting,
    Weight,
    WordsOf,
)
from holdfast.engine.sql.reads import EngineReads, Searcher
from holdfast.engine.store_info import Backup, Problem, StoreInfo
from holdfast.engine.writer import Writer, WriterTicket
from holdfast.errors import ReadOnlyStore, StoreUnavailable, WeaklyReplicated

ASKED_OF_MANY = frozenset(("inbox", "debts_of"))
"""What the guards of a batch ask about many sessions at once: rows name theirs first."""


class PostgresEngine(EngineReads):
    """Sessions in a PostgreSQL database; see `protocol.Engine`. Leases are measured by the server's
    clock: `tick` only says when to stop retrying.
    """

    look_s = 30.0
    """The poller tells of what other processes commit, and wakes all when it can't."""

    def __init__(
        self,
        dsn: str,
        *,
        durability: str,
        tick: Tick,
        chance: Chance,
        words_of: WordsOf | None = None,
        writers: int = 2,
        spread_at: int = 64,
        readers: int = 4,
        retry_s: float = RETRY_S,
        answer_s: float = ANSWER_S,
        read_only: bool = False,
    ) -> None:
        cluster = self._cluster = Cluster(
            dsn,
            tick=tick,
            chance=chance,
            retry_s=retry_s,
            answer_s=answer_s,
            read_only=read_only,
        )
        super().__init__(cluster.where)
        self.read_only = read_only
        self._tenants = TenantCache()
        self._acknowledged = AcknowledgedHeads()
        self._lasting = durability == "power"
        self._readers = PostgresReaders(cluster, size=readers)
        self._searching = PostgresSearch(
            cluster, read=self._read_slowly, words_of=words_of, read_only=read_only
        )
        make_batch_writer = partial(
            BatchWriter,
            cluster,
            self._tenants,
            self._acknowledged,
            lasting=self._lasting,
        )
        self._blocked = BlockedCommits(make_batch_writer)
        self._batch_writers: list[BatchWriter] = []
        if not read_only:
            self._batch_writers = [
                make_batch_writer(blocked=self._blocked) for _ in range(writers)
            ]
        self._start_background()
        try:
            self._prepare()
        except BaseException:
            self._let_go()
            raise
        if not read_only:
            applies = [batch_writer.apply for batch_writer in self._batch_writers]
            self._writer_pool = WriterPool(
                self.where, applies, self._make_writer, spread_at=spread_at
            )
        _open.add(self)

    def _start_background(self) -> None:
        self._indexer = PostgresIndexer(self._searching.advance)
        batch_writers, once = self._batch_writers, self._readers.once
        self._notifier = Notifier(lambda payload: once("notify", {"payload": payload}))
        self._poller = Poller(
            self._cluster,
            self._tenants,
            watchers=self._watchers,
            is_ours=lambda stamp: any(
                batch_writer.wrote(stamp) for batch_writer in batch_writers
            ),
        )

    def _prepare(self) -> None:
        if self.read_only:
            migrate.refuse_other(self._readers.read, self.where)
            return
        migrate.prepare(
            self._batch_writers[0].connect, self.where, self._cluster.retry()
        )
        weakness = self.replication().weakness if self._lasting else None
        if weakness is not None:
            # a warning, not an error: whoever runs one server on purpose may go on
            warnings.warn(
                WeaklyReplicated(where=self.where, **weakness._asdict()), stacklevel=2
            )

    def replication(self) -> Replication:
        """What the cluster says of itself."""
        return Replication(*self._readers.read("sync_state", {})[0])

    def _make_writer(self, number: int, apply: Apply) -> Writer:
        return Writer(
            self.where,
            apply=apply,
            wake=self._wake,
            tidy=lambda: None,
            finish=self._batch_writers[number].close,
        )

    def _wake(self, commits: Commits, answers: Sequence[Any]) -> None:
        self._watchers.wake(commits, answers)
        self._notifier.note(commits)
        self._indexer.note(commits)

    # Writing: on the writers' threads.

    def commit(self, commits: Commits) -> list[Outcome]:
        tickets = [self.submit(commit) for commit in commits]
        return [ticket.result() for ticket in tickets]

    def submit(self, commit: Commit) -> WriterTicket:
        # Asked without a call: every commit comes by here.
        if self._forked or self.read_only:
            self._insist_on_writing()
        return self._writer_pool.submit(commit)

    def _insist_on_writing(self) -> None:
        self._check_fork()
        if self.read_only:
            raise ReadOnlyStore(where=self.where)

    def close(self) -> None:
        if not self._forked:
            if not self.read_only:
                self._writer_pool.close()
                self._blocked.close()
            self._let_go()

    def _let_go(self) -> None:
        # first those that ask, then what they ask with
        self._poller.close()
        self._notifier.close()
        for batch_writer in self._batch_writers:
            batch_writer.close()
        self._searching.close()
        self._readers.close()
        self._indexer.close()
        self._cluster.watchdog.close()
        # they look, and are told that it is closed
        self._watchers.wake_those(self._watchers.watched())

    # Reading: on the caller's thread.

    def _read(self, query: str, check: Check | None = None, /, **values: Any) -> Rows:
        self._check_fork()
        return self._readers.read(query, values, check=check)

    def _about(self, query: str, session: str, /, **values: Any) -> Rows:
        place = self._place(session)
        if place is None:
            return []
        if query in ASKED_OF_MANY:
            place = columns(PLACE, [tuple(place.values())])
            return [row[1:] for row in self._read(query, **place, **values)]
        return self._read(query, **place, **values)

    def _check_heads(self, rows: Rows, until: int) -> None:
        """That the server knows what was acknowledged of these sessions."""
        for row in rows:
            self._check_head(row[1], row[5], until)

    def _check_head(self, session: str, head: int, until: int) -> None:
        least = self._acknowledged.head(session, until)
        if head < least:
            raise Outdated(
                f"it has {head} of the {least} entries of session {session} that were acknowledged"
            )

    def _read_slowly(self, query: str, /, **values: Any) -> Rows:
        """For what reads much: that no answer comes for a while means nothing."""
        self._check_fork()
        return self._readers.read(query, values, slow=True)

    def _place(self, session: str) -> dict[str, Any] | None:
        """A session's tenant and id; None when there is no such session."""
        return self._places([session]).get(session)

    def _places(self, sessions: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The tenants and ids of those of these sessions that are there."""
        tenants = self._tenants.find(
            sessions, lambda ids: self._read("tenants", id=ids)
        )
        return {id: {"tenant": tenant, "session": id} for id, tenant in tenants.items()}

    def _states(self, query: str, /, **values: Any) -> list[SessionState]:
        until = self._acknowledged.count
        rows = self._read(query, lambda rows: self._check_heads(rows, until), **values)
        self._tenants.learn((row[1], row[0]) for row in rows)
        return [
            StampedSession.of_row(row).decoded().as_state(*row[-3:]) for row in rows
        ]

    def _name(self, given: str) -> bytes:
        return raw(given)

    def _text(self, kept: Any) -> Any:
        return text_or_none(kept)

    def _id(self, session: str) -> str:
        return session if is_id(session) else FIRST

    def _ids(self, sessions: Sequence[str]) -> Ids:
        return Ids(filter(is_id, sessions))

    def _span(self, prefix: str) -> tuple[str, str] | None:
        return span(prefix)

    def _searcher(self) -> Searcher:
        return self._searching

    def state(self, session: str) -> SessionState | None:
        return super().state(session) if is_id(session) else None

    def entries(
        self, session: str, *, after: int = 0, limit: int = 1000, bodies: bool = True
    ) -> list[Entry]:
        place = self._place(session)
        if place is None:
            return []
        until = self._acknowledged.count

        def check(rows: Rows) -> None:
            if len(rows) < limit:  # there are no more: the last one is the head
                self._check_head(session, rows[-1][0] if rows else after, until)

        query = "entries" if bodies else "entries_bare"
        return self._page(
            place, self._read(query, check, **place, after=after, limit=limit)
        )

    def _first_pages(
        self, sessions: Sequence[str], limit: int, bodies: bool
    ) -> Iterator[tuple[str, list[Entry]]]:
        places = self._places(sessions)
        if not places:
            return
        given = columns(
            PLACE | {"seq": Ints}, [(*place.values(), 0) for place in places.values()]
        )
        rows = self._read("beginnings", **given, limit=limit, bodies=bodies)
        for id, theirs in groupby(rows, key=itemgetter(1)):
            yield id, self._page(places[id], [row[2:] for row in theirs])

    def _page(self, place: dict[str, Any], rows: Rows) -> list[Entry]:
        """Entries with their large parts put back; the page ends early when it grows large."""
        page: list[Entry] = []
        size = 0
        for seq, kind, turn, id, at, note, body, parted in rows:
            if parted:
                body = whole_body(self._read, place, body)
            page.append(Entry(seq, kind, turn, id, at, note, body))
            size += len(body)
            if size >= PAGE_BYTES_MAX:
                break
        return page

    def _whole(self, tenant: str, session: str, row: Row) -> Entry:
        [entry] = self._page({"tenant": raw(tenant), "session": session}, [row])
        return entry

    def inbox(self, session: str) -> list[Waiting]:
        return [
            Waiting(message, text_or_none(waiter), seq, *lease)
            for message, waiter, seq, *lease in self._about("inbox", session)
        ]

    def accepted(self, scope: str, event: str) -> Accepted | None:
        rows = self._read("accepted", name=Blobs([event_name(scope, event)]))
        return Accepted(*rows[0][1:]) if rows else None

    def weigh(self, sessions: Sequence[str]) -> dict[str, Weight]:
        places = self._places(sessions)
        if not places:
            return {}
        given = columns(PLACE, [tuple(place.values()) for place in places.values()])
        return {
            id: Weight(*weight) for id, *weight in self._read_slowly("weigh", **given)
        }

    def scrub(self) -> None:
        # an erasure is whole with its transaction: what the server keeps of it, it
        # removes
        self._insist_on_writing()

    def info(self) -> StoreInfo:
        return sizes.info(self._read_slowly, self.where, self.replication())

    def check(self) -> list[Problem]:
        return sizes.check(
            self._read_slowly,
            self.where,
            None if self.read_only else self.replication(),
        )

    def backup(self, to: str) -> Backup:
        remedy = "Use `pg_dump` for one store, or the server's own base backups"
        raise StoreUnavailable(
            where=self.where,
            problem="its server makes copies of it, not its clients",
            remedy=remedy,
        )

    def watch_rows(self, session: str, callback: RowsCallback) -> Callable[[], None]:
        stop = super().watch_rows(session, callback)
        self._poller.rouse()
        return stop


def bring_up(dsn: str, *, tick: Tick, chance: Chance) -> tuple[int, int]:
    """The format that a store had, and the one it has now; 0 when there was none. Safe to run
    twice, and from two machines at once.
    """
    cluster = Cluster(dsn, tick=tick, chance=chance)
    batch_writer = BatchWriter(
        cluster, TenantCache(), AcknowledgedHeads(), lasting=True
    )
    try:
        found = migrate.prepare(batch_writer.connect, cluster.where, cluster.retry())
    finally:
        batch_writer.close()
        cluster.watchdog.close()
    return found or 0, migrate.SCHEMA_VERSION


def vacuum(dsn: str, *, tick: Tick) -> int:
    """Has the server write the tables that hold words anew, so that what was erased is in none of
    their files. The number of bytes that this has freed. It needs the rights of their owner, and
    locks one table after the other.
    """
    # nothing is tried again, so chance is not needed
    cluster = Cluster(dsn, tick=tick, chance=bytes)
    try:
        with contextlib.closing(cluster.line()) as line:
            return sizes.vacuum(line)
    except psycopg.Error as error:
        raise translate(error, cluster.where) from error
    finally:
        cluster.watchdog.close()


_open: "weakref.WeakSet[PostgresEngine]" = weakref.WeakSet()


def _mark_forked() -> None:
    """A child that was forked has no writer threads and must not touch the parent's connections. It
    closes its copies of their sockets without a word: while they are open, a server does not notice
    that the parent was killed.
    """
    for engine in _open:
        engine._forked = True
        engine._cluster.watchdog.abandon()


os.register_at_fork(after_in_child=_mark_forked)
