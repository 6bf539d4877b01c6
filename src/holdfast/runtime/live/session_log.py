"""What everything that works on one session shares.

It keeps the folded log, brought up to date before each use from whatever this or another process
has written, and the shaped beginning of each context that was asked for, so that a long session
costs its next turn only what is new.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from holdfast.domain.arguments import kind_of
from holdfast.domain.entry import Draft, Entry, note_of, noted
from holdfast.domain.ids import turn_id
from holdfast.domain.log.fold import Log
from holdfast.domain.message import Spoken, freeze, is_flat, thaw
from holdfast.domain.repair import StoredMessage
from holdfast.domain.reset_policy import scope_of
from holdfast.engine.protocol import (
    PAGE_BYTES_MAX,
    Engine,
    Outcome,
    SessionState,
    Ticket,
    Write,
)
from holdfast.errors import (
    Damaged,
    HoldfastError,
    InvalidMessage,
    NotFound,
    SessionEnded,
)
from holdfast.formats import registry
from holdfast.runtime.clock import World, mint
from holdfast.runtime.live.context import Context, Contexts
from holdfast.runtime.live.damage import located, readable
from holdfast.runtime.live.lease_keeper import LeaseKeeper
from holdfast.runtime.live.lineage import Lineages, Stretch, stretch_of
from holdfast.runtime.live.message import Message
from holdfast.runtime.plans.plan import Plan, wait_for

T = TypeVar("T")
PAGE = 2000


class SessionLog:
    """One session of one store."""

    def __init__(
        self,
        engine: Engine,
        world: World,
        keeper: LeaseKeeper,
        lineages: Lineages,
        state: SessionState,
    ) -> None:
        self.engine, self.world, self.keeper = engine, world, keeper
        self.lineages = lineages
        self.id, self.tenant, self.key, self.epoch = (
            state.id,
            state.tenant,
            state.key,
            state.epoch,
        )
        self.origin = state.origin
        self.lock = threading.RLock()
        self._log = Log()
        self._history: Log | None = None
        self._lineage: tuple[Stretch, ...] | None = None
        self._begun = self._whole = False
        self._erased: tuple[str, ...] = ()
        # the seqs up to which its holder has seen the view, and has rewound it
        self.learned = self.went_back = 0
        self._labels: dict[str, dict[str, Any]] | None = None
        self._labelled = 0
        self._is_vetting = False
        self.sums: Any = None
        """What `summing` has added up so far."""
        self.contexts = Contexts()
        self._scopes: list[str] | None = None

    def other(self, state: SessionState) -> "SessionLog":
        """The log of another session of the same store."""
        return SessionLog(self.engine, self.world, self.keeper, self.lineages, state)

    @property
    def scope(self) -> str:
        """What an event id of this session is unique in."""
        return scope_of(self.tenant, key=self.key, session=self.id)

    def event(self, event_id: str | None) -> tuple[str, str] | None:
        """What a write claims for an event of this session, if it has an id."""
        if event_id is None:
            return None
        return self.scope, event_id

    def scopes(self) -> list[str]:
        """Its scope, and those of the sessions whose past it shares. None of them ever changes."""
        if self._scopes is None:
            self._scopes = [self.scope]
            for stretch in self.lineage()[:-1]:
                state = self.engine.state(stretch.session)
                key = state.key if state is not None else None
                self._scopes.append(
                    scope_of(self.tenant, key=key, session=stretch.session)
                )
        return self._scopes

    def page(
        self, after: int, limit: int = PAGE, *, bodies: bool = True
    ) -> list[Entry]:
        """A page of the log after this seq, what it shares with its parent included; nothing at the
        end.
        """
        page = self._page(after, limit, bodies=bodies)
        return (
            [readable(entry, bodies=bodies) for entry in page]
            if self._is_vetting
            else page
        )

    def reading(self, work: Callable[[], T]) -> T:
        """What this reads. If it fails on something in the log, it is done again with every entry
        vetted: one that can't be read takes away nothing but itself (I-25).
        """
        try:
            return work()
        except Exception as error:
            if self._is_vetting or (
                isinstance(error, HoldfastError) and not isinstance(error, Damaged)
            ):
                raise
        with self.lock:
            self._is_vetting = True
            self._forget()
        return work()

    def _page(self, after: int, limit: int, *, bodies: bool) -> list[Entry]:
        if after >= self.origin:
            return self.engine.entries(self.id, after=after, limit=limit, bodies=bodies)
        lineage = self.lineage()
        for stretch in lineage[stretch_of(lineage, after) :]:
            after = max(after, stretch.after)
            most = limit if stretch.upto is None else min(limit, stretch.upto - after)
            page = self.engine.entries(
                stretch.session, after=after, limit=most, bodies=bodies
            )
            if page:
                return page
        return []

    def lineage(self) -> tuple[Stretch, ...]:
        """What its log is read from, oldest first; its own entries are the last stretch."""
        if self._lineage is None:
            self._lineage = self.lineages.of(
                self.id, tenant=self.tenant, origin=self.origin
            )
        return self._lineage

    def log(self) -> Log:
        """The log, up to date, from the last compaction on: what the context is made from. Held
        under `lock` by whoever looks at more than one thing in it.
        """
        with self.lock:
            try:
                return self.reading(self._up_to_date)
            except Damaged as error:
                raise self._damaged(error) from error

    def _up_to_date(self) -> Log:
        self._forget_what_was_erased()
        if not self._begun:
            self._begin()
        while page := self.page(self._log.head):
            self._log.add(page)
            if self._log.lost:
                self._log, self._whole, self.contexts = Log(), True, Contexts()
            elif (
                len(page) < PAGE and self._log.head > self.origin and not _is_full(page)
            ):
                break  # a short page of its own log is the last one
        return self._log

    def _forget_what_was_erased(self) -> None:
        """A fork loses what any of those that it shares its past with has lost, though it was read
        before (I-21).
        """
        erased = self._erased_past()
        if erased != self._erased:
            self._erased = erased
            self._forget()

    def _erased_past(self) -> tuple[str, ...]:
        if not self.origin:
            return ()
        states = [self.engine.state(stretch.session) for stretch in self.lineage()[:-1]]
        ended = [state for state in states if state is not None and state.ended]
        # entries of it may be blanked
        return tuple(f"{state.id} {state.erased} {state.head}" for state in ended)

    def _forget(self) -> None:
        self._log, self._history, self._begun, self.contexts = (
            Log(),
            None,
            False,
            Contexts(),
        )
        self.sums = None

    def _damaged(self, error: Damaged) -> Damaged:
        """The error with its place; what was half read is forgotten, so that the next one who looks
        meets it too.
        """
        self._forget()
        return located(error, self.engine.where, self.id, self.page)

    def history(self) -> Log:
        """The log, up to date, from its first entry on: what the transcript is told from. After a
        compaction it is folded apart, without payloads.
        """
        with self.lock:
            return self.reading(self._whole_history)

    def _whole_history(self) -> Log:
        log = self.log()
        if self._whole:
            return log
        if self._history is None:
            self._history = Log()
        while page := self.page(self._history.head, bodies=False):
            self._history.add(page)
        return self._history

    def _begin(self) -> None:
        """A load begins with the last compaction, not with the history."""
        self._begun = True
        base = self._base()
        self._whole = base == 0
        if base:
            [summary] = self.page(base - 1, 1)
            # which can't be read: then all of the history is shown
            if summary.kind != "compaction":
                self._whole = True
                return
            note = note_of("compaction", summary.note)
            told = self.page(note.instructions - 1, 1)[0] if note.instructions else None
            said = (
                told.body if told is not None and told.kind == "instructions" else b""
            )
            self._log.begin(note, thaw(said) if said else None)

    def _base(self) -> int:
        """The seq of the last compaction, this session's own or one that it shares."""
        base = self.state().base
        for stretch in reversed(self.lineage()[:-1]) if self.origin else ():
            if base:
                break
            past = self.engine.state(stretch.session)
            if past is not None and past.base:
                base = past.base
                if base > (stretch.upto or 0):
                    return 0  # its parent was compacted after they had parted
        return base

    def context(self, format: str, *, prefill: bool = False) -> Context:
        """What the model sees now, in this format."""
        with self.lock:
            try:
                return self.reading(lambda: self._context(format, prefill))
            except Damaged as error:
                raise self._damaged(error) from error

    def _context(self, format: str, prefill: bool) -> Context:
        log = self.log()
        self.learned = log.head
        return self.contexts.make(log, format, prefill=prefill)

    def labels(self) -> dict[str, dict[str, Any]]:
        """What is noted about each message that has labels. Not to be changed by the reader; it
        grows.
        """
        with self.lock:
            if self._labels is None:
                self._labels, self._labelled = {}, self.origin
                for session, after, upto in self.lineage()[:-1] if self.origin else ():
                    for entry in self.engine.labels(session, after=after):
                        if upto is None or entry.seq <= upto:
                            _put(self._labels, entry)
            for entry in self.engine.labels(self.id, after=self._labelled):
                _put(self._labels, entry)
                self._labelled = entry.seq
            return self._labels

    def pending(self) -> list[Message]:
        """What waits in the inbox, in the order it was accepted."""
        waiting = [w.message.hex() for w in self.engine.inbox(self.id)]
        log = self.log()
        with self.lock:
            seen = {message.id: message for message in log.by_seq}
            return [
                Message(seen[id], turn=None, pending=True)
                for id in waiting
                if id in seen
            ]

    def pick(self, ids: Sequence[str]) -> list[Message]:
        """These messages, in this order."""
        log = self.log()
        with self.lock:
            seen = {message.id: message for message in log.by_seq}
            return [Message(seen[id], turn=self.turn_name(seen[id].turn)) for id in ids]

    def told(self, seen: StoredMessage) -> StoredMessage:
        """The message with its payload, which a long history is folded without."""
        if seen.body:
            return seen
        [entry] = self.page(seen.seq - 1, 1)
        note = (
            note_of("message", entry.note)
            if self._is_vetting and entry.kind == "message"
            else seen.note
        )
        return replace(seen, note=note, body=entry.body)

    def again(self, id: bytes) -> Draft | None:
        """A message of this session, to be stored in the one that follows it; None when it no
        longer waits here.
        """
        found = next(
            (message for message in self.log().by_seq if message.id == id.hex()), None
        )
        return (
            None
            if found is None
            else Draft("message", None, id, found.at, noted(found.note), found.body)
        )

    def state(self) -> SessionState:
        state = self.engine.state(self.id)
        if state is None:
            raise NotFound(what="session", name=self.id, hint="it may have been erased")
        return state

    def submit(self, write: Write) -> Ticket:
        """A commit of this one write, under way."""
        return self.engine.submit((write,))

    def commit(self, write: Write) -> Plan[Outcome]:
        """What becomes of this one write."""
        return wait_for(self.engine.submit((write,)))

    def draft(
        self, kind: str, note: Any = None, *, turn: int | None = None, body: bytes = b""
    ) -> Draft:
        at = self.world.now()
        return Draft(
            kind,
            turn,
            mint(self.world, at),
            at,
            noted(note) if note is not None else b"",
            body,
        )

    def message(
        self, spoken: Spoken, *, turn: int | None, id: bytes | None = None
    ) -> Draft:
        at = self.world.now()
        return Draft(
            "message",
            turn,
            id or mint(self.world, at),
            at,
            noted(spoken.note),
            spoken.body,
        )

    def ended(self, reason: str = "") -> SessionEnded:
        """The error for a handle whose session is over; it names the one to go on in (I-8)."""
        current = (
            self.engine.current(self.tenant, self.key) if self.key is not None else None
        )
        log = self.log()
        return SessionEnded(
            session_id=self.id,
            reason=reason or log.closed or "ended",
            current_id=current.id
            if current is not None and not current.ended
            else None,
        )

    def turn_name(self, number: int | None) -> str | None:
        return None if number is None else turn_id(self.id, number)


