"""The state of a batch: what guards are judged by, and what the batch comes to.

A batch is judged in memory. What guards need is given to it first: sessions, either loaded
and locked or remembered from the last time, and for the batch alone inboxes, events, debts,
bindings and blobs. A commit is judged whole before any of its effects happens: a refused one leaves
no trace. Effects are gathered as rows, those of all commits together; `batch_sql` turns them into
the arrays that a statement takes.

What is remembered may have been changed by another machine meanwhile. Every row of a session
carries the stamp of the transaction that wrote it last, and the batch is written only if the stamps
are still the remembered ones.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.domain.accepted_events import event_name
from holdfast.domain.entry import STARTING
from holdfast.engine.blobs import PART_BYTES_MIN, split
from holdfast.engine.guards import ERASED, Judgement, judge, judge_opening, reply_of
from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.postgres.restore_state import restore
from holdfast.engine.postgres.server.text_as_bytes import name, raw, text
from holdfast.engine.protocol import (
    ACTIVE_STEP_MS,
    Accepted,
    Commit,
    Commits,
    Outcome,
    Refused,
    SessionState,
    Write,
    Written,
)
from holdfast.engine.session_row import advance, advances


class SessionRow:
    """A session as it is remembered; changed in place as commits are applied. `lease_s` is
    how much is to be left of its lease from the end of the batch on, if that changes; `was_unread`
    what `unread` is in the database.
    """

    __slots__ = (
        "active_at",
        "base",
        "ended",
        "epoch",
        "fence",
        "head",
        "holder",
        "id",
        "journal",
        "key",
        "last_at",
        "lease_s",
        "opened_at",
        "origin",
        "parent",
        "position",
        "stamp",
        "tenant",
        "turn",
        "unread",
        "was_unread",
    )

    def __init__(self, row: Sequence[Any], *, unread: bool = True) -> None:
        (
            self.tenant,
            self.id,
            self.key,
            self.epoch,
            self.ended,
            self.head,
            self.fence,
            self.turn,
            self.holder,
            self.position,
            self.journal,
            self.base,
            self.origin,
            self.opened_at,
            self.active_at,
            self.last_at,
            self.stamp,
            self.parent,
        ) = row
        self.lease_s: float | None = None
        self.unread = self.was_unread = unread

    @property
    def listed(self) -> Row:
        """Its row in `activity`."""
        state = self.ended + 1 if self.ended else 0 if self.turn is None else 1
        return self.tenant, self.id, self.key, state, self.active_at, self.unread

    def state(
        self, lease_s: float | None, mark: float | None, lease_left: float | None
    ) -> SessionState:
        running = self.turn is not None
        return SessionState(
            id=self.id,
            tenant=text(self.tenant),
            key=None if self.key is None else text(self.key),
            epoch=self.epoch,
            ended=bool(self.ended),
            head=self.head,
            fence=self.fence,
            turn=self.turn,
            holder=None if self.holder is None else text(self.holder),
            lease_left_s=lease_left or 0.0 if running else None,
            opened_at=self.opened_at,
            active_at=self.active_at,
            last_at=self.last_at,
            journal=self.journal,
            base=self.base,
            origin=self.origin,
            erased=self.ended == ERASED,
            lease_s=lease_s if running else None,
            lease_mark=mark if running else None,
            parent=self.parent,
        )


class Batch:
    """What was read for one batch, and what it comes to. Net effects: a row that comes and goes is
    not there.
    """

    def __init__(self, stamp: int) -> None:
        self.stamp = stamp
        # Read, for the guards; kept up to date as commits are applied.
        self.events: dict[bytes, Accepted] = {}
        self.inboxes: dict[str, dict[bytes, int]] = {}
        self.debts: set[tuple[str, bytes]] = set()
        self.claims: dict[tuple[str, bytes], bytes | None] = {}
        self.bindings: dict[tuple[bytes, bytes], tuple[str, int]] = {}
        self.elsewhere: set[str] = set()
        self.digests: dict[tuple[str, int], bytes] = {}
        # Gathered.
        self.opened: dict[str, SessionRow] = {}
        self.moved: dict[str, SessionRow] = {}
        self.listed: dict[str, SessionRow] = {}
        self.turned: set[str] = set()
        self.entries: Rows = []
        self.chunks: Rows = []
        self.accepted: Rows = []
        self.waiting: dict[tuple[str, int], Row | None] = {}
        self.owed: dict[tuple[str, bytes], Row | None] = {}
        self.claimed: dict[tuple[str, bytes], Row] = {}
        self.bound: dict[tuple[bytes, bytes], tuple[str, int]] = {}
        self.blobs: Rows = []
        self.swept: dict[str, tuple[bytes, int]] = {}
        self.parted = False
        self.restored = False

    @property
    def is_plain(self) -> bool:
        """Whether it only adds entries, or only chunks, to sessions that are there."""
        return not (
            self.opened
            or self.turned
            or self.accepted
            or self.waiting
            or self.owed
            or self.claimed
            or self.blobs
            or self.parted
        ) and bool(self.entries) != bool(self.chunks)


class BatchState:
    """Judges and applies commits in memory. It remembers sessions from batch to batch, the rest
    within one.
    """

    SESSIONS_MAX = 20_000

    def __init__(self) -> None:
        self.sessions: dict[str, SessionRow] = {}
        self.batch = Batch(0)

    def begin(self, stamp: int) -> Batch:
        self.batch = Batch(stamp)
        return self.batch

    def knows(self, commits: Commits) -> bool:
        """Whether all these commits need is remembered: no row but those of sessions."""
        for commit in commits:
            for write in commit:
                if (
                    write.session not in self.sessions
                    or write.open is not None
                    or write.takes
                    or reply_of(write) is not None
                    or write.erase is not None
                    or write.blank
                    or write.forget_events
                    or write.lay is not None
                ):
                    return False
                for draft in write.drafts:
                    if len(draft.body) >= PART_BYTES_MIN:
                        return False
        return True

    def learn(self, rows: Iterable[Sequence[Any]]) -> None:
        """Sessions as they are now."""
        for row in rows:
            self.sessions[row[1]] = SessionRow(row[:-1], unread=row[-1])

    def forget(self, commits: Iterable[Commit]) -> None:
        """What was remembered of these sessions counts no more."""
        for commit in commits:
            for write in commit:
                self.sessions.pop(write.session, None)

    def settle(self) -> None:
        """The batch was written: its sessions carry its stamp."""
        for row in (*self.batch.moved.values(), *self.batch.opened.values()):
            row.stamp = self.batch.stamp
            row.lease_s = None
            row.was_unread = row.unread
        if len(self.sessions) > self.SESSIONS_MAX:
            self.sessions.clear()

    def apply(self, commit: Commit) -> Outcome:
        """Judges a commit, and gathers its effects if nothing stands in its way."""
        for write in commit:
            refusal = self._judge(write)
            if refusal is not None:
                return Refused(refusal[0], write.session, refusal[1])
        outcome = Written()
        for write in commit:
            outcome = self._effect(write)
        return outcome

    def _judge(self, write: Write) -> Judgement:
        row, batch = self.sessions.get(write.session), self.batch
        accepted = (
            None if write.event is None else batch.events.get(event_name(*write.event))
        )
        opening = write.open
        if opening is not None:
            exists = row is not None or write.session in batch.elsewhere
            current = None
            if opening.key is not None:
                current = batch.bindings.get(
                    (name(opening.tenant, "tenant"), name(opening.key, "key"))
                )
            return judge_opening(
                write, opening, exists=exists, current=current, accepted=accepted
            )
        reply = reply_of(write)
        if row is None or not (write.takes or reply is not None):
            return judge(
                write, row, accepted, position=row.position if row is not None else None
            )
        reply_key = (row.id, reply or b"")
        owed, claim = reply_key in batch.debts, batch.claims.get(reply_key)
        waiting, position = self._inbox(row), row.position
        return judge(
            write, row, accepted, waiting, owed=owed, claim=claim, position=position
        )

    def _inbox(self, row: SessionRow) -> dict[bytes, int]:
        """What waits in this session, and at which seq."""
        return self.batch.inboxes.setdefault(row.id, {})

    def _effect(self, write: Write) -> Written:
        batch = self.batch
        row = (
            self._open(write)
            if write.open is not None
            else self.sessions[write.session]
        )
        if write.open is None and row.id not in batch.opened:
            batch.moved[row.id] = row
        first = row.head + 1
        if advances(write):
            self._advance(row, write)
        if write.forget_events:
            batch.events = {
                name: event
                for name, event in batch.events.items()
                if event.session != row.id
            }
        if write.lay is not None:
            restore(batch, row, write.lay)
        for draft in write.drafts:
            self._add(row, draft)
        if write.event is not None:
            self._accept(row, write, first)
        if write.admits or write.takes:
            self._shift_inbox(row, write, first)
        if write.owes or reply_of(write) is not None:
            self._shift_outbox(row, write)
        if write.chunk is not None:
            row.position += 1
            chunk = write.chunk
            chunk_row = (
                row.tenant,
                row.id,
                row.position,
                row.turn or 0,
                chunk.message,
                chunk.index,
                chunk.body,
            )
            batch.chunks.append(chunk_row)
        return Written(
            first if write.drafts else 0,
            row.fence if write.start is not None else 0,
            row.position if write.chunk is not None else 0,
        )

    def _add(self, row: SessionRow, draft: Any) -> None:
        row.head += 1
        turn = row.turn if draft.turn == STARTING else draft.turn
        body = (
            draft.body
            if len(draft.body) < PART_BYTES_MIN
            else self._parted(row, draft.body)
        )
        parted = body is not draft.body
        self.batch.parted |= parted
        self.batch.entries.append(
            (
                row.tenant,
                row.id,
                row.head,
                draft.kind,
                turn or 0,
                draft.id,
                draft.at,
                draft.note,
                body,
                parted,
            )
        )
        row.last_at = draft.at
        if draft.at >= row.active_at + ACTIVE_STEP_MS and draft.kind == "message":
            row.active_at = draft.at
            self.batch.listed[row.id] = row
        if not row.unread:
            row.unread = True
            self.batch.listed[row.id] = row

    def _parted(self, row: SessionRow, body: bytes) -> bytes:
        """The body with its large parts kept as blobs, each once for this session."""
        skeleton, parts = split(body)
        digests = {name: hashlib.sha256(part).digest() for name, part in parts.items()}
        stored = self.batch.digests
        if any(
            stored.get((row.id, name), digest) != digest
            for name, digest in digests.items()
        ):
            return body  # another part has this name, against all odds: then none is cut out
        for part_name, part in parts.items():
            if (row.id, part_name) not in stored:
                stored[row.id, part_name] = digests[part_name]
                self.batch.blobs.append(
                    (row.tenant, row.id, part_name, digests[part_name], part)
                )
        return skeleton if parts else body

    def _open(self, write: Write) -> SessionRow:
        opening = write.open
        assert opening is not None
        at = write.drafts[0].at
        tenant = name(opening.tenant, "tenant")
        key = None if opening.key is None else name(opening.key, "key")
        row = SessionRow(
            (
                tenant,
                write.session,
                key,
                opening.epoch,
                0,
                opening.head,
                opening.fence,
                None,
                None,
                0,
                0,
                0,
                opening.head,
                at,
                at,
                at,
                self.batch.stamp,
                opening.parent,
            )
        )
        self.sessions[row.id] = row
        self.batch.opened[row.id] = row
        self.batch.listed[row.id] = row
        if key is not None:
            binding = (row.id, opening.epoch)
            self.batch.bindings[tenant, key] = binding
            self.batch.bound[tenant, key] = binding
        return row

    def _advance(self, row: SessionRow, write: Write) -> None:
        """The turn and the session's own state."""
        batch = self.batch
        batch.turned.add(row.id)
        if (
            write.start is not None
            or write.finish
            or write.close
            or write.lay is not None
        ):
            # whether a turn runs in it, and when it was active, shows in lists
            batch.listed[row.id] = row
        after = advance(row, write, row.position)
        row.ended, row.turn, row.fence = after.ended, after.turn, after.fence
        row.base, row.journal, row.active_at = (
            after.base,
            after.journal,
            after.active_at,
        )
        if after.left:
            row.holder = row.lease_s = None
            # what the turn said is not needed any more
            batch.swept[row.id] = (row.tenant, row.position)
        if write.start is not None and after.turn is not None:
            row.holder = raw(write.start.holder)
        if after.leased_s is not None:
            row.lease_s = after.leased_s

    def _accept(self, row: SessionRow, write: Write, first: int) -> None:
        assert write.event is not None
        seq, message = first + write.event_draft, write.drafts[write.event_draft].id
        known_as = event_name(*write.event)
        self.batch.events[known_as] = Accepted(row.id, seq, message)
        self.batch.accepted.append((known_as, row.id, seq, message))

    def _shift_inbox(self, row: SessionRow, write: Write, first: int) -> None:
        inbox, waiting = self._inbox(row), self.batch.waiting
        for message in write.takes:
            waiting[row.id, inbox.pop(message)] = None
        seq_of = {draft.id: first + index for index, draft in enumerate(write.drafts)}
        for admitted in write.admits:
            seq = admitted.seq or seq_of[admitted.message]
            inbox[admitted.message] = seq
            waiter = None if admitted.waiter is None else raw(admitted.waiter)
            waiting[row.id, seq] = (
                row.tenant,
                row.id,
                seq,
                admitted.message,
                waiter,
                admitted.lease_s,
            )

    def _shift_outbox(self, row: SessionRow, write: Write) -> None:
        if write.pays is not None:
            self.batch.debts.discard((row.id, write.pays))
            self.batch.owed[row.id, write.pays] = None
        if write.claim is not None:
            claim = write.claim
            self.batch.claims[row.id, claim.id] = (
                claim.token if claim.seconds > 0 else None
            )
            self.batch.claimed[row.id, claim.id] = (
                row.tenant,
                row.id,
                claim.id,
                claim.token,
                claim.seconds,
            )
        for owing in write.owes:
            last = write.drafts[-1]
            self.batch.debts.add((row.id, owing.id))
            debt = (
                row.tenant,
                row.id,
                owing.id,
                last.turn or 0,
                raw(owing.reply_to),
                last.at,
            )
            self.batch.owed[row.id, owing.id] = debt
