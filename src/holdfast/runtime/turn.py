"""The face of a turn for threads: a context manager whose every step is durable before it shows."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from holdfast.domain.turn import CallId, CallToRun
from holdfast.errors import HoldfastError
from holdfast.runtime.border import bordered
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.message import Message
from holdfast.runtime.plans.plan import run
from holdfast.runtime.turns import turn_messages, turn_tools
from holdfast.runtime.turns.end_turn import Ending, words_of
from holdfast.runtime.turns.outbox import Receipt
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.streams.delivery import Delivery
from holdfast.runtime.turns.streams.push_stream import PushStream
from holdfast.runtime.turns.turn_block import Leaving, enter


@bordered
class Turn:
    """One piece of work, from a message that came in to its one end, used in a `with` block.
    Leaving the block cleanly ends the turn as completed; an exception ends it as interrupted or
    failed, and is re-raised.
    """

    id: str

    def __init__(self, work: RunningTurn) -> None:
        self._work = work
        self.id = work.id
        self._block: Any = None

    def context(self, format: str | None = None, *, prefill: bool = False) -> Context:
        """What the model sees now, this turn's messages included. `prefill`: as in
        `Session.context`.
        """
        return run(turn_messages.context(self._work, format, prefill=prefill))

    def deliver(self, chunks: Iterable[Any], format: str = "text") -> Delivery:
        """Stores a streamed answer and yields its text, each piece after it is durable.

        Takes text, provider chunks as dicts or SDK objects. When the stream ends, the whole message
        is stored; a stream that is left before its end, or ends without the mark its format puts
        there, leaves a partial message.
        """
        return Delivery(self._work, chunks, format)

    def stream(self, format: str = "text") -> PushStream:
        """A message from a source that pushes its chunks, from any thread: `push(chunk)` returns
        the text to show once it is durable, `close()` ends the message. One that is not closed is
        cut off by the turn's end, and so is the turn.
        """
        return PushStream(self._work, format)

    def say(self, text: str) -> str:
        """Stores a text as a whole message of the agent and returns it, to be shown."""
        return run(turn_messages.say(self._work, text))

    def add(self, message: Any, format: str | None = None) -> str:
        """Stores a finished message of the agent or of a tool and returns its id."""
        return run(turn_messages.add(self._work, message, format))

    def add_all(self, messages: Sequence[Any], format: str | None = None) -> list[str]:
        """Stores several finished messages in one commit, all or none, and returns their ids."""
        return run(turn_messages.add_all(self._work, messages, format))

    def call(
        self,
        name: str,
        arguments: Any,
        call_id: str | int | None = None,
        needs_approval: bool = False,
    ) -> CallId:
        """Stores that a tool is about to run and returns the call's id. Run the tool then, unless
        the id says `waiting`.

        With `needs_approval` the call waits until `Session.decide`; make it again, with the same id
        and arguments, to use the approval. An id that was asked about stays bound to that: denied,
        with other arguments, used or done, the call raises `NotApproved`, or waits if it is asked
        about again. So does an id that this turn has started.
        """
        return run(
            turn_tools.call(
                self._work,
                name,
                arguments,
                call_id=call_id,
                needs_approval=needs_approval,
            )
        )

    def calls(self) -> list[CallToRun]:
        """The calls to be run now, in any format: those that the model has made in this turn and
        that are neither started, nor answered, nor waiting, nor denied; and before them those that
        waited and were approved, whichever turn they were made in. Start each with `call`, with its
        id and arguments, and answer it with `result`.
        """
        return run(turn_tools.calls(self._work))

    def result(
        self,
        call_id: str | int,
        content: Any,
        error: bool = False,
        *,
        message: str | None = None,
        index: int | None = None,
    ) -> str:
        """Stores what a tool answered and returns the id of that message. Where several calls with
        this id have no outcome, it wants to know which one is meant: the id that `calls` or `call`
        has given says so; else `message` is the id of the message that makes the call, and `index`
        its place among the calls of that.
        """
        return run(
            turn_tools.result(
                self._work, call_id, content, error=error, message=message, index=index
            )
        )

    def sent(self, platform_id: str | int | None = None) -> None:
        """Confirms that what this turn has said so far has reached the one who asked, because it
        was streamed there: the outbox will not have it. What the turn says after this is owed as
        usual.
        """
        run(turn_messages.sent(self._work, platform_id))

    def inbox(
        self, *, take: Sequence[str | Message | Receipt] | None = None
    ) -> list[Message]:
        """Takes the messages that came in meanwhile into this turn and returns them; with `take`,
        just those, as in `Session.turn`.
        """
        return run(turn_messages.inbox(self._work, take))

    def retract(self, reason: str = "retried") -> None:
        """Takes what this turn has answered so far out of the model's view, to try again; the
        transcript keeps it.
        """
        run(turn_messages.retract(self._work, reason))

    def interrupt(self, reason: str = "interrupted") -> None:
        """Ends the turn as interrupted; what was delivered is kept."""
        run(self._work.finish(Ending("interrupted", reason)))

    def fail(self, error: BaseException | str) -> None:
        """Ends the turn as failed; the error is recorded, and never said to the model or
        the user.
        """
        run(self._work.finish(Ending("failed", error=words_of(error))))

    @property
    def stopped(self) -> bool:
        """Whether this turn is over: ended, stopped from outside, or taken over."""
        return run(turn_messages.stopped(self._work))

    def __repr__(self) -> str:
        return f"<Turn {self.id} {'ended' if self._work.ended else 'running'}>"

    def __enter__(self) -> "Turn":
        enter(self, self._work)
        return self

    def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the turn."""
        try:
            run(self._work.leave_block(error), self._work.deadline(error))
        # An error of the store's must not take the place of the one that the block is
        # left by: that says what went wrong first.
        except HoldfastError as trouble:
            if error is None:
                raise
            # the block's own error is re-raised
            error.add_note(f"The turn could not be ended either: {trouble}")
        # Interrupted while the end was being stored: this block does not come back, so
        # the keeper ends the turn.
        except BaseException:
            self._work.hand_over()
            raise

    __exit__ = Leaving(_leave)
