"""The same steps on two engines: a store on disk and the reference engine, each with a world from
the same seed.

Whatever is asked of the one is asked of the other, and must come to the same: the same answer, the
same refusal, the same requests on the way to it. Ids, times and chance are equal on both sides, so
their logs must be equal, byte for byte.

A plan is driven by hand, request by request, so that several callers can be under way at once in an
order that the seed decides: a `Flight` is a call that was begun and not yet ended. What it waits
for has come when `move` returns, and its caller is told with the next move: between any two
requests of one call, others happen. A call that waits for news stays where it is until it is moved
again.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Engine, Refused, Written
from holdfast.errors import HoldfastError
from holdfast.runtime.catalog.page import Page
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.searchable_text import words_of
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Await, Listen, Pause, Plan, Read
from holdfast.runtime.store import Store
from holdfast.runtime.turns.outbox import OwedWork
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.testing.reference import ReferenceEngine
from holdfast.testing.soak.dice import DiceWorld, HandKeeper

TENANT = "soak"
MOVES_MAX = 10_000
WEIGHTS = ("bytes", "blobs")
"""What an erasure takes from a store is for its engine to say."""
Wrap = Callable[[Engine], Engine]


class Broken(Exception):
    """Something did not hold; the sentence says what."""


class Side:
    """One of the two: a world, and how to open a store in it."""

    def __init__(
        self, index: int, world: DiceWorld, open: Callable[[DiceWorld], Engine]
    ) -> None:
        self.index, self.world, self._open = index, world, open

    def store(self) -> Store:
        """Another handle on this side's store."""
        engine = self._open(self.world)
        keeper = HandKeeper(self.world.tick)
        return Store(OpenStore(engine, world=self.world, keeper=keeper, tenant=TENANT))


class Pair(tuple[Any, Any]):
    """The same thing on both sides."""

    def of(self, side: Side) -> Any:
        return self[side.index]


class Answer(msgspec.Struct):
    """What a call came to on both sides: values that say the same, or an error of the same name."""

    values: Pair | None
    plain: Any
    error: str | None = None


class Differential:
    """Both sides, for the life of one world."""

    def __init__(
        self,
        place: str,
        seed: object,
        *,
        wraps: tuple[Wrap | None, Wrap | None] = (None, None),
    ) -> None:
        wrap_kept, wrap_told = (wrap or (lambda engine: engine) for wrap in wraps)
        told_world = DiceWorld(seed)
        reference = wrap_told(ReferenceEngine(told_world.tick, words_of=words_of))
        self.kept = Side(
            0, DiceWorld(seed), lambda world: wrap_kept(_on_disk(place, world))
        )
        self.told = Side(1, told_world, lambda _: reference)
        self.sides = (self.kept, self.told)

    def open(self) -> Pair:
        """A new handle on each side's store."""
        return Pair([side.store() for side in self.sides])

    def move_worlds(self, move: Callable[[DiceWorld], None]) -> None:
        for side in self.sides:
            move(side.world)

    def ask(self, work: Callable[[Side], Any]) -> Answer:
        """Does this on both sides at once, without a break."""
        return _agreed([_outcome(partial(work, side)) for side in self.sides])

    def begin(self, plan: Callable[[Side], Plan[Any]]) -> "Flight":
        """Begins a call on both sides."""
        return Flight([_Run(partial(plan, side)) for side in self.sides])


def _on_disk(place: str, world: DiceWorld) -> Engine:
    return open_engine(place, durability="process", tick=world.tick, words_of=words_of)


class Flight:
    """A call under way on both sides."""

    def __init__(self, runs: "list[_Run]") -> None:
        self._runs = runs
        self._compare()

    @property
    def done(self) -> bool:
        return self._runs[0].request == "done"

    @property
    def waits(self) -> bool:
        """Whether it waits for news, which only others can make."""
        return self._runs[0].request == "pause"

    @property
    def answer(self) -> Answer:
        """What it came to."""
        return _agreed([run.outcome for run in self._runs])

    def move(self) -> None:
        """Tells both callers what they waited for, and lets them go on to their next request."""
        for run in self._runs:
            run.move()
        self._compare()

    def run(self) -> bool:
        """Moves until it is over or has to wait for others; whether it is over."""
        for _ in range(MOVES_MAX):
            if self.done or self.waits:
                return self.done
            self.move()
        raise Broken("a call goes on for ever")

    def close(self) -> None:
        """Its callers are gone."""
        for run in self._runs:
            with contextlib.suppress(HoldfastError):
                run.close()

    def _compare(self) -> None:
        kept, told = ((run.request, run.heard) for run in self._runs)
        if kept != told:
            raise Broken(
                f"a call came to {kept} on disk and to {told} in the reference"
            )


