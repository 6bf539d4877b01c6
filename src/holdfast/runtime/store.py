"""A store: all sessions of one tenant in one place."""

import atexit
import contextlib
import os
import weakref
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from holdfast.domain.arguments import Checked, Durability, OnBusy, State
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
)
from holdfast.errors import HoldfastError, NotFound
from holdfast.formats import registry
from holdfast.runtime.border import bordered, checked
from holdfast.runtime.clock import Arrivals, RealWorld, World, mint_session
from holdfast.runtime.live.lease_keeper import LeaseKeeper, SharedKeeper
from holdfast.runtime.live.lineage import Lineages
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.live.tenancy import owned
from holdfast.runtime.plans.plan import Plan, read, run, wait_for
from holdfast.runtime.session import Session
from holdfast.runtime.shared_engine import HeldEngine
from holdfast.runtime.turn import Turn
from holdfast.runtime.turns.outbox import Owed, OwedWork, Receipt, outbox
from holdfast.runtime.turns.recovery import settle, settle_if_dead
from holdfast.runtime.turns.running_turn import TurnWork
from holdfast.runtime.turns.start_turn import TurnRequest, already, commit_start, first_write, start

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.engine.store_info import Backup, Problem, StoreInfo
    from holdfast.runtime.catalog.list_sessions import Listed, Page, Wanted
    from holdfast.runtime.catalog.pending import PendingMessage
    from holdfast.runtime.catalog.search import Hit
    from holdfast.runtime.changes.erase import Erasure

LATEST_MAX = 10_000
CANDIDATES_MAX = 10


_open_stores: "weakref.WeakSet[StoreWork]" = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """A process that ends by itself leaves no turn behind. The threads that write are still there
    now.
    """
    for work in list(_open_stores):
        work.end_turns("its process ended")


