"""What comes in and what is owed: the inbox of a key, and the outbox of a store.

Accepting is a durable receipt and nothing more (I-4): the next turn takes the message. A reply that
was asked for with `reply_to` is in the outbox from the transaction that ends its turn until its
sending is confirmed (I-23); every try carries the same key. What is owed is what stands: not what
the turn has retracted, nor what it has confirmed itself. A sender that claims replies has each of
them alone, until its claim runs out or it gives the reply back.
"""

from functools import partial

import msgspec

from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Posted, legible_note
from holdfast.domain.ids import turn_id
from holdfast.engine.protocol import OutboxClaim, OwedReply, Refused, Ticket, Write
from holdfast.errors import Conflict, NotFound
from holdfast.runtime.border import bordered
from holdfast.runtime.clock import mint
from holdfast.runtime.live.session_log import PAGE, SessionLog
from holdfast.runtime.live.tenancy import owned
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.turns.said_text import said_in

NEVER_OWED = "its session has never owed it"


class Receipt(msgspec.Struct, frozen=True):
    """A message was accepted: now, or earlier if `again` says so, when the same event came for the
    first time.
    """

    session_id: str
    message_id: str
    again: bool = False


class OwedWork:
    """The plans of a reply that is owed; `Owed` and `AsyncOwed` are its faces."""

    def __init__(
        self,
        session: SessionLog,
        debt: OwedReply,
        text: str,
        token: bytes | None = None,
    ) -> None:
        self.session, self.debt, self.text = session, debt, text
        self.token = token
        """What it was claimed with, if it was."""

    def claim(self, claim_s: float) -> Ticket:
        """Asks to have this reply alone for so long; refused when it is owed no more, or another
        sender has it.
        """
        self.token = mint(self.session.world, self.session.world.now())
        return self.session.submit(
            Write(
                self.session.id,
                claim=OutboxClaim(self.debt.id, self.token, claim_s),
                ended_too=True,
            )
        )

    def sent(self, platform_id: Checked) -> Plan[None]:
        """The reply has arrived; it is owed no more. Confirming twice changes nothing, nor does
        confirming what was erased meanwhile.
        """
        yield from self._note(
            Posted(self.debt.id.hex(), "sent", platform_id=platform_id),
            pays=self.debt.id,
        )

    def failed(self, reason: str) -> Plan[None]:
        """A try did not go through; the reply stays owed, and is given back if it was claimed."""
        note = Posted(self.debt.id.hex(), "failed", reason=reason)
        if self.token is not None:
            back = OutboxClaim(self.debt.id, self.token, 0.0)
            outcome = yield from self.session.commit(
                Write(
                    self.session.id,
                    drafts=(self.session.draft("post", note),),
                    claim=back,
                    ended_too=True,
                )
            )
            if not isinstance(outcome, Refused):
                # else the claim had run out, and another sender has it: then only the try is noted
                return
        yield from self._note(note)

    def _note(self, note: Posted, *, pays: bytes | None = None) -> Plan[None]:
        outcome = yield from self.session.commit(
            Write(
                self.session.id,
                drafts=(self.session.draft("post", note),),
                ended_too=True,
                pays=pays,
            )
        )
        # Taken: it was confirmed before, and confirming twice changes nothing. Ended: its words
        # were erased, and with them what was owed.
        if isinstance(outcome, Refused) and outcome.why not in ("taken", "ended"):
            problem = f"its reply could not be settled ({outcome.why}); try again"
            raise Conflict(session_id=self.session.id, problem=problem)


