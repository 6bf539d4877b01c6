"""What a foreign store is to those who read it: a shelf of stories."""

from collections.abc import Iterator
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


class ForeignReader(Protocol):
    """A store of somebody else's, opened from a private copy. One bad record stops nothing else: it
    is told in `unreadable`, once the stories have been gone through.
    """

    kind: str
    """hermes, goose, openviking, claude, codex or agents."""
    path: str
    """Where the original lies, for people."""

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
        ...

    def close(self) -> None:
        """Lets go of the private copy."""
        ...
