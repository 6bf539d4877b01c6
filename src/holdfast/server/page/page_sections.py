"""What stands together on the page, in which order, and which of it a page of the answer has.

A section is a turn, or one message outside of a turn, or what waits in the inbox. It is known by the
seq at which it begins, which never changes: pages are asked for by it.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from holdfast.domain.log.explain import Outline
from holdfast.domain.repair import Order, StoredMessage
from holdfast.domain.turn import TurnRecord

SectionKind = Literal["turn", "outside", "inbox"]


class ViewedSection(NamedTuple):
    """Messages that stand together."""

    begins: int
    kind: SectionKind
    turn: TurnRecord | None
    messages: Order

    @property
    def weight(self) -> int:
        """How much of a page it takes."""
        return max(1, len(self.messages))


def sections_of(
    outline: Outline, stray: Iterable[StoredMessage]
) -> list[ViewedSection]:
    """All sections of a session, in order. `stray`: messages that are in the log and stand nowhere in
    it any more, erased or taken elsewhere; each is shown where it was.
    """
    found: dict[int, ViewedSection] = {}
    by_turn: dict[int, ViewedSection] = {}
    for section in outline.sections:
        kind: SectionKind = "outside" if section.turn is None else "turn"
        begins = section.begins
        made = ViewedSection(begins, kind, section.turn, list(section.messages))
        found[begins] = made
        if section.turn is not None:
            by_turn[section.turn.number] = made
    for seen in stray:
        own = by_turn.get(seen.turn) if seen.turn is not None else None
        if own is not None:
            own.messages.append(seen)
            own.messages.sort(key=lambda each: each.seq)
        else:
            found[seen.seq] = ViewedSection(seen.seq, "outside", None, [seen])
    ordered = [found[begins] for begins in sorted(found)]
    waiting = outline.log.inbox
    if waiting:
        # After all that has happened: nothing is done with these yet.
        ordered.append(ViewedSection(outline.log.head + 1, "inbox", None, waiting))
    return ordered


class SectionPage(NamedTuple):
    """Some sections, and from where those before and after them are asked for."""

    sections: list[ViewedSection]
    earlier: int | None
    later: int | None


def chosen(
    sections: Sequence[ViewedSection],
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> SectionPage:
    """The sections that begin after a seq, or the last ones, or the last that begin before a seq: as
    many as hold so many messages, and one at least.
    """
    first, last = 0, len(sections)
    if after is not None:
        while first < last and sections[first].begins <= after:
            first += 1
        last = first + _fitting(sections[first:], limit)
    else:
        while before is not None and last and sections[last - 1].begins >= before:
            last -= 1
        first = last - _fitting(sections[:last][::-1], limit)
    taken = list(sections[first:last])
    earlier = later = None
    # `before` and `after` leave out the seq that they name: where the page is empty,
    # one more or one less lets in the neighbour itself.
    if first > 0:
        earlier = taken[0].begins if taken else sections[first - 1].begins + 1
    if last < len(sections):
        later = taken[-1].begins if taken else sections[last].begins - 1
    return SectionPage(taken, earlier, later)


def _fitting(sections: Sequence[ViewedSection], limit: int) -> int:
    """How many of these, from the first on, hold so many messages together."""
    total = 0
    for count, section in enumerate(sections):
        if total >= limit:
            return count
        total += section.weight
    return len(sections)
