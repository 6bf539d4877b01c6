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
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.engine.open import open_engine
from holdfast.engine.protocol import Engine, Refused, Written
from holdfast.errors import HoldfastError
from holdfast.runtime.catalog.page import Page
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.open_store import OpenStore
from holdfast.runtime.plans.plan import Await, Listen, Pause, Plan, Read
from holdfast.runtime.searchable_text import words_of
from holdfast.runtime.store import Store
from holdfast.runtime.turns.outbox import OwedWork
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.testing.reference import ReferenceEngine
from holdfast.testing.soak.dice import DiceWorld, HandKeeper

TENANT = "soak"
# Far more than any call makes; one that never ends is a finding, too.
MOVES_MAX = 10_000
WEIGHTS = ("bytes", "blobs")
"""What an erasure takes from a store is for its engine to say."""
Wrap = Callable[[Engine], Engine]
Wraps = tuple[Wrap | None, Wrap | None]
"""What is put around the engine on disk, and around the reference."""


class Broken(Exception):
    """Something did not hold; the sentence says what."""


Pair = tuple[Any, Any]
"""The same thing on both sides: on disk, and in the reference."""


class Answer(msgspec.Struct):
    """What a call came to on both sides: values that say the same, or an error of the same name.
    `at_once` says that nothing else was done while the call was under way.
    """

    values: Pair | None
    plain: Any
    error: str | None = None
    at_once: bool = True

    @property
    def value(self) -> Any:
        """What it came to in the reference; None after an error."""
        return self.values[1] if self.values is not None else None


class Differential:
    """Both sides, for the life of one world."""

    def __init__(self, place: str, seed: object, wraps: Wraps) -> None:
        self._place = place
        self._wraps = wraps
        self.worlds = (DiceWorld(seed), DiceWorld(seed))
        # One for all handles: what it holds lives in memory, and goes with it.
        self._reference = ReferenceEngine(self.worlds[1].tick, words_of=words_of)

    def open(self) -> Pair:
        """A new handle on each side's store."""
        tick = self.worlds[0].tick
        # Nothing here cuts the power, so that no step needs to wait for a sync.
        on_disk = open_engine(
            self._place, durability="process", tick=tick, words_of=words_of
        )
        # Each side with a world of its own from the same seed: drawn from one world,
        # ids would depend on which side asks first.
        disk, reference = map(
            self._handle, (on_disk, self._reference), self.worlds, self._wraps
        )
        return disk, reference

    def _handle(self, engine: Engine, world: DiceWorld, wrap: Wrap | None) -> Store:
        if wrap is not None:
            engine = wrap(engine)
        keeper = HandKeeper(world.tick)
        return Store(OpenStore(engine, world=world, keeper=keeper, tenant=TENANT))


def ask(work: Callable[..., Any], *pairs: Pair) -> Answer:
    """Does this on both sides at once, without a break, with what each has of these pairs."""
    outcomes = []
    for own in zip(*pairs, strict=True):
        outcomes.append(_outcome(partial(work, *own)))
    return _agreed(outcomes)


def begin(plan: Callable[..., Plan[Any]], *pairs: Pair) -> "Flight":
    """Begins a call on both sides, with what each has of these pairs."""
    return Flight([_Run(partial(plan, *own)) for own in zip(*pairs, strict=True)])


_MESSAGE_FIELDS = attrgetter(
    "id", "seq", "role", "state", "turn", "late", "labels", "payload"
)

Outcome = tuple[Any, Exception | None]
"""What a call came to on one side: a value, or an error of ours."""


class Flight:
    """A call under way on both sides."""

    def __init__(self, runs: "list[_Run]") -> None:
        self._runs = runs
        self._compare()

    @property
    def done(self) -> bool:
        # Either side would do: `_compare` has seen that they are equal.
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
            # A plan may write when it is closed, and be refused.
            with contextlib.suppress(HoldfastError):
                run.close()

    def _compare(self) -> None:
        disk, reference = ((run.request, run.heard) for run in self._runs)
        if disk != reference:
            raise Broken(
                f"a call came to {disk} on disk and to {reference} in the reference"
            )


