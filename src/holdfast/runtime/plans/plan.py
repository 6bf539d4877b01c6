"""Plans, and the two ways to drive them.

What a store does is written once, as generators that never block: a plan yields what it waits for
and is sent the answer. `run` drives it on the calling thread, `arun` (in `plan_asyncio`) on an event loop;
the public classes, sync and async, are thin faces over plans.

    yield from wait_for(ticket)  a commit under way       → its outcome
    yield from read(work)        something to be read     → its value; on an event loop it is read on another thread
    yield from ask(work)         the caller's own work    → its value, awaited if it can be
    yield Pause(…)               wait for news            → None
    yield Listen(news, …)        wait for news without missing any that come while one reads

A commit is shielded: when its caller is interrupted or cancelled while it waits, the driver first
sees the commit through and then raises at that `yield`, so a plan always knows whether what it
asked for was done.
"""

import contextlib
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from holdfast.engine.protocol import Engine, Outcome, Ticket
from holdfast.engine.wake_signal import Signal
from holdfast.errors import HoldfastError

T = TypeVar("T")
Plan = Generator[Any, Any, T]


class Read(NamedTuple):
    """Something to be read from the store. What is `slow` may take a good while, and no other read
    waits for it.
    """

    work: Callable[[], Any]
    slow: bool = False


class Await(NamedTuple):
    """Something of the caller's to be called; on an event loop it may give an awaitable."""

    work: Callable[[], Any]


class Pause(NamedTuple):
    """Waits until a session has news or this long has passed, whichever is first."""

    engine: Engine
    session: str
    seconds: float


def wait_for(ticket: Ticket) -> Plan[Outcome]:
    """What becomes of a commit under way."""
    found: Outcome = yield ticket
    return found


def read(work: Callable[[], T], *, slow: bool = False) -> Plan[T]:
    """What this reads from the store."""
    value: T = yield Read(work, slow)
    return value


def ask(work: Callable[[], Any]) -> Plan[Any]:
    """What the caller's own function gives."""
    return (yield Await(work))


class News:
    """Whether a session has had news since this was last cleared. It is told from its making until
    it is closed, also while its owner reads: who clears it, then reads and then listens hears of
    all that the reading has missed.
    """

    def __init__(self, engine: Engine, session: str) -> None:
        self.told = Signal()
        self.then: Callable[[], Any] | None = None
        """Called with the news, from any thread."""
        # Last: another thread may call back before this returns.
        self.close = engine.watch(session, self._tell)

    def _tell(self) -> None:
        self.told.set()
        then = self.then
        if then is not None:
            then()

    def __enter__(self) -> "News":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Listen(NamedTuple):
    """Waits until there are news or this long has passed, whichever is first."""

    news: News
    seconds: float


def run(plan: Plan[T]) -> T:
    """Drives a plan on this thread. An interrupt is raised in the plan, wherever it comes, so that
    the plan can clean up; what it does then is driven to its end too.
    """
    try:
        return _drive(plan)
    except BaseException as cut:
        # It came between two steps of the plan.
        if is_suspended(plan):
            _drive(plan, cut)
        raise


def is_suspended(plan: Any) -> bool:
    """Whether a plan was begun, is not over, and does nothing now."""
    return plan.gi_frame is not None and not plan.gi_running


def _drive(plan: Plan[T], error: BaseException | None = None) -> T:
    try:
        request = next(plan) if error is None else plan.throw(error)
        while True:
            try:
                answer = _wait(request)
            except BaseException as told:
                request = plan.throw(bearable(told))
            else:
                request = plan.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


def bearable(error: BaseException) -> BaseException:
    """The error as it may be thrown into a plan. A generator takes a StopIteration for a defect of
    its own, so one that came out of the caller's own function, or out of ours, is told as what it
    is.
    """
    if not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    told = RuntimeError(
        f"what a call of Holdfast was waiting for raised {type(error).__name__}"
    )
    told.__cause__ = error
    return told


def _wait(request: Any) -> Any:
    if isinstance(request, Read | Await):
        return request.work()
    if isinstance(request, Pause):
        return _news(request)
    if isinstance(request, Listen):
        request.news.told.wait(request.seconds)
        return None
    try:
        return request.result()
    except BaseException:
        if not request.done:
            request.result()  # interrupted while it was on its way: see it through first
        raise


def outcome_of(ticket: Ticket) -> Outcome | None:
    """What became of a commit whose caller was interrupted while it waited; None when the store
    could not say.
    """
    with contextlib.suppress(HoldfastError):
        return ticket.result() if ticket.done else None
    return None


def _news(pause: Pause) -> None:
    with News(pause.engine, pause.session) as news:
        news.told.wait(pause.seconds)
