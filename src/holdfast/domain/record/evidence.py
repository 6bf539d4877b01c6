"""Evidence: what is known besides the list when a list is recorded.

`reconcile` matches a list to what the handle remembers and the view shows. That is enough for most
lists. One that is older than the view, or older than what others have said since, may have messages
that neither shows. Then the first look leaves something open, and the list is compared again beside
more of the past:

    nothing     all was found
    news        what was said, or taken away by a rewind, since the handle last looked
    history     all that was ever said

The history of a long session is not in memory. Who records reads it page by page and keeps what an
`Echo` recognizes; nothing here reads a store.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Literal, NamedTuple

from holdfast.domain.log.fold import Log
from holdfast.domain.message import Payload, thaw
from holdfast.domain.record.edits import is_edit
from holdfast.domain.record.fingerprint import Fingerprint, fingerprint, stamp_of
from holdfast.domain.record.reconcile import (
    Reconciled,
    Remembered,
    reconcile,
    remember,
)
from holdfast.domain.record.wordings import Shown

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

    `presented` is the list it recorded last and `heard` the head of the log then; `given` is what a
    context has shown it since. `learned` and `went_back` are the seqs up to which it has seen the
    view, and has rewound it.
    """

    def __init__(
        self,
        log: Log,
        shown: Sequence[Shown],
        presented: list[Remembered],
        *,
        given: Sequence[Shown],
        heard: int,
        learned: int,
        went_back: int,
    ) -> None:
        self.log = log
        self._shown = shown
        self._remembered = presented
        if given:
            self._remembered = remember(presented, handed=given, as_is=False)
        self._aware_of = max(heard, learned)
        self._away: dict[str, int] = {}
        if log.rewinds and log.rewinds[-1][0] > heard:
            self._away = log.away_since()
        self._gone = {id for id, at in self._away.items() if at > heard}
        seen_through = max(learned, went_back)
        self._spent = {id for id in self._gone if self._away[id] <= seen_through}
        self._kept = self._presented_and_not_cut(presented, went_back)

    def _presented_and_not_cut(
        self, presented: list[Remembered], went_back: int
    ) -> set[str]:
        """What this handle recorded and a rewind of another took away: this one has only looked
        since. If its list has all of that again, it has not cut it off.
        """
        others = {id for id in self._spent if self._away[id] > went_back}
        if not others:
            return others
        return others.intersection(ref for entry in presented for ref in entry.refs)

    def compare(
        self, payloads: Sequence[Payload], *, equal_from: int | None
    ) -> FirstLook:
        """The list beside what the handle remembers and the view shows. `equal_from`: the place
        from which on the list equals all that was `presented`.
        """
        if len(self._kept) > 1:
            found = self._reconciled(
                payloads, self._remembered, self._spent - self._kept, equal_from
            )
            if self._kept.issubset(found.order):
                return FirstLook(found, "nothing")
        found = self._reconciled(payloads, self._remembered, self._spent, equal_from)
        return FirstLook(found, self._left_open(found))

    def compare_with(
        self, payloads: Sequence[Payload], past: Sequence[Shown]
    ) -> Reconciled:
        """The list beside this part of the past, too."""
        # What is spent is known by its object or its stamp only: its words would be taken for it.
        past = [(payload, refs) for payload, refs in past if refs[0] not in self._spent]
        remembered = remember(self._remembered, handed=past, as_is=False)
        return self._reconciled(payloads, remembered, self._spent)

    def _reconciled(
        self,
        payloads: Sequence[Payload],
        remembered: list[Remembered],
        spent: set[str],
        equal_from: int | None = None,
    ) -> Reconciled:
        return reconcile(
            payloads,
            shown=self._shown,
            remembered=remembered,
            known=_ViewWordings(self.log),
            gone=self._gone,
            spent=spent,
            together=partial(_were_together, self._said_at, self._away),
            equal_from=equal_from,
        )

    @cached_property
    def _said_at(self) -> dict[str, int]:
        if not self._gone:
            return {}
        return {seen.id: seen.seq for seen in self.log.natural}

    def _left_open(self, found: Reconciled) -> Open:
        log = self.log
        if found.puzzles and (log.since > 1 or len(log.natural) > len(log.visible)):
            return "history"
        if found.new and (self._gone - self._spent or log.head > self._aware_of):
            return "news"
        return "nothing"

    def news(self) -> list[Shown]:
        """What the handle does not know of, between what it knows: said since it last looked and no
        longer shown, or taken away without its knowledge.
        """
        log = self.log
        known = {id for _, ids in self._shown for id in ids}
        known.update(ref for entry in self._remembered for ref in entry.refs)
        more = {seen.id for seen in log.natural if seen.seq > self._aware_of} - known
        more |= self._gone - self._spent
        if not more:
            return []
        more |= known
        return [
            (thaw(log.worded(seen).body), (seen.id,))
            for seen in log.history
            if seen.id in more
        ]

    def past(
        self, history: Log, older: Mapping[int, Payload], echo: "Echo"
    ) -> list[Shown]:
        """All that was ever said and may be in the list, in the order of this history. `older`: by
        seq, what the log no longer has and `echo` has recognized.
        """
        payloads = dict(older)
        unaware_of = self._gone - self._spent
        for seen in self.log.natural:
            payload = thaw(self.log.worded(seen).body)
            if seen.id in unaware_of or echo(payload):
                payloads[seen.seq] = payload
        return [
            (payloads[seen.seq], (seen.id,))
            for seen in history.history
            if seen.seq in payloads
        ]


def _were_together(
    said: dict[str, int], away: dict[str, int], one: str, other: str
) -> bool:
    """Whether a view ever had both of these messages: neither was said after the other had been
    taken away.
    """
    return said[one] < away[other] and said[other] < away[one]


class _ViewWordings(Mapping[str, Payload]):
    """How the view words single messages. Read only when asked: most lists differ nowhere."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @cached_property
    def _bodies(self) -> dict[str, bytes]:
        return {seen.id: self._log.worded(seen).body for seen in self._log.natural}

    def __getitem__(self, id: str) -> Payload:
        payload: Payload = thaw(self._bodies[id])
        return payload

    def __iter__(self) -> Iterator[str]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)


class Echo:
    """Whether a message may be what a caller's list shows: it says the same as a payload there or
    as a part of one, or has its calls, its answers or its stamp; or one of the `unknown` payloads
    there may be an edit of it. For looking through a long history without keeping it.
    """

    def __init__(
        self, said: Sequence[Payload], unknown: Sequence[Payload] = ()
    ) -> None:
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
