"""Driving plans on an event loop; `plan` says what a plan is.

Kept apart from `plan` so that a program without asyncio does not load it.
"""

import asyncio
import contextlib
import inspect
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any, TypeVar

from holdfast.engine.protocol import Ticket
from holdfast.errors import BadArgument, HoldfastError
from holdfast.runtime.plans.deadline import Deadline, begun
from holdfast.runtime.plans.plan import (
    Await,
    Listen,
    News,
    Notice,
    Pause,
    Plan,
    Read,
    bearable,
    interrupt_in,
    is_leaving,
    is_suspended,
)
from holdfast.runtime.plans.thread_pool import Job, Pool

T = TypeVar("T")
LOOK_S = 0.05
"""How often a commit is looked at whose caller was cancelled while it waited."""
_NO_COMMITS = frozenset({Read, Await, Pause, Listen})


async def arun(
    plan: Plan[T],
    error: BaseException | None = None,
    *,
    deadline: Deadline | None = None,
) -> T:
    """Drives a plan on the running event loop. An interrupt is raised in the plan, wherever it
    comes, so that the plan can clean up; what it does then is driven to its end too. With
    `deadline`, no commit is waited for any longer than that.
    """
    cut_by = error
    try:
        request = next(plan) if error is None else plan.throw(error)
        while True:
            try:
                if type(request) in _NO_COMMITS:
                    answer = await _answered(request)
                else:
                    # Not by way of `_answered`: each chunk of a stream is such a commit.
                    answer = await _landed(request, deadline)
            except GeneratorExit:
                raise
            except BaseException as told:
                if is_leaving(request, told):
                    deadline = begun(told, deadline)
                    cut_by = cut_by or interrupt_in(told)
                request = plan.throw(bearable(told))
            else:
                request = plan.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    except GeneratorExit:
        plan.close()  # nobody awaits this any more, and it can't wait for anything
        raise
    except BaseException as cut:
        # It came between two steps of the plan.
        # Once only: what interrupts the cleaning up as well is raised.
        if error is None and is_suspended(plan):
            with contextlib.suppress(HoldfastError):
                await arun(plan, cut, deadline=begun(cut, deadline))
        # What went wrong while the plan cleaned up must not take the place of the interrupt.
        if cut_by is None or not isinstance(cut, HoldfastError):
            raise
    finally:
        # An error knows this frame, and would keep all of it.
        told_first, cut_by, error = cut_by, None, None
    try:
        raise told_first
    finally:
        del told_first


def adrive(
    plan: Plan[T],
    then: Callable[[T], Any],
    failed: Callable[[BaseException], Any],
) -> None:
    """Drives a plan on the running event loop without a task: `then` is called there with what it
    gives, or `failed` with what it raises. Nobody awaits it, so nobody interrupts it.

    For plans that store a piece of a stream: they wait for one commit, and waking a task for each of
    them costs more than the piece. Whatever else a plan waits for is waited for by a task.
    """
    try:
        request = next(plan)
    except StopIteration as stop:
        then(stop.value)
        return
    except Exception as error:
        failed(error)
        return
    waiting = _WaitingPlan(plan, request, then, failed)
    if type(request) in _NO_COMMITS:
        waiting.hand_over()
    else:
        _answers_for(asyncio.get_running_loop()).tell(request, waiting)


_handed_over_plans: "set[asyncio.Future[None]]" = set()


class _WaitingPlan:
    """A plan that waits for a commit, as `_BatchAnswers` knows it."""

    __slots__ = ("_failed", "_is_told", "_plan", "_request", "_then")

    def __init__(
        self,
        plan: Plan[Any],
        request: Any,
        then: Callable[[Any], Any],
        failed: Callable[[BaseException], Any],
    ) -> None:
        self._plan, self._request = plan, request
        self._then, self._failed = then, failed
        self._is_told = False

    def done(self) -> bool:
        return self._is_told

    def set_result(self, _: None) -> None:
        """The commit has landed."""
        self._is_told = True
        try:
            self._request = self._plan.send(self._request.result())
        except StopIteration as stop:
            self._then(stop.value)
        except BaseException as error:
            # Its commit has failed, and it has not heard of that yet; or it has raised this.
            if is_suspended(self._plan):
                self.hand_over()
            else:
                self._failed(error)
        else:
            self.hand_over()

    def hand_over(self) -> None:
        """What it waits for now is waited for by a task."""
        finishing = asyncio.ensure_future(self._finished())
        # The loop would forget it.
        _handed_over_plans.add(finishing)
        finishing.add_done_callback(_handed_over_plans.discard)

    async def _finished(self) -> None:
        try:
            value = await arun(_resumed(self._plan, self._request))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(error)
        else:
            self._then(value)


