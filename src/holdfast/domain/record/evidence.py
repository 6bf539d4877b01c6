"""Evidence: what is known besides the list when a list is recorded.

`reconcile` matches a list to what the handle remembers and the view shows. That is enough for most
lists. One that is older than the view, or older than what others have said since, may have messages
that neither shows. Then the first look leaves something open, and the list is compared again beside
more of the past:

    nothing     all was found
    news        what was said, or taken away by a rewind, since the handle last looked; to one that
                has recorded nothing, also what the view has and its context can't show
    history     all that was ever said

The history of a long session is not in memory. Who records reads it page by page and keeps what an
`Echo` recognizes; nothing here reads a store.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from holdfast.domain.log.fold import Log
from holdfast.domain.message import Payload, Payloads, thaw
from holdfast.domain.record.edits import is_edit
from holdfast.domain.record.fingerprint import Fingerprint, fingerprint, stamp_of
from holdfast.domain.record.grouping import Shown, View
from holdfast.domain.record.layers import Layer, chosen
from holdfast.domain.record.memory import Held, Remembered, held_of, snapshots_of
from holdfast.domain.record.merged_texts import holds_more
from holdfast.domain.record.reconcile import (
    Reconciled,
    reconcile,
    split_instructions,
)
from holdfast.domain.repair import (
    Messages,
    Order,
    StoredMessage,
    beside_their_calls,
    ids_of,
)

Open = Literal["nothing", "news", "history"]

UNKNOWN_MAX = 32
"""For so many payloads that nothing is known to say, the past is searched for what they may be
edits of.
"""


class FirstLook(NamedTuple):
    """What a list says as far as the first look tells, and what has to be looked at besides."""

    found: Reconciled
    left_open: Open


class Evidence:
    """What is known of a session to the handle that records.

    `presented` is the list it recorded last and `heard` the head of the log then; `given` is what
    contexts have shown it since, the newest first. `learned` and `went_back` are the seqs up to which it has seen the
    view, and has rewound it. `format` is that of its list.
    """

    def __init__(
        self,
        log: Log,
        shown: View,
        presented: list[Remembered],
        *,
        given: Sequence[View],
        heard: int,
        learned: int,
        went_back: int,
        format: str,
    ) -> None:
        self.log = log
        self._format = format
        self._shown = shown
        self._presented = presented
        self._given = [held_of(view) for view in given]
        self._aware_of = max(heard, learned)
        self._away: dict[str, int] = {}
        if log.rewinds and log.rewinds[-1][0] > heard:
            self._away = log.away_since()
        self._gone: set[str] = set()
        self._spent: set[str] = set()
        for id, at in self._away.items():
            if at > heard:
                self._gone.add(id)
                # It has seen the view since, or has gone back itself.
                if at <= max(learned, went_back):
                    self._spent.add(id)
        self._kept = self._presented_and_not_cut(presented, went_back)

    @property
    def wording(self) -> Mapping[str, Payload]:
        """How the view words each message by itself, as the log is now."""
        return _ViewWordings(self.log)

    def _presented_and_not_cut(
        self, presented: list[Remembered], went_back: int
    ) -> set[str]:
        """What this handle recorded and a rewind of another took away: this one has only looked
        since. If its list has all of that again, it has not cut it off.
        """
        others = {id for id in self._spent if self._away[id] > went_back}
        return others and others & _refs_in(presented)

    def compare(self, payloads: Payloads, *, equal_from: int | None) -> FirstLook:
        """The list beside what the handle remembers and the view shows. `equal_from`: the place
        from which on the list equals all that was `presented`.
        """
        # A single message may be said again; a list with all of several was not cut.
        if len(self._kept) > 1:
            found = self._reconciled(
                payloads, self._spent - self._kept, equal_from=equal_from
            )
            if self._kept.issubset(found.order):
                return FirstLook(found, "nothing")
        found = self._reconciled(payloads, self._spent, equal_from=equal_from)
        return FirstLook(found, self._left_open(found))

    def compare_with(self, payloads: Payloads, past: View) -> Reconciled:
        """The list beside this part of the past, too."""
        # What is spent is known by its object or its stamp only: its words would be taken for it.
        past = [(payload, refs) for payload, refs in past if refs[0] not in self._spent]
        return self._reconciled(payloads, self._spent, past=held_of(past))

    def _reconciled(
        self,
        payloads: Payloads,
        spent: set[str],
        *,
        past: Held = (),
        equal_from: int | None = None,
    ) -> Reconciled:
        _, body = split_instructions(payloads)
        held, layers = chosen(body, self._presented, self._given)
        if past:
            layers.append(Layer(past))
            if not self._presented and (again := self._recorded_last(body, past)):
                held, layers = again, [Layer(past)]
            # A handle that knows no list yet compares with the past alone.
            elif not held:
                held, layers = past, []
        return reconcile(
            payloads,
            shown=self._shown,
            remembered=held,
            layers=layers,
            known=self.wording,
            stored=_StoredWordings(self.log, self._format),
            gone=self._gone,
            spent=spent,
            together=self._were_together,
            equal_from=equal_from,
        )

    def _recorded_last(self, body: Payloads, past: Held) -> Held:
        """What this list has of the view, as the last list arranged it, also what no context can show
        there; nothing unless the list begins with just that, and nothing else of the past may be in
        it. Then it is that list again, and no equal message that the view has dropped comes between.
        """
        said = set(map(fingerprint, body))
        known = {entry.refs[0]: entry for entry in past}
        stands = [known[seen.id] for seen in self.log.visible if seen.id in known]
        stands = [entry for entry in stands if fingerprint(entry.snapshot) in said]
        if body[: len(stands)] != snapshots_of(stands):
            return []
        echo = Echo(body[len(stands) :])
        refs = _refs_in(stands)
        others = (entry for entry in past if refs.isdisjoint(entry.refs))
        return [] if any(echo(entry.snapshot) for entry in others) else stands

    def _were_together(self, one: str, other: str) -> bool:
        """Whether a view ever had both of these messages, which are gone: neither was said after
        the other had been taken away.
        """
        said, away = self._said_at, self._away
        return said[one] < away[other] and said[other] < away[one]

    @cached_property
    def _said_at(self) -> dict[str, int]:
        return {seen.id: seen.seq for seen in self.log.natural}

    def _left_open(self, found: Reconciled) -> Open:
        log = self.log
        grown = self._has_grown(found)
        if (found.puzzles or grown) and (
            log.since > 1 or len(log.natural) > len(log.visible)
        ):
            # It may be older than the view, and only the whole history knows what it
            # shows.
            return "history"
        if (found.new or grown) and (
            self._gone - self._spent
            or log.head > self._aware_of
            or (not self._presented and self._unshown)
        ):
            # What is new to this handle may have been said, or taken away, by another.
            return "news"
        return "nothing"

    @cached_property
    def _unshown(self) -> set[str]:
        """What stands in the view and no context can show there, as a result before its call. A handle
        that has recorded nothing yet can't know of it, though it has looked.
        """
        shown = {ref for _, refs in self._shown for ref in refs}
        return set(ids_of(self.log.visible)) - shown

    def _has_grown(self, found: Reconciled) -> bool:
        """Whether a message is in the list with more than it said: others may have been joined to
        it that are no longer shown.
        """
        known = self.wording
        for id, payload in found.edits.items():
            if id in known and holds_more(fingerprint(payload), fingerprint(known[id])):
                return True
        return False

    def news(self) -> list[Shown]:
        """What the handle does not know of, between what it knows: said since it last looked and no
        longer shown, taken away without its knowledge, or not to be shown where it stands.
        """
        log = self.log
        known = _refs_in(self._presented).union(*map(_refs_in, self._given))
        for _, refs in self._shown:
            known.update(refs)
        said_since = [seen for seen in log.natural if seen.seq > self._aware_of]
        more = set(ids_of(said_since)) - known
        more |= self._unshown | (self._gone - self._spent)
        if not more:
            return []
        more |= known
        news: list[Shown] = []
        for seen in self._as_shown(log.history):
            if seen.id in more:
                news.append((self._payload(seen), (seen.id,)))
        return news

    def _as_shown(self, history: Messages) -> Order:
        """All of the past in the order of the view, as far as that goes: what is not shown stands
        behind what it stood behind when it was said.
        """
        shown = [ref for _, refs in self._shown for ref in refs]
        stands = dict.fromkeys(shown)
        first: Order = []
        behind: dict[str, Order] = {}
        line = first
        for seen in beside_their_calls(history):
            if seen.id in stands:
                line = behind[seen.id] = []
            line.append(seen)
        order = first
        for ref in stands:
            order += behind.get(ref, ())
        return order

    def _payload(self, seen: StoredMessage) -> Payload:
        """What the view says for this message."""
        payload: Payload = thaw(self.log.worded(seen).body)
        return payload

    def past(
        self, history: Log, older: Mapping[int, Payload], echo: "Echo"
    ) -> list[Shown]:
        """All that was ever said and may be in the list, in the order of this history. `older`: by
        seq, what the log no longer has and `echo` has recognized.
        """
        payloads = dict(older)
        unaware_of = self._gone - self._spent
        for seen in self.log.natural:
            payload = self._payload(seen)
            if seen.id in unaware_of or echo(payload):
                payloads[seen.seq] = payload
        past: list[Shown] = []
        for seen in self._as_shown(history.history):
            if seen.seq in payloads:
                past.append((payloads[seen.seq], (seen.id,)))
        return past


def _refs_in(held: Held) -> set[str]:
    return {ref for entry in held for ref in entry.refs}


class _Bodies(Mapping[str, Payload]):
    """Payloads by message. Read only when asked: most lists differ nowhere."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @cached_property
    def _bodies(self) -> dict[str, bytes]:
        raise NotImplementedError

    def __getitem__(self, id: str) -> Payload:
        payload: Payload = thaw(self._bodies[id])
        return payload

    def __iter__(self) -> Iterator[str]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)


