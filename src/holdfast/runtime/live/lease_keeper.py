"""The keeper renews the leases of this process's running turns, so that a long tool call is not
taken for a dead process, and takes care of what its owner has left: turns without an end, streams
that nobody reads any more.

It knows them by weak references. Code of ours never runs when an object is dropped: Python swallows
what is raised there, Ctrl-C included. A dropped object leaves a note (`WeakTurn`), made by C code
alone, and the keeper deals with it on its own thread, where no signal arrives; a caller who looks
at the session before that does it first. What is done about a note can be cut off anywhere and done
again, and the note stays until it is done.
"""

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from holdfast.engine.wake_signal import Signal, is_mine
from holdfast.runtime.live.leases import Leases
from holdfast.runtime.plans.deadline import Deadline
from holdfast.runtime.plans.plan import run

T = TypeVar("T")
SETTLED_S = 0.005
"""How often somebody who waits for the keeper looks whether it is done."""


class KeptTurn(Protocol):
    """A turn as the keeper sees it."""

    session: Any
    number: int
    """0 until it is known to have been started."""
    lease_s: float
    owner_knows: bool
    """Whether whoever works on it knows that it is over, once it is."""
    claim: Any
    """What is left of it when it is dropped. `ended_because` says why, when its store has ended it."""

    @property
    def is_deserted(self) -> bool:
        """Whether nobody will ever go on with it, though nobody has left it."""
        ...

    def desert(self) -> None:
        """Has the keeper end it then."""
        ...

    def renew(self) -> bool:
        """Asks for more time; False when there is nothing to renew any more."""
        ...

    def close(self) -> None:
        """It is over."""
        ...

    def finish(self, ending: Any) -> Any:
        """The plan that ends the turn so."""
        ...

    def leave_again(self) -> Any:
        """The plan that ends it as its owner left it; while that can't be stored, it is handed to
        `LeaseKeeper.leave`.
        """
        ...


class WeakTurn(weakref.ref[Any]):
    """A weak reference that puts itself on the keeper's list when its object is dropped. Forget it,
    and it won't.
    """

    __slots__ = ("key", "then", "wake")
    then: Callable[[], Any]
    """What is to be done about it then."""
    key: int
    wake: Any


class Seizing:
    """Held by whoever seizes a turn, until its end is stored."""

    __slots__ = ("__weakref__",)


