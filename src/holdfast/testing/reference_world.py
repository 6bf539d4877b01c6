"""All that a store holds, as one immutable value, and what a commit makes of it.

A commit is a function from a world to the next one or to a refusal, so "all or nothing" needs no
undoing: a refused commit's world is dropped. This is written apart from the engines on purpose,
also where they share code: it is what they are compared with.
"""

import msgspec
from msgspec.structs import asdict, replace

from holdfast.domain.accepted_events import event_name
from holdfast.domain.entry import STARTING, Entry
from holdfast.domain.search.query import SearchScope
from holdfast.engine.protocol import (
    ACTIVE_STEP_MS,
    Accepted,
    Chunk,
    Commit,
    JournalRow,
    Laid,
    Outcome,
    OwedReply,
    Refusal,
    Refused,
    SessionState,
    Start,
    State,
    Waiting,
    Weight,
    Write,
    Written,
    state_after,
)

STATE_FIELDS = SessionState.__struct_fields__


class ReferenceSession(SessionState, frozen=True):
    """All there is to a session: its state, and what is in it. The inbox is by seq: a message that
    is given back stands where it stood. Of a lease, `lease_mark` is when it runs out; what is left
    of it is told when somebody asks.
    """

    log: tuple[Entry, ...] = ()
    inbox: dict[int, Waiting] = {}
    rows: tuple[JournalRow, ...] = ()
    owed: dict[bytes, OwedReply] = {}
    claims: dict[bytes, tuple[bytes, float]] = {}

    @property
    def state(self) -> State:
        if self.ended:
            return "ended"
        return "open" if self.turn is None else "running"

    def entry(self, seq: int) -> Entry:
        """One of its own entries; a fork's begin after its origin."""
        return self.log[seq - self.origin - 1]

    def seen(self, now: float) -> SessionState:
        """What is told of it at this time."""
        known = {name: getattr(self, name) for name in STATE_FIELDS}
        if self.lease_mark is not None:
            known["lease_left_s"] = self.lease_mark - now
        return SessionState(**known)


class StoreContent(msgspec.Struct, frozen=True):
    """All there is: sessions in the order they were made, accepted events, the last journal
    position, and entries, by session and seq, in the order they came.
    """

    sessions: dict[str, ReferenceSession] = {}
    events: dict[bytes, Accepted] = {}
    position: int = 0
    arrivals: tuple[tuple[str, int], ...] = ()

    def current(self, tenant: str, key: str) -> ReferenceSession | None:
        bound = [s for s in self.of(tenant) if s.key == key]
        return max(bound, key=lambda s: s.epoch, default=None)

    def of(self, tenant: str) -> list[ReferenceSession]:
        """The sessions of this tenant."""
        return [s for s in self.sessions.values() if s.tenant == tenant]


def after_commit(
    world: StoreContent, commit: Commit, now: float
) -> tuple[StoreContent, Outcome]:
    """The world after this commit; the same world when one of its writes is refused. All of them
    are judged by the world before it.
    """
    for write in commit:
        refused = _refusal(world, write, now)
        if refused is not None:
            return world, refused
    after = world
    outcome = Written()
    for write in commit:
        after, outcome = _done(after, write, now)
    return after, outcome


def _refusal(world: StoreContent, write: Write, now: float) -> Refused | None:
    """Why this write can't be done in this world; None when it can. In the order of
    `engine.guards`, so that a write that several guards refuse can be compared too.
    """
    session = _opened(world, write) if write.open else world.sessions.get(write.session)
    if session is None and not write.open:
        return Refused("missing", write.session)
    if write.event is not None:
        known = world.events.get(event_name(*write.event))
        if known is not None:
            return Refused("accepted", write.session, known)
    if session is None:
        return Refused("bound", write.session)
    why = _standing_against(session, write, now)
    return Refused(why, write.session) if why is not None else None


def _standing_against(
    session: ReferenceSession, write: Write, now: float
) -> Refusal | None:
    if _is_over(session, write):
        return "ended"
    runs = session.turn is not None
    if write.fence is not None and not (runs and write.fence == session.fence):
        return "superseded"
    if write.idle and runs:
        return "busy"
    if write.head not in (None, session.head):
        return "moved"
    if write.position not in (None, _last_position(session)):
        return "moved"
    if _is_taken(session, write, now):
        return "taken"
    return None


def _is_over(session: ReferenceSession, write: Write) -> bool:
    if session.ended and not write.ended_too:
        return True
    # An erased one takes nothing that would bring words back, late or not.
    return session.erased and write.erase is None and write.lay is None


