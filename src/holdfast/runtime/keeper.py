"""The keeper renews the leases of this process's running turns, so that a long tool call is not taken for a dead
process.

It knows turns by weak reference: a turn that its owner has dropped without ending it is ended here, as interrupted. A
turn that was left while the store could not take its end is kept, and left again until the store can.
"""

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from holdfast.errors import HoldfastError
from holdfast.runtime.drive import run
from holdfast.runtime.leases import Leases


class Held(Protocol):
    """A turn as the keeper sees it."""

    lease_s: float

    def renew(self) -> bool:
        """Asks for more time; False when there is nothing to renew any more."""
        ...

    def finish(self, end: Any, reason: str | None = None) -> Any:
        """The plan that ends the turn."""
        ...

    def leave_again(self) -> Any:
        """The plan that ends it as its owner left it; while that can't be stored, it is handed to `Keeper.leave`."""
        ...


class Keeper:
    """One thread for all turns of one store; it starts with the first. `leases` has what is seen of those of others."""

    def __init__(self, tick: Callable[[], float]) -> None:
        self._tick = tick
        self.leases = Leases(tick)
        self._turns: dict[int, tuple[weakref.ref[Held], float]] = {}
        self._orphans: list[Callable[[], None]] = []
        self._left: dict[tuple[str, int], Held] = {}
        self._given_up: set[tuple[str, int]] = set()
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def hold(self, turn: Held, orphaned: Callable[[], None]) -> None:
        """Renews until `drop`. `orphaned` is called, on the keeper's thread, if the turn is forgotten while it runs."""
        key = id(turn)

        def gone(_: object) -> None:
            # Called by the garbage collector, at any moment: take no lock, only leave a note.
            if self._turns.pop(key, None) is not None:
                self._orphans.append(orphaned)

        due = self._tick() + turn.lease_s / 3
        self._turns[key] = (weakref.ref(turn, gone), due)
        self._look_out(turn.lease_s)

    def _look_out(self, lease_s: float) -> None:
        """There is a turn with this lease: have rounds made in time for it."""
        with self._news:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="holdfast-keeper", daemon=True)
                self._thread.start()
            elif lease_s < 3:
                self._news.notify()

    def drop(self, turn: Held) -> None:
        self._turns.pop(id(turn), None)

    def leave(self, name: tuple[str, int], turn: Held) -> None:
        """Its owner has left this turn, and its end is not stored yet. `name` is its session and its number."""
        self.drop(turn)
        self._left[name] = turn

    def take_left(self, session: str, turn: int | None) -> Held | None:
        """The turn, if it was left so; whoever takes it sees to its end."""
        return None if turn is None else self._left.pop((session, turn), None)

    def end_left(self) -> None:
        """Ends all that were left, if the store can take it now."""
        for session, number in list(self._left):
            turn = self.take_left(session, number)
            if turn is not None:
                with suppress(HoldfastError):
                    run(turn.leave_again())

    def give_up(self, seizure: tuple[str, int]) -> None:
        """This process has seized a turn, by session and fence, and could neither end it nor let go of it."""
        self._given_up.add(seizure)

    def gave_up(self, seizure: tuple[str, int]) -> bool:
        """Whether it has; whoever asks sees to it."""
        found = seizure in self._given_up
        self._given_up.discard(seizure)
        return found

    def held(self) -> list[Held]:
        """The turns that are still running."""
        turns = [reference() for reference, _ in list(self._turns.values())]
        return [turn for turn in turns if turn is not None]

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while not self._closed:
            self.round()
            soonest = min((due for _, due in list(self._turns.values())), default=self._tick() + 1)
            with self._news:
                if not self._closed:
                    self._news.wait(min(max(soonest - self._tick(), 0.01), 1.0))

    def round(self) -> None:
        """Ends what was forgotten or left, and renews what is due."""
        while self._orphans:
            self._orphans.pop()()
        self.end_left()
        now = self._tick()
        for key, (reference, due) in list(self._turns.items()):
            turn = reference()
            if turn is None or due > now:
                continue
            if turn.renew():
                self._turns[key] = (reference, now + turn.lease_s / 3)
            else:
                self._turns.pop(key, None)
            del turn


class Part(Keeper):
    """The keeper of a store that shares the engine of another: the turns are kept there, and known here as its own."""

    def __init__(self, whole: Keeper) -> None:
        self._whole = whole
        self.leases = whole.leases
        self._own: weakref.WeakSet[Held] = weakref.WeakSet()

    def hold(self, turn: Held, orphaned: Callable[[], None]) -> None:
        self._own.add(turn)
        self._whole.hold(turn, orphaned)

    def drop(self, turn: Held) -> None:
        self._whole.drop(turn)

    def leave(self, name: tuple[str, int], turn: Held) -> None:
        self._own.add(turn)
        self._whole.leave(name, turn)

    def take_left(self, session: str, turn: int | None) -> Held | None:
        return self._whole.take_left(session, turn)

    def end_left(self) -> None:
        self._whole.end_left()

    def give_up(self, seizure: tuple[str, int]) -> None:
        self._whole.give_up(seizure)

    def gave_up(self, seizure: tuple[str, int]) -> bool:
        return self._whole.gave_up(seizure)

    def held(self) -> list[Held]:
        return [turn for turn in self._whole.held() if turn in self._own]

    def round(self) -> None:
        self._whole.round()

    def close(self) -> None:
        """The others go on."""
