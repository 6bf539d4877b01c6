"""The order in which the sessions of a store can be copied: each after those that it needs.

A fork needs the session whose past it shares, and a session of a key the one that the key had
before. Nearly all need nothing: of them only the names are kept.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

import msgspec

from holdfast.domain.entry import note_of
from holdfast.engine.protocol import Engine, SessionState
from holdfast.errors import Damaged
from holdfast.runtime.live.tenancy import owned

PAGE = 1000
PARENT_MISSING = "the session whose past it shares is not there"


class Bound(msgspec.Struct, frozen=True, gc=False):
    """What a session needs: its parent, up to the seq `origin`, and the earlier sessions of its
    key.
    """

    key: tuple[str, str] | None
    epoch: int
    parent: str | None
    origin: int


class Order:
    """All sessions of these tenants, as they are found when it is made; and of `others`, which no
    list may have, by their ids. `mended` says what a session is as it is copied.
    """

    def __init__(
        self,
        engine: Engine,
        tenants: list[str],
        others: Iterable[str] = (),
        mended: Callable[[SessionState], SessionState] = lambda state: state,
    ) -> None:
        self._engine = engine
        self._mended = mended
        self._free: dict[str, None] = {}
        self.bound: dict[str, Bound] = {}
        self.broken: dict[str, str] = {}
        """Sessions that can't be what they say they are, and why."""
        self.entries = 0
        for tenant in tenants:
            while self._find(tenant):
                # A session that had news meanwhile has moved to the front of the list, and may have
                # been passed by.
                pass
        for id in others:
            state = None if self._has(id) else engine.state(id)
            if state is not None and state.tenant in tenants:
                self._add(state)

    @property
    def sessions(self) -> int:
        return len(self._free) + len(self.bound)

    def groups(self) -> Iterator[list[str]]:
        """Sessions that need nothing but those of the groups before."""
        yield list(self._free)
        of_key = {(bound.key, bound.epoch): id for id, bound in self.bound.items()}
        sorter: TopologicalSorter[str] = TopologicalSorter()
        for id, bound in self.bound.items():
            earlier = None
            if bound.key is not None:
                earlier = of_key.get((bound.key, bound.epoch - 1))
            sorter.add(id)
            for needed in (earlier, bound.parent):
                # What needs nothing is in the first group already.
                if needed is not None and needed in self.bound:
                    sorter.add(id, needed)
        # What can be sorted is copied all the same; the rest is told as broken.
        with suppress(CycleError):
            sorter.prepare()
        left = dict.fromkeys(self.bound)
        while sorter.is_active() and (ready := list(sorter.get_ready())):
            yield ready
            sorter.done(*ready)
            for id in ready:
                del left[id]
        for id in left:
            # No store of ours has a circle; a crafted one may.
            self.broken.setdefault(id, "it needs a session that needs it")
        yield list(left)

    def _has(self, id: str) -> bool:
        return id in self._free or id in self.bound

    def _find(self, tenant: str) -> bool:
        """Reads the list of sessions until a page of it brings nothing new; whether the first one
        did.
        """
        before: tuple[int, str] | None = None
        while states := self._engine.sessions(tenant, before=before, limit=PAGE):
            known = self.sessions
            for state in states:
                if not self._has(state.id):
                    self._add(state)
            if self.sessions == known:
                return before is not None
            before = (states[-1].active_at, states[-1].id)
        return before is not None

    def _add(self, state: SessionState) -> None:
        state = self._mended(state)
        self.entries += state.head - state.origin
        # It shares no past, and is the first of its key.
        if state.origin == 0 and (state.key is None or state.epoch == 1):
            self._free[state.id] = None
            return
        parent = self._parent(state) if state.origin > 0 else None
        key = (state.tenant, state.key) if state.key is not None else None
        self.bound[state.id] = Bound(key, state.epoch, parent, state.origin)

    def _parent(self, state: SessionState) -> str | None:
        """The session whose past this one shares: one of the same tenant, or none. If its first
        entry can't be read, the store says beside the log which one it is.
        """
        try:
            [opened] = self._engine.entries(state.id, after=state.origin, limit=1)
            name = note_of("opened", opened.note).parent
        except (Damaged, ValueError):
            name = state.parent
        parent = owned(self._engine, state.tenant, name)
        if parent is None or not self._goes_to(parent, state.origin):
            self.broken[state.id] = PARENT_MISSING
        return parent.id if parent is not None else None

    def _goes_to(self, parent: SessionState, seq: int) -> bool:
        if parent.head < seq and hasattr(self._engine, "last_place"):
            return bool(self._engine.last_place(parent) >= seq)
        return parent.head >= seq
