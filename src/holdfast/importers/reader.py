"""What a reader of a foreign store is: it gives sessions, parents first."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from holdfast.importers.foreign_session import ForeignSession


class UnreadableRecord(msgspec.Struct, frozen=True):
    """A record that could not be read: where it lies, what is wrong, and its raw bytes as far as
    they are of use.
    """

    session: str | None
    place: str
    problem: str
    raw: bytes = b""


def parents_first(
    ids: Iterable[str], parent_of: Callable[[str], str | None]
) -> Iterator[str]:
    """Ids of sessions, each behind the one it follows from, else in the order given. A damaged store
    may have a circle of parents: it is cut where it is met.
    """
    given: set[str] = set()
    for id in ids:
        line: dict[str, None] = {}
        at: str | None = id
        while at is not None and at not in given and at not in line:
            line[at] = None
            at = parent_of(at)
        # A parent that is given already ends the line, so all of this one is new.
        given.update(line)
        yield from reversed(line)


class ForeignReader(Protocol):
    """A store of somebody else's, opened from a private copy. One bad record stops nothing else: it
    is in `unreadable`, once the sessions have been gone through.
    """

    # hermes, goose, openviking, claude, codex or agents.
    kind: str
    # Where the original lies, for people.
    path: str

    def sessions(self, session: str | None = None) -> Iterator[ForeignSession]:
        """Its sessions as they are, in an order that does not change: parents before what follows
        from them.
        """
        ...

    def unreadable(self) -> list[UnreadableRecord]:
        """Records that were met so far and could not be read."""
        ...

    def not_examined(self) -> dict[str, int]:
        """How many records were met of each type that the reader does not know."""
        return {}

    def close(self) -> None:
        """Lets go of the private copy."""
        ...
