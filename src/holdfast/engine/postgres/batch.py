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
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import astuple

from holdfast.domain.accepted_events import event_name
from holdfast.domain.entry import STARTING
from holdfast.engine.blobs import PART_BYTES_MIN, split
from holdfast.engine.guards import (
    Judgement,
    judge,
    judge_opening,
    judge_taken,
    reply_of,
)
from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.postgres.restore_state import restore
from holdfast.engine.postgres.server.text_as_bytes import (
    name,
    raw,
    raw_or_none,
    text,
    text_or_none,
)
from holdfast.engine.protocol import (
    ACTIVE_STEP_MS,
    Accepted,
    Commit,
    Commits,
    Outcome,
    Refused,
    Write,
    Written,
    writes_in,
)
from holdfast.engine.session_row import SessionRow, advances, shifts_outbox

COLUMNS = (
    "tenant",
    "id",
    "key",
    "epoch",
    "ended",
    "head",
    "fence",
    "turn",
    "holder",
    "position",
    "journal",
    "base",
    "origin",
    "opened_at",
    "active_at",
    "last_at",
    "stamp",
    "parent",
)
"""The first columns of the view `session_state`."""


class StampedSession(SessionRow):
    """A session of a server, with the stamp of the transaction that wrote it last. `lease_s` is how
    much is to be left of its lease from the end of the batch on, if that changes; `was_unread` what
    `unread` is in the database.
    """

    position: int = 0
    stamp: int = 0
    lease_s: float | None = None
    unread: bool = True
    was_unread: bool = True

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> "StampedSession":
        """From a row of the view `session_state`; what stands behind its columns is left out."""
        return cls(*_fields_of(row))

    def decoded(self) -> "StampedSession":
        """The session with its texts as they were given, for a reader."""
        self.tenant = text(self.tenant)
        self.key = text_or_none(self.key)
        self.holder = text_or_none(self.holder)
        return self

    @property
    def listed(self) -> Row:
        """Its row in `activity`."""
        state = 0 if self.turn is None else 1
        if self.ended:
            state = self.ended + 1
        return self.tenant, self.id, self.key, state, self.active_at, self.unread


_fields_of = itemgetter(
    *map(COLUMNS.index, StampedSession.__struct_fields__[: len(COLUMNS)])
)
"""The values of a row in the order of the first fields."""

SessionKey = tuple[bytes, bytes]
"""A tenant and a key."""
Reply = tuple[str, bytes]
"""A session and the id of a reply that it owes."""