@bordered
class Owed:
    """A reply that is stored and owed to somebody. `id` is the key to send it with, the same at
    every try; `made_at` is in milliseconds since 1970.
    """

    id: str
    text: str
    reply_to: str
    key: str | None
    session_id: str
    turn_id: str
    made_at: int
    age_s: float

    def __init__(self, work: OwedWork) -> None:
        self._work = work
        debt, session = work.debt, work.session
        self.id, self.text, self.reply_to = debt.id.hex(), work.text, debt.reply_to
        self.key, self.session_id, self.turn_id = (
            session.key,
            session.id,
            turn_id(session.id, debt.turn),
        )
        self.made_at = debt.at
        self.age_s = max(0.0, (session.world.now() - debt.at) / 1000)

    def sent(self, platform_id: str | int | None = None) -> None:
        """Confirms that the reply has arrived: it is owed no more. Confirming it twice changes
        nothing, nor does confirming one whose session was erased meanwhile.
        """
        run(self._work.sent(platform_id))

    def failed(self, reason: str) -> None:
        """Records that a try did not go through: the reply stays owed, and another sender may claim
        it. One whose session was erased meanwhile is owed no more.
        """
        run(self._work.failed(reason))

    def __repr__(self) -> str:
        return (
            f"<Owed {self.id[:8]} to {self.reply_to!r}, {self.age_s:.0f} s old: "
            f"{self.text[:40]!r}>"
        )


def owed(session: SessionLog, debt: OwedReply) -> OwedWork:
    """A debt with the words that are owed. In the place of those that can't be read stands that
    they can't: a reply that is owed is never left out in silence (I-23, I-25).
    """
    return session.reading(lambda: _owed(session, debt))


def _owed(session: SessionLog, debt: OwedReply) -> OwedWork:
    log = session.log()
    # A summary may cover the turn and leave only its end in the log. Its words are in
    # the history; without them the reply would be handed to nobody.
    if not log.has_all_of(debt.turn):
        log = session.history()
    return OwedWork(session, debt, said_in(session, log, debt.turn))


def owed_by(
    session: SessionLog, reply: bytes, token: bytes | None
) -> Plan[OwedWork | None]:
    """What a session owes under this id; None when it owes it no more, `NotFound` when it never
    has. `token` is what it was claimed with, by whoever asks.
    """
    for debt in (yield from read(partial(session.engine.debts, session.id))):
        if debt.id == reply:
            return OwedWork(session, debt, "", token)
    if not (yield from read(partial(_was_owed, session, reply))):
        raise NotFound(what="reply", name=reply.hex(), hint=NEVER_OWED)
    return None


def _was_owed(session: SessionLog, reply: bytes) -> bool:
    """Whether a try to send this reply is in the log, which outlives the debt. Of an erased session
    nobody knows.
    """
    state = session.state()
    # From the end: who asks again has mostly asked just now.
    seq = state.origin if state.erased else state.head
    while seq > state.origin:
        after = max(state.origin, seq - PAGE)
        for entry in session.page(after, seq - after, bodies=False):
            note = legible_note(entry) if entry.kind == "post" else None
            if note is not None and note.owed == reply.hex():
                return True
        seq = after
    return state.erased


def outbox(
    store: OpenStore, *, limit: int, claim_s: float | None
) -> Plan[list[OwedWork]]:
    """Replies to send, oldest first. Of those that are claimed, each is this caller's alone."""
    found: list[OwedWork] = []
    after: OwedReply | None = None
    while len(found) < limit:
        size = limit - len(found)
        page = yield from read(
            partial(
                store.engine.outbox,
                store.tenant,
                after=after,
                limit=size,
                free=claim_s is not None,
            )
        )
        works = yield from read(partial(_worded, store, page))
        if claim_s is None:
            found += works
        else:
            # All claims of a page are under way at once: they share a sync.
            claims = [work.claim(claim_s) for work in works]
            for work, claim in zip(works, claims, strict=True):
                if not isinstance((yield from wait_for(claim)), Refused):
                    found.append(work)
        if len(page) < size:
            break
        after = page[-1]
    return found


def _worded(store: OpenStore, page: list[OwedReply]) -> list[OwedWork]:
    """These debts, without those for which nothing is left to send."""
    works = []
    for debt in page:
        state = owned(store.engine, store.tenant, debt.session)
        # Its session is somebody else's, so one of the two is damaged: whose the words are can't be
        # told, and they are given to nobody (I-19). `check` tells of it; the others are owed.
        if state is None:
            continue
        work = owed(store.session_log(state), debt)
        if work.text:
            works.append(work)
    return works
