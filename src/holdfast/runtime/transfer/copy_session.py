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

from holdfast.domain.accepted_events import AcceptedEvent, events_in
from holdfast.domain.entry import Draft, Entry, note_of
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
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.transfer.compare_logs import (
    Tally,
    closed,
    differences,
    digest_of,
    is_same_place,
    pages,
)
from holdfast.runtime.transfer.salvage import Salvage
from holdfast.runtime.transfer.vet import vet_debt


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
    passage = _Passage(here, there, settled(state), advance)
    added = 0
    while True:
        is_done = yield from passage.bring()
        added += passage.added
        if is_done and passage.is_right():
            return passage.carried(added)
        passage = _Passage(
            here, there, settled(None), _nobody
        )  # which compares all that is there


def _nobody(entries: int) -> None:
    """Who is told of what was told before."""


class _Passage:
    """One attempt, from the state that the session had at its beginning."""

    def __init__(
        self,
        here: Engine,
        there: Engine,
        state: SessionState,
        advance: Callable[[int], None],
    ) -> None:
        self._here, self._there, self._advance = here, there, advance
        self.state, self.cut = state, state.origin
        self._salvage = Salvage(here, state)
        self._known = there.state(state.id)
        # A reply that is sent from now on is not owed there either, though the copy ends before the
        # entry that says so.
        self._debts = here.debts(state.id)
        self._ended: set[int | None] = set()
        self._inbox, self._tally = Inbox(), Tally()
        self._events: list[AcceptedEvent] = []
        self.added, self._wrote = 0, False
        self._blanks = (
            self._known is not None
            and state.erased
            and not self._is_erased_alike(self._known)
        )
        self._notes: list[tuple[int, bytes]] = []
        # what has lost its words here and not there, and what is left of it
        self._wordy: dict[int, bytes] = {}

    def bring(self) -> Plan[bool]:
        """Compares what is there and lays down what is not. False when the session has to be looked
        at anew.
        """
        self._check_same_session()
        for page, is_last in _with_last(
            closed(self._salvage.pages(), running=self.state.turn)
        ):
            self._read(page)
            yield from self._put(page, is_last)
            self._advance(len(page))
        return self._is_up_to_date()

    def is_right(self) -> bool:
        """Whether the target holds all that it was given: it is read back. Where nothing was given,
        all of it has been compared.
        """
        tally = Tally()
        if self._wrote:
            for page in pages(
                self._there, self.state.id, after=self.state.origin, upto=self.cut
            ):
                tally.add(page)
        return not self._wrote or (tally.entries, tally.digest) == (
            self._tally.entries,
            self._tally.digest,
        )

    def carried(self, added: int) -> Carried:
        state, tally = self.state, self._tally
        lost = {
            seq: problem
            for seq, problem in self._salvage.lost.items()
            if seq <= self.cut
        }
        return Carried(
            state.id, tally.entries, added, tally.digest, state.turn is not None, lost
        )

    # The source's side.

    def _read(self, page: list[Entry]) -> None:
        """Takes in what a page tells of the session: all that has to stand in the target besides
        the entries.
        """
        self.cut = page[-1].seq
        self._tally.add(page)
        self._inbox.add(page)
        self._events = list(
            events_in(
                page,
                tenant=self.state.tenant,
                key=self.state.key,
                session=self.state.id,
            )
        )
        if self._debts:
            self._ended.update(entry.turn for entry in page if entry.kind == "end")
        if self._blanks:
            self._notes += [(entry.seq, entry.note) for entry in page]

    def _standing(self, is_last: bool) -> Laid:
        """How the session stands after the entries that were read. Before the last page it has not
        ended.
        """
        state, known = self.state, self._known
        return Laid(
            fence=state.fence if state.turn is None else state.turn - 1,
            active_at=state.active_at,
            base=state.base if state.base <= self.cut else 0,
            ended=state.ended if is_last else known is not None and known.ended,
            erased=state.erased if is_last else known is not None and known.erased,
            inbox=self._waiting(),
            outbox=tuple(self._owed()),
            events=tuple(self._events),
        )

    def _waiting(self) -> tuple[Waiting, ...]:
        """Who waits with a message waits at the source: in the target nobody does. What took a
        message from the inbox may be what can't be read: then it waits only if it does at the
        source, too.
        """
        seqs = sorted(
            (seq, bytes.fromhex(id)) for id, seq in self._inbox.waiting.items()
        )
        if seqs and self._salvage.lost:
            there = {waiting.message for waiting in self._here.inbox(self.state.id)}
            seqs = [(seq, id) for seq, id in seqs if id in there]
        return tuple(Waiting(id, None, seq) for seq, id in seqs)

    def _owed(self) -> Iterator[OwedReply]:
        for debt in self._debts:
            if debt.turn in self._ended:
                vet_debt(debt)
                yield debt

    # The target's side.

    def _put(self, page: list[Entry], is_last: bool) -> Plan[None]:
        """Compares as much of a page as is there, and lays the rest down; again if somebody else
        was quicker.
        """
        while True:
            rest = page[self._compared(page) :]
            if not rest and not (is_last and (self._wordy or self._lacks_standing())):
                return
            write = self._write(page[0].seq - 1 + len(page) - len(rest), rest, is_last)
            outcome = yield Sent(
                self._there.submit((write,)), sum(len(entry.body) for entry in rest)
            )
            if not isinstance(outcome, Refused):
                self._wordy.clear()
                self.added += len(rest)
                self._wrote = True
                return
            self._known = self._there.state(self.state.id)
            self._check(outcome)

    def _write(self, head: int, rest: list[Entry], is_last: bool) -> Write:
        state, laid = self.state, self._standing(is_last)
        opening = Opening(
            state.tenant,
            state.key,
            state.epoch,
            head=state.origin,
            fence=laid.fence,
            parent=state.parent,
        )
        return Write(
            state.id,
            drafts=tuple(
                Draft(
                    entry.kind, entry.turn, entry.id, entry.at, entry.note, entry.body
                )
                for entry in rest
            ),
            open=opening if head == state.origin and self._known is None else None,
            head=head,
            idle=True,
            ended_too=True,
            erase=tuple(self._notes[: head - state.origin])
            if is_last and self._blanks
            else None,
            blank=tuple(self._wordy.items()),
            lay=laid,
        )

    def _compared(self, page: list[Entry]) -> int:
        """How many entries of this page are in the target already, all of them the same."""
        upto = min(self._known.head, page[-1].seq) if self._known is not None else 0
        count = 0
        for theirs in pages(
            self._there, self.state.id, after=page[0].seq - 1, upto=upto
        ):
            ours = page[count : count + len(theirs)]
            for at in differences(ours, theirs):
                self._check_wordless(ours[at], theirs[at])
            count += len(theirs)
        return count

    def _check_wordless(self, ours: Entry, theirs: Entry) -> None:
        """The two differ: that is right only if words were taken out of ours and are
        still there.
        """
        if self._blanks and is_same_place(ours, theirs):
            return
        if ours.seq not in self._blanked or not is_same_place(ours, theirs):
            raise NotTheSameSession(
                self.state, ours.seq, "it went on differently there", ours, theirs
            )
        self._wordy[ours.seq] = ours.note

    @cached_property
    def _blanked(self) -> frozenset[int]:
        """The entries of the source that have lost their words with another session."""
        own = Salvage(self._here, self.state).pages()
        notes = (
            note_of("blanked", entry.note)
            for page in own
            for entry in page
            if entry.kind == "blanked"
        )
        return frozenset(seq for note in notes for seq in note.seqs)

    def _check_same_session(self) -> None:
        known, state = self._known, self.state
        if known is None:
            return
        names = [
            (each.tenant, each.key, each.epoch, each.origin) for each in (known, state)
        ]
        if names[0] != names[1]:
            raise NotTheSameSession(
                state, state.origin + 1, "another session has its id there"
            )

    def _check(self, refused: Refused) -> None:
        """A refusal that comes again whatever we do is the end of it; others are news of the
        target.
        """
        if refused.why == "bound" and self._known is None:
            owner = f"its key belongs to session {refused.detail} there"
            problem = (
                owner
                if refused.detail
                else "the session that its key had before is not there"
            )
            raise NotTheSameSession(self.state, self.state.origin + 1, problem)
        if refused.why not in ("bound", "moved", "missing", "busy"):
            raise NotTheSameSession(
                self.state, self.cut, f"the target refused it ({refused.why})"
            )
        self._check_same_session()

    def _is_up_to_date(self) -> bool:
        """Whether all of this is still so. If the target has more than was read here, either the
        source has moved on and another copy was quicker, or the target went on by itself.
        """
        state, now = self.state, self._here.state(self.state.id)
        assert now is not None, "no session is ever taken out of a store"
        if now.erased != state.erased:
            return False
        known = self._known
        if known is None or known.head <= self.cut:
            return True
        if now.turn != state.turn or (now.turn is None and now.head != state.head):
            return False
        ours = self._here.entries(state.id, after=self.cut, limit=1)
        [theirs] = self._there.entries(state.id, after=self.cut, limit=1)
        raise NotTheSameSession(
            state,
            self.cut + 1,
            "it went on by itself there",
            next(iter(ours), None),
            theirs,
        )

    def _lacks_standing(self) -> bool:
        known = self._known
        return known is None or (known.head == self.cut and not self._stands(known))

    def _stands(self, known: SessionState) -> bool:
        """Whether it stands there as it should once it has all entries."""
        laid = self._standing(is_last=True)
        if (known.fence, known.base, known.ended, known.erased) != (
            laid.fence,
            laid.base,
            laid.ended,
            laid.erased,
        ):
            return False
        inbox = [
            (waiting.seq, waiting.message) for waiting in self._there.inbox(known.id)
        ]
        owed = {debt.id for debt in self._there.debts(known.id)}
        return inbox == [(each.seq, each.message) for each in laid.inbox] and owed == {
            debt.id for debt in laid.outbox
        }

    def _is_erased_alike(self, known: SessionState) -> bool:
        return known.erased and known.head >= self.state.head


def _with_last(found: Iterator[list[Entry]]) -> Iterator[tuple[list[Entry], bool]]:
    """Each page, and whether it is the last one; the next one is read meanwhile."""
    before: list[Entry] = []
    for page in found:
        if before:
            yield before, False
        before = page
    if before:
        yield before, True