class Batch(msgspec.Struct):
    """What was read for one batch, and what it comes to. Net effects: a row that comes and goes is
    not there.
    """

    stamp: int
    # Read, for the guards; kept up to date as commits are applied.
    events: dict[bytes, Accepted] = {}
    inboxes: dict[str, dict[bytes, int]] = {}
    debts: set[Reply] = set()
    claims: dict[Reply, bytes | None] = {}
    bindings: dict[SessionKey, tuple[str, int]] = {}
    elsewhere: set[str] = set()
    digests: dict[tuple[str, int], bytes] = {}
    # Gathered.
    opened: dict[str, StampedSession] = {}
    moved: dict[str, StampedSession] = {}
    listed: dict[str, StampedSession] = {}
    turned: set[str] = set()
    entries: Rows = []
    chunks: Rows = []
    accepted: Rows = []
    waiting: dict[tuple[str, int], Row | None] = {}
    owed: dict[Reply, Row | None] = {}
    claimed: dict[Reply, Row] = {}
    bound: dict[SessionKey, Row] = {}
    blobs: Rows = []
    swept: dict[str, Row] = {}
    parted: bool = False
    restored: bool = False

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
        self.sessions: dict[str, StampedSession] = {}
        self.batch = Batch(0)

    def begin(self, stamp: int) -> Batch:
        self.batch = Batch(stamp)
        return self.batch

    def knows(self, commits: Commits) -> bool:
        """Whether all these commits need is remembered: no row but those of sessions."""
        for write in writes_in(commits):
            if (
                write.session not in self.sessions
                or write.open is not None
                or write.takes
                or write.pays is not None
                or write.claim is not None
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
            session = StampedSession.of_row(row)
            session.unread = session.was_unread = row[-1]
            self.sessions[session.id] = session

    def forget(self, commits: Iterable[Commit]) -> None:
        """What was remembered of these sessions counts no more."""
        for write in writes_in(commits):
            self.sessions.pop(write.session, None)

    def settle(self) -> None:
        """The batch was written: its sessions carry its stamp."""
        for row in (*self.batch.moved.values(), *self.batch.opened.values()):
            # what is remembered is now what the server has
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
            # another tenant may have it: ids are unique in the whole store
            exists = row is not None or write.session in batch.elsewhere
            current = None
            if opening.key is not None:
                current = batch.bindings.get(
                    (name(opening.tenant, "tenant"), name(opening.key, "key"))
                )
            return judge_opening(
                write, opening, exists=exists, current=current, accepted=accepted
            )
        position = row.position if row is not None else None
        found = judge(write, row, accepted, position)
        if found is not None or row is None:
            return found
        # Nearly all writes take nothing; asked without a call, for it is asked of each.
        if not write.takes and write.pays is None and write.claim is None:
            return None
        reply = reply_of(write)
        place = (row.id, reply or b"")
        return judge_taken(
            write,
            self._inbox(row),
            owed=place in batch.debts,
            claim=batch.claims.get(place),
        )

    def _inbox(self, row: StampedSession) -> dict[bytes, int]:
        """What waits in this session, and at which seq."""
        return self.batch.inboxes.setdefault(row.id, {})

    def _effect(self, write: Write) -> Written:
        batch = self.batch
        if write.open is not None:
            row = self._open(write)
        else:
            row = self.sessions[write.session]
            if row.id not in batch.opened:
                # its stamp is compared when the batch is written, whatever the write
                # does to it
                batch.moved[row.id] = row
        first = row.head + 1
        turn = position = 0
        if advances(write):
            turn = self._advance(row, write)
        if write.forget_events:
            self._forget_events(row.id)
        if write.lay is not None:
            restore(batch, row, write.lay)
        for draft in write.drafts:
            self._add(row, draft)
        if write.event is not None:
            self._accept(row, write, first)
        if write.admits or write.takes:
            self._shift_inbox(row, write, first)
        if shifts_outbox(write):
            self._shift_outbox(row, write)
        if write.chunk is not None:
            row.position += 1
            position = row.position
            chunk = write.chunk
            said = (chunk.message, chunk.index, chunk.body)
            batch.chunks.append((row.tenant, row.id, position, row.turn or 0, *said))
        return Written(first if write.drafts else 0, turn, position)

    def _forget_events(self, session: str) -> None:
        events = self.batch.events
        for known_as, event in list(events.items()):
            if event.session == session:
                del events[known_as]

    def _add(self, row: StampedSession, draft: Any) -> None:
        row.head += 1
        turn = row.turn if draft.turn == STARTING else draft.turn
        body = draft.body
        if len(body) >= PART_BYTES_MIN:
            body = self._parted(row, body)
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
        # not with every message: lists would be written as often as the log
        if draft.at >= row.active_at + ACTIVE_STEP_MS and draft.kind == "message":
            row.active_at = draft.at
            self.batch.listed[row.id] = row
        if not row.unread:
            row.unread = True
            self.batch.listed[row.id] = row

    def _parted(self, row: StampedSession, body: bytes) -> bytes:
        """The body with its large parts kept as blobs, each once for this session."""
        skeleton, parts = split(body)
        stored = self.batch.digests
        added: Rows = []
        for part_name, part in parts.items():
            digest = hashlib.sha256(part).digest()
            known = stored.get((row.id, part_name))
            if known is None:
                added.append((row.tenant, row.id, part_name, digest, part))
            elif known != digest:
                # another part has this name, against all odds: then none is cut out
                return body
        for _, id, part_name, digest, _ in added:
            stored[id, part_name] = digest
        self.batch.blobs += added
        return skeleton

    def _open(self, write: Write) -> StampedSession:
        opening = write.open
        assert opening is not None
        at = write.drafts[0].at
        tenant = name(opening.tenant, "tenant")
        key = None if opening.key is None else name(opening.key, "key")
        row = StampedSession.opened(
            write.session,
            opening,
            at,
            tenant=tenant,
            key=key,
            stamp=self.batch.stamp,
        )
        self.sessions[row.id] = row
        self.batch.opened[row.id] = row
        self.batch.listed[row.id] = row
        if key is not None:
            self.batch.bindings[tenant, key] = (row.id, opening.epoch)
            self.batch.bound[tenant, key] = (tenant, key, row.id, opening.epoch)
        return row

    def _advance(self, row: StampedSession, write: Write) -> int:
        """The turn and the session's own state; the number of the turn that it starts, or 0."""
        batch = self.batch
        batch.turned.add(row.id)
        if write.start or write.finish or write.close or write.lay:
            # whether a turn runs in it, and when it was active, shows in lists
            batch.listed[row.id] = row
        after = row.move(write, row.position)
        if after.left:
            row.lease_s = None
            # what the turn said is not needed any more
            batch.swept[row.id] = (row.tenant, row.id, row.position)
        if after.leased_s is not None:
            row.lease_s = after.leased_s
        if write.start is None:
            return 0
        if after.turn is not None:
            row.holder = raw(write.start.holder)
        return row.fence

    def _accept(self, row: StampedSession, write: Write, first: int) -> None:
        assert write.event is not None
        seq, message = first + write.event_draft, write.drafts[write.event_draft].id
        known_as = event_name(*write.event)
        self.batch.events[known_as] = Accepted(row.id, seq, message)
        self.batch.accepted.append((known_as, row.id, seq, message))

    def _shift_inbox(self, row: StampedSession, write: Write, first: int) -> None:
        inbox, waiting = self._inbox(row), self.batch.waiting
        for message in write.takes:
            waiting[row.id, inbox.pop(message)] = None
        seq_of = {draft.id: first + index for index, draft in enumerate(write.drafts)}
        for admitted in write.admits:
            seq = admitted.seq or seq_of[admitted.message]
            inbox[admitted.message] = seq
            waiter = raw_or_none(admitted.waiter)
            who = (admitted.message, waiter, admitted.lease_s)
            waiting[row.id, seq] = (row.tenant, row.id, seq, *who)

    def _shift_outbox(self, row: StampedSession, write: Write) -> None:
        if write.pays is not None:
            self.batch.debts.discard((row.id, write.pays))
            self.batch.owed[row.id, write.pays] = None
        if write.claim is not None:
            claim = write.claim
            reply = (row.id, claim.id)
            self.batch.claims[reply] = claim.token if claim.seconds > 0 else None
            self.batch.claimed[reply] = (row.tenant, row.id, *astuple(claim))
        for owing in write.owes:
            last = write.drafts[-1]
            reply = (row.id, owing.id)
            self.batch.debts.add(reply)
            debt = (owing.id, last.turn or 0, raw(owing.reply_to), last.at)
            self.batch.owed[reply] = (row.tenant, row.id, *debt)
