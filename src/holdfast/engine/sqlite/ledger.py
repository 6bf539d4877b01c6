"""The ledger: what guards are judged by, inside the transaction.

It remembers the sessions it has met (head, fence, running turn), so that a plain append asks SQLite nothing; the engine
empties it when another process has written or a transaction has failed. A commit is judged whole before any of its
effects happens: a refused one leaves no trace.
"""

from collections.abc import Callable
from typing import Any

import apsw

from holdfast.domain.entry import STARTING
from holdfast.engine.protocol import Accepted, Commit, Outcome, Refusal, Refused, SessionState, Write, Written
from holdfast.engine.sqlite.queries import QUERIES

FAR_FUTURE = 1 << 62


class Known:
    """A session as the ledger remembers it; changed in place as commits are applied."""

    __slots__ = (
        "active_at", "base", "ended", "epoch", "fence", "head", "holder", "id", "journal", "key", "last_at",
        "lease_until", "n", "opened_at", "origin", "tenant", "turn",
    )  # fmt: skip

    def __init__(self, row: tuple[Any, ...]) -> None:
        (
            self.n, self.id, self.tenant, self.key, self.epoch, self.ended, self.fence, self.turn, self.holder,
            self.lease_until, self.journal, self.base, self.origin, self.opened_at, self.active_at, self.head,
            self.last_at,
        ) = row  # fmt: skip

    def state(self, tick: float) -> SessionState:
        left = None if self.turn is None else (self.lease_until or 0.0) - tick
        return SessionState(
            id=self.id, tenant=self.tenant, key=self.key, epoch=self.epoch, ended=bool(self.ended), head=self.head,
            fence=self.fence, turn=self.turn, holder=self.holder, lease_left_s=left, opened_at=self.opened_at,
            active_at=self.active_at, last_at=self.last_at or self.opened_at, journal=self.journal, base=self.base,
            origin=self.origin,
        )  # fmt: skip


