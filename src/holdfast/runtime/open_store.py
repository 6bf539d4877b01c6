"""An open store: what both of its faces, their sessions and their plans share."""

import atexit
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, cast

from holdfast.domain.message import USUAL_FORMAT
from holdfast.engine.address import is_remote, shown
from holdfast.engine.closed_engine import closed, ending
from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Engine, SessionState
from holdfast.errors import HoldfastError, OperatorNeeded, StoreUnavailable
from holdfast.formats import registry
from holdfast.runtime.clock import Arrivals, RealWorld, World
from holdfast.runtime.live.lease_keeper import LeaseKeeper
from holdfast.runtime.live.lineage import Lineages
from holdfast.runtime.live.session_log import Kinds, SessionLog
from holdfast.runtime.plans.deadline import LEAVE_S, Deadline, closing, exiting
from holdfast.runtime.plans.plan import is_within_call, run
from holdfast.runtime.plans.thread_pool import uninterrupted
from holdfast.runtime.shared_engine import HeldEngine, TenantEngine
from holdfast.runtime.turns.end_turn import Ending
from holdfast.runtime.turns.running_turn import RunningTurn

if TYPE_CHECKING:  # loaded by those who ask for it
    from holdfast.runtime.tracing.tracing import Tracing

PLAIN = Kinds(SessionLog, RunningTurn)
"""What a store is made of that nobody traces."""
CLOSED = "the store was closed"
"""Why a turn is over that was running then."""

# Weak: a store that its program drops is closed by `shared_engine`, and must not be
# kept alive by this list.
_open_stores: "weakref.WeakSet[OpenStore]" = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """A process that ends by itself leaves no turn behind, if its stores can be reached. The threads
    that write are still there now.
    """
    deadline = exiting()
    for store in list(_open_stores):
        store.end_turns("its process ended", deadline)