def _put(labels: dict[str, dict[str, Any]], entry: Entry) -> None:
    try:
        note = note_of("label", entry.note)
    except Damaged:
        return  # a label that can't be read is none (I-25)
    labels.setdefault(note.message, {}).update(note.labels)


def _is_full(page: list[Entry]) -> bool:
    return sum(len(entry.body) for entry in page) >= PAGE_BYTES_MAX


def speak(message: Any, format: str, **facts: Any) -> Spoken:
    """A caller's message, frozen and noted: text, a payload or an SDK object. Nothing waits before
    this is done (I-3).
    """
    shape = registry.get(format)
    role = facts.pop("role", "user")  # of words alone; a payload says its own
    try:
        flat = is_flat(message)  # as most messages are; asked once, it saves two walks
    except RuntimeError:
        flat = False  # another thread changes it, as the next look at it will tell
    payload = message if flat else registry.plain(message)
    if type(payload) is str:
        payload = shape.say(role, payload)
    if type(payload) not in (dict, list):
        raise InvalidMessage(
            problem=f"{kind_of(message)} is not a message", place="the message"
        )
    body = freeze(payload, flat=flat)
    try:
        note = shape.note(payload)
    except HoldfastError:
        raise
    except Exception as error:
        problem = (
            f"it is JSON, but not a message in the format `{format}` "
            f"({type(error).__name__} while it was read)"
        )
        raise InvalidMessage(problem=problem, place="the message") from error
    if facts:
        note = replace(note, **facts)
    return Spoken(note, body)
