"""Comparing two logs: is what is there a beginning of what is here, and is a whole log the same on
both sides?

A digest is of the entries alone, all that each of them is, so it is the same in every store and for
pages of any size.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import TypeVar

import msgspec
from msgspec.structs import astuple, replace

from holdfast.domain.entry import Draft, Entry
from holdfast.engine.address import damage_remedy
from holdfast.engine.protocol import Engine
from holdfast.errors import Damaged

# Entries of either side are read by so many at a time.
PAGE = 1000
# A turn of more entries than this is copied in pieces.
HELD_MAX = 10_000

T = TypeVar("T")
Page = list[Entry]
_encode = msgspec.msgpack.Encoder().encode


class Tally:
    """Number and digest of entries, added page by page."""

    def __init__(self) -> None:
        self.entries = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, page: Sequence[Entry]) -> None:
        self.entries += len(page)
        self._hash.update(b"".join(map(_encode, page)))

    def is_same(self, other: "Tally") -> bool:
        return (self.entries, self.digest) == (other.entries, other.digest)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def digest_of(entry: Entry | None) -> str | None:
    """The digest of one entry; None when there is none."""
    if entry is None:
        return None
    tally = Tally()
    tally.add([entry])
    return tally.digest


def summed(*digests: str) -> str:
    """One digest for many, in whatever order they come: many sessions are copied at once."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 128):032x}"


def differences(here: Sequence[Entry], there: Sequence[Entry]) -> Iterator[int]:
    """The places of the entries that are not the same on both sides, whose pages are as long as
    each other.
    """
    # Nearly always they are equal as a whole, which is found out without a loop in Python.
    if here == there:
        return
    for at, (one, other) in enumerate(zip(here, there, strict=True)):
        if one != other:
            yield at


def is_same_place(one: Entry, other: Entry) -> bool:
    """Whether the two are equal in what an entry keeps when its words are erased."""
    blank = {"note": b"", "body": b""}
    return replace(one, **blank) == replace(other, **blank)


def pages(engine: Engine, session: str, *, after: int, upto: int) -> Iterator[Page]:
    """A session's own entries after one seq, up to another, page by page; `Damaged` where one is
    missing.
    """
    while after < upto:
        page = engine.entries(session, after=after, limit=min(PAGE, upto - after))
        if not page or page[0].seq != after + 1:
            raise Damaged(
                where=f"{engine.where}, session {session}",
                problem=f"the entry {after + 1} is missing, the log goes to {upto} (I-1)",
                remedy=damage_remedy(engine.where),
            )
        yield page
        after = page[-1].seq


def closed(found: Iterable[Page], *, running: int | None) -> Iterator[Page]:
    """The pages of a session as it stood at one moment, without the turn that was running then:
    what is under way is not yet what happened, and is nobody's to end but its writer's. No page
    ends within a turn, unless that is very long: a copy that stops between two is of a session that
    could have been so.
    """
    held: Page = []
    for page in found:
        finished = list(page) if running is None else _before_turn(page, running)
        held += finished
        if len(finished) < len(page):
            break
        # A turn that is longer than memory should hold is copied in pieces all the same.
        end = len(held)
        if end < HELD_MAX:
            end = between_turns(held)
        if end:
            yield held[:end]
            held = held[end:]
    if held:
        yield held


def _before_turn(page: Sequence[Entry], turn: int) -> Page:
    """The entries before the first one of this turn."""
    return list(takewhile(lambda entry: entry.turn != turn, page))


def paged(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """So many at a time; the last page has what is left."""
    left = iter(items)
    while page := list(islice(left, size)):
        yield page


def with_last(found: Iterable[list[T]]) -> Iterator[tuple[list[T], bool]]:
    """Each page, and whether it is the last one; the next one is read meanwhile."""
    before: list[T] = []
    for page in found:
        if before:
            yield before, False
        before = page
    if before:
        yield before, True


def draft_of(entry: Entry) -> Draft:
    """An entry on its way into another log; its seq is given there."""
    return Draft(*astuple(entry)[1:])


def between_turns(entries: Sequence[Entry]) -> int:
    """How many of these can be taken without beginning a turn that does not end among them."""
    turn = None
    end = 0
    for count, entry in enumerate(entries, 1):
        if entry.kind == "turn":
            turn = entry.turn
        # A session that was forked off does not go on with what ran there.
        elif entry.kind == "opened" or (entry.kind == "end" and entry.turn == turn):
            turn = None
        if turn is None:
            end = count
    return end
