"""An open store, as both of its faces share it: the engine, who keeps its leases, and its plans."""

import atexit
import contextlib
import os
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from holdfast.domain.arguments import Checked
from holdfast.domain.entry import Closed, Opened
from holdfast.domain.message import USUAL_FORMAT, Spoken
from holdfast.domain.reset_policy import Policy
from holdfast.engine.closed_engine import ClosedEngine
from holdfast.engine.open import open_engine
from holdfast.engine.protocol import (
    Commit,
    Engine,
    Opening,
    Refused,
    SessionState,
    Waiting,
    Write,
    Written,
    state_after,
)
from holdfast.errors import HoldfastError, NotFound
from holdfast.formats import registry
from holdfast.runtime.clock import Arrivals, RealWorld, World, mint_session
from holdfast.runtime.live.lease_keeper import LeaseKeeper, SharedKeeper
from holdfast.runtime.live.lineage import Lineages
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.live.tenancy import owned
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.shared_engine import HeldEngine
from holdfast.runtime.turns.outbox import OwedWork, Receipt, outbox
from holdfast.runtime.turns.recovery import settle, settle_if_dead
from holdfast.runtime.turns.running_turn import TurnWork
from holdfast.runtime.turns.start_turn import (
    TurnRequest,
    already,
    commit_start,
    first_write,
    start,
)

if TYPE_CHECKING:
    from holdfast.engine.store_info import Backup, Problem, StoreInfo
    from holdfast.runtime.catalog.list_sessions import Listed, Page, Wanted
    from holdfast.runtime.catalog.pending import PendingMessage
    from holdfast.runtime.catalog.search import Hit
    from holdfast.runtime.changes.erase import Erasure

LATEST_MAX = 10_000
CANDIDATES_MAX = 10


_open_stores: "weakref.WeakSet[OpenStore]" = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """A process that ends by itself leaves no turn behind. The threads that write are still there
    now.
    """
    for work in list(_open_stores):
        work.end_turns("its process ended")


