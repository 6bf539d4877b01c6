"""Applying commits inside the writer's transaction: guards are judged, then effects happen.

It remembers the sessions it has met (head, fence, running turn), so that a plain append asks SQLite
nothing; the engine empties it when another process has written or a transaction has failed. A
commit is judged whole before any of its effects happens: a refused one leaves no trace.
"""

from collections.abc import Callable
from operator import attrgetter, itemgetter

from holdfast.domain.accepted_events import event_name
from holdfast.domain.entry import STARTING, Draft
from holdfast.engine.blobs import PART_BYTES_MIN, address, split
from holdfast.engine.guards import (
    Judgement,
    judge,
    judge_opening,
    judge_taken,
    reply_of,
)
from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.protocol import (
    ACTIVE_STEP_MS,
    Accepted,
    Chunk,
    ChunkWrite,
    Commit,
    Opening,
    Outcome,
    Refused,
    SessionState,
    Write,
    Written,
)
from holdfast.engine.session_row import SessionRow, advances, shifts_outbox
from holdfast.engine.sql.reads import FAR_FUTURE
from holdfast.engine.sqlite.background.own_rows import Span
from holdfast.engine.sqlite.lease_clock import NO_LEASE, Clock, Kept, given
from holdfast.engine.sqlite.maintenance.erase import (
    blank,
    blank_some,
    owe_scrubbing,
    take_out,
)
from holdfast.engine.sqlite.queries import Statements
from holdfast.engine.sqlite.restore_state import NO_CLAIM, restore
from holdfast.engine.sqlite.row_codec import fitted, is_whole_session, packed
from holdfast.errors import Damaged

COLUMNS = (
    "n",
    "id",
    "tenant",
    "key",
    "epoch",
    "ended",
    "fence",
    "turn",
    "holder",
    *Kept._fields,
    "journal",
    "base",
    "origin",
    "opened_at",
    "active_at",
    "parent",
    "head",
    "last_at",
)
"""The columns of the view `session_state`."""
ORIGIN, HEAD = COLUMNS.index("origin"), COLUMNS.index("head")
COUNTED = itemgetter(ORIGIN, HEAD, *map(COLUMNS.index, ("epoch", "fence")))
COUNT_MAX = 1 << 53
LEASE = slice(9, 13)
"""Which of them are those of the lease."""
ADDED = attrgetter(
    "id",
    "tenant",
    "key",
    "epoch",
    "fence",
    "origin",
    "opened_at",
    "active_at",
    "parent",
)
"""What `add_session` is given."""
TURN = attrgetter("ended", "fence", "turn", "holder")
STANDING = attrgetter("journal", "base", "active_at", "n")
"""What `save_turn` is given before the lease, and behind it."""


class NumberedSession(SessionRow):
    """A session of a file: its row number stands for it in all tables. It is remembered between
    batches.
    """

    n: int = 0
    lease: Kept = NO_LEASE

    @classmethod
    def of_row(cls, row: Row) -> "NumberedSession":
        """From a row of the view `session_state`."""
        session = cls(*_fields_of(row))
        # four empty columns are no lease
        if row[LEASE.start] is not None:
            session.lease = Kept(*row[LEASE])
        return session

    def state(self, here: Clock) -> SessionState:
        lease = self.lease
        if self.turn is None:
            return self.as_state(None, None, None)
        return self.as_state(lease.length_s, lease.until, lease.left_s(here))


_fields_of = itemgetter(*map(COLUMNS.index, NumberedSession.__struct_fields__[:-1]))
"""The values of a row in the order of the fields, but for the lease."""


def refuse_damaged_session(row: Row) -> None:
    """Nothing is judged by a row that is damaged: its fence may be."""
    # Nothing is as many as SQLite can count: behind such a number no other can come.
    if not is_whole_session(row) or max(COUNTED(row)) > COUNT_MAX:
        problem = "its row has values that are not what they were written as"
        raise Damaged(what="session", where=str(row[1]), problem=problem)


