"""Comparing two logs: is what is there a beginning of what is here, and is a whole log the same on
both sides?

A digest is of the entries alone, all that each of them is, so it is the same in every store and for
pages of any size.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.domain.entry import Entry
from holdfast.engine.address import damage_remedy
from holdfast.engine.protocol import Engine
from holdfast.errors import Damaged

# Entries of either side are read by so many at a time.
PAGE = 1000
# A turn of more entries than this is copied in pieces.
HELD_MAX = 10_000

_encode = msgspec.msgpack.Encoder().encode


class Tally:
    """Number and digest of entries, added page by page."""

    def __init__(self) -> None:
        self.entries = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, page: Sequence[Entry]) -> None:
        self.entries += len(page)
        self._hash.update(b"".join(map(_encode, page)))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def digest_of(entry: Entry | None) -> str | None:
    """The digest of one entry; None when there is none."""
    return (
        None
        if entry is None
        else hashlib.blake2b(_encode(entry), digest_size=16).hexdigest()
    )


def summed(*digests: str) -> str:
    """One digest for many, in whatever order they come."""
    return f"{sum(int(digest, 16) for digest in digests) % (1 << 128):032x}"


def differences(here: Sequence[Entry], there: Sequence[Entry]) -> Iterator[int]:
    """The places of the entries that are not the same on both sides, whose pages are as long as
    each other.
    """
    if here != there:
        yield from (
            at
            for at, (one, other) in enumerate(zip(here, there, strict=True))
            if one != other
        )


def is_same_place(one: Entry, other: Entry) -> bool:
    """Whether the two are equal in what an entry keeps when its words are erased."""
    kept = [
        (entry.seq, entry.kind, entry.turn, entry.id, entry.at)
        for entry in (one, other)
    ]
    return kept[0] == kept[1]


def pages(
    engine: Engine, session: str, *, after: int, upto: int
) -> Iterator[list[Entry]]:
    """A session's own entries after one seq, up to another, page by page; `Damaged` where one is
    missing.
    """
    while after < upto:
        page = engine.entries(session, after=after, limit=min(PAGE, upto - after))
        if not page or page[0].seq != after + 1:
            where, remedy = (
                f"{engine.where}, session {session}",
                damage_remedy(engine.where),
            )
            problem = f"the entry {after + 1} is missing, the log goes to {upto} (I-1)"
            raise Damaged(where=where, problem=problem, remedy=remedy)
        yield page
        after = page[-1].seq


def closed(
    found: Iterable[list[Entry]], *, running: int | None
) -> Iterator[list[Entry]]:
    """The pages of a session as it stood at one moment, without the turn that was running then:
    what is under way is not yet what happened, and is nobody's to end but its writer's. No page
    ends within a turn, unless that is very long: whoever stops between two has a session that could
    have been so.
    """
    held: list[Entry] = []
    for page in found:
        under_way = (at for at, entry in enumerate(page) if entry.turn == running)
        at = next(under_way, None) if running is not None else None
        held += page[:at]
        if at is not None:
            break
        end = _between_turns(held) if len(held) < HELD_MAX else len(held)
        if end:
            yield held[:end]
            held = held[end:]
    if held:
        yield held


def _between_turns(entries: Sequence[Entry]) -> int:
    """How many of these can be taken without beginning a turn that does not end among them."""
    turn, end = None, 0
    for count, entry in enumerate(entries, 1):
        if entry.kind == "turn":
            turn = entry.turn
        elif entry.kind == "end" and entry.turn == turn:
            turn = None
        if turn is None:
            end = count
    return end