class _Run:
    """One side of a flight: a plan, and what was last asked for. `heard` is what a commit
    came to.
    """

    def __init__(self, plan: Callable[[], Plan[Any]]) -> None:
        self.request: str = "done"
        self.heard: Any = None
        self.outcome: tuple[Any, Exception | None] = (None, None)
        self._reply: tuple[Any, BaseException | None] = (None, None)
        try:
            self._plan = plan()
        except HoldfastError as error:
            self.outcome = (None, error)
        else:
            self._advance(lambda: next(self._plan))

    def move(self) -> None:
        if self.request == "done":
            return
        value, error = self._reply
        if error is not None:
            self._advance(lambda: self._plan.throw(error))
        else:
            self._advance(lambda: self._plan.send(value))

    def _advance(self, go_on: Callable[[], Any]) -> None:
        try:
            request = go_on()
        except StopIteration as stop:
            self.request, self.heard, self.outcome = "done", None, (stop.value, None)
        except HoldfastError as error:
            self.request, self.heard, self.outcome = (
                "done",
                None,
                (None, error.with_traceback(None)),
            )
        else:
            self._take(request)

    def _take(self, request: Any) -> None:
        """What it waits for is here before others go on: only who is told when is left open."""
        self.heard, self._reply = None, (None, None)
        try:
            if isinstance(request, Read | Await):
                self.request = "read"
                self._reply = (request.work(), None)
            elif isinstance(request, Pause | Listen):
                self.request = "pause"
            else:
                self.request = "commit"
                landed = request.result()
                self.heard, self._reply = _came_to(landed), (landed, None)
        except HoldfastError as error:
            self._reply = (None, error)
            self.heard = type(error).__name__

    def close(self) -> None:
        if self.request != "done":
            self.request = "done"
            self._plan.close()


def _came_to(outcome: Written | Refused) -> Any:
    """An outcome without what an engine may choose."""
    return (
        (outcome.seq, outcome.turn)
        if isinstance(outcome, Written)
        else (outcome.why, outcome.session)
    )


def _outcome(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except HoldfastError as error:
        return None, error.with_traceback(None)


def _agreed(outcomes: list[tuple[Any, Exception | None]]) -> Answer:
    (kept, kept_error), (told, told_error) = outcomes
    one = plain(kept) if kept_error is None else plain(kept_error)
    two = plain(told) if told_error is None else plain(told_error)
    if one != two:
        raise Broken(f"on disk: {_short(one)}; in the reference: {_short(two)}")
    if kept_error is not None:
        return Answer(None, one, type(kept_error).__name__)
    return Answer(Pair((kept, told)), one)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 600 else f"{text[:600]}…"


def plain(value: Any) -> Any:
    """A value as something that can be compared and told: names and words, no handles."""
    match value:
        case HoldfastError():
            return [
                type(value).__name__,
                {name: plain(field) for name, field in value.fields.items()},
            ]
        case SessionLog():
            return ["session", value.id, value.key, value.epoch]
        case RunningTurn():
            return ["turn", value.id]
        case OwedWork():
            return [
                "owed",
                value.debt.id,
                value.debt.turn,
                value.debt.reply_to,
                value.debt.at,
                value.text,
            ]
        case Message():
            told = [
                value.id,
                value.seq,
                value.role,
                value.state,
                value.turn,
                value.late,
                value.labels,
                value.payload,
            ]
            return ["message", *told]
        case Context():
            return ["context", list(value), value.head, value.instructions]
        case Page():
            return ["page", plain(value.items), value.next]
        case msgspec.Struct():
            fields = [name for name in value.__struct_fields__ if name not in WEIGHTS]
            return [
                type(value).__name__,
                {name: plain(getattr(value, name)) for name in fields},
            ]
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case str():
            return str(value)
        case int() | float() | bytes() | None:
            return value
    return type(value).__name__
