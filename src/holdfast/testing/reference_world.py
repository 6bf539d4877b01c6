"""All that a store holds, as one immutable value, and what a commit makes of it.

A commit is a function from a world to the next one or to a refusal, so "all or nothing" needs no
undoing: a refused commit's world is dropped. This is written apart from the engines on purpose,
also where they share code: it is what they are compared with.
"""

from typing import Any

import msgspec

from holdfast.domain.accepted_events import event_name
from holdfast.domain.entry import STARTING, Entry
from holdfast.domain.search.query import SearchScope
from holdfast.engine.protocol import (
    ACTIVE_STEP_MS,
    Accepted,
    Commit,
    JournalRow,
    Laid,
    Outcome,
    OwedReply,
    Refused,
    State,
    Waiting,
    Weight,
    Write,
    Written,
)


class ReferenceSession(msgspec.Struct, frozen=True):
    """All there is to a session. The inbox is by seq: a message that is given back stands where it
    stood.
    """

    id: str
    tenant: str
    key: str | None
    epoch: int
    opened_at: int
    active_at: int
    ended: bool = False
    erased: bool = False
    fence: int = 0
    turn: int | None = None
    holder: str | None = None
    lease_until: float = 0.0
    lease_s: float = 0.0
    journal: int = 0
    base: int = 0
    origin: int = 0
    parent: str | None = None
    log: tuple[Entry, ...] = ()
    inbox: dict[int, Waiting] = {}
    rows: tuple[JournalRow, ...] = ()
    owed: dict[bytes, OwedReply] = {}
    claims: dict[bytes, tuple[bytes, float]] = {}

    @property
    def state(self) -> State:
        return "ended" if self.ended else "open" if self.turn is None else "running"


class StoreContent(msgspec.Struct, frozen=True):
    """All there is: sessions in the order they were made, accepted events, the last journal
    position, and entries, by session and seq, in the order they came.
    """

    sessions: dict[str, ReferenceSession] = {}
    events: dict[bytes, Accepted] = {}
    position: int = 0
    arrivals: tuple[tuple[str, int], ...] = ()

    def current(self, tenant: str, key: str) -> ReferenceSession | None:
        bound = [
            s for s in self.sessions.values() if (s.tenant, s.key) == (tenant, key)
        ]
        return max(bound, key=lambda s: s.epoch, default=None)


def after_commit(
    world: StoreContent, commit: Commit, now: float
) -> tuple[StoreContent, Outcome]:
    """The world after this commit, each write seeing those before it; the same world when one of
    them is refused.
    """
    after, outcome = world, Written()
    for write in commit:
        refused = _refusal(after, write, now)
        if refused is not None:
            return world, refused
        after, outcome = _done(after, write, now)
    return after, outcome


def _refusal(world: StoreContent, write: Write, now: float) -> Refused | None:
    """Why this write can't be done in this world; None when it can."""

    def no(why: Any, detail: Any = None) -> Refused:
        return Refused(why, write.session, detail)

    session = _opened(world, write) if write.open else world.sessions.get(write.session)
    if session is None and not write.open:
        return no("missing")
    if write.event is not None and event_name(*write.event) in world.events:
        return no("accepted", world.events[event_name(*write.event)])
    if session is None:
        return no("bound")
    if (
        session.ended
        and not write.ended_too
        or session.erased
        and write.erase is None
        and write.lay is None
    ):
        return no("ended")
    if write.fence is not None and (
        session.turn is None or write.fence != session.fence
    ):
        return no("superseded")
    if write.idle and session.turn is not None:
        return no("busy")
    if write.head is not None and write.head != session.origin + len(session.log):
        return no("moved")
    if write.position not in (
        None,
        max([session.journal, *(row.position for row in session.rows)]),
    ):
        return no("moved")
    if not {waiting.message for waiting in session.inbox.values()}.issuperset(
        write.takes
    ):
        return no("taken")
    if write.pays is not None and write.pays not in session.owed:
        return no("taken")
    if write.claim is not None:
        sender = claimed_by(session, write.claim.id, now)
        if write.claim.id not in session.owed or sender not in (
            None,
            write.claim.token,
        ):
            return no("taken")
    return None