class StoreWork:
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
        root: "StoreWork | None" = None,
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

    def for_tenant(self, name: str) -> "StoreWork":
        """The same engine for another tenant. Its turns are its own."""
        root = self._root or self
        options: dict[str, Any] = {"durability": "", "world": self.world, "engine": self.engine}
        return StoreWork(self.engine.where, tenant=name, root=root, **options)

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

    def room(self, state: SessionState) -> SessionLog:
        return SessionLog(self.engine, self.world, self.keeper, self._lineages, state)

    def session(self, key: str, *, reset: Policy | None, create: bool) -> Plan[SessionLog]:
        """The key's current session: made if there is none, replaced if it is due."""
        while True:
            state = yield from read(lambda: self.engine.current(self.tenant, key))
            if state is None and not create:
                raise NotFound(
                    what="session for the key", name=key, hint="Store.session(key) makes one"
                )
            if state is not None and state.ended and not create:
                return self.room(state)  # it can be read; looking makes nothing (I-18)
            if (
                state is not None
                and not state.ended
                and not (yield from self._is_due(state, reset))
            ):
                return self.room(state)
            made = yield from self._replace(state, key, self._reason(state, reset) or "replaced")
            if made is not None:
                return made

    def reset(self, key: str, *, reason: str) -> Plan[SessionLog]:
        """Ends the current session, what runs in it included, and binds a new one; the
        epoch rises.
        """
        while True:
            state = yield from read(lambda: self.engine.current(self.tenant, key))
            if state is not None and not state.ended:
                state = yield from settle_if_dead(self.room(state))
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

    def _turn(self, key: str, wish: TurnRequest, reset: Policy | None) -> Plan[TurnWork]:
        while True:
            state = yield from read(lambda: self.engine.current(self.tenant, key))
            if (
                state is not None
                and not state.ended
                and not (yield from self._is_due(state, reset))
            ):
                return (
                    yield from start(
                        self.room(state), wish, on_ended=lambda room: self._current(key)
                    )
                )
            reason = self._reason(state, reset) or "replaced"
            replacement = yield from read(partial(self._replacement, state, key, reason))
            if replacement is None:
                continue
            room, writes = replacement
            first = first_write(room, wish, list(writes[-1].admits))
            combined = _started(writes[-1], first)
            outcome = yield from commit_start(
                room, wish, (*writes[:-1], combined), took=bool(first.takes)
            )
            if isinstance(outcome, TurnWork):
                return outcome
            if outcome.why == "accepted":
                raise (yield from read(partial(already, room, wish.event_id or "", outcome.detail)))

    def accept(
        self, key: str, message: Any, *, format: str, event_id: Checked, reply_to: Checked
    ) -> Plan[Receipt]:
        """A durable receipt: the message waits in the inbox of the key's current session, made if
        there is none.
        """
        spoken = speak(message, format, inbox=True, event=event_id, reply_to=reply_to)
        return self._accept(key, spoken, event_id)

    def _accept(self, key: str, spoken: Spoken, event_id: str | None) -> Plan[Receipt]:
        id = self._arrivals.mint()
        while True:
            room = self._latest.get(key)
            if room is None:
                room = yield from self.session(key, reset=None, create=True)
                if len(self._latest) >= LATEST_MAX:
                    self._latest.clear()
                self._latest[key] = room
            outcome = yield from room.commit(
                Write(
                    room.id,
                    drafts=(room.message(spoken, turn=None, id=id),),
                    event=(room.scope, event_id) if event_id is not None else None,
                    admits=(Waiting(id),),
                )
            )
            if isinstance(outcome, Written):
                return Receipt(room.id, id.hex())
            if outcome.why == "accepted":
                return Receipt(outcome.detail.session, outcome.detail.message.hex(), again=True)
            # it has ended meanwhile: ask again which session the key means (I-8)
            self._latest.pop(key, None)

    def outbox(self, limit: int, claim_s: float | None) -> Plan[list[OwedWork]]:
        """Replies to send, oldest first."""
        return outbox(self.engine, self.tenant, self._known, limit=limit, claim_s=claim_s)

    def pending(self, after: str | None, limit: int) -> "Plan[Page[PendingMessage]]":
        """What waits in all inboxes, oldest first."""
        from holdfast.runtime.catalog.pending import pending

        return pending(self.engine, self.tenant, self.room, after=after, limit=limit)

    def _known(self, session: str) -> SessionLog:
        state = owned(self.engine, self.tenant, session)
        assert state is not None, "a debt's session is in the store"
        return self.room(state)

    def _current(self, key: str) -> Plan[SessionLog]:
        return (yield from self.session(key, reset=None, create=True))

    def get(self, session_id: str) -> Plan[SessionLog]:
        # as all ids are
        known = session_id if session_id.isascii() and session_id.isprintable() else ""
        found = (
            (yield from read(lambda: self.engine.find(self.tenant, known, CANDIDATES_MAX)))
            if known
            else []
        )
        exact = [state for state in found if state.id == session_id]
        if len(found) == 1 or exact:
            return self.room((exact or found)[0])
        hint = (
            "several begin so: give more of the id"
            if found
            else "ids are those of Session.id, or the beginning of one"
        )
        candidates = tuple(state.id for state in found)
        raise NotFound(what="session", name=session_id, hint=hint, candidates=candidates)

    def sessions(
        self, *, key: str | None, state: str | None, text: str | None, after: str | None, limit: int
    ) -> "Plan[Page[Listed]]":
        # for those who list: a turn needs nothing of it
        from holdfast.runtime.catalog.list_sessions import (
            listing,
            wanted,
        )

        asked = wanted(key=key, state=state, after=after, limit=limit)
        if text is None:
            return listing(self.engine, self.tenant, self.room, asked)
        return self._found(asked, text)

    def _found(self, asked: "Wanted", text: str) -> "Plan[Page[Listed]]":
        from holdfast.runtime.catalog.list_sessions import MATCHING_MAX, listing
        from holdfast.runtime.catalog.search import sought

        question = sought(self.tenant, text, key=asked.key, state=asked.state)
        matching = yield from read(
            lambda: self.engine.matching(question, limit=MATCHING_MAX), slow=True
        )
        return (yield from listing(self.engine, self.tenant, self.room, asked, set(matching)))

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
        return retain(self.engine, self.tenant, self.room, now=now, days=days, preview=preview)

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
        state = yield from settle_if_dead(self.room(state))
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
        room, writes = replacement
        outcome = yield from wait_for(self.engine.submit(tuple(writes)))
        return None if isinstance(outcome, Refused) else room

    def _replace_running(
        self, state: SessionState, key: str, reason: str
    ) -> Plan[SessionLog | None]:
        """The same for a session in which a turn runs. The turn's end and the session's are one
        transaction: whoever waits for the turn gets the next one in the new session, and none in
        the old that would be ended at once.
        """
        room, made = self.room(state), []

        def close(last: Write) -> Plan[Commit]:
            replacement = None
            while replacement is None:
                replacement = yield from read(lambda: self._replacement(room.state(), key, reason))
            new, (*closing, opening) = replacement
            made.append(new)
            # none when somebody else has ended it by now, and then this commit is refused
            for one in closing:
                last = replace(
                    last, drafts=(*last.drafts, *one.drafts), close=True, takes=one.takes
                )
            return last, opening

        yield from settle(room, state, end="interrupted", reason=f"reset: {reason}", also=close)
        now = yield from read(lambda: self.engine.current(self.tenant, key))
        return next((new for new in made if now is not None and now.id == new.id), None)

    def _replacement(
        self, state: SessionState | None, key: str, reason: str
    ) -> tuple[SessionLog, list[Write]] | None:
        """The room and the writes of a key's next session. What waits in the old one's inbox goes
        on in the new. None when somebody else has taken that along since the inbox was read.
        """
        epoch = state.epoch + 1 if state is not None else 1
        new = SessionState(
            id=mint_session(self.world),
            tenant=self.tenant,
            key=key,
            epoch=epoch,
            ended=False,
            head=0,
            fence=0,
            turn=None,
            holder=None,
            lease_left_s=None,
            opened_at=0,
            active_at=0,
            last_at=0,
            journal=0,
        )
        room = self.room(new)
        drafts = [
            room.draft(
                "opened", Opened(key, epoch, previous=state.id if state is not None else None)
            )
        ]
        writes: list[Write] = []
        waiting: tuple[Waiting, ...] = ()
        if state is not None:
            waiting = tuple(self.engine.inbox(state.id))
        if state is not None and (waiting or not state.ended):
            old = self.room(state)
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
            guards: dict[str, Any] = {"idle": True, "head": state.head, "ended_too": state.ended}
            writes.append(Write(state.id, (closed,), close=True, takes=takes, **guards))
        admits = tuple(replace(w, seq=0) for w in waiting)
        writes.append(
            Write(new.id, tuple(drafts), open=Opening(self.tenant, key, epoch), admits=admits)
        )
        return room, writes


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