def _resumed(plan: Plan[T], request: Any) -> Plan[T]:
    """The rest of a plan that waits for this."""
    try:
        while True:
            try:
                answer = yield request
            except BaseException as error:
                request = plan.throw(error)
            else:
                request = plan.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value


async def _answered(request: Any) -> Any:
    """What a plan waits for that is no commit."""
    if type(request) is Read:
        return await in_background(request.work, slow=request.slow)
    if type(request) is Await:
        return await _asked(request.work)
    if type(request) is Pause:
        with News(request.engine, request.session) as news:
            await _heard(news, request.seconds)
        return None
    await _heard(request.news, request.seconds)
    return None


async def _asked(work: Callable[[], Any]) -> Any:
    """What the caller's own function gives. A plain one may take its time, and does so on another
    thread: all other tasks of the loop would wait for it.
    """
    if is_coroutine_function(work):
        answer = work()
    else:
        answer = await asyncio.to_thread(_without_stop, work)
    if isinstance(answer, Awaitable):
        answer = await answer
    return answer


def _without_stop(work: Callable[[], Any]) -> Any:
    """What this gives. A future takes no StopIteration, and whoever awaits it would wait for ever."""
    try:
        return work()
    except StopIteration as stop:
        raise bearable(stop) from stop


def is_coroutine_function(work: Any) -> bool:
    """Whether calling this only makes something to be awaited."""
    while isinstance(work, partial):
        work = work.func
    called = type(work).__call__
    return inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(called)


async def in_background(work: Callable[[], T], *, slow: bool = False) -> T:
    """Runs what may block on another thread."""
    job = Job(work)
    try:
        await _handed_over(job, _slow_readers() if slow else _readers())
        return job.value()
    except asyncio.CancelledError:
        job.give_up()
        raise
    finally:
        # An error that is raised here knows this frame: it must not keep what was read alive.
        del job


async def _handed_over(job: Job[Any], pool: Pool) -> None:
    """Has it done, and waits for it."""
    over = _answers_for(asyncio.get_running_loop()).expect(job)
    pool.submit(job)
    await over


def insist_on_asyncio() -> None:
    """Raises `BadArgument` on the event loop of another library, which could not drive a store."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        other = "trio" if "trio" in sys.modules else "no event loop of asyncio"
        takes = (
            "asyncio (under trio, call holdfast.open and its sync methods in "
            "trio.to_thread.run_sync)"
        )
        raise BadArgument(parameter="open_async", takes=takes, given=other) from None


async def obtained(work: Callable[[], T], *, let_go: Callable[[T], Any]) -> T:
    """Runs on another thread what gives something that has to be let go of again: if the caller is
    cancelled, it is, as soon as it is there. That may block as well, and must not be interrupted:
    it is another thread's to do.
    """
    job = Job(work)
    try:
        await _handed_over(job, _readers())
        return job.value()
    except asyncio.CancelledError:
        _readers().submit(Job(partial(_let_go, job, let_go)))
        raise
    finally:
        del job


def _let_go(job: Job[Any], let_go: Callable[[Any], Any]) -> None:
    let_go(job.value())


async def shielded(work: Callable[[], Any]) -> None:
    """Runs `work` on another thread to its end, even if the awaiting task is cancelled."""
    job = Job(work)
    await _handed_over(job, _readers())
    job.value()


async def _landed(ticket: Ticket, deadline: Deadline | None) -> Any:
    landing = _answers_for(asyncio.get_running_loop())
    try:
        if deadline is None:
            await landing.expect(ticket)
        else:
            await asyncio.wait([landing.expect(ticket)], timeout=deadline.left_s)
    except asyncio.CancelledError as cut:
        # A cancelled caller should know what became of its commit; commits are short.
        deadline = begun(cut, deadline)
        while not ticket.done and deadline.left_s:
            with contextlib.suppress(asyncio.CancelledError):
                # Looked at now and then: nobody cancels it again if the call that would wake it is
                # interrupted.
                await asyncio.wait([landing.expect(ticket)], timeout=LOOK_S)
        raise
    if deadline is not None and not ticket.done:
        raise deadline.over()
    return ticket.result()


async def _heard(news: Notice, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    here = asyncio.Event()
    news.then = partial(_news_for(loop).tell, here.set)
    try:
        # looked at after saying how to tell: one of the two sees the other
        if not news.told.is_set():
            # `wait_for` swallows a cancellation that comes with the news
            async with asyncio.timeout(seconds):
                await here.wait()
    except TimeoutError:
        pass
    finally:
        news.then = None


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], Any]) -> None:
    # The loop was closed meanwhile: nobody is left to tell.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


class _BatchNews:
    """Brings news to an event loop, with one wake-up for all that come before it looks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told: deque[Callable[[], Any]] = deque()
        self._is_called = False

    def tell(self, callback: Callable[[], Any]) -> None:
        """From any thread: it is called on the loop."""
        self._told.append(callback)
        if not self._is_called:
            self._is_called = True
            try:
                _tell(self._loop, self._drain)
            except BaseException:
                self._is_called = False
                raise

    def _drain(self) -> None:
        # First: what is told from now on may not be seen any more.
        self._is_called = False
        try:
            while self._told:
                self._told.popleft()()
        except BaseException:
            self._loop.call_soon(self._drain)
            raise