class LeaseKeeper:
    """One thread for all turns of one store; it starts with the first. `leases` has what is seen of
    those of others.
    """

    def __init__(self, tick: Callable[[], float]) -> None:
        self._tick = tick
        self.leases = Leases(tick)
        self._turns: dict[int, tuple[WeakTurn, float]] = {}
        self._dropped: deque[WeakTurn] = deque()
        self._left: dict[tuple[str, int], KeptTurn] = {}
        self._given_up: set[tuple[str, int]] = set()
        # Not a condition: one that is interrupted while it is entered stays locked.
        self._news: SimpleQueue[Any] = SimpleQueue()
        # Their own thread may take them again: a signal handler may look at a session while its
        # thread sweeps, and close the store while it starts a turn.
        self._sweeping = threading.RLock()
        self._starting = threading.RLock()
        self._is_ending_left = False
        self._is_closing = False
        # Stores of other tenants share the keeper, and are closed one by one.
        self._closing: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seized: dict[tuple[str, int], WeakTurn] = {}
        self._thread: threading.Thread | None = None
        self._closed = False
        self._works = 0
        self._asked = 0
        self._answered = 0

    def tie(self, held: Any, then: Callable[[], Any]) -> WeakTurn:
        """Has `then` done when `held` is dropped, as long as the tie is kept. It must not hold
        `held` itself.
        """
        # Python calls the newest reference first, so the note is on the list before the
        # keeper is woken. Both callbacks are C code: no line of ours runs there.
        wake = weakref.ref(held, self._news.put)
        tie = WeakTurn(held, self._dropped.append)
        tie.key, tie.then, tie.wake = id(held), then, wake
        return tie

    def hold(self, turn: KeptTurn, orphaned: Callable[[], None]) -> None:
        """Renews until `drop`. `orphaned` is called if the turn is forgotten while it runs."""
        self._turns[id(turn)] = (
            self.tie(turn, orphaned),
            # Three times a lease: a renewal may fail or come late.
            self._tick() + turn.lease_s / 3,
        )
        self._look_out(turn.lease_s)

    def _look_out(self, lease_s: float) -> None:
        """Starts or wakes the thread, so that a turn with this lease is renewed in time."""
        # A process that ends starts no thread, and would wait for it.
        if self._closed or sys.is_finalizing():
            return
        # its start may have been interrupted
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, name="holdfast-keeper", daemon=True
            )
            self._thread.start()
        # It sleeps for a second at most, and a longer lease is not due before that.
        elif lease_s < 3:
            self.wake()

    def drop(self, turn: KeptTurn) -> None:
        """The turn is over."""
        self._turns.pop(id(turn), None)

    def forsake(self, turn: KeptTurn) -> None:
        """Treats the turn as one that was forgotten, though somebody may hold it still."""
        tie, _ = self._turns.get(id(turn), (None, 0.0))
        if tie is not None:
            # before it is let go of: an interrupt may come between any two steps
            self._dropped.append(tie)
            self._news.put(tie)
            self.drop(turn)

    def start(self, submit: Callable[[], T], lineages: Any) -> T | None:
        """Submits what starts a turn that is held; None when its store is being closed, which is
        known by the lineages that its sessions share. What was submitted is among those that the
        closing ends.
        """
        with self._starting:
            if self._is_closing or lineages in self._closing:
                return None
            return submit()

    def refuse_starts(self, lineages: Any = None) -> None:
        """No turn starts from now on, or none of the store with these lineages: it is being
        closed.
        """
        with self._starting:
            if lineages is None:
                self._is_closing = True
            else:
                self._closing.add(lineages)

    def let_go_of_starting(
        self,
        reason: str,
        lineages: Any = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Ends those that are being started, once they are: whoever asked for them gets a turn
        that is over, for this `reason`. With `lineages`, those of one store.
        """
        starting = [
            turn
            for turn in self.held()
            if not turn.number
            and (lineages is None or turn.session.lineages is lineages)
        ]
        for turn in starting:
            # Before: its start may be over at any moment, and nobody has dropped it.
            turn.claim.ended_because = reason
            self.forsake(turn)
        if deadline is None:
            self.sweep()
        else:
            self.settle(deadline)
        for turn in starting:
            turn.close()

    def seize(self, seizure: tuple[str, int], then: Callable[[], Any]) -> "Seizing":
        """A turn is about to be seized, by session and fence. If what this gives is dropped before
        `seized_no_more`, its seizer was interrupted, and `then` is done.
        """
        seizing = Seizing()
        self._seized[seizure] = self.tie(seizing, then)
        return seizing

    def is_seizing(self, seizure: tuple[str, int]) -> bool:
        """Whether this process has seized the turn and not yet stored its end."""
        return seizure in self._seized

    def seized_no_more(self, seizure: tuple[str, int]) -> None:
        """The turn was ended, or its seizer has let go of it."""
        self._seized.pop(seizure, None)

    def leave(self, name: tuple[str, int], turn: KeptTurn) -> None:
        """Its owner has left this turn, and its end is not stored yet. `name` is its session and
        its number.
        """
        # Before it is let go of: an interrupt between the two would leave it on neither
        # list, and it would run until its lease is over.
        self._left[name] = turn
        self.drop(turn)

    def wake(self) -> None:
        """Has a round made at once."""
        # By its own thread it is asked in the middle of one: a turn that can't be ended would be
        # tried again without a pause.
        if threading.current_thread() is not self._thread:
            self._news.put(None)

    def take_left(self, session: str, turn: int | None) -> KeptTurn | None:
        """The turn, if it was left so; whoever takes it sees to its end."""
        return None if turn is None else self._left.pop((session, turn), None)

    def end_left(self) -> None:
        """Ends all that were left, if the store can take it now."""
        if not self._left:
            return
        # Under the lock of the sweeps: a caller who looks at a session meanwhile sees
        # that the keeper is at work, and waits.
        with self._sweeping:
            self._is_ending_left = True
            try:
                for session, number in list(self._left):
                    turn = self.take_left(session, number)
                    if turn is not None:
                        # Any exception: what is wrong with one session must not keep the others
                        # from being looked after. It is on the list again, if it has not ended.
                        with suppress(Exception):
                            run(turn.leave_again())
                    self._works += 1
            finally:
                self._is_ending_left = False

    def give_up(self, seizure: tuple[str, int]) -> None:
        """This process has seized a turn, by session and fence, and could neither end it nor let go
        of it.
        """
        self._given_up.add(seizure)

    def take_given_up(self, seizure: tuple[str, int]) -> bool:
        """Whether this process gave up on that seizure. Clears the mark: the caller must now settle
        the turn.
        """
        found = seizure in self._given_up
        self._given_up.discard(seizure)
        return found

    def held(self) -> list[KeptTurn]:
        """The turns that are still running."""
        turns = [tie() for tie, _ in list(self._turns.values())]
        return [turn for turn in turns if turn is not None]

    def close(self) -> None:
        """Stops, after what was dropped until now."""
        self._closed = True
        self._news.put(None)
        thread = self._thread
        if (
            thread is not None
            and thread.is_alive()
            and thread is not threading.current_thread()
        ):
            # one whose start was interrupted may begin yet, and finds that it is over
            thread.join()
        self.sweep()

    def _run(self) -> None:
        while not self._closed:
            self.round()
            # Every second at the latest: nobody is woken by an event loop that was
            # closed, or by a full disk that has room again.
            soonest = min(
                (due for _, due in list(self._turns.values())), default=self._tick() + 1
            )
            with suppress(Empty):
                self._news.get(timeout=min(max(soonest - self._tick(), 0.01), 1.0))

    def settle(self, deadline: Deadline | None = None) -> None:
        """Has all that was dropped or left until now dealt with. With `deadline` the keeper's own
        thread does that, and is waited for so long at most: it waits for the store as long as that
        tries.
        """
        thread = self._thread
        if deadline is None or thread is None or not thread.is_alive():
            self.sweep()
            self.end_left()
            return
        if not self.is_at_work and not self._left:
            return
        self._asked += 1
        number = self._asked
        self.wake()
        while self._answered < number and deadline.left_s != 0:
            # Not told when it is done: at the end of a process nothing must be missed.
            Signal().wait(SETTLED_S)

    def round(self) -> None:
        """Ends what was forgotten or left, and renews what is due."""
        asked = self._asked
        self._take_over()
        if self._dropped:
            self.sweep()
        self.end_left()
        self._answered = asked
        now = self._tick()
        # Not `items`: a tuple for each of them may have garbage collected, other threads run
        # meanwhile, and turns begin while they are listed.
        for key in list(self._turns):
            known = self._turns.get(key)
            turn = known[0]() if known is not None else None
            if known is None or turn is None or known[1] > now:
                continue
            goes_on = True
            with suppress(Exception):  # asked for again when it is due next
                goes_on = turn.renew()
            if not goes_on:
                self._turns.pop(key, None)
            # It may have ended meanwhile, and must not be put back.
            elif key in self._turns:
                self._turns[key] = (known[0], now + turn.lease_s / 3)
            del turn

    def _take_over(self) -> None:
        """Treats turns that nobody will ever go on with as left by their owners."""
        for turn in self.held():
            with suppress(Exception):  # the next round looks again
                if turn.is_deserted:
                    turn.desert()

    @property
    def works(self) -> int:
        """How often something was dealt with. A state that was read before this changed may be of
        before that.
        """
        return self._works

    @property
    def is_at_work(self) -> bool:
        """Whether something was dropped, or is being dealt with."""
        # What is dropped stays on its list until it was dealt with.
        return bool(self._dropped) or (
            self._is_ending_left and not is_mine(self._sweeping)
        )

    @property
    def sweeps_here(self) -> bool:
        """Whether it is the calling thread that deals with something."""
        return is_mine(self._sweeping)

    def sweep(self) -> None:
        """Deals with all that was dropped until now; when it returns, that was done."""
        with self._sweeping:
            while self._dropped:
                tie = self._dropped[0]
                # the next one who looks at the session finds what could not be done
                with suppress(Exception):
                    tie.then()
                self._works += 1
                # Else a signal handler was here meanwhile, and has done it, too.
                if self._dropped and self._dropped[0] is tie:
                    self._dropped.popleft()
                # The key is an address, where another turn may live by now.
                if self._turns.get(tie.key, (None,))[0] is tie:
                    del self._turns[tie.key]