class OpenStore:
    """The plans of a store; `Store` and `AsyncStore` are its faces."""

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        durability: str,
        tenant: str,
        world: World | None,
        read_only: bool = False,
        engine: Engine | None = None,
        root: "OpenStore | None" = None,
    ) -> None:
        self.world = world or RealWorld()
        registry.get(USUAL_FORMAT)  # loaded here rather than in the first turn
        self.tenant = tenant
        self._root = root
        self.keeper: LeaseKeeper = (
            LeaseKeeper(self.world.tick) if root is None else SharedKeeper(root.keeper)
        )
        self._process = os.getpid()
        self.engine = engine or self._opened(
            where,
            durability=durability,
            tick=self.world.tick,
            now=self.world.now,
            clock=self.world.clock(),
            chance=self.world.chance,
            words_of=_words_of,
            read_only=read_only,
        )
        self._lineages = Lineages(self.engine)
        self._latest: dict[str, SessionLog] = {}
        self._arrivals = Arrivals(self.world)
        _open_stores.add(self)

    def _opened(self, where: str | os.PathLike[str], **options: Any) -> Engine:
        return cast(Engine, HeldEngine(open_engine(where, **options), self.keeper))

    def for_tenant(self, name: str) -> "OpenStore":
        """The same engine for another tenant. Its turns are its own."""
        root = self._root or self
        options: dict[str, Any] = {
            "durability": "",
            "world": self.world,
            "engine": self.engine,
        }
        return OpenStore(self.engine.where, tenant=name, root=root, **options)

    def close(self) -> None:
        """Ends what this process still runs, then lets go; of the engine only if it was opened with
        this store. In a child that was forked there is nothing to let go of.
        """
        if os.getpid() != self._process:
            return
        _open_stores.discard(self)
        self.end_turns("the store was closed")
        self.keeper.close()
        if self._root is None:
            self.engine.close()
        else:
            self.engine = cast(Engine, ClosedEngine(self.engine.where))

    def end_turns(self, reason: str) -> None:
        """Ends the turns that this process still runs, as interrupted."""
        if self._process != os.getpid():
            return  # a fork of the process that runs them
        self.keeper.sweep()
        for turn in self.keeper.held():
            with contextlib.suppress(HoldfastError):
                run(turn.finish("interrupted", reason))
                turn.owner_knows = False
        self.keeper.end_left()

    def session_log(self, state: SessionState) -> SessionLog:
        return SessionLog(self.engine, self.world, self.keeper, self._lineages, state)

    def session(
        self, key: str, *, reset: Policy | None, create: bool
    ) -> Plan[SessionLog]:
        """The key's current session: made if there is none, replaced if it is due."""
        while True:
            state = yield from read(lambda: self.engine.current(self.tenant, key))
            if state is None and not create:
                raise NotFound(
                    what="session for the key",
                    name=key,
                    hint="Store.session(key) makes one",
                )
            if state is not None and state.ended and not create:
                return self.session_log(
                    state
                )  # it can be read; looking makes nothing (I-18)
            if (
                state is not None
                and not state.ended
                and not (yield from self._is_due(state, reset))
            ):
                return self.session_log(state)
            made = yield from self._replace(
                state, key, self._reason(state, reset) or "replaced"
            )
            if made is not None:
                return made

    def reset(self, key: str, *, reason: str) -> Plan[SessionLog]:
        """Ends the current session, what runs in it included, and binds a new one; the
        epoch rises.
        """
        while True:
            state = yield from read(lambda: self.engine.current(self.tenant, key))
            if state is not None and not state.ended:
                state = yield from settle_if_dead(self.session_log(state))
            if state is not None and state.turn is not None:
                made = yield from self._replace_running(state, key, reason)
            else:
                made = yield from self._replace(state, key, reason)
            if made is not None:
                return made

    def turn(
        self, key: str, message: Any, *, reset: Policy | None, **options: Any
    ) -> Plan[TurnWork]:
        """Resolve, reset if due, start: one transaction whenever nothing stands in the
        way (I-8).
        """
        return self._turn(key, TurnRequest(self.world, message, **options), reset)

    def _turn(
        self, key: str, wish: TurnRequest, reset: Policy | None
    ) -> Plan[TurnWork]:
        while True:
            state = yield from read(lambda: self.engine.current(self.tenant, key))
            if (
                state is not None
                and not state.ended
                and not (yield from self._is_due(state, reset))
            ):
                return (
                    yield from start(
                        self.session_log(state),
                        wish,
                        on_ended=lambda session: self._current(key),
                    )
                )
            reason = self._reason(state, reset) or "replaced"
            replacement = yield from read(
                partial(self._replacement, state, key, reason)
            )
            if replacement is None:
                continue
            session, writes = replacement
            first = first_write(session, wish, list(writes[-1].admits))
            combined = _started(writes[-1], first)
            outcome = yield from commit_start(
                session, wish, (*writes[:-1], combined), took=bool(first.takes)
            )
            if isinstance(outcome, TurnWork):
                return outcome
            if outcome.why == "accepted":
                raise (
                    yield from read(
                        partial(already, session, wish.event_id or "", outcome.detail)
                    )
                )

    def accept(
        self,
        key: str,
        message: Any,
        *,
        format: str,
        event_id: Checked,
        reply_to: Checked,
    ) -> Plan[Receipt]:
        """A durable receipt: the message waits in the inbox of the key's current session, made if
        there is none.
        """
        spoken = speak(message, format, inbox=True, event=event_id, reply_to=reply_to)
        return self._accept(key, spoken, event_id)

    def _accept(self, key: str, spoken: Spoken, event_id: str | None) -> Plan[Receipt]:
        id = self._arrivals.mint()
        while True:
            session = self._latest.get(key)
            if session is None:
                session = yield from self.session(key, reset=None, create=True)
                if len(self._latest) >= LATEST_MAX:
                    self._latest.clear()
                self._latest[key] = session
            outcome = yield from session.commit(
                Write(
                    session.id,
                    drafts=(session.message(spoken, turn=None, id=id),),
                    event=(session.scope, event_id) if event_id is not None else None,
                    admits=(Waiting(id),),
                )
            )
            if isinstance(outcome, Written):
                return Receipt(session.id, id.hex())
            if outcome.why == "accepted":
                return Receipt(
                    outcome.detail.session, outcome.detail.message.hex(), again=True
                )
            # it has ended meanwhile: ask again which session the key means (I-8)
            self._latest.pop(key, None)

    def outbox(self, limit: int, claim_s: float | None) -> Plan[list[OwedWork]]:
        """Replies to send, oldest first."""
        return outbox(
            self.engine, self.tenant, self._known, limit=limit, claim_s=claim_s
        )

    def pending(self, after: str | None, limit: int) -> "Plan[Page[PendingMessage]]":
        """What waits in all inboxes, oldest first."""
        from holdfast.runtime.catalog.pending import pending

        return pending(
            self.engine, self.tenant, self.session_log, after=after, limit=limit
        )

    def _known(self, session: str) -> SessionLog:
        state = owned(self.engine, self.tenant, session)
        assert state is not None, "a debt's session is in the store"
        return self.session_log(state)

    def _current(self, key: str) -> Plan[SessionLog]:
        return (yield from self.session(key, reset=None, create=True))

    def get(self, session_id: str) -> Plan[SessionLog]:
        # as all ids are
        known = session_id if session_id.isascii() and session_id.isprintable() else ""
        found = (
            (
                yield from read(
                    lambda: self.engine.find(self.tenant, known, CANDIDATES_MAX)
                )
            )
            if known
            else []
        )
        exact = [state for state in found if state.id == session_id]
        if len(found) == 1 or exact:
            return self.session_log((exact or found)[0])
        hint = (
            "several begin so: give more of the id"
            if found
            else "ids are those of Session.id, or the beginning of one"
        )
        candidates = tuple(state.id for state in found)
        raise NotFound(
            what="session", name=session_id, hint=hint, candidates=candidates
        )

    def sessions(
        self,
        *,
        key: str | None,
        state: str | None,
        text: str | None,
        after: str | None,
        limit: int,
    ) -> "Plan[Page[Listed]]":
        # for those who list: a turn needs nothing of it
        from holdfast.runtime.catalog.list_sessions import (
            listing,
            wanted,
        )

        asked = wanted(key=key, state=state, after=after, limit=limit)
        if text is None:
            return listing(self.engine, self.tenant, self.session_log, asked)
        return self._found(asked, text)

    def _found(self, asked: "Wanted", text: str) -> "Plan[Page[Listed]]":
        from holdfast.runtime.catalog.list_sessions import MATCHING_MAX, listing
        from holdfast.runtime.catalog.search import sought

        question = sought(self.tenant, text, key=asked.key, state=asked.state)
        matching = yield from read(
            lambda: self.engine.matching(question, limit=MATCHING_MAX), slow=True
        )
        return (
            yield from listing(
                self.engine, self.tenant, self.session_log, asked, set(matching)
            )
        )

    def search(
        self, text: str, *, limit: int, session: str | None, **filters: Any
    ) -> "Plan[list[Hit]]":
        """Messages that have these words, newest first."""
        from holdfast.runtime.catalog.search import search, sought

        question = sought(self.tenant, text, **filters)
        if session is not None:
            question = replace(question, session=(yield from self.get(session)).id)
        return (yield from search(self.engine, question, limit))

    def erase(self, session_id: str, *, preview: bool) -> "Plan[Erasure]":
        from holdfast.runtime.changes.erase import erase

        return (yield from erase((yield from self.get(session_id)), preview=preview))

    def retain(self, days: float, *, preview: bool) -> "Plan[list[Erasure]]":
        from holdfast.runtime.changes.erase import retain

        now = self.world.now()
        return retain(
            self.engine,
            self.tenant,
            self.session_log,
            now=now,
            days=days,
            preview=preview,
        )

    def info(self) -> "Plan[StoreInfo]":
        from holdfast.runtime.catalog.maintenance import info

        return info(self.engine)

    def check(self) -> "Plan[list[Problem]]":
        from holdfast.runtime.catalog.maintenance import check

        return check(self.engine)

    def backup(self, to: str | os.PathLike[str]) -> "Plan[Backup]":
        from holdfast.runtime.catalog.maintenance import backup

        return backup(self.engine, to)

    def _is_due(self, state: SessionState, reset: Policy | None) -> Plan[bool]:
        """Whether the policy asks for a new session; never while a turn is running."""
        if self._reason(state, reset) is None:
            return False
        state = yield from settle_if_dead(self.session_log(state))
        return state.turn is None

    def _reason(self, state: SessionState | None, reset: Policy | None) -> str | None:
        if state is None or reset is None or state.ended:
            return None
        return reset.due(active_at=state.last_at, now=self.world.now())

    def _replace(
        self, state: SessionState | None, key: str, reason: str
    ) -> Plan[SessionLog | None]:
        """A new session for this key in place of `state`; None when somebody else was quicker."""
        replacement = yield from read(partial(self._replacement, state, key, reason))
        if replacement is None:
            return None
        session, writes = replacement
        outcome = yield from wait_for(self.engine.submit(tuple(writes)))
        return None if isinstance(outcome, Refused) else session

    def _replace_running(
        self, state: SessionState, key: str, reason: str
    ) -> Plan[SessionLog | None]:
        """The same for a session in which a turn runs. The turn's end and the session's are one
        transaction: whoever waits for the turn gets the next one in the new session, and none in
        the old that would be ended at once.
        """
        session, made = self.session_log(state), []

        def close(last: Write) -> Plan[Commit]:
            replacement = None
            while replacement is None:
                replacement = yield from read(
                    lambda: self._replacement(session.state(), key, reason)
                )
            new, (*closing, opening) = replacement
            made.append(new)
            # none when somebody else has ended it by now, and then this commit is refused
            for one in closing:
                last = replace(
                    last,
                    drafts=(*last.drafts, *one.drafts),
                    close=True,
                    takes=one.takes,
                )
            return last, opening

        yield from settle(
            session, state, end="interrupted", reason=f"reset: {reason}", also=close
        )
        now = yield from read(lambda: self.engine.current(self.tenant, key))
        return next((new for new in made if now is not None and now.id == new.id), None)

    def _replacement(
        self, state: SessionState | None, key: str, reason: str
    ) -> tuple[SessionLog, list[Write]] | None:
        """The session log and the writes of a key's next session. What waits in the old one's inbox goes
        on in the new. None when somebody else has taken that along since the inbox was read.
        """
        epoch = state.epoch + 1 if state is not None else 1
        opening = Opening(self.tenant, key, epoch)
        session = self.session_log(state_after(mint_session(self.world), opening))
        drafts = [
            session.draft(
                "opened",
                Opened(key, epoch, previous=state.id if state is not None else None),
            )
        ]
        writes: list[Write] = []
        waiting: tuple[Waiting, ...] = ()
        if state is not None:
            waiting = tuple(self.engine.inbox(state.id))
        if state is not None and (waiting or not state.ended):
            old = self.session_log(state)
            carried = [old.again(w.message) for w in waiting]
            if None in carried:
                return None
            drafts += [draft for draft in carried if draft is not None]
            closed = old.draft(
                "closed", Closed(reason, moved=tuple(w.message.hex() for w in waiting))
            )
            takes = tuple(w.message for w in waiting)
            # One that was ended before is closed once more, to say where what still waited in it
            # has gone.
            writes.append(
                Write(
                    state.id,
                    (closed,),
                    head=state.head,
                    idle=True,
                    ended_too=state.ended,
                    close=True,
                    takes=takes,
                )
            )
        admits = tuple(replace(w, seq=0) for w in waiting)
        writes.append(Write(session.id, tuple(drafts), open=opening, admits=admits))
        return session, writes


def _started(opening: Write, first: Write) -> Write:
    """The write that opens a session and starts its first turn in one."""
    taken = set(first.takes)
    return Write(
        opening.session,
        (*opening.drafts, *first.drafts),
        event=first.event,
        event_draft=len(opening.drafts),
        open=opening.open,
        start=first.start,
        admits=tuple(w for w in opening.admits if w.message not in taken),
    )


def _words_of(*entry: Any) -> Any:
    """What can be found in an entry; loaded for those who search."""
    from holdfast.runtime.catalog.search import words_of

    return words_of(*entry)
