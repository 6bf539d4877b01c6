"""A turn for asyncio: what `turn` has, awaited."""

from collections.abc import AsyncIterable, Awaitable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any

from holdfast.domain.turn import CallId, CallToRun
from holdfast.errors import BadArgument, HoldfastError
from holdfast.runtime.border import bordered
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.message import Message
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turns import turn_messages, turn_tools
from holdfast.runtime.turns.end_turn import Ending, words_of
from holdfast.runtime.turns.outbox import Receipt
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.streams.delivery_async import AsyncDelivery
from holdfast.runtime.turns.streams.push_stream_async import AsyncPushStream
from holdfast.runtime.turns.turn_block import AsyncBlock, Leaving, enter


@bordered
class AsyncTurn:
    """One piece of work, used in an `async with` block; see `Turn`."""

    id: str

    def __init__(self, work: RunningTurn) -> None:
        self._work = work
        self.id = work.id
        self._block: Any = None

    def context(
        self, format: str | None = None, *, prefill: bool = False
    ) -> Awaitable[Context]:
        """What the model sees now, this turn's messages included. `prefill`: as in
        `Session.context`.
        """
        return arun(turn_messages.context(self._work, format, prefill=prefill))

    def deliver(
        self, chunks: AsyncIterable[Any] | Iterable[Any], format: str = "text"
    ) -> AsyncDelivery:
        """Stores a streamed answer and yields its text, each piece after it is durable."""
        return AsyncDelivery(self._work, chunks, format)

    def stream(self, format: str = "text") -> AsyncPushStream:
        """A message from a source that pushes its chunks: `push(chunk)` returns the text to show
        once it is durable, `close()` ends the message.
        """
        return AsyncPushStream(self._work, format)

    def say(self, text: str) -> Awaitable[str]:
        """Stores a text as a whole message of the agent and returns it, to be shown."""
        return arun(turn_messages.say(self._work, text))

    def add(self, message: Any, format: str | None = None) -> Awaitable[str]:
        """Stores a finished message of the agent or of a tool and returns its id."""
        return arun(turn_messages.add(self._work, message, format))

    def add_all(
        self, messages: Sequence[Any], format: str | None = None
    ) -> Awaitable[list[str]]:
        """Stores several finished messages in one commit, all or none, and returns their ids."""
        return arun(turn_messages.add_all(self._work, messages, format))

    def call(
        self,
        name: str,
        arguments: Any,
        call_id: str | int | None = None,
        needs_approval: bool = False,
    ) -> Awaitable[CallId]:
        """Stores that a tool is about to run and returns the call's id. Run the tool after this,
        unless the id says `waiting`; see `Turn.call`.
        """
        return arun(
            turn_tools.call(
                self._work,
                name,
                arguments,
                call_id=call_id,
                needs_approval=needs_approval,
            )
        )

    def calls(self) -> Awaitable[list[CallToRun]]:
        """The calls to be run now, in any format; see `Turn.calls`."""
        return arun(turn_tools.calls(self._work))

    def result(
        self,
        call_id: str | int,
        content: Any,
        error: bool = False,
        *,
        message: str | None = None,
        index: int | None = None,
    ) -> Awaitable[str]:
        """Stores what a tool answered and returns the id of that message. Where several calls with
        this id have no outcome, it wants to know which one is meant: the id that `calls` or `call`
        has given says so; else `message` is the id of the message that makes the call, and `index`
        its place among the calls of that.
        """
        return arun(
            turn_tools.result(
                self._work, call_id, content, error=error, message=message, index=index
            )
        )

    def sent(self, platform_id: str | int | None = None) -> Awaitable[None]:
        """Confirms that what this turn has said so far has arrived; see `Turn.sent`."""
        return arun(turn_messages.sent(self._work, platform_id))

    def inbox(
        self, *, take: Sequence[str | Message | Receipt] | None = None
    ) -> Awaitable[list[Message]]:
        """Takes the messages that came in meanwhile into this turn and returns them; with `take`,
        just those, as in `AsyncSession.turn`.
        """
        return arun(turn_messages.inbox(self._work, take))

    def retract(self, reason: str = "retried") -> Awaitable[None]:
        """Takes what this turn has answered so far out of the model's view, to try again; the
        transcript keeps it.
        """
        return arun(turn_messages.retract(self._work, reason))

    def interrupt(self, reason: str = "interrupted") -> Awaitable[None]:
        """Ends the turn as interrupted; what was delivered is kept."""
        return arun(self._work.finish(Ending("interrupted", reason)))

    def fail(self, error: BaseException | str) -> Awaitable[None]:
        """Ends the turn as failed; the error is recorded, and never said to the model or
        the user.
        """
        return arun(self._work.finish(Ending("failed", error=words_of(error))))

    @property
    def stopped(self) -> Awaitable[bool]:
        """Whether this turn is over: ended, stopped from outside, or taken over."""
        return arun(turn_messages.stopped(self._work))

    def __repr__(self) -> str:
        return f"<AsyncTurn {self.id} {'ended' if self._work.ended else 'running'}>"

    async def __aenter__(self) -> "AsyncTurn":
        enter(self, self._work)
        return self

    async def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the turn."""
        # A coroutine that is dropped can't await anything, Python raises RuntimeError:
        # the keeper ends the turn then.
        if self._work.is_cut_loose(error):
            self._work.leave_later(error)
            return
        try:
            leaving = self._work.leave_block(error)
            await arun(leaving, deadline=self._work.deadline(error))
        except HoldfastError as trouble:
            if error is None:
                raise
            error.add_note(f"The turn could not be ended either: {trouble}")
        # Cancelled while the end was being stored: the keeper ends the turn.
        except BaseException:
            self._work.hand_over()
            raise

    __aexit__ = Leaving(_leave, AsyncBlock)


class StartingTurn:
    """A turn about to start: await it, or enter it with `async with`."""

    def __init__(self, plan: Plan[RunningTurn]) -> None:
        self._plan: Plan[RunningTurn] | None = plan
        self._turn: AsyncTurn | None = None
        self._block: Any = None

    # `turn()` is no coroutine function: `async with session.turn(…)` works without an
    # `await`, and the message is frozen by the call.
    def __await__(self) -> Generator[Any, Any, AsyncTurn]:
        return self._start().__await__()

    def __repr__(self) -> str:
        return "<StartingTurn: await it, or enter it with `async with`>"

    async def _start(self) -> AsyncTurn:
        plan, self._plan = self._plan, None
        if plan is None:
            takes = "to be awaited or entered once; call `turn` again for another one"
            raise BadArgument(
                parameter="turn", takes=takes, given="the same call again"
            )
        return AsyncTurn(await arun(plan))

    async def __aenter__(self) -> AsyncTurn:
        self._turn = await self._start()
        # `self`, not the turn: the `with` statement has looked up the end of its block
        # on this object.
        enter(self, self._turn._work)
        return self._turn

    async def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the turn."""
        assert self._turn is not None
        await self._turn._leave(kind, error, trace)

    __aexit__ = Leaving(_leave, AsyncBlock)
