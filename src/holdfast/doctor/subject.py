"""What the doctor asks of a store, whatever kind it is."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

import msgspec

from holdfast.doctor.finding import Change, Finding, Rule
from holdfast.importers.foreign_session import ForeignSession

# Whether the remedy of a rule is to be applied.
Accepts = Callable[[Rule], bool]


class Examined(msgspec.Struct, frozen=True):
    """A session, looked at; the store as a whole when `session` is empty."""

    session: str
    messages: int
    findings: tuple[Finding, ...]


class Healed(Protocol):
    """What a store is after healing. Healing the same store again gives the same."""

    def sessions(self) -> Iterator[ForeignSession]:
        """Its sessions, healed."""
        ...

    def changes(self) -> list[Change]:
        """Each change that was made, with before and after, in the order of the store; complete
        once `sessions` has been gone through or `write` has returned.
        """
        ...

    def write(self, out: str) -> None:
        """A store that its own program can load, at a path where there is nothing yet. The same
        store gives the same bytes.
        """
        ...


class HealedSessions:
    """The sessions of a store, each healed when it is asked for; its changes are put into
    `changed`.
    """

    def __init__(self) -> None:
        # By session: one that is gone through again is healed again, and changed once.
        self.changed: dict[str, list[Change]] = {}

    def changes(self) -> list[Change]:
        return list(chain.from_iterable(self.changed.values()))


class Subject(Protocol):
    """A store in the doctor's hands. It is read from a private copy and never written."""

    kind: str
    path: str
    rules: tuple[Rule, ...]

    def examine(self, session: str | None = None) -> Iterator[Examined]:
        """Session by session what is wrong, in an order that does not change; one of them, if
        asked.
        """
        ...

    def not_examined(self) -> dict[str, int]:
        """How many records there are of each type that nobody here knows; complete once it was
        examined.
        """
        return {}

    def healed(self, accepts: Accepts) -> Healed:
        """The store with the remedies of these rules applied, wherever they are broken."""
        ...

    def close(self) -> None: ...
