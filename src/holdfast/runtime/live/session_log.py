"""What everything that works on one session shares.

It keeps the folded log, brought up to date before each use from whatever this or another process
has written, and the shaped beginning of each context that was asked for, so that a long session
costs its next turn only what is new.
"""

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

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
    Written,
)
from holdfast.engine.wake_signal import is_mine
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
from holdfast.runtime.live.derived import Derived
from holdfast.runtime.live.lease_keeper import LeaseKeeper
from holdfast.runtime.live.lineage import Lineages, Stretch, stretch_of
from holdfast.runtime.live.message import Message
from holdfast.runtime.plans.plan import Plan, is_within_call, read, wait_for

T = TypeVar("T")
PAGE = 2000
_BODY, _KIND = attrgetter("body"), attrgetter("kind")


class Kinds(NamedTuple):
    """What a store makes its sessions and turns of, chosen when it is opened: `SessionLog` and
    `RunningTurn`, or those that are traced.
    """

    log: Callable[..., "SessionLog"]
    turn: Callable[..., Any]


class SessionLog:
    """One session of one store."""

    def __init__(
        self,
        engine: Engine,
        world: World,
        keeper: LeaseKeeper,
        lineages: Lineages,
        state: SessionState,
        kinds: Kinds,
    ) -> None:
        self.engine = engine
        self.world = world
        self.keeper = keeper
        self.lineages = lineages
        self.kinds = kinds
        self.id = state.id
        self.tenant = state.tenant
        self.key = state.key
        self.epoch = state.epoch
        self.origin = state.origin
        # Reentrant: what is read under it asks for the log, which takes it again.
        self.lock = threading.RLock()
        self._derived = Derived()
        self._lineage: tuple[Stretch, ...] | None = None
        self._erased: tuple[str, ...] = ()
        # the seqs up to which its holder has seen the view, and has rewound it
        self.learned = self.went_back = 0
        self._labels: dict[str, dict[str, Any]] | None = None
        self._labelled = 0
        self._labels_erased: tuple[str, ...] = ()
        self._is_vetting = False
        self._scopes: list[str] | None = None

    def other(self, state: SessionState) -> "SessionLog":
        """The log of another session of the same store."""
        return self.kinds.log(
            self.engine, self.world, self.keeper, self.lineages, state, self.kinds
        )

    @property
    def contexts(self) -> Contexts:
        """The shaped beginnings of its contexts."""
        return self._derived.contexts

    @property
    def sums(self) -> Any:
        """What `totals` has added up so far."""
        return self._derived.sums

    @sums.setter
    def sums(self, sums: Any) -> None:
        self._derived.sums = sums

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
        """Its scope, and those of the sessions whose past it shares."""
        if self._scopes is None:
            # None of them ever changes: asked for once.
            scopes = [self.scope]
            for stretch in self.lineage()[:-1]:
                state = self.engine.state(stretch.session)
                key = state.key if state is not None else None
                scopes.append(scope_of(self.tenant, key=key, session=stretch.session))
            self._scopes = scopes
        return self._scopes

    def page(
        self, after: int, limit: int = PAGE, *, bodies: bool = True
    ) -> list[Entry]:
        """A page of the log after this seq, what it shares with its parent included; nothing at the
        end.
        """
        page = self._page(after, limit, bodies=bodies)
        if self._is_vetting:
            return [readable(entry, bodies=bodies) for entry in page]
        return page

    def reading(self, work: Callable[..., T], *given: Any) -> T:
        """What this reads. If it fails on something in the log, it is done again with every entry
        vetted: one that can't be read takes away nothing but itself (I-25).
        """
        try:
            return work(*given)
        except Exception as error:
            # Any exception: what damaged bytes cause can't be foreseen. Errors of ours say something
            # else, but for `Damaged`.
            is_ours = isinstance(error, HoldfastError) and not isinstance(
                error, Damaged
            )
            if self._is_vetting or is_ours:
                raise
        with self.lock:
            # In this order: what was read unvetted must not be taken for vetted.
            self._forget()
            # It stays so: the damage does, and each reading would fail on it first.
            self._is_vetting = True
        return work(*given)

    def _page(self, after: int, limit: int, *, bodies: bool) -> list[Entry]:
        # Nearly all reading is of a session's own entries: its lineage is not asked for.
        if after >= self.origin:
            return self.engine.entries(self.id, after=after, limit=limit, bodies=bodies)
        lineage = self.lineage()
        for stretch in lineage[stretch_of(lineage, after) :]:
            after = max(after, stretch.after)
            # What a parent has said since they parted is not in this log.
            most = limit if stretch.upto is None else min(limit, stretch.upto - after)
            page = self.engine.entries(
                stretch.session, after=after, limit=most, bodies=bodies
            )
            # It may be short where a stretch ends: callers read on until one is empty.
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
        return self._located(self._up_to_date)

    def _located(self, work: Callable[..., T], *given: Any) -> T:
        """What this reads; an entry that can't be read, and that nothing can stand in for, is an
        error that names its place.
        """
        if is_mine(self.lock) and is_within_call():
            return self._apart(lambda: self._read_located(work, *given))
        with self.lock:
            return self._read_located(work, *given)

    def _apart(self, work: Callable[[], T]) -> T:
        """What this reads, for a signal handler that has interrupted somebody who looks at the log:
        what that one looks at must not change under its eyes.
        """
        kept = self._derived, self._erased, self._is_vetting, self.learned
        try:
            self._derived = Derived()
            return work()
        finally:
            self._derived, self._erased, self._is_vetting, self.learned = kept

    def _read_located(self, work: Callable[..., T], *given: Any) -> T:
        try:
            return self.reading(work, *given)
        except Damaged as error:
            # What was half read is forgotten, so that the next one who looks meets it too.
            self._forget()
            place = located(error, self.engine.where, self.id, self.page)
            raise place from error

    def _up_to_date(self, head: int | None = None) -> Log:
        self._forget_what_was_erased()
        if self._derived.is_torn:
            self._forget()
        # Not looked up again: a signal handler that reads this session, too, may have
        # put another one there.
        known = self._derived
        is_warm = known.begun
        if is_warm and head is not None and known.log.head >= head:
            return known.log
        if not known.begun:
            self._begin(known)
        # What this handle has stored itself first; whether others have stored more is
        # asked in any case.
        own = known.stored()
        while page := own or self.page(known.log.head):
            is_own, own = bool(own), []
            if is_warm and "blanked" in map(_KIND, page):
                # What was read before may have lost its words since (I-21).
                known = self._derived = Derived()
                self._begin(known)
                is_warm = False
                continue
            known.fold(known.log, page)
            if known.log.lost:
                # From the first entry on. The new log counts revisions from 0 again:
                # contexts kept for the old one would be taken for its own.
                self._forget(from_first=True)
                known = self._derived
            elif not is_own and self.is_last(page):
                break
        return known.log

    def is_last(self, page: list[Entry]) -> bool:
        """Whether no page follows this one. It saves every warm reader a second question."""
        if len(page) == PAGE or page[-1].seq <= self.origin:
            return False
        # An engine ends a page early when its payloads are large.
        return sum(map(len, map(_BODY, page))) < PAGE_BYTES_MAX

    def _forget_what_was_erased(self) -> None:
        """A fork loses what any of those that it shares its past with has lost, though it was read
        before (I-21).
        """
        erased = self._erased_past()
        if erased != self._erased:
            # With what was given: nothing of what was erased is kept (I-21).
            self._derived = Derived()
            self._erased = erased

    def _erased_past(self) -> tuple[str, ...]:
        if not self.origin:
            return ()
        return self._erasures(self.lineage()[:-1])

    def _erasures(self, stretches: Sequence[Stretch]) -> tuple[str, ...]:
        """What tells whether words of these sessions were erased since."""
        marks = []
        for stretch in stretches:
            state = self.engine.state(stretch.session)
            # What has ended can be erased, and a past that was copied blanked: its head tells that
            # entries were.
            if state is not None and (state.ended or state.copied_from is not None):
                marks.append(f"{state.id} {state.erased} {state.head}")
        return tuple(marks)

    def _forget(self, *, from_first: bool = False) -> None:
        """All is worked out anew; the contexts that were given out are known again."""
        derived = Derived(from_first=from_first)
        derived.contexts.know_given(self._derived.contexts)
        self._derived = derived

    @property
    def looked_upto(self) -> int:
        """The seq of the last entry that was folded into `log` or `history`."""
        known = self._derived
        past = 0 if known.history is None else known.history.head
        return max(known.log.head, past)

    def history(self) -> Log:
        """The log, up to date, from its first entry on: what the transcript is told from. After a
        compaction it is folded apart, without payloads.
        """
        if is_mine(self.lock) and is_within_call():
            return self._apart(lambda: self.reading(self._whole_history))
        with self.lock:
            return self.reading(self._whole_history)

    def _whole_history(self) -> Log:
        # First: what was erased since, or torn, is forgotten in there.
        log = self.log()
        known = self._derived
        if known.whole:
            return log
        if known.history is None:
            known.history = Log()
        while page := self.page(known.history.head, bodies=False):
            known.fold(known.history, page)
        return known.history

    def _begin(self, known: Derived) -> None:
        """A load begins with the last compaction, not with the history."""
        summary = self._entry(self._base())
        # One that is not there, or a placeholder by now because it can't be read: then all of the
        # history is shown.
        if summary is None or summary.kind != "compaction":
            known.begin()
            return
        note = note_of("compaction", summary.note)
        # What it says was damaged: nothing begins behind its own summary.
        if not 0 < note.since <= summary.seq:
            known.begin()
            return
        prompt = self._entry(note.instructions)
        instructions = None
        if prompt is not None and prompt.kind == "instructions" and prompt.body:
            instructions = thaw(prompt.body)
        known.begin(note, instructions)

    def _entry(self, seq: int) -> Entry | None:
        """The entry with this seq; None when there is none."""
        page = self.page(seq - 1, 1) if seq > 0 else []
        return page[0] if page and page[0].seq == seq else None

    def _base(self) -> int:
        """The seq of the last compaction, this session's own or one that it shares; 0 when there is
        none.
        """
        base = self.state().base
        if base or not self.origin:
            return base
        for stretch in reversed(self.lineage()[:-1]):
            past = self.engine.state(stretch.session)
            if past is not None and past.base:
                # One that its parent made after they had parted is none of its own.
                return past.base if past.base <= (stretch.upto or 0) else 0
        return 0

    def context(
        self, format: str, *, prefill: bool = False, head: int | None = None
    ) -> Context:
        """What the model sees now, in this format. `head` is where the log ended a moment ago, for
        a caller that has just read the state: a log that is known so far is not asked for again.
        """
        return self._located(self._context, format, prefill, head)

    def _context(self, format: str, prefill: bool, head: int | None) -> Context:
        # Not by `log`: whoever calls this has the lock, and locates what can't be read.
        log = self._up_to_date(head)
        context = self.contexts.make(log, format, prefill=prefill)
        self.learned = log.head
        return context

    def labels(self) -> dict[str, dict[str, Any]]:
        """What is noted about each message that has labels. Not to be changed by the reader; it
        grows.
        """
        with self.lock:
            # Where there are none, none can be left of what was erased.
            erased = self._erasures(self.lineage()) if self._labels else ()
            if self._labels is None or erased != self._labels_erased:
                shared: dict[str, dict[str, Any]] = {}
                past = self.lineage()[:-1] if self.origin else ()
                for session, after, upto in past:
                    for entry in self.engine.labels(session, after=after):
                        # What the parent was told after they parted is not known here.
                        if upto is None or entry.seq <= upto:
                            put_labels(shared, entry)
                # The labels last: they are there once all of them are.
                self._labelled, self._labels_erased = self.origin, erased
                self._labels = shared
            for entry in self.engine.labels(self.id, after=self._labelled):
                put_labels(self._labels, entry)
                self._labelled = entry.seq
            return self._labels

    def pending(self) -> list[Message]:
        """What waits in the inbox, in the order it was accepted."""
        # The inbox before the log: what is in the inbox then is in the log too.
        waiting = [each.message.hex() for each in self.engine.inbox(self.id)]
        stored = self._by_id()
        found = []
        for id in waiting:
            if id in stored:
                labels = self._noted_about(id)
                found.append(
                    Message(stored[id], turn=None, pending=True, labels=labels)
                )
        return found

    def pick(self, ids: Sequence[str]) -> list[Message]:
        """These messages, in this order."""
        stored = self._by_id()
        found = []
        for id in ids:
            turn = self.turn_name(stored[id].turn)
            labels = self._noted_about(id)
            found.append(Message(stored[id], turn=turn, labels=labels))
        return found

    def _noted_about(self, id: str) -> dict[str, Any]:
        with self.lock:
            return dict(self._derived.log.labels.get(id, ()))

    def _by_id(self) -> dict[str, StoredMessage]:
        log = self.log()
        with self.lock:
            return {message.id: message for message in log.by_seq}

    def with_payload(self, message: StoredMessage) -> StoredMessage:
        """The message with its payload, which a long history is folded without."""
        if message.body:
            return message
        [entry] = self.page(message.seq - 1, 1)
        note = message.note
        if self._is_vetting and entry.kind == "message":
            # A placeholder has a note of its own, which its payload goes with.
            note = note_of("message", entry.note)
        return replace(message, note=note, body=entry.body)

    def again(self, ids: Sequence[bytes]) -> list[Draft] | None:
        """Messages of this session, to be stored in the one that follows it; None when one of them
        no longer waits here.
        """
        stored = self._by_id()
        drafts = []
        for id in ids:
            found = stored.get(id.hex())
            if found is None:
                return None
            # Under its own id: it is the same message wherever resets carry it (I-2).
            note = noted(found.note)
            drafts.append(Draft("message", None, id, found.at, note, found.body))
        return drafts

    def state(self) -> SessionState:
        state = self.engine.state(self.id)
        if state is None:
            raise NotFound(what="session", name=self.id, hint="it may have been erased")
        return state

    def note_stored(self, drafts: Sequence[Draft], written: Written) -> None:
        """These are in its log now, stored by this handle in one write: what it reads next need not
        be asked for.
        """
        self._derived.note_stored(drafts, written)

    def submit(self, write: Write) -> Ticket:
        """A commit of this one write, under way."""
        return self.engine.submit((write,))

    def commit(self, write: Write) -> Plan[Outcome]:
        """What becomes of this one write."""
        return wait_for(self.engine.submit((write,)))

    def commit_or_retry(self, write: Write) -> Plan[Written | None]:
        """What becomes of a write whose guards repeat what it was decided from. None when they
        refused it: then decide again. Raises `SessionEnded` when that would be in vain.
        """
        outcome = yield from self.commit(write)
        if isinstance(outcome, Written):
            return outcome
        if outcome.why == "ended":
            raise (yield from read(self.ended))
        return None

    def draft(
        self, kind: str, note: Any = None, *, turn: int | None = None, body: bytes = b""
    ) -> Draft:
        """A new entry of this session, to be written."""
        at = self.world.now()
        raw = noted(note) if note is not None else b""
        return Draft(kind, turn, mint(self.world, at), at, raw, body)

    def message(
        self, spoken: Spoken, *, turn: int | None, id: bytes | None = None
    ) -> Draft:
        """A new message of this session, to be written; `id` if it has one already."""
        at = self.world.now()
        id = id or mint(self.world, at)
        return Draft("message", turn, id, at, noted(spoken.note), spoken.body)

    def current(self) -> SessionState | None:
        """The session that this one's key is bound to now; None when there is no key."""
        if self.key is None:
            return None
        return self.engine.current(self.tenant, self.key)

    def ended(self) -> SessionEnded:
        """The error for a handle whose session is over; it names the one to go on in (I-8)."""
        current = self.current()
        go_on_in = None
        if current is not None and not current.ended:
            go_on_in = current.id
        reason = self.log().closed or "ended"
        return SessionEnded(session_id=self.id, reason=reason, current_id=go_on_in)

    def turn_name(self, number: int | None) -> str | None:
        """The id of the turn with this number."""
        return None if number is None else turn_id(self.id, number)


def put_labels(labels: dict[str, dict[str, Any]], entry: Entry) -> None:
    """Adds what a label entry says to what is noted about its message."""
    try:
        note = note_of("label", entry.note)
    except Damaged:
        return  # a label that can't be read is none (I-25)
    labels.setdefault(note.message, {}).update(note.labels)


def speak(message: Any, format: str, **facts: Any) -> Spoken:
    """A caller's message, frozen and noted: text, a payload or an SDK object. Nothing waits before
    this is done (I-3).
    """
    shape = registry.get(format)
    role = facts.pop("role", "user")  # of words alone; a payload says its own
    flat = False
    if type(message) is str:
        payload = shape.say(role, message)
    else:
        try:
            # As most messages are; asked once, it saves two walks.
            flat = is_flat(message)
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
    # The payload may be any JSON, and what a format trips over can't be foreseen.
    except Exception as error:
        problem = (
            f"it is JSON, but not a message in the format `{format}` "
            f"({type(error).__name__} while it was read)"
        )
        raise InvalidMessage(problem=problem, place="the message") from error
    if facts:
        note = replace(note, **facts)
    return Spoken(note, body)