class _ViewWordings(_Bodies):
    """How the view words single messages."""

    @cached_property
    def _bodies(self) -> dict[str, bytes]:
        return {seen.id: self._log.worded(seen).body for seen in self._log.natural}


class _StoredWordings(_Bodies):
    """How messages were said that came in this format."""

    def __init__(self, log: Log, format: str) -> None:
        super().__init__(log)
        self._format = format

    @cached_property
    def _bodies(self) -> dict[str, bytes]:
        return {
            seen.id: seen.body
            for seen in self._log.natural
            if seen.note.format == self._format
        }


class Echo:
    """Whether a message may be what a caller's list shows: it says the same as a payload there or
    as a part of one, or has its calls, its answers or its stamp; or one of the `unknown` payloads
    there may be an edit of it. For looking through a long history without keeping it.
    """

    def __init__(self, said: Payloads, unknown: Payloads = ()) -> None:
        self._unknown = [fingerprint(payload) for payload in unknown[:UNKNOWN_MAX]]
        self._prints: set[Fingerprint] = set()
        self._lines: set[str] = set()
        self._ids: set[str] = set()
        self._stamps: set[str] = set()
        for payload in said:
            print = fingerprint(payload)
            self._prints.add(print)
            self._lines.update(print.text.split("\n"))
            self._ids.update(_ids_in(print))
            stamp = stamp_of(payload)
            if stamp:
                self._stamps.add(stamp)

    def __call__(self, payload: Payload) -> bool:
        print = fingerprint(payload)
        if any(is_edit(print, said) for said in self._unknown):
            return True
        if stamp_of(payload) in self._stamps:
            return True
        if print.plain:
            return print.text.split("\n", 1)[0] in self._lines
        return print in self._prints or not self._ids.isdisjoint(_ids_in(print))


def _ids_in(print: Fingerprint) -> list[str]:
    """The ids of the calls that it makes and that it answers."""
    return [*print.answers, *(id for id, _, _ in print.calls)]