class CommitApplier:
    """Judges and applies commits on one connection. Rows of the log and the journal are gathered,
    and written by `flush`.
    """

    SESSIONS_MAX = 20_000

    def __init__(self, statements: Statements, clock: Callable[[], Clock]) -> None:
        self._statements = statements
        self._run, self._run_many = statements.run, statements.run_many
        self._rows = statements.rows
        self._clock = clock
        self._sessions: dict[str, NumberedSession] = {}
        self._entries: Rows = []
        self._chunks: Rows = []
        self._waiting: Rows = []
        self._events: dict[bytes, tuple[NumberedSession, int, bytes]] = {}
        self._erased: set[int] = set()
        self._blanked: set[int] = set()
        self._untaken: set[int] = set()
        self._entries_added = self._last_entry = self._first_position = 0
        self.position = 0
        self.generation = "a"

    def forget(self) -> None:
        """Another process has written, or a transaction has failed: nothing remembered counts any
        more.
        """
        self._sessions.clear()
        for rows in (self._entries, self._chunks, self._waiting, self._events):
            rows.clear()
        for sessions in (self._erased, self._blanked, self._untaken):
            sessions.clear()
        self.position = max(
            self.fact("journal"),
            *(span or 0 for span in self._run("journal_spans").get),
        )
        # another process may have turned the journal over
        self.generation = "b" if self.fact("generation") else "a"

    def fact(self, name: str) -> int:
        return int(self._run("get_fact", name).get or 0)

    def state_fact(self, name: str, value: int) -> None:
        self._run("set_fact", name, str(value))

    def begin(self) -> None:
        """The beginning of a transaction: nothing was added in it yet."""
        self._entries_added = 0
        self._first_position = self.position + 1

    def added(self) -> tuple[Span | None, Span | None]:
        """The entries and the rows of the journal that this transaction adds, by their numbers.
        Nobody else adds any meanwhile, so they follow each other.
        """
        entries = chunks = None
        if self._entries_added:
            first = self._last_entry - self._entries_added + 1
            entries = (first, self._last_entry)
        if self.position >= self._first_position:
            chunks = (self._first_position, self.position)
        return entries, chunks

    def apply(self, commit: Commit) -> Outcome | Damaged:
        """Judges a commit, and does it if nothing stands in its way. A session that is damaged is
        an answer to those who write to it: the others of the batch go on.
        """
        try:
            for write in commit:
                refusal = self._judge(write)
                if refusal is not None:
                    return Refused(refusal[0], write.session, refusal[1])
        except Damaged as error:
            return error
        outcome = Written()
        for write in commit:
            outcome = self._effect(write)
        return outcome

    def flush(self) -> None:
        """Writes the gathered rows: few long calls cost less than many short ones."""
        if self._entries:
            self._run_many("add_entry", self._entries)
            self._last_entry = self._statements.connection.last_insert_rowid()
            self._entries_added += len(self._entries)
            self._entries.clear()
        if self._chunks:
            self._run_many(f"add_chunk_{self.generation}", self._chunks)
            self._chunks.clear()
        if self._events:
            rows = [
                (name, session.n, seq, message)
                for name, (session, seq, message) in self._events.items()
            ]
            self._run_many("add_event", rows)
            self._events.clear()
        self._flush_inbox()

    def finish(self) -> None:
        """The end of a transaction: all rows are written, and of what was erased none is left."""
        self.flush()
        if self._erased or self._blanked:
            self._take_out()
            owe_scrubbing(self._statements, self._erased, self._blanked)
            self._erased.clear()
            self._blanked.clear()

    def _take_out(self) -> None:
        """The outbox and the journal lose what erased sessions have there: once for all of them."""
        if self._untaken:
            # its rows go, and the position never falls
            self.state_fact("journal", self.position)
            take_out(self._statements, self._untaken)
            self._untaken.clear()

    def _flush_inbox(self) -> None:
        if self._waiting:
            self._run_many("add_waiting", self._waiting)
            self._waiting.clear()

    def trim(self) -> None:
        """Between transactions: remembers no more than it should. Within one, what is gathered
        depends on what is known.
        """
        # all at once: which of them come again is not known, and a row costs one look
        # in an index
        if len(self._sessions) > self.SESSIONS_MAX:
            self._sessions.clear()

    def session(self, id: str) -> NumberedSession | None:
        session = self._sessions.get(id)
        if session is None:
            rows = self._rows("session_by_id", id)
            if not rows:
                return None
            refuse_damaged_session(rows[0])
            session = self._sessions[id] = NumberedSession.of_row(rows[0])
        return session

    def _judge(self, write: Write) -> Judgement:
        """Looks up what the write asks about; a plain append asks nothing."""
        session = self.session(write.session)
        if type(write) is ChunkWrite:
            return judge(write, session)
        accepted = None if write.event is None else self.accepted(*write.event)
        if write.open is not None:
            exists, current = session is not None, self._current(write.open)
            return judge_opening(
                write, write.open, exists=exists, current=current, accepted=accepted
            )
        position = None
        if session is not None and write.position is not None:
            # asked only where a write depends on it: it reads the journal
            position = self._spoken(session)
        found = judge(write, session, accepted, position)
        if found is not None or session is None:
            return found
        # Nearly all writes take nothing; asked without a call, for it is asked of each.
        if not write.takes and write.pays is None and write.claim is None:
            return None
        reply = reply_of(write)
        waiting = self._inbox(session) if write.takes else ()
        debt = None
        if reply is not None:
            clock, tick, _ = self._clock()
            debt = self._rows("debt", session.n, reply, tick, clock)
        claim = debt[0][0] if debt else None
        return judge_taken(write, waiting, owed=bool(debt), claim=claim)

    def _spoken(self, session: NumberedSession) -> int:
        """The position of the last chunk of the running turn; the one it began at when there is
        none.
        """
        last: int = session.journal
        for row in self._spoken_rows(session):
            last = max(last, row[0])
        for row in self._chunks:
            if row[1] == session.n:
                last = max(last, row[0])
        return last

    def _current(self, opening: Opening) -> tuple[str, int] | None:
        """The session that the key has now, and its epoch."""
        if opening.key is None:
            return None
        rows = self._rows("session_by_key", opening.tenant, opening.key)
        if not rows:
            return None
        row = rows[0]
        if type(row[1]) is not str or type(row[4]) is not int:
            refuse_damaged_session(row)
        return row[1], row[4]

    def _inbox(self, session: NumberedSession) -> dict[bytes, int]:
        """What waits in this session, and at which seq."""
        self._flush_inbox()
        rows = fitted("inbox", self._rows("inbox", session.n))
        return {row[0]: row[2] for row in rows}

    def accepted(self, scope: str, event: str) -> Accepted | None:
        name = event_name(scope, event)
        gathered = self._events.get(name)
        if gathered is not None:
            session, seq, message = gathered
            return Accepted(session.id, seq, message)
        rows = fitted("accepted", self._rows("accepted", name))
        return Accepted(*rows[0]) if rows else None

    def find(self, commit: Commit) -> Outcome | None:
        """What a commit in doubt came to, if it was done after all: the ids of its drafts are its
        identity, and a chunk's message and index.
        """
        outcome = None
        for write in commit:
            if write.lay is not None:
                # another copy may have restored the same entries: its guards tell, not
                # their ids
                return None
            if write.drafts or write.chunk is not None:
                outcome = self._found(write)
                if outcome is None:
                    return None
        return outcome

    def _found(self, write: Write) -> Written | None:
        session = self.session(write.session)
        if session is None:
            return None
        first = started = position = 0
        for draft in write.drafts:
            rows = self._rows("entry_by_id", session.n, draft.id)
            if not rows:
                return None
            seq, turn = rows[0]
            first = first or seq
            if draft.turn == STARTING:
                started = started or turn
        if write.chunk is not None:
            position = self._position_of(session, write.chunk)
            if not position:
                return None
        return Written(first, started, position)

    def _position_of(self, session: NumberedSession, chunk: Chunk) -> int:
        """Where this chunk of the running turn is in the journal; 0 when it is not there."""
        for position, _turn, message, index, _body in self._spoken_rows(session):
            if (message, index) == (chunk.message, chunk.index):
                found: int = position
                return found
        return 0

    def _spoken_rows(self, session: NumberedSession) -> Rows:
        """The journal of the running turn."""
        after = session.journal
        return fitted("journal", self._rows("journal", after, session.n, FAR_FUTURE))

    def _effect(self, write: Write) -> Written:
        if type(write) is ChunkWrite:
            return Written(0, 0, self._say(self._sessions[write.session], write.chunk))
        if write.open is not None:
            session = self._open(write)
        else:
            session = self._sessions[write.session]
        first = session.head + 1
        turn = position = 0
        if advances(write):
            turn = self._advance(session, write)
        # before the drafts of this write, which stay: one of them says that it was
        # erased
        if write.erase is not None or write.blank:
            self._erase(session, write)
        if write.lay is not None:
            self.flush()  # what this batch has added before is there already
            self._take_out()  # and what is restored stays
            restore(self._statements, session.n, session.tenant, write.lay)
        for draft in write.drafts:
            self._add(session, draft)
        if write.event is not None:
            at = write.event_draft
            accepted = (session, first + at, write.drafts[at].id)
            self._events[event_name(*write.event)] = accepted
        # behind the drafts: a message that waits is one of them, or was stored before
        if write.admits or write.takes:
            self._shift_inbox(session, write, first)
        if shifts_outbox(write):
            self._shift_outbox(session, write)
        if write.chunk is not None:
            position = self._say(session, write.chunk)
        return Written(first if write.drafts else 0, turn, position)

    def _say(self, session: NumberedSession, chunk: Chunk) -> int:
        """Adds a chunk to the journal; its position there."""
        self.position += 1
        said = (chunk.message, chunk.index, chunk.body)
        self._chunks.append((self.position, session.n, session.turn, *said))
        return self.position

    def _add(self, session: NumberedSession, draft: Draft) -> None:
        session.head += 1
        turn = session.turn if draft.turn == STARTING else draft.turn
        body = draft.body
        if len(body) >= PART_BYTES_MIN:
            body = self._parted(session, body)
        kind, note, kept = packed(draft, body)
        self._entries.append(
            (session.n, session.head, kind, turn, draft.id, draft.at, note, kept)
        )
        # Not with every message: the row of the session would be written as often as
        # the log.
        if draft.at >= session.active_at + ACTIVE_STEP_MS and kind == "":
            session.active_at = draft.at
            self._run("save_activity", draft.at, session.n)

    def _erase(self, session: NumberedSession, write: Write) -> None:
        self.flush()  # what this batch has added before goes too
        if write.erase is not None:
            blank(
                self._statements,
                session.n,
                write.erase,
                forget_events=write.forget_events,
            )
            self._erased.add(session.n)
            self._untaken.add(session.n)
        if write.blank:
            blank_some(self._statements, session.n, write.blank)
            self._blanked.add(session.n)

    def _parted(self, session: NumberedSession, body: bytes) -> bytes:
        """The body with its large parts kept as blobs, each once for all sessions."""
        skeleton, parts = split(body)
        for name, part in parts.items():
            # the bytes are compared, and not only their names: a name is 63 bits of a
            # hash
            same = self._run("blob_is", part, name).get
            if same == 0:
                # another part has this name, against all odds: then this one is not cut
                # out
                return body
            if same is None:
                self._run("add_blob", name, part)
            self._run("add_blob_use", session.n, name)
        return skeleton

    def _open(self, write: Write) -> NumberedSession:
        opening = write.open
        assert opening is not None
        at = write.drafts[0].at
        session = NumberedSession.opened(
            write.session, opening, at, tenant=opening.tenant, key=opening.key
        )
        self._run("add_session", *ADDED(session))
        session.n = self._statements.connection.last_insert_rowid()
        self._sessions[write.session] = session
        return session

    def _advance(self, session: NumberedSession, write: Write) -> int:
        """The turn and the session's own state, kept here and saved; the number of the turn that
        it starts, or 0.
        """
        after = session.move(write, self.position)
        if after.left:
            session.lease = NO_LEASE
        if write.start is not None and after.turn is not None:
            session.holder = write.start.holder
        if after.leased_s is not None:
            session.lease = given(after.leased_s, self._clock())
        self._run("save_turn", *TURN(session), *session.lease, *STANDING(session))
        return session.fence if write.start is not None else 0

    def _shift_inbox(self, session: NumberedSession, write: Write, first: int) -> None:
        if write.takes:
            seqs = self._inbox(session)
            self._run_many(
                "remove_waiting",
                [(session.n, seqs[message]) for message in write.takes],
            )
        seq_of = {draft.id: first + index for index, draft in enumerate(write.drafts)}
        for waiting in write.admits:
            seq = waiting.seq or seq_of[waiting.message]
            lease = NO_LEASE
            if waiting.lease_s is not None:
                lease = given(waiting.lease_s, self._clock())
            who = (waiting.message, waiting.waiter, session.tenant)
            self._waiting.append((session.n, seq, *who, *lease))

    def _shift_outbox(self, session: NumberedSession, write: Write) -> None:
        for owing in write.owes:
            last = write.drafts[-1]
            debt = (owing.id, last.turn, address(owing.reply_to), last.at)
            self._run("add_debt", session.n, *debt, session.tenant, *NO_CLAIM)
        if write.claim is not None:
            clock, tick, _ = self._clock()
            until = tick + write.claim.seconds
            claim = (write.claim.token, until, clock)
            self._run("claim_debt", *claim, session.n, write.claim.id)
        if write.pays is not None:
            self._run("remove_debt", session.n, write.pays)