class Ledger:
    """Judges and applies commits on one connection. Rows of the log and the journal are gathered, and written by
    `flush`.
    """

    SESSIONS_MAX = 20_000

    def __init__(self, connection: apsw.Connection, tick: Callable[[], float]) -> None:
        self._run = connection.execute
        self._run_many = connection.executemany
        self._tick = tick
        self._connection = connection
        self._sessions: dict[str, Known] = {}
        self._entries: list[tuple[Any, ...]] = []
        self._chunks: list[tuple[Any, ...]] = []
        self.position = 0
        self.generation = "a"

    def forget(self) -> None:
        """Another process has written, or a transaction has failed: nothing remembered counts any more."""
        self._sessions.clear()
        self._entries.clear()
        self._chunks.clear()
        self.position = max(self.fact("journal"), *(span or 0 for span in self._run(QUERIES["journal_spans"]).get))
        self.generation = "b" if self.fact("generation") else "a"

    def fact(self, name: str) -> int:
        return int(self._run(QUERIES["get_fact"], (name,)).get or 0)

    def state_fact(self, name: str, value: int) -> None:
        self._run(QUERIES["set_fact"], (name, str(value)))

    def apply(self, commit: Commit) -> Outcome:
        """Judges a commit, and does it if nothing stands in its way."""
        for write in commit:
            why, detail = self._judge(write)
            if why is not None:
                return Refused(why, write.session, detail)
        outcome = Written()
        for write in commit:
            outcome = self._effect(write)
        return outcome

    def flush(self) -> None:
        """Writes the gathered rows: few long calls cost less than many short ones."""
        if self._entries:
            self._run_many(QUERIES["add_entry"], self._entries)
            self._entries.clear()
        if self._chunks:
            self._run_many(QUERIES["add_chunk_a" if self.generation == "a" else "add_chunk_b"], self._chunks)
            self._chunks.clear()

    def trim(self) -> None:
        """Between transactions: remembers no more than it should. Within one, what is gathered depends on what is
        known.
        """
        if len(self._sessions) > self.SESSIONS_MAX:
            self._sessions.clear()

    def session(self, id: str) -> Known | None:
        known = self._sessions.get(id)
        if known is None:
            row = self._run(QUERIES["session_by_id"], (id,)).fetchone()
            if row is None:
                return None
            known = self._sessions[id] = Known(row)
        return known

    def _judge(self, write: Write) -> tuple[Refusal | None, Any]:
        if write.open is not None:
            return self._judge_opening(write)
        known = self.session(write.session)
        if known is None:
            return "missing", None
        if write.event is not None:
            accepted = self.accepted(*write.event)
            if accepted is not None:
                return "accepted", accepted
        if known.ended and not write.ended_too:
            return "ended", None
        if write.fence is not None and (known.turn is None or known.fence != write.fence):
            return "superseded", None
        if write.idle and known.turn is not None:
            return "busy", known.turn
        if write.head is not None and known.head != write.head:
            return "moved", known.head
        if write.takes and not set(write.takes) <= {row[0] for row in self._run(QUERIES["inbox"], (known.n,))}:
            return "taken", None
        if write.pays is not None and self._run(QUERIES["debt"], (known.n, write.pays)).fetchone() is None:
            return "taken", None
        return None, None

    def _judge_opening(self, write: Write) -> tuple[Refusal | None, Any]:
        opening = write.open
        assert opening is not None
        if write.event is not None:
            accepted = self.accepted(*write.event)
            if accepted is not None:
                return "accepted", accepted
        if self.session(write.session) is not None:
            return "bound", write.session
        if opening.key is not None:
            row = self._run(QUERIES["session_by_key"], (opening.tenant, opening.key)).fetchone()
            if (row[4] if row else 0) + 1 != opening.epoch:
                return "bound", row[1] if row else None
        if write.fence is not None:
            return "superseded", None
        if write.head is not None and write.head != opening.head:
            return "moved", opening.head
        return ("taken", None) if write.takes else (None, None)

    def accepted(self, scope: str, event: str) -> Accepted | None:
        row = self._run(QUERIES["accepted"], (scope, event)).fetchone()
        return Accepted(*row) if row else None

    def find(self, commit: Commit) -> Outcome | None:
        """What a commit in doubt came to, if it is in the log after all: its drafts' ids are its identity."""
        drafts = [(write.session, write.drafts[0]) for write in commit if write.drafts]
        outcome = None
        for id, draft in drafts:
            known = self.session(id)
            found = known and self._run(QUERIES["entry_by_id"], (known.n, draft.id)).fetchone()
            if not found:
                return None
            outcome = Written(found[0], found[1] or 0, 0)
        return outcome

    def _effect(self, write: Write) -> Written:
        known = self._open(write) if write.open is not None else self._sessions[write.session]
        first = known.head + 1
        if (
            write.start
            or write.seize
            or write.finish
            or write.close
            or write.base
            or write.unbase
            or write.renew_s is not None
        ):
            self._move(known, write)
        for draft in write.drafts:
            known.head += 1
            turn = known.turn if draft.turn == STARTING else draft.turn
            self._entries.append(
                (known.n, known.head, draft.kind, turn, draft.id, draft.at, draft.note or None, draft.body or None)
            )
        if write.event is not None:
            at = write.event_draft
            self._run(QUERIES["add_event"], (*write.event, known.n, first + at, write.drafts[at].id))
        if write.admits or write.takes:
            self._shift_inbox(known, write, first)
        if write.owes:
            last = write.drafts[-1]
            rows = [(known.n, owing.id, last.turn, owing.reply_to, last.at) for owing in write.owes]
            self._run_many(QUERIES["add_debt"], rows)
        if write.pays is not None:
            self._run(QUERIES["remove_debt"], (known.n, write.pays))
        if write.chunk is not None:
            self.position += 1
            chunk = write.chunk
            self._chunks.append((self.position, known.n, known.turn, chunk.message, chunk.index, chunk.body))
        return Written(
            first if write.drafts else 0,
            known.fence if write.start is not None else 0,
            self.position if write.chunk is not None else 0,
        )

    def _open(self, write: Write) -> Known:
        opening = write.open
        assert opening is not None
        at = write.drafts[0].at
        names = (write.session, opening.tenant, opening.key, opening.epoch)
        self._run(QUERIES["add_session"], (*names, opening.fence, opening.head, at, at))
        n = self._connection.last_insert_rowid()
        idle = (0, opening.fence, None, None, None, 0, 0, opening.head)
        known = Known((n, *names, *idle, at, at, opening.head, at))
        self._sessions[write.session] = known
        return known

    def _move(self, known: Known, write: Write) -> None:
        """The turn and the session's own state: start, seize, renew, finish, close, base."""
        if write.finish:
            known.turn = known.holder = known.lease_until = None
        if write.seize:
            known.fence += 1
        if write.start is not None:
            known.fence += 1
            known.turn, known.holder, known.journal = known.fence, write.start.holder, self.position
            known.lease_until = self._tick() + write.start.lease_s
            known.active_at = max(known.active_at, write.drafts[0].at if write.drafts else 0)
        if write.renew_s is not None and known.turn is not None:
            known.lease_until = self._tick() + write.renew_s
        if write.close:
            known.ended = 1
            known.turn = known.holder = known.lease_until = None
        if write.unbase:
            known.base = 0
        if write.base:
            known.base = known.head + 1
        turn = (known.turn, known.holder, known.lease_until)
        row = (known.ended, known.fence, *turn, known.journal, known.base, known.active_at, known.n)
        self._run(QUERIES["save_turn"], row)

    def _shift_inbox(self, known: Known, write: Write, first: int) -> None:
        if write.takes:
            seqs = {row[0]: row[2] for row in self._run(QUERIES["inbox"], (known.n,))}
            self._run_many(QUERIES["remove_waiting"], [(known.n, seqs[message]) for message in write.takes])
        seq_of = {draft.id: first + index for index, draft in enumerate(write.drafts)}
        for waiting in write.admits:
            seq = waiting.seq or seq_of[waiting.message]
            self._run(QUERIES["add_waiting"], (known.n, seq, waiting.message, waiting.waiter))