class OpenStore:
    """The engine, and the keeper of its leases, for one tenant. With `root`, both belong to that
    store.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        world: World,
        keeper: LeaseKeeper,
        tenant: str,
        root: "OpenStore | None" = None,
        kinds: Kinds = PLAIN,
    ) -> None:
        self.engine = engine
        self.world = world
        self.keeper = keeper
        self.tenant = tenant
        self._root = root
        self._kinds = kinds
        self._process = os.getpid()
        self._is_closed = False
        self._lineages = Lineages(engine)
        self.arrivals = Arrivals(world)
        self.recent: dict[str, SessionLog] = {}
        """The sessions that messages were accepted for, by key. One may have ended since."""
        _open_stores.add(self)

    def for_tenant(self, name: str) -> "OpenStore":
        """The same engine for another tenant. Its turns are its own."""
        self.refuse_closed()
        engine: Any = self.engine
        if self._root is not None:
            engine = engine.shared()
        return OpenStore(
            cast(Engine, TenantEngine(engine)),
            world=self.world,
            keeper=self.keeper,
            tenant=name,
            root=self._root or self,
            kinds=self._kinds,
        )

    @property
    def is_closed(self) -> bool:
        """Whether this store was closed, or the one it comes from."""
        return self._is_closed or (self._root is not None and self._root._is_closed)

    def refuse_closed(self) -> None:
        """Raises when this store was closed, or the one it comes from."""
        if self.is_closed:
            raise closed(self.engine.where)

    def close(self, deadline: Deadline | None = None) -> None:
        """Ends what this process still runs, then lets go; of the engine only if it was opened with
        this store. In a child that was forked there is nothing to let go of. With `deadline`, that
        of somebody who leaves by an error, what takes longer is left to a thread. Without one,
        `StoreUnavailable` tells when not all could be ended.
        """
        # Of a process that ends, nothing is left that could be ended or waited for.
        if os.getpid() != self._process or sys.is_finalizing():
            return
        _open_stores.discard(self)
        self._is_closed = True
        # Before the turns end: whoever waits for one would start the next.
        mine = None if self._root is None else self._lineages
        self.keeper.refuse_starts(mine)
        # In the middle of another call, which goes on after this: threads may need what it holds,
        # and are left to themselves sooner.
        is_within = is_within_call()
        patience = deadline or closing(
            self.engine.where, LEAVE_S if is_within else None
        )
        self.keeper.let_go_of_starting(CLOSED, mine, patience)
        problem = self.end_turns(CLOSED, patience)
        self._let_go(deadline if problem is None and not is_within else patience)
        if problem is not None and deadline is None:
            raise problem

    def _let_go(self, deadline: Deadline | None) -> None:
        # The turns first, for their ends are written through the engine; then the
        # keeper, whose thread writes as well; the engine last.
        if self._root is None and deadline is not None:
            cast(HeldEngine, self.engine).close_within(deadline)
        elif self._root is None:
            self.keeper.close()
            self.engine.close()
        else:
            # The engine is the root's, and other tenants go on using it: only this
            # store and its sessions lose it.
            self.engine.close()

    def end_turns(
        self, reason: str, deadline: Deadline | None = None
    ) -> Exception | None:
        """Ends the turns that this process still runs, as interrupted. Gives what is to be told
        when not all of them could be ended.
        """
        if self._process != os.getpid():
            return None  # a fork of the process that runs them
        # Turns that their owners have dropped are no longer among those held: they are
        # ended here.
        self.keeper.settle(deadline)
        failed: list[OperatorNeeded] = []
        others: list[Exception] = []
        for turn in self.keeper.held():
            # Stores of other tenants share the keeper. Each ends the turns that were begun with
            # it, known by the lineages that its sessions share; the root ends all.
            if self._root is None or turn.session.lineages is self._lineages:
                # Before: who is told of the end may not be able to read it any more.
                turn.claim.ended_because = reason
                try:
                    run(turn.finish(Ending("interrupted", reason)), deadline)
                except HoldfastError as error:
                    turn.claim.ended_because = None
                    # Else somebody has ended it, or its session.
                    if isinstance(error, OperatorNeeded):
                        failed.append(error)
                    continue
                except Exception as error:
                    # One that can't be ended keeps neither the others from it, nor the store
                    # from being closed.
                    turn.claim.ended_because = None
                    others.append(error)
                    continue
                # Whoever is in its block did not end it, and is told when the block
                # is left.
                turn.owner_knows = False
        self.keeper.settle(deadline)
        if others:
            return others[0]
        return _not_ended(failed, self.engine.where) if failed else None

    def session_log(self, state: SessionState) -> SessionLog:
        """The log of this session; each has what it has read for itself."""
        return self._kinds.log(
            self.engine, self.world, self.keeper, self._lineages, state, self._kinds
        )


def _not_ended(failed: list[OperatorNeeded], where: str) -> StoreUnavailable:
    problem = getattr(failed[0], "problem", failed[0].code)
    many = "a turn was" if len(failed) == 1 else f"{len(failed)} turns were"
    return StoreUnavailable(
        where=where,
        problem=f"it was closed while {many} running, whose end could not be stored"
        f" ({problem})",
        remedy="What was stored before is there; the turn ends as abandoned when its lease "
        "has run out or its process is gone",
    )


@uninterrupted
def open_at(
    where: str | os.PathLike[str],
    *,
    tenant: str,
    durability: str = "power",
    world: World | None = None,
    read_only: bool = False,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    tracing: "Tracing | None" = None,
) -> OpenStore:
    """Opens the store at this place, made if there is none. At a server, its token says whose it
    is.

    An interrupt between two of its steps would leave files and threads that nobody knows of: none
    comes there. A store whose caller was interrupted is dropped, and so closed.
    """
    if sys.is_finalizing():
        raise ending(shown(where))  # it would wait for the threads that it starts
    # Loaded here rather than in the first turn.
    registry.get(USUAL_FORMAT)
    world = world or RealWorld()
    keeper = LeaseKeeper(world.tick)
    engine = open_engine(
        where,
        durability=durability,
        tick=world.tick,
        now=world.now,
        clock=world.clock(),
        chance=world.chance,
        words_of=_words_of,
        read_only=read_only,
        token=token,
        ca=ca,
    )
    if is_remote(where):
        tenant = _tenant_at(engine, tenant)
    # Not the engine itself: its threads hold it, so a store that is dropped would never
    # be closed.
    held = cast(Engine, HeldEngine(engine, keeper))
    # The one place that asks: from here on a store that is not traced knows nothing of it.
    kinds = PLAIN if tracing is None else tracing._over(held)
    return OpenStore(held, world=world, keeper=keeper, tenant=tenant, kinds=kinds)


def _tenant_at(engine: Any, asked: str) -> str:
    try:
        tenant: str = engine.tenant_for(asked)
    except StoreUnavailable:
        engine.close()
        raise
    return tenant


def _words_of(*entry: Any) -> Any:
    """What can be found in an entry; loaded when something is searched for."""
    from holdfast.runtime.searchable_text import words_of

    return words_of(*entry)