class _Run:
    """One side of a flight: a plan, and what was last asked for. `heard` is what a commit
    came to.
    """

    def __init__(self, plan: Callable[[], Plan[Any]]) -> None:
        self.request: str = "done"
        self.heard: Any = None
        self.outcome: Outcome = (None, None)
        self._reply: Outcome = (None, None)
        try:
            # A call may be refused before it is a plan at all.
            self._plan = plan()
        except HoldfastError as error:
            self.outcome = (None, error)
        else:
            self._advance()

    def move(self) -> None:
        if self.request != "done":
            self._advance()

    def _advance(self) -> None:
        """Gives the plan its reply, which is None at first, and takes its next request."""
        value, error = self._reply
        # What the last commit came to was compared already.
        self.heard = None
        self._reply = (None, None)
        try:
            if error is not None:
                request = self._plan.throw(error)
            else:
                request = self._plan.send(value)
        except StopIteration as stop:
            self.request = "done"
            self.outcome = (stop.value, None)
        except HoldfastError as failed:
            self.request = "done"
            # A traceback would keep every frame alive, with all that is in it.
            self.outcome = (None, failed.with_traceback(None))
        else:
            self._take(request)

    def _take(self, request: Any) -> None:
        """What it waits for is here before others go on: only who is told when is left open."""
        try:
            if isinstance(request, Read | Await):
                self.request = "read"
                self._reply = (request.work(), None)
            elif isinstance(request, Pause | Listen):
                self.request = "pause"
            else:
                self.request = "commit"
                outcome = request.result()
                self._reply = (outcome, None)
                self.heard = _came_to(outcome)
        except HoldfastError as error:
            self._reply = (None, error)
            self.heard = type(error).__name__

    def close(self) -> None:
        if self.request != "done":
            self.request = "done"
            self._plan.close()


def _came_to(outcome: Written | Refused) -> Any:
    """An outcome without what an engine may choose."""
    if isinstance(outcome, Written):
        return outcome.seq, outcome.turn
    return outcome.why, outcome.session


def _outcome(work: Callable[[], Any]) -> Outcome:
    try:
        return work(), None
    except HoldfastError as error:
        return None, error.with_traceback(None)


def _agreed(outcomes: list[Outcome]) -> Answer:
    (disk, error), (reference, other) = outcomes
    one = plain(error or disk)
    two = plain(other or reference)
    if one != two:
        raise Broken(f"on disk: {short(one)}; in the reference: {short(two)}")
    if error is not None:
        return Answer(None, one, type(error).__name__)
    return Answer((disk, reference), one)


def short(value: Any) -> str:
    """What it is, as far as a report has room for it."""
    text = repr(value)
    return text if len(text) < 800 else f"{text[:800]}…"


def plain(value: Any) -> Any:
    """A value as something that can be compared and told: names and words, no handles."""
    match value:
        case HoldfastError():
            return [type(value).__name__, plain(value.fields)]
        case SessionLog():
            return ["session", value.id, value.key, value.epoch]
        case RunningTurn():
            return ["turn", value.id]
        case OwedWork():
            debt = value.debt
            return ["owed", debt.id, debt.turn, debt.reply_to, debt.at, value.text]
        case Message():
            return ["message", *_MESSAGE_FIELDS(value)]
        case Context():
            return ["context", list(value), value.head, value.instructions]
        case Page():
            return ["page", plain(value.items), value.next]
        case msgspec.Struct():
            fields = msgspec.structs.asdict(value)
            for name in WEIGHTS:
                fields.pop(name, None)
            return [type(value).__name__, plain(fields)]
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        # Subclasses too: an id or a call that is told as a string is compared as one.
        case str():
            return str(value)
        case int() | float() | bytes() | None:
            return value
    return type(value).__name__