def claimed_by(session: ReferenceSession, reply: bytes, now: float) -> bytes | None:
    """The token of the sender that has this reply now."""
    token, until = session.claims.get(reply, (None, 0.0))
    return token if until > now else None


def age_of_reply(debt: OwedReply) -> tuple[int, str, int, bytes]:
    """What replies are ordered by: their time, and a session's by their turns."""
    return debt.at, debt.session, debt.turn, debt.id


def _opened(world: StoreContent, write: Write) -> ReferenceSession | None:
    """The session that this write makes; None when its id is in use or its epoch is not the key's
    next.
    """
    asked = write.open
    assert asked is not None
    bound = world.current(asked.tenant, asked.key) if asked.key is not None else None
    next_epoch = bound.epoch + 1 if bound else 1
    if write.session in world.sessions or (
        asked.key is not None and asked.epoch != next_epoch
    ):
        return None
    at = write.drafts[0].at if write.drafts else 0
    own = ReferenceSession(
        write.session, asked.tenant, asked.key, asked.epoch, opened_at=at, active_at=at
    )
    return _with(own, origin=asked.head, fence=asked.fence, parent=asked.parent)


def _done(
    world: StoreContent, write: Write, now: float
) -> tuple[StoreContent, Written]:
    """The world after a write that nothing stands against."""
    session = _opened(world, write) if write.open else world.sessions[write.session]
    assert session is not None
    first = session.origin + len(session.log) + 1
    events = world.events
    position = world.position
    session = _turned(session, write, now, position)
    if write.erase is not None:
        session = _erased(session, dict(write.erase))
    if write.forget_events:
        events = {
            name: event for name, event in events.items() if event.session != session.id
        }
    if write.blank:
        session = _blanked(session, dict(write.blank))
    session = _logged(session, write, first, now)
    if write.event is not None:
        draft = write.drafts[write.event_draft]
        events = {
            **events,
            event_name(*write.event): Accepted(
                session.id, first + write.event_draft, draft.id
            ),
        }
    if write.lay is not None:
        session = _laid(session, write.lay)
        events = {
            event.name: Accepted(event.session, event.seq, event.message)
            for event in write.lay.events
        } | events
    if write.owes or write.pays is not None:
        session = _with(session, owed=_owed(session, write))
    if write.claim is not None:
        claim = {write.claim.id: (write.claim.token, now + write.claim.seconds)}
        session = _with(session, claims=session.claims | claim)
    if write.chunk is not None:
        position += 1
        chunk = write.chunk
        turn = session.turn or 0
        row = JournalRow(position, turn, chunk.message, chunk.index, chunk.body)
        session = _with(session, rows=(*session.rows, row))
    written = Written(
        seq=first if write.drafts else 0,
        turn=session.fence if write.start else 0,
        position=position if write.chunk else 0,
    )
    arrivals = (
        *world.arrivals,
        *((session.id, first + index) for index in range(len(write.drafts))),
    )
    return StoreContent(
        {**world.sessions, session.id: session}, events, position, arrivals
    ), written


def is_sought(session: ReferenceSession, entry: Entry, sought: SearchScope) -> bool:
    """What has nothing to do with the words of a message."""
    return (
        session.tenant == sought.tenant
        and sought.session in (None, session.id)
        and sought.key in (None, session.key)
        and sought.state in (None, session.state)
        and (sought.since is None or entry.at >= sought.since)
        and (sought.until is None or entry.at < sought.until)
    )


def notes_before(session: ReferenceSession, seq: int, needle: bytes) -> list[bytes]:
    """Notes of messages before this one that have these bytes in them, newest first."""
    before = [
        entry for entry in session.log if entry.seq < seq and entry.kind == "message"
    ]
    return [
        entry.note for entry in reversed(before) if needle and needle in entry.note
    ][:8]


def _erased(session: ReferenceSession, notes: dict[int, bytes]) -> ReferenceSession:
    """Nothing is left but the entries' places and these notes."""
    log = [
        msgspec.structs.replace(entry, note=notes.get(entry.seq, b""), body=b"")
        for entry in session.log
    ]
    return _with(session, erased=True, log=tuple(log), inbox={}, rows=(), owed={})


