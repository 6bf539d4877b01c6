"""Carrying one session over: its log, page by page, and with the last page how it stands.

    source   ──1───2───3───4───5──╎─6─7   a turn is running from 6 on: the copy is as of 5
    target   ──1───2───3              what is there is compared, what is not is laid down after it

What is in the target must be a beginning of what is in the source: then the rest is laid down,
guarded by the head that it continues, so that two copies at once, or a copy and a writer, never
mix. Anything else is two histories, which no copy can make one: that is told with its place, and
nothing is changed. Nothing has to be remembered from one run to the next: a copy that was killed is
resumed by comparing again.

Inbox and outbox change only together with the log, so whoever has the same log may be given them as
a whole. An erasure is carried over too: words that were taken out of the source do not stay in the
target. An entry that can't be read takes nothing else with it: a placeholder is carried in its
place (`salvaging`).
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import msgspec

from holdfast.domain.accepted_events import AcceptedEvent, EventsOfLog
from holdfast.domain.entry import Entry, note_of
from holdfast.domain.inbox import Inbox
from holdfast.engine.protocol import (
    Engine,
    Laid,
    Opening,
    OwedReply,
    Refused,
    SessionState,
    Ticket,
    Waiting,
    Write,
)
from holdfast.engine.sql.reads import MISLED
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.transfer.compare_logs import (
    Page,
    Tally,
    closed,
    differences,
    digest_of,
    draft_of,
    is_same_place,
    pages,
    with_last,
)
from holdfast.runtime.transfer.salvage import Salvage
from holdfast.runtime.transfer.vet import vet_debt

# What has to be the same on both sides, besides the log.
_FLAGS = ("fence", "base", "ended", "erased")


class Carried(msgspec.Struct, frozen=True):
    """A session that is in the target as it is in the source, up to its last entry or, if `in_use`,
    up to the turn that is running. `added` entries are new there. `lost` are entries of the source
    that can't be read, by seq.
    """

    session_id: str
    entries: int
    added: int
    digest: str
    in_use: bool
    lost: dict[int, str]


class Difference(msgspec.Struct, frozen=True):
    """A session that was left as it is: from entry `seq` on, source and target don't have the same
    history. The digests are of that entry on either side, None where there is none.
    """

    session_id: str
    tenant: str
    key: str | None
    seq: int
    problem: str
    source_digest: str | None = None
    target_digest: str | None = None


class NotTheSameSession(Exception):
    """The two sides are not one session."""

    def __init__(
        self,
        state: SessionState,
        seq: int,
        problem: str,
        ours: Entry | None = None,
        theirs: Entry | None = None,
    ) -> None:
        super().__init__(problem)
        digests = digest_of(ours), digest_of(theirs)
        self.difference = Difference(
            state.id, state.tenant, state.key, seq, problem, *digests
        )


class Sent(NamedTuple):
    """A commit under way, and how much it holds."""

    ticket: Ticket
    bytes: int


def carry(
    here: Engine,
    there: Engine,
    state: SessionState,
    *,
    settled: Callable[[SessionState | None], SessionState],
    advance: Callable[[int], None],
) -> Plan[Carried]:
    """Brings one session over. `settled` tells how it stands in the source, once no dead turn is
    left in it; `advance` is told of entries that are dealt with. Yields what is `Sent`; raises
    `NotTheSameSession`.
    """
    # The source may go on meanwhile, and the target be written by another copy: what was compared
    # is then compared again, until nothing moved.
    passage = _Passage(here, there, settled(state), advance)
    added = 0
    while True:
        is_done = yield from passage.bring()
        added += passage.added
        if is_done and passage.is_right():
            return passage.carried(added)
        # This time all that is there is compared.
        passage = _Passage(here, there, settled(None), _no_progress)


def _no_progress(entries: int) -> None:
    """Progress of a further attempt: its entries were counted the first time."""


class _Passage:
    """One attempt, from the state that the session had at its beginning."""

    def __init__(
        self,
        here: Engine,
        there: Engine,
        state: SessionState,
        advance: Callable[[int], None],
    ) -> None:
        self._here = here
        self._there = there
        self._advance = advance
        self.state = state
        self.cut = state.origin
        self._salvage = Salvage(here, state)
        self._known = there.state(state.id)
        # A reply that is sent from now on is not owed there either, though the copy ends before the
        # entry that says so.
        self._debts = here.debts(state.id)
        self._ended: set[int | None] = set()
        self._inbox = Inbox()
        self._tally = Tally()
        self._told = EventsOfLog(
            state.tenant, state.id, keys=[state.key], past_of=state.copied_from
        )
        self._events: list[AcceptedEvent] = []
        self.added = 0
        self._wrote = False
        self._blanks = self._has_words_left()
        self._notes: list[tuple[int, bytes]] = []
        # what has lost its words here and not there, and what is left of it
        self._wordy: dict[int, bytes] = {}

    def bring(self) -> Plan[bool]:
        """Compares what is there and lays down what is not. False when the session has to be looked
        at anew.
        """
        self._check_same_session()
        finished = closed(self._salvage.pages(), running=self.state.turn)
        for page, is_last in with_last(finished):
            self._read(page)
            yield from self._put(page, is_last)
            self._advance(len(page))
        return self._is_up_to_date()

    def is_right(self) -> bool:
        """Whether the target holds all that it was given: it is read back. Where nothing was given,
        all of it has been compared.
        """
        if not self._wrote:
            return True
        tally = Tally()
        state = self.state
        for page in pages(self._there, state.id, after=state.origin, upto=self.cut):
            tally.add(page)
        return tally.is_same(self._tally)

    def carried(self, added: int) -> Carried:
        lost = {}
        for seq, problem in self._salvage.lost.items():
            # Pages are read ahead, beyond a turn that is running.
            if seq <= self.cut:
                lost[seq] = problem
        return Carried(
            session_id=self.state.id,
            entries=self._tally.entries,
            added=added,
            digest=self._tally.digest,
            in_use=self.state.turn is not None,
            lost=lost,
        )

    # The source's side.

    def _read(self, page: Page) -> None:
        """Takes in what a page tells of the session: all that has to stand in the target besides
        the entries.
        """
        self.cut = page[-1].seq
        self._tally.add(page)
        self._inbox.add(page)
        self._events = list(self._told.add(page))
        # Turns are remembered only where a reply is owed: a long log has very many.
        if self._debts:
            self._ended.update(entry.turn for entry in page if entry.kind == "end")
        if self._blanks:
            self._notes += [(entry.seq, entry.note) for entry in page]

    def _standing(self, is_last: bool) -> Laid:
        """How the session stands after the entries that were read. Before the last page it has not
        ended.
        """
        state = self.state
        # The flags are those of the whole log: before its last page, what the target says stays.
        flags = state if is_last else self._known
        return Laid(
            # The number of the turn that is running is given out again by the target.
            fence=state.fence if state.turn is None else state.turn - 1,
            # A time that is damaged reads as none.
            active_at=state.active_at or state.last_at,
            base=state.base if state.base <= self.cut else 0,
            ended=flags is not None and flags.ended,
            erased=flags is not None and flags.erased,
            inbox=self._waiting(),
            outbox=tuple(self._owed()),
            events=tuple(self._events),
        )

    def _waiting(self) -> tuple[Waiting, ...]:
        """Messages in the inbox. What took one from there may be what can't be read: then it waits
        only if it does at the source, too.
        """
        found = waiting_in(self._inbox)
        if found and self._salvage.lost:
            at_source = {each.message for each in self._here.inbox(self.state.id)}
            found = [each for each in found if each.message in at_source]
        return tuple(found)

    def _owed(self) -> Iterator[OwedReply]:
        for debt in self._debts:
            # A turn that is not over in the copy owes nothing there yet.
            if debt.turn in self._ended:
                vet_debt(debt)
                yield debt

    # The target's side.

    def _put(self, page: Page, is_last: bool) -> Plan[None]:
        """Compares as much of a page as is there, and lays the rest down; again if somebody else
        was quicker.
        """
        while True:
            rest = page[self._compared(page) :]
            if not rest and not (is_last and (self._wordy or self._lacks_standing())):
                return
            write = self._write(page[0].seq - 1 + len(page) - len(rest), rest, is_last)
            size = sum(len(entry.body) for entry in rest)
            outcome = yield Sent(self._there.submit((write,)), size)
            if not isinstance(outcome, Refused):
                self._wordy.clear()
                self.added += len(rest)
                self._wrote = True
                return
            # Somebody else wrote to the target: how it stands now says what is left to do.
            self._known = self._there.state(self.state.id)
            self._check(outcome)

    def _write(self, head: int, rest: Page, is_last: bool) -> Write:
        state = self.state
        laid = self._standing(is_last)
        opening = None
        if head == state.origin and self._known is None:
            opening = Opening(
                state.tenant,
                state.key,
                state.epoch,
                head=state.origin,
                fence=laid.fence,
                parent=state.parent,
            )
        erase = None
        if is_last and self._blanks:
            erase = tuple(self._notes[: head - state.origin])
        return Write(
            state.id,
            drafts=tuple(map(draft_of, rest)),
            open=opening,
            head=head,
            idle=True,
            ended_too=True,
            erase=erase,
            blank=tuple(self._wordy.items()),
            lay=laid,
        )

    def _compared(self, page: Page) -> int:
        """How many entries of this page are in the target already, all of them the same."""
        if self._known is None:
            return 0
        upto = min(self._known.head, page[-1].seq)
        after = page[0].seq - 1
        count = 0
        for theirs in pages(self._there, self.state.id, after=after, upto=upto):
            ours = page[count : count + len(theirs)]
            for at in differences(ours, theirs):
                self._check_wordless(ours[at], theirs[at])
            # A page of the target may be shorter: it is bounded in bytes, too.
            count += len(theirs)
        return count

    def _check_wordless(self, ours: Entry, theirs: Entry) -> None:
        """The two differ: that is right only if words were taken out of ours and are
        still there.
        """
        is_same = is_same_place(ours, theirs)
        # The whole session is erased here: that is done there with the last page.
        if is_same and self._blanks:
            return
        if not is_same or ours.seq not in self._blanked:
            raise NotTheSameSession(
                self.state, ours.seq, "it went on differently there", ours, theirs
            )
        self._wordy[ours.seq] = ours.note

    @cached_property
    def _blanked(self) -> frozenset[int]:
        """The entries of the source that have lost their words with another session."""
        found: set[int] = set()
        # The pages that are under way can't be gone through twice.
        for page in Salvage(self._here, self.state).pages():
            for entry in page:
                if entry.kind == "blanked":
                    found.update(note_of("blanked", entry.note).seqs)
        return frozenset(found)

    def _check_same_session(self) -> None:
        known = self._known
        if known is not None and _named(known) != _named(self.state):
            raise self._differs("another session has its id there")

    def _check(self, refused: Refused) -> None:
        """A refusal that comes again whatever we do is the end of it; others are news of the
        target.
        """
        if refused.why == "bound" and self._known is None:
            if refused.detail:
                raise self._differs(
                    f"its key belongs to session {refused.detail} there"
                )
            raise self._differs("the session that its key had before is not there")
        # These say that the target has moved on, and the next look finds how.
        if refused.why not in ("bound", "moved", "missing", "busy"):
            raise NotTheSameSession(
                self.state, self.cut, f"the target refused it ({refused.why})"
            )
        self._check_same_session()

    def _differs(self, problem: str) -> NotTheSameSession:
        """Nothing of it can be brought over."""
        return NotTheSameSession(self.state, self.state.origin + 1, problem)

    def _is_up_to_date(self) -> bool:
        """Whether all of this is still so. If the target has more than was read here, either the
        source has moved on and another copy was quicker, or the target went on by itself.
        """
        state = self.state
        now = self._here.state(state.id)
        if now is None:
            raise self._differs(MISLED)
        # What was read before is erased by now, and must not be stored with its words.
        if now.erased != state.erased:
            return False
        known = self._known
        if known is None or known.head <= self.cut:
            return True
        if now.turn != state.turn or (now.turn is None and now.head != state.head):
            return False
        ours = self._here.entries(state.id, after=self.cut, limit=1)
        [theirs] = self._there.entries(state.id, after=self.cut, limit=1)
        problem = "it went on by itself there"
        raise NotTheSameSession(
            state, self.cut + 1, problem, ours[0] if ours else None, theirs
        )

    def _lacks_standing(self) -> bool:
        known = self._known
        return known is None or (known.head == self.cut and not self._stands(known))

    def _stands(self, known: SessionState) -> bool:
        """Whether it stands there as it should once it has all entries."""
        laid = self._standing(is_last=True)
        if any(getattr(known, flag) != getattr(laid, flag) for flag in _FLAGS):
            return False
        # Who waits with a message is left out: that is a process of this store.
        inbox = [(each.seq, each.message) for each in self._there.inbox(known.id)]
        if inbox != [(each.seq, each.message) for each in laid.inbox]:
            return False
        owed = {debt.id for debt in self._there.debts(known.id)}
        return owed == {debt.id for debt in laid.outbox}

    def _has_words_left(self) -> bool:
        """Whether the session was erased in the source, and has its words in the target."""
        known = self._known
        if known is None or not self.state.erased:
            return False
        return not known.erased or known.head < self.state.head


def _named(state: SessionState) -> tuple[str, str | None, int, int]:
    return state.tenant, state.key, state.epoch, state.origin


def waiting_in(inbox: Inbox) -> list[Waiting]:
    """The messages that wait; the processes that wait with them are those of another store."""
    waiting = sorted((seq, id) for id, seq in inbox.waiting.items())
    return [Waiting(bytes.fromhex(id), None, seq) for seq, id in waiting]