def _last_position(session: ReferenceSession) -> int:
    """Where the last chunk of its turn lies; with none, where the turn began."""
    return max([session.journal, *(row.position for row in session.rows)])


def _is_taken(session: ReferenceSession, write: Write, now: float) -> bool:
    """Whether somebody else has had what this write is about."""
    waiting = {waiting.message for waiting in session.inbox.values()}
    if not waiting.issuperset(write.takes):
        return True
    if write.pays is not None and write.pays not in session.owed:
        return True
    claim = write.claim
    if claim is None:
        return False
    sender = claimed_by(session, claim.id, now)
    return claim.id not in session.owed or sender not in (None, claim.token)


def claimed_by(session: ReferenceSession, reply: bytes, now: float) -> bytes | None:
    """The token of the sender that has this reply now."""
    token, until = session.claims.get(reply, (None, 0.0))
    # A claim that has run out is nobody's.
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
    # Of any tenant: an id is of one session (I-19).
    if write.session in world.sessions:
        return None
    if asked.key is not None:
        bound = world.current(asked.tenant, asked.key)
        if asked.epoch != (bound.epoch + 1 if bound else 1):
            return None
    at = write.drafts[0].at if write.drafts else 0
    state = state_after(write.session, asked)
    session = ReferenceSession(**asdict(state))
    return replace(session, opened_at=at, active_at=at, last_at=at)


def _done(
    world: StoreContent, write: Write, now: float
) -> tuple[StoreContent, Written]:
    """The world after a write that nothing stands against."""
    session = _opened(world, write) if write.open else world.sessions[write.session]
    assert session is not None
    first = session.head + 1
    position = world.position
    session = _turned(session, write, now, position)
    # Before the drafts: what comes with an erasure is not erased by it.
    if write.erase is not None:
        session = _erased(session, dict(write.erase))
    session = _blanked(session, dict(write.blank))
    session = _logged(session, write, first, now)
    if write.lay is not None:
        session = _laid(session, write.lay)
    session = _owing(session, write, now)
    if write.chunk is not None:
        position += 1
        session = _spoken(session, write.chunk, position)
    written = Written(
        seq=first if write.drafts else 0,
        turn=session.fence if write.start else 0,
        position=position if write.chunk else 0,
    )
    seqs = range(first, first + len(write.drafts))
    after = StoreContent(
        {**world.sessions, session.id: session},
        _events_after(world.events, write, first),
        position,
        (*world.arrivals, *((session.id, seq) for seq in seqs)),
    )
    return after, written


def _events_after(
    events: dict[bytes, Accepted], write: Write, first: int
) -> dict[bytes, Accepted]:
    """The events that are known after this write, whose drafts begin at seq `first`."""
    known = dict(events)
    if write.forget_events:
        for name, event in events.items():
            if event.session == write.session:
                del known[name]
    if write.event is not None:
        draft = write.drafts[write.event_draft]
        seq = first + write.event_draft
        known[event_name(*write.event)] = Accepted(write.session, seq, draft.id)
    if write.lay is not None:
        # An event that is known here stays what it became here (I-2).
        for laid in write.lay.events:
            known.setdefault(laid.name, Accepted(laid.session, laid.seq, laid.message))
    return known


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
    found: list[bytes] = []
    for entry in reversed(session.log):
        if entry.seq < seq and entry.kind == "message":
            if needle and needle in entry.note:
                found.append(entry.note)
    return found[:8]


def _erased(session: ReferenceSession, notes: dict[int, bytes]) -> ReferenceSession:
    """Nothing is left but the entries' places and these notes."""
    untold = {entry.seq: b"" for entry in session.log}
    session = _blanked(session, untold | notes)
    return replace(session, erased=True, inbox={}, rows=(), owed={})


def _blanked(session: ReferenceSession, notes: dict[int, bytes]) -> ReferenceSession:
    """Nothing is left of these entries but their places and these notes."""
    log = []
    for entry in session.log:
        if entry.seq in notes:
            entry = replace(entry, note=notes[entry.seq], body=b"")
        log.append(entry)
    return replace(session, log=tuple(log))


def _laid(session: ReferenceSession, laid: Laid) -> ReferenceSession:
    """It stands as it does in another store."""
    return replace(
        session,
        inbox={waiting.seq: waiting for waiting in laid.inbox},
        owed={debt.id: debt for debt in laid.outbox},
        fence=laid.fence,
        base=laid.base,
        active_at=laid.active_at,
        ended=laid.ended,
        erased=laid.erased,
    )


