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
sees the commit through and then raises at that `yield`, so a plan knows whether what it asked for
was done, unless the store does not answer for longer than somebody who leaves waits (`deadline`).
The interrupt is what comes out, whatever became of the commit and of the cleaning up.
"""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from holdfast.engine.closed_engine import ending
from holdfast.engine.protocol import Engine, JournalRow, NewRows, Outcome, Ticket
from holdfast.engine.wake_signal import Signal
from holdfast.engine.writer import WAKE_S
from holdfast.errors import HoldfastError, OperatorNeeded
from holdfast.runtime.plans.deadline import Deadline, begun

T = TypeVar("T")
Plan = Generator[Any, Any, T]
ROWS_KEPT_MAX = 1000


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


class Notice:
    """What one plan listens for, and another plan or thread tells it."""

    def __init__(self) -> None:
        self.told = Signal()
        self.then: Callable[[], Any] | None = None
        """Called when it is told, from any thread."""

    def tell(self) -> None:
        self.told.set()
        then = self.then
        if then is not None:
            then()


class News(Notice):
    """Whether a session has had news since this was last cleared. It is told from its making until
    it is closed, also while its owner reads: who clears it, then reads and then listens hears of
    all that the reading has missed.
    """

    def __init__(self, engine: Engine, session: str) -> None:
        super().__init__()
        self._rows: deque[NewRows] = deque()
        # Last: another thread may call back before this returns.
        self.close = engine.watch_rows(session, self._tell)

    def _tell(self, rows: NewRows) -> None:
        if len(self._rows) >= ROWS_KEPT_MAX:
            self._rows.clear()
            rows = None
        self._rows.append(rows)
        self.tell()

    def clear(self) -> list[JournalRow] | None:
        """Clears it. What it gives is all that is new; None, when that is not known, and whoever
        wants to know has to look.
        """
        self.told.clear()
        known: list[JournalRow] = []
        is_known = True
        while self._rows:
            try:
                rows = self._rows.popleft()
            except IndexError:
                break  # another thread has cleared them just now
            is_known = is_known and rows is not None
            known += rows or ()
        return known if is_known else None

    def __enter__(self) -> "News":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Listen(NamedTuple):
    """Waits until there are news or this long has passed, whichever is first."""

    news: Notice
    seconds: float


def run(plan: Plan[T], deadline: Deadline | None = None) -> T:
    """Drives a plan on this thread. An interrupt is raised in the plan, wherever it comes, so that
    the plan can clean up; what it does then is driven to its end too. With `deadline`, no commit is
    waited for any longer than that.
    """
    try:
        return _drive(plan, deadline)
    except BaseException as cut:
        # It came between two steps of the plan.
        if is_suspended(plan):
            with contextlib.suppress(HoldfastError):
                _drive(plan, begun(cut, deadline), cut)
        raise


def is_suspended(plan: Any) -> bool:
    """Whether a plan was begun, is not over, and does nothing now."""
    return plan.gi_frame is not None and not plan.gi_running


def _drive(
    plan: Plan[T], deadline: Deadline | None, error: BaseException | None = None
) -> T:
    cut = error
    try:
        request = next(plan) if error is None else plan.throw(error)
        while True:
            try:
                answer = _wait(request, deadline)
            except BaseException as told:
                if is_leaving(request, told):
                    deadline = begun(told, deadline)
                    cut = cut or interrupt_in(told)
                request = plan.throw(bearable(told))
            else:
                request = plan.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    except HoldfastError as trouble:
        # What went wrong while the plan cleaned up must not take the place of the interrupt.
        if cut is None or trouble is cut:
            raise
    finally:
        # An error knows this frame, and would keep all of it.
        told_first, cut, error = cut, None, None
    try:
        raise told_first
    finally:
        del told_first


def is_leaving(request: Any, told: BaseException) -> bool:
    """Whether a caller that is told this is on its way out: it was interrupted, or the store can't
    be used.
    """
    if isinstance(told, OperatorNeeded) or not isinstance(told, Exception):
        return True
    # A signal handler may raise any error; a commit has none but the store's own.
    is_commit = not isinstance(request, Read | Await | Pause | Listen)
    return is_commit and not isinstance(told, HoldfastError)


def interrupt_in(told: BaseException) -> BaseException | None:
    """What the caller is to get in the end, if it is not the store's own error."""
    return None if isinstance(told, HoldfastError) else told


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


def _wait(request: Any, deadline: Deadline | None = None) -> Any:
    # By its class: whoever waits for the store comes by here.
    kind = type(request)
    if kind is Read:
        return request.work()
    if kind is Await:
        return _asked(request.work)
    if kind is Pause:
        return _news(request)
    if kind is Listen:
        return _listen(request)
    if deadline is not None:
        return _answer(request, deadline)
    try:
        return request.result()
    except BaseException as cut:
        # Interrupted while it was on its way: it is seen through first. What comes of that
        # is for the plan to look at.
        if not request.done:
            with contextlib.suppress(HoldfastError):
                _answer(request, begun(cut))
        raise


def _asked(work: Callable[[], Any]) -> Any:
    """What the caller's own function gives; `is_within_call` knows its code by this frame."""
    return work()


def is_within_call() -> bool:
    """Whether this call was made in the middle of another one on the same thread, by a signal
    handler or when something was dropped there. That one goes on when this is over: it may hold
    locks that others need, so nobody is to be waited for here. What the other one has called by
    itself, a function of its caller's, is not in the middle of it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    is_asked = False
    while frame is not None:
        name = frame.f_code.co_name
        if name in _CALLS and _is_ours(frame):
            if name == "_asked":
                is_asked = True
            elif is_asked:
                is_asked = False
            else:
                return True
        frame = frame.f_back
    return False


_CALLS = frozenset({"_asked", "_drive", "adrive", "arun", "decided", "set_result"})
"""The functions of ours that a call is in from its first lock to its last."""


def _is_ours(frame: FrameType) -> bool:
    name: str = frame.f_globals.get("__name__", "")
    return name.startswith("holdfast.") or name == "contextlib"


def _answer(ticket: Ticket, deadline: Deadline) -> Outcome:
    """The outcome of a commit, unless it takes longer than is left."""
    try:
        return ticket.result(deadline.left_s)
    except TimeoutError:
        raise deadline.over() from None


def has_failed(ticket: Ticket) -> bool:
    """Whether the store could not do what was asked for; False as long as that is not known."""
    try:
        if ticket.done:
            ticket.result()
    except OperatorNeeded:
        return True
    return False


def outcome_of(ticket: Ticket) -> Outcome | None:
    """What became of a commit whose caller was interrupted while it waited; None when the store
    could not say.
    """
    with contextlib.suppress(HoldfastError):
        return ticket.result() if ticket.done else None
    return None


def _listen(listen: Listen) -> None:
    left_s = listen.seconds
    # A piece at a time: a signal that another thread was given is noticed in between.
    while not listen.news.told.wait(min(left_s, WAKE_S)) and left_s > WAKE_S:
        left_s -= WAKE_S


def _news(pause: Pause) -> None:
    if sys.is_finalizing():
        raise ending(pause.engine.where)  # nobody brings news any more
    with News(pause.engine, pause.session) as news:
        news.told.wait(pause.seconds)
