"""Restoring: a session that was written out entry by entry (`export --as holdfast`) is that session
again.

It comes back under its own id, each entry as it was; where another tenant has that id, under one
derived from it, by which the sessions that belong to it name it, too (`restored_ids`). If it is
here already, what was written out must be a beginning of it, or it a beginning of what was written
out: then what is new is added. Anything else is two histories, and is left. An erasure is no other
history: words that were taken out where it comes from are taken out here, too, and what was erased
here does not come back.

A fork shares its past again if its parent is here and has that past. If not, it brings a copy, which
it loses with its parent all the same should that one come later (`changes.copied_pasts`).

It is brought in one commit, so that nobody goes on with half of it; one that is very long, in
pieces of whole turns. A turn that was running when it was written out runs on here as one whose
process has died: whoever looks next settles it.

A file can say anything, so all of it is vetted before any of it is stored: what it says is what the
log can tell, and counts no further. Replies that it claims are owed are owed again only if that is
asked for, since a gateway would send them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path

from holdfast.domain.accepted_events import AcceptedEvent, EventsOfLog
from holdfast.domain.entry import Entry, note_of
from holdfast.domain.inbox import Inbox
from holdfast.engine.protocol import (
    Laid,
    Opening,
    OwedReply,
    Refused,
    SessionState,
    Start,
    Write,
)
from holdfast.errors import Conflict
from holdfast.runtime.changes.carried_copies import blanking
from holdfast.runtime.changes.copied_pasts import Forks
from holdfast.runtime.live.tenancy import owned
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store
from holdfast.runtime.transfer.compare_logs import (
    Page,
    between_turns,
    draft_of,
    is_same_place,
    pages,
    with_last,
)
from holdfast.runtime.transfer.copy_session import waiting_in
from holdfast.runtime.transfer.exported_file import (
    ExportHeader,
    LogFacts,
    OwedLine,
    SessionLine,
    damaged,
    entries_of,
    owed_reply,
    read_header,
    vet_file,
)
from holdfast.runtime.transfer.import_store import ImportedStore
from holdfast.runtime.transfer.restored_ids import RestoredIds
from holdfast.runtime.transfer.shared_past import has_lost_words, is_past_of

AT_ONCE_BYTES = 64 << 20
"""So much is brought in one commit."""
HOLDER = "import"
"""Who holds a turn that was running when its session was written out: nobody that lives."""


def standing_of(session: Session) -> SessionLine:
    """What is written out beside the log."""
    log = session._log
    state = log.state()
    owed = []
    for debt in log.engine.debts(log.id):
        owed.append(OwedLine(debt.id.hex(), debt.turn, debt.reply_to, debt.at))
    return SessionLine(state.fence, state.base, owed)


def restore(store: Store, path: Path, *, outbox: bool = False) -> ImportedStore:
    """Brings the session back. `Conflict` when it went on differently here, `Damaged` when it can't
    be what was written out; nothing is stored then. `outbox`: replies that were owed when it was
    written out are owed again.
    """
    # In two passes, so that a file that is broken at its end leaves nothing here.
    header = read_header(path)
    facts = vet_file(path)
    return _Restoring(store, header, facts, outbox).bring(partial(entries_of, path))


class _Restoring:
    def __init__(
        self, store: Store, header: ExportHeader, facts: LogFacts, outbox: bool
    ) -> None:
        self._work = store._work
        self._engine = store._work.engine
        self._tenant = store._work.tenant
        self._ids = RestoredIds(self._engine, self._tenant)
        self._id = self._ids.here(str(header.session.get("id")))
        self._key = header.session.get("key")
        self._standing = header.standing
        self._facts = facts
        self._parent = None if facts.parent is None else self._ids.here(facts.parent)
        self._with_outbox = outbox
        # What the entries tell, as far as they were read.
        self._inbox = Inbox()
        self._events: list[AcceptedEvent] = []
        self._head = 0
        self._turn = 0
        self._at = 0
        self._base = 0
        self._ended = False
        self._erased = False
        self._addresses: set[str] = set()
        self._over: set[int | None] = set()
        self._sent: set[str] = set()
        self._fence_here = 0
        self._running_here: int | None = None
        # Entries up to this seq are another session's.
        self._origin = 0
        # What has lost its words there and not here, and what is left of it.
        self._lost: dict[int, bytes] = {}
        # What is left of the whole session, if it was erased there and is not here.
        self._erases = False
        self._tombstones: list[tuple[int, bytes]] = []
        self._done = ImportedStore(sessions=1, notes=[])

    def bring(self, written: Callable[[], Iterable[Entry]]) -> ImportedStore:
        def entries() -> Iterator[Entry]:
            return map(self._ids.named_here, written())

        known = owned(self._engine, self._tenant, self._id)
        if known is not None and known.erased:
            # Erased on both sides, it has two ends that differ and no words: nothing is to be done.
            self._done.notes.append(
                f"session `{self._id}` was erased here: it was not brought back"
                if not self._facts.erased
                else f"session `{self._id}` was erased here as well as where it comes from"
            )
            return self._done
        opening = self._opening(known, entries)
        # An event is accepted once for each key (I-2): its key knows them, though it may have come
        # without.
        self._accepted = EventsOfLog(
            self._tenant,
            self._id,
            keys=[opening.key, self._key],
            past_of=self._parent,
        )
        pieces = _pieces(entries())
        for piece, is_last in with_last(pieces):
            self._bring_piece(piece, known, opening, is_last=is_last)
        if known is not None and self._lost:
            self._commit(Write(self._id, ended_too=True, blank=self._blank()))
        self._tell(known)
        return self._done

    def _opening(
        self, known: SessionState | None, entries: Callable[[], Iterable[Entry]]
    ) -> Opening:
        """How it is opened here; of one that is here already, how it was."""
        if known is None:
            self._done.new = 1
            key, epoch = self._name()
            self._origin = self._shared(entries)
        else:
            key, epoch = known.key, known.epoch
            self._origin = known.origin
            self._erases = self._facts.erased
            self._fence_here = known.fence
            # One that is held by anybody else is told by the guard of the first write.
            if known.holder == HOLDER:
                self._running_here = known.turn
        return Opening(self._tenant, key, epoch, head=self._origin, parent=self._parent)

    def _bring_piece(
        self,
        piece: Page,
        known: SessionState | None,
        opening: Opening,
        *,
        is_last: bool,
    ) -> None:
        running = _unfinished(piece) if is_last else None
        if running is not None and (known is None or known.head <= self._head):
            # Its turn gets the number that follows.
            if self._fence_here != running - 1:
                self._add([], self._head, None, fence=running - 1)
        self._take_in(piece)
        rest = self._new(piece, known)
        head = self._head - len(rest)
        is_first = known is None and head == self._origin
        if rest:
            place = opening if is_first else None
            self._add(rest, head, place, is_last=is_last, running=running)

    def _tell(self, known: SessionState | None) -> None:
        """What came of it, once it is there."""
        if known is not None and self._done.messages:
            self._done.grown = 1
        is_new = known is None or known.head < self._head
        if is_new and self._standing.outbox and not self._with_outbox:
            count = len(self._standing.outbox)
            self._done.notes.append(
                f"replies that were owed when it was written out are not owed here: {count}"
            )

    def _shared(self, entries: Callable[[], Iterable[Entry]]) -> int:
        """Up to which seq it shares its past here: with its parent, if that has the same."""
        origin = self._facts.origin
        parent = owned(self._engine, self._tenant, self._parent)
        if parent is None or parent.head < origin:
            return 0
        past = islice(entries(), origin)
        log = self._work.session_log(parent)
        return origin if is_past_of(log, past, self._ids.named_here) else 0

    def _name(self) -> tuple[str | None, int]:
        """The key that it had, unless that means another session here."""
        if self._key is None:
            return None, 1
        current = self._engine.current(self._tenant, self._key)
        if current is None or current.ended:
            return self._key, (current.epoch if current is not None else 0) + 1
        self._done.notes.append(
            f"the key `{self._key}` is in use here, by session `{current.id}`: the session came "
            "without it"
        )
        return None, 1

    def _take_in(self, page: Page) -> None:
        """What a page tells of how the session stands after it."""
        first = self._head + 1
        if [entry.seq for entry in page] != list(range(first, first + len(page))):
            raise damaged(
                f"the entries after {self._head}",
                "some are missing, or out of order (I-1)",
            )
        self._head = page[-1].seq
        self._inbox.add(page)
        accepted = self._accepted.add(page)
        self._events = [event for event in accepted if event.seq > self._origin]
        for entry in page:
            self._turn = max(self._turn, entry.turn or 0)
            if entry.kind == "message" or not self._at:
                self._at = entry.at
            if entry.kind == "closed":
                self._ended = True
            elif entry.kind == "opened":
                # What came before, if anything did, was another session.
                self._ended = self._erased = False
                self._at = entry.at
            elif entry.kind == "erased":
                self._erased = True
            elif entry.kind == "compaction":
                self._base = entry.seq
            elif entry.kind in ("turn", "end", "message", "post"):
                self._owe(entry)

    def _owe(self, entry: Entry) -> None:
        """What the log tells of replies: who asked for one, which turns are over, which replies
        were sent.
        """
        note = note_of(entry.kind, entry.note)
        if entry.kind == "post" and note.end == "sent":
            self._sent.add(note.owed)
        elif entry.kind == "end":
            self._over.add(entry.turn)
        elif entry.kind in ("turn", "message") and note.reply_to is not None:
            self._addresses.add(note.reply_to)

    def _new(self, page: Page, known: SessionState | None) -> Page:
        """What of a page is not here yet; all that is must be the same. What it shares is its
        parent's.
        """
        own = page[max(0, self._origin + 1 - page[0].seq) :]
        if known is None or not own or known.head < own[0].seq:
            return own
        after, upto = own[0].seq - 1, min(own[-1].seq, known.head)
        here = chain.from_iterable(
            pages(self._engine, self._id, after=after, upto=upto)
        )
        for ours, theirs in zip(own, here, strict=False):
            if ours != theirs and not self._is_same(ours, theirs):
                problem = (
                    f"from entry {ours.seq} on it went on differently here, and is kept "
                    "as it is"
                )
                raise Conflict(session_id=self._id, problem=problem)
        if self._erases:
            self._tombstones += [(ours.seq, ours.note) for ours in own[: upto - after]]
        return own[upto - after :]

    def _is_same(self, ours: Entry, theirs: Entry) -> bool:
        """Whether the two differ in nothing but words that were taken out, there or here, and in
        what other sessions are called: another tenant may have taken the id of one since. What was
        taken out there will be here.
        """
        theirs = self._ids.named_here(theirs)
        if ours == theirs:
            return True
        if self._erases:
            return is_same_place(ours, theirs)
        may_lack = self._facts.may_lack_words(ours.seq)
        if may_lack and has_lost_words(ours, theirs):
            self._lost[ours.seq] = ours.note
            return True
        return has_lost_words(theirs, ours)

    def _add(
        self,
        entries: Page,
        head: int,
        opening: Opening | None,
        *,
        is_last: bool = False,
        running: int | None = None,
        fence: int | None = None,
    ) -> None:
        was_running = self._running_here
        starts = running is not None and running != was_running
        # The base that the file claims is believed only if the log says the same.
        is_based = is_last and self._standing.base == self._base
        laid = Laid(
            fence=self._turn if fence is None else fence,
            active_at=self._at,
            base=self._base if is_based else 0,
            ended=is_last and (self._ended or self._erased),
            erased=is_last and self._erased,
            inbox=tuple(waiting_in(self._inbox)),
            outbox=tuple(self._owed(is_last)),
            events=tuple(self._events),
        )
        write = Write(
            self._id,
            tuple(map(draft_of, entries)),
            open=opening,
            head=head,
            idle=was_running is None,
            fence=was_running,
            finish=was_running is not None and was_running != running,
            start=Start(HOLDER, 0.0) if starts else None,
            ended_too=True,
            erase=tuple(self._tombstones) if is_last and self._erases else None,
            blank=self._blank(),
            lay=laid,
        )
        self._commit(write)
        self._fence_here, self._running_here = laid.fence, running
        kinds = Counter(entry.kind for entry in entries)
        self._done.messages += kinds["message"]
        self._done.labels += kinds["label"]
        self._done.summaries += kinds["compaction"]

    def _blank(self) -> tuple[tuple[int, bytes], ...]:
        """What this write takes words out of."""
        lost, self._lost = self._lost, {}
        return tuple(lost.items())

    def _commit(self, write: Write) -> None:
        writes = [write]
        if write.erase is not None:
            # As here, where a fork loses with its parent what it has a copy of.
            forks = Forks(self._engine, self._tenant, [self._id])
            for each in forks.copies(self._id):
                writes.append(blanking(self._work.session_log(each.state), each))
            self._done.notes.append(
                "it was erased where it comes from, and is now here"
            )
        [outcome] = self._engine.commit([tuple(writes)])
        if isinstance(outcome, Refused):
            problem = f"somebody else wrote to it meanwhile ({outcome.why}); try again"
            raise Conflict(session_id=self._id, problem=problem)

    def _owed(self, is_last: bool) -> Iterator[OwedReply]:
        """Replies that are owed: those that are owed here, and if that was asked for those that the
        file tells of, as far as the log bears them out.
        """
        known: set[str] = set()
        for debt in self._engine.debts(self._id):
            if debt.id.hex() not in self._sent:
                known.add(debt.id.hex())
                yield debt
        for owed in self._standing.outbox if is_last and self._with_outbox else ():
            # It is owed here already, and given above.
            if owed.id in known:
                continue
            if (
                owed.id not in self._sent
                and owed.turn in self._over
                and owed.reply_to in self._addresses
            ):
                yield owed_reply(owed, self._id)


def _pieces(entries: Iterable[Entry]) -> Iterator[Page]:
    """All of it at once, if that is not too much; pieces that end between turns. A turn that has no
    end is a piece of its own.
    """
    held: Page = []
    size = 0
    for entry in entries:
        held.append(entry)
        size += len(entry.body) + len(entry.note)
        if size >= AT_ONCE_BYTES:
            end = between_turns(held)
            if end:
                yield held[:end]
                held = held[end:]
            size = 0
    end = between_turns(held)
    if end:
        yield held[:end]
    if held[end:]:
        yield held[end:]


def _unfinished(piece: Page) -> int | None:
    """The number of the turn that is not over at the end of these entries."""
    end = between_turns(piece)
    return piece[end].turn if end < len(piece) else None