@bordered
class Store:
    """All sessions of one tenant in one place. A context manager that closes it, safe to use from
    many threads.
    """

    tenant: str

    def __init__(self, work: StoreWork) -> None:
        self._work = work
        self.tenant = work.tenant

    def session(self, key: str, *, reset: Policy | None = None, create: bool = True) -> Session:
        """The key's current session, made if there is none; a `reset` policy is applied in the same
        transaction.
        """
        return Session(run(self._work.session(key, reset=reset, create=create)))

    def turn(
        self,
        key: str,
        message: Any = None,
        *,
        reset: Policy | None = None,
        format: str = "openai.chat",
        event_id: str | int | None = None,
        on_busy: OnBusy = "wait",
        reply_to: str | int | None = None,
        lease_s: float = 30,
    ) -> Turn:
        """Starts a turn in the key's current session, which is made if there is none and reset if
        that is due: what a gateway calls for each inbound message. All is one transaction;
        otherwise as `Session.turn`.
        """
        options = {
            "event_id": event_id,
            "on_busy": on_busy,
            "reply_to": reply_to,
            "lease_s": lease_s,
        }
        return Turn(run(self._work.turn(key, message, reset=reset, format=format, **options)))

    def accept(
        self,
        key: str,
        message: Any,
        *,
        format: str = "openai.chat",
        event_id: str | int | None = None,
        reply_to: str | int | None = None,
    ) -> Receipt:
        """Stores a message in the inbox of the key's current session, and nothing more: what a
        webhook calls before it answers. The next turn takes it. An `event_id` that came before
        gives the receipt of that time.
        """
        return run(
            self._work.accept(key, message, format=format, event_id=event_id, reply_to=reply_to)
        )

    def outbox(self, limit: int = 50, *, claim_s: float | None = None) -> list[Owed]:
        """Replies to send, oldest first: those asked for with `reply_to`, until their sending is
        confirmed.

        With `claim_s`, those that no other sender has: each is this caller's alone for so many
        seconds, among all threads, processes and machines. It is given back by `Owed.failed`, or
        when the time is over.
        """
        return [Owed(work) for work in run(self._work.outbox(limit, claim_s))]

    def pending(self, *, after: str | None = None, limit: int = 50) -> "Page[PendingMessage]":
        """What waits in the inboxes of all sessions, oldest first, each message with its `key` and
        `session_id`; what a gateway asks after a restart. `after` is the `next` of the page before.
        """
        return run(self._work.pending(after, limit))

    def for_tenant(self, name: str) -> "Store":
        """The store of another tenant on the same engine: the same connections and threads, other
        sessions. Closing it ends the turns that were begun with it, and nothing else; closing the
        store that was opened closes all.
        """
        return Store(self._work.for_tenant(name))

    def get(self, session_id: str) -> Session:
        """A session by its id, or by an unambiguous beginning of it."""
        return Session(run(self._work.get(session_id)))

    def reset(self, key: str, *, reason: str = "command") -> Session:
        """Ends the key's current session, what runs in it included, and gives the key a new one,
        whose epoch is one higher. What waits in the inbox goes on in the new session.
        """
        return Session(run(self._work.reset(key, reason=reason)))

    def sessions(
        self,
        *,
        key: str | None = None,
        state: State | None = None,
        text: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> "Page[Listed]":
        """A page of sessions, newest activity first: those of a key, in a state ("open", "running"
        or "ended"), in which a text was said. `after` is the `next` of the page before.
        """
        return run(self._work.sessions(key=key, state=state, text=text, after=after, limit=limit))

    def search(
        self,
        text: str,
        *,
        limit: int = 20,
        role: str | None = None,
        tool: str | None = None,
        state: str | None = None,
        key: str | None = None,
        session: str | None = None,
        since: "int | datetime | None" = None,
        until: "int | datetime | None" = None,
    ) -> "list[Hit]":
        """Messages of all sessions that have all of these words, newest first; "words in quotes"
        next to each other, the last word also as the beginning of one. Without any words, all
        messages. `state` is that of the session ("open", "running", "ended") or of the message
        ("complete", "partial"); `tool` is one that the message calls or answers for. Complete as of
        the call; in a PostgreSQL store that was opened read-only, as of the last time that a store
        open for writing has searched.
        """
        filters = {
            "role": role,
            "tool": tool,
            "state": state,
            "key": key,
            "since": since,
            "until": until,
        }
        return run(self._work.search(text, limit=limit, session=session, **filters))

    def erase(self, session_id: str, *, preview: bool = False) -> "Erasure":
        """Takes all words of a session out of the store, its blobs and the search index included;
        an audit entry stays. With `preview`, tells what that would take.
        """
        return run(self._work.erase(session_id, preview=preview))

    def retain(self, days: float, *, preview: bool = True) -> "list[Erasure]":
        """Erases the sessions that had no news for so many days, and forgets the events that they
        accepted; with `preview` it only tells which ones. Called again, it goes on where it was
        interrupted.
        """
        return run(self._work.retain(days, preview=preview))

    def info(self) -> "StoreInfo":
        """What is in this store and how large it is, all tenants together; cheap."""
        return run(self._work.info())

    def check(self) -> "list[Problem]":
        """Looks for damage and broken promises in the whole store, and changes nothing."""
        return run(self._work.check())

    def backup(self, to: str | os.PathLike[str]) -> "Backup":
        """Copies the whole store, as of one moment, to a new file while others write, and verifies
        the copy.
        """
        return run(self._work.backup(to))

    def close(self) -> None:
        """Ends the turns that this process still runs, as interrupted, and closes the store once
        all is written.
        """
        self._work.close()

    def __repr__(self) -> str:
        return f"<Store {self._work.engine.where} tenant={self.tenant!r}>"

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@checked
def open_store(
    where: str | os.PathLike[str] = "holdfast.db",
    *,
    durability: Durability = "power",
    tenant: str = "default",
    read_only: bool = False,
    world: World | None = None,
) -> Store:
    """Opens a store, made if there is none: a path, `sqlite:///…` or `postgresql://…`.

    `durability="process"` survives a killed process but not a power cut, and is faster. With
    `read_only` nothing is made, locked or changed, and every call that would write raises
    `ReadOnlyStore`: for a disk, a folder or a database server that can only be read.
    """
    return Store(
        StoreWork(where, durability=durability, tenant=tenant, read_only=read_only, world=world)
    )