def _news_for(loop: asyncio.AbstractEventLoop) -> _BatchNews:
    # Kept by the loop itself, as answers are.
    news = getattr(loop, "_holdfast_news", None)
    if news is None:
        news = _BatchNews(loop)
        loop._holdfast_news = news  # type: ignore[attr-defined]
    return news


def on_this_loop(callback: Callable[[], Any]) -> Callable[[], None]:
    """What other threads call to have this called on the running loop, soon."""
    return partial(_news_for(asyncio.get_running_loop()).tell, callback)


class _BatchAnswers:
    """Brings the answers of a whole batch to an event loop with one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._landed: deque[asyncio.Future[None] | _WaitingPlan] = deque()

    def expect(self, ticket: Ticket) -> "asyncio.Future[None]":
        future = self._loop.create_future()
        self.tell(ticket, future)
        return future

    def tell(
        self, ticket: Ticket, waiting: "asyncio.Future[None] | _WaitingPlan"
    ) -> None:
        """Who is told when this has its answer."""
        ticket.then(partial(self._land, waiting))

    def _land(
        self, waiting: "asyncio.Future[None] | _WaitingPlan", ticket: Ticket
    ) -> Callable[[], None]:
        """On the writer's thread: notes an answer, and says how to tell the loop of all of them."""
        self._landed.append(waiting)
        # Equal for all answers of this loop, so the writer calls it once for a batch.
        return self._signal

    def _signal(self) -> None:
        _tell(self._loop, self._drain)

    def _drain(self) -> None:
        try:
            while self._landed:
                waiting = self._landed[0]
                if not waiting.done():
                    waiting.set_result(None)
                # not before it was told: an interrupt may come between any two steps
                self._landed.popleft()
        except BaseException:
            self._loop.call_soon(self._drain)
            raise


def _answers_for(loop: asyncio.AbstractEventLoop) -> _BatchAnswers:
    # Kept by the loop itself: it is gone when the loop is.
    landing = getattr(loop, "_holdfast_landing", None)
    if landing is None:
        landing = _BatchAnswers(loop)
        loop._holdfast_landing = landing  # type: ignore[attr-defined]
    return landing


@lru_cache(maxsize=1)
def _readers() -> Pool:
    return Pool(4, "holdfast-reader")


@lru_cache(maxsize=1)
def _slow_readers() -> Pool:
    return Pool(2, "holdfast-slow-reader")


def _forget_pools() -> None:
    """A child that was forked has none of these threads."""
    _readers.cache_clear()
    _slow_readers.cache_clear()


os.register_at_fork(after_in_child=_forget_pools)