def _blanked(session: ReferenceSession, notes: dict[int, bytes]) -> ReferenceSession:
    """Nothing is left of these entries but their places and these notes."""
    log = [
        msgspec.structs.replace(entry, note=notes[entry.seq], body=b"")
        if entry.seq in notes
        else entry
        for entry in session.log
    ]
    return _with(session, log=tuple(log))


def _laid(session: ReferenceSession, laid: Laid) -> ReferenceSession:
    """It stands as it does in another store."""
    inbox = {waiting.seq: waiting for waiting in laid.inbox}
    session = _with(session, inbox=inbox, owed={debt.id: debt for debt in laid.outbox})
    return _with(
        session,
        fence=laid.fence,
        base=laid.base,
        active_at=laid.active_at,
        ended=laid.ended,
        erased=laid.erased,
    )


def _owed(session: ReferenceSession, write: Write) -> dict[bytes, OwedReply]:
    """What the session owes after this write."""
    owed = {id: debt for id, debt in session.owed.items() if id != write.pays}
    for owing in write.owes:
        last = write.drafts[-1]
        owed[owing.id] = OwedReply(
            owing.id, session.id, last.turn or 0, owing.reply_to, last.at
        )
    return owed


def _turned(
    session: ReferenceSession, write: Write, now: float, position: int
) -> ReferenceSession:
    """The turn is finished or seized, the next one started, its lease renewed, the base moved, the
    session closed: in this order.
    """
    if write.finish:
        session = _with(session, turn=None, holder=None)
    if write.seize:
        session = _with(session, fence=session.fence + 1)
    if write.start is not None:
        session = _with(
            session,
            fence=session.fence + 1,
            turn=session.fence + 1,
            holder=write.start.holder,
        )
        lease_s = write.start.lease_s
        session = _with(
            session, lease_until=now + lease_s, lease_s=lease_s, journal=position
        )
        session = _with(
            session,
            active_at=max(
                [session.active_at, *(draft.at for draft in write.drafts[:1])]
            ),
        )
    if write.renew_s is not None:
        session = _with(session, lease_until=now + write.renew_s, lease_s=write.renew_s)
    if write.unbase:
        session = _with(session, base=0)
    if write.base:
        session = _with(session, base=session.origin + len(session.log) + 1)
    return (
        _with(session, ended=True, turn=None, holder=None) if write.close else session
    )


def _logged(
    session: ReferenceSession, write: Write, first: int, now: float
) -> ReferenceSession:
    """The drafts are entries; the inbox has lost what was taken and gained what was admitted."""
    started = session.turn if write.start else STARTING
    log = list(session.log)
    inbox = {
        seq: waiting
        for seq, waiting in session.inbox.items()
        if waiting.message not in write.takes
    }
    for seq, draft in enumerate(write.drafts, first):
        turn = started if draft.turn == STARTING else draft.turn
        log.append(
            Entry(seq, draft.kind, turn, draft.id, draft.at, draft.note, draft.body)
        )
        if draft.kind == "message" and draft.at >= session.active_at + ACTIVE_STEP_MS:
            session = _with(session, active_at=draft.at)
    seqs = {entry.id: entry.seq for entry in log}
    for waiting in write.admits:
        seq = waiting.seq or seqs[waiting.message]
        until = None if waiting.lease_s is None else now + waiting.lease_s
        inbox[seq] = Waiting(
            waiting.message, waiting.waiter, seq, waiting.lease_s, mark=until
        )
    return _with(session, log=tuple(log), inbox=inbox)


def weight_of(log: tuple[Entry, ...]) -> Weight:
    messages = [entry for entry in log if entry.kind == "message"]
    return Weight(
        len(log),
        len(messages),
        sum(len(entry.note) + len(entry.body) for entry in log),
        0,
    )


def _with(session: ReferenceSession, **changes: Any) -> ReferenceSession:
    return msgspec.structs.replace(session, **changes)