def _owing(session: ReferenceSession, write: Write, now: float) -> ReferenceSession:
    """The reply that is paid is owed no more, those of this write are, and one is claimed."""
    owed = {id: debt for id, debt in session.owed.items() if id != write.pays}
    claims = dict(session.claims)
    for owing in write.owes:
        # The turn's end, from which on its replies are owed.
        last = write.drafts[-1]
        owed[owing.id] = OwedReply(
            owing.id, session.id, last.turn or 0, owing.reply_to, last.at
        )
    if write.claim is not None:
        claims[write.claim.id] = (write.claim.token, now + write.claim.seconds)
    return replace(session, owed=owed, claims=claims)


def _spoken(session: ReferenceSession, chunk: Chunk, position: int) -> ReferenceSession:
    """One more chunk lies in the journal."""
    turn = session.turn or 0
    row = JournalRow(position, turn, chunk.message, chunk.index, chunk.body)
    return replace(session, rows=(*session.rows, row))


def _turned(
    session: ReferenceSession, write: Write, now: float, position: int
) -> ReferenceSession:
    """The turn is finished or seized, the next one started, its lease renewed, the base moved, the
    session closed: in this order.
    """
    if write.finish:
        session = replace(session, turn=None)
    if write.seize:
        session = replace(session, fence=session.fence + 1)
    if write.start is not None:
        session = _started(session, write, write.start, position)
    renewed = write.start.lease_s if write.start else None
    if write.renew_s is not None:
        renewed = write.renew_s
    if renewed is not None:
        session = replace(session, lease_mark=now + renewed, lease_s=renewed)
    if write.unbase:
        session = replace(session, base=0)
    if write.base:
        session = replace(session, base=session.head + 1)
    if write.close:
        session = replace(session, ended=True, turn=None)
    if session.turn is None:
        # Only a running turn has a holder and a lease.
        session = replace(session, holder=None, lease_s=None, lease_mark=None)
    return session


def _started(
    session: ReferenceSession, write: Write, start: Start, position: int
) -> ReferenceSession:
    """A turn runs under the next number, and its journal begins here."""
    # A turn's number is its fence, and is never used again.
    number = session.fence + 1
    # A clock that was set back takes no session back in the lists.
    times = [session.active_at, *(draft.at for draft in write.drafts[:1])]
    return replace(
        session,
        fence=number,
        turn=number,
        holder=start.holder,
        journal=position,
        active_at=max(times),
    )


def _logged(
    session: ReferenceSession, write: Write, first: int, now: float
) -> ReferenceSession:
    """The drafts are entries; the inbox has lost what was taken and gained what was admitted."""
    # A draft that says STARTING in a write that starts nothing keeps saying so.
    started = session.turn if write.start else STARTING
    log = list(session.log)
    active_at = session.active_at
    last_at = session.last_at
    for seq, draft in enumerate(write.drafts, first):
        turn = started if draft.turn == STARTING else draft.turn
        log.append(
            Entry(seq, draft.kind, turn, draft.id, draft.at, draft.note, draft.body)
        )
        # To the second is enough for lists; a row that moves with every message costs more.
        if draft.kind == "message" and draft.at >= active_at + ACTIVE_STEP_MS:
            active_at = draft.at
        last_at = draft.at
    head = session.head + len(write.drafts)
    session = replace(
        session, log=tuple(log), head=head, active_at=active_at, last_at=last_at
    )
    return replace(session, inbox=_inbox_after(session, write, now))


def _inbox_after(
    session: ReferenceSession, write: Write, now: float
) -> dict[int, Waiting]:
    """What waits after this write, whose drafts are in the log."""
    inbox = dict(session.inbox)
    for seq, waiting in session.inbox.items():
        if waiting.message in write.takes:
            del inbox[seq]
    seqs = {entry.id: entry.seq for entry in session.log}
    for waiting in write.admits:
        # Given back at the place it had, or new and at its draft's.
        seq = waiting.seq or seqs[waiting.message]
        until = None if waiting.lease_s is None else now + waiting.lease_s
        inbox[seq] = Waiting(
            waiting.message, waiting.waiter, seq, waiting.lease_s, mark=until
        )
    return inbox


def weight_of(log: tuple[Entry, ...]) -> Weight:
    messages = sum(entry.kind == "message" for entry in log)
    size = sum(len(entry.note) + len(entry.body) for entry in log)
    return Weight(len(log), messages, size, 0)
