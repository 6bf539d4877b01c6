"""Lineage: which sessions the log of a fork is read from, its own and those whose past it shares.

A fork of a fork of a fork is a chain. Each link is an immutable fact (the parent, and the seq at
which they part), so a chain is walked once, in a loop, and remembered: a list of a hundred forks
asks for no ancestor twice.
"""

from bisect import bisect_right
from typing import NamedTuple

import msgspec

from holdfast.engine.address import damage_remedy
from holdfast.engine.protocol import Engine
from holdfast.errors import Damaged
from holdfast.runtime.live.tenancy import owned

KNOWN_MAX = 100_000
"""So many links are remembered; then it starts over."""


class Stretch(NamedTuple):
    """The entries of session `session` with `after` < seq <= `upto`; with no `upto`, all that
    follow.
    """

    session: str
    after: int
    upto: int | None


class Link(msgspec.Struct, frozen=True, gc=False):
    """Where a session's own entries begin, and whose past it shares up to there."""

    tenant: str
    origin: int
    parent: str | None


class Lineages:
    """The lineages of a store's sessions. Safe to use from many threads: what it remembers never
    changes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._links: dict[str, Link] = {}

    def of(self, session: str, *, tenant: str, origin: int) -> tuple[Stretch, ...]:
        """What the log of this session is read from, oldest first, each stretch beginning where the
        last one ends.

        Only sessions of the same tenant are followed (I-19), and none twice.
        """
        found = [Stretch(session, origin, None)]
        shared, child, met = origin, session, {session}
        while shared > 0:
            parent = self._link(child, tenant).parent
            if parent is None or parent in met:
                raise self._no_parent(child)
            met.add(parent)
            begins = min(self._link(parent, tenant).origin, shared)
            # Else they parted before the parent had said anything of its own.
            if begins < shared:
                found.append(Stretch(parent, begins, shared))
            shared, child = begins, parent
        return tuple(reversed(found))

    def _link(self, session: str, tenant: str) -> Link:
        link = self._links.get(session)
        if link is None:
            state = owned(self._engine, tenant, session)
            if state is None:
                raise self._no_parent(session)
            if len(self._links) >= KNOWN_MAX:
                self._links.clear()
            link = self._links[session] = Link(state.tenant, state.origin, state.parent)
        if link.tenant != tenant:
            raise self._no_parent(session)
        return link

    def _no_parent(self, session: str) -> Damaged:
        where = self._engine.where
        return Damaged(
            where=where,
            problem=f"session `{session}`, or the one whose past it shares, is missing",
            remedy=damage_remedy(where),
        )


def stretch_of(lineage: tuple[Stretch, ...], after: int) -> int:
    """The index of the stretch that has the entry after this seq."""
    return max(0, bisect_right(lineage, after, key=lambda stretch: stretch.after) - 1)
