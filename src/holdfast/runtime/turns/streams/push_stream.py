"""A message whose source pushes: each piece is handed back after it is durable (I-5).

Callbacks of other programs bring their chunks on threads of their own, so every method may be
called from any thread. The pieces of one thread keep their order; of two threads that push at once,
the one that comes first stands first.
"""

from types import TracebackType
from typing import Any

from holdfast.domain.arguments import kind_of
from holdfast.engine.wake_signal import alone
from holdfast.errors import BadArgument, InvalidMessage, TurnInterrupted
from holdfast.runtime.border import bordered
from holdfast.runtime.plans.deadline import Deadline
from holdfast.runtime.plans.plan import Plan, run
from holdfast.runtime.turns.running_turn import RunningTurn


class OpenStream:
    """A stream that chunks are pushed into: the plans of `PushStream` and `AsyncPushStream`."""

    def __init__(self, work: RunningTurn, format: str) -> None:
        self._work, self._where = work, work.session.engine.where
        self.stream = work.open_stream(format)
        self._begun = False
        self._was_left = False
        self.was_cut_off = False
        """Whether its message was made, or taken back, before it was closed."""
        self._has_ended_with_turn = False

    def begin(self, face: Any, chunk: Any) -> None:
        """Before each chunk. The face is not kept: when its owner drops it, the stream is left."""
        stream = self.stream
        # Of a turn that is over, or ending, storing the chunk tells why, which says more.
        is_over = self._work.ended or self._has_ended_with_turn
        if stream.closed and not is_over:
            takes = f"a chunk while the stream is open; this one {self._why_closed()}"
            raise BadArgument(parameter="chunk", takes=takes, given=kind_of(chunk))
        stream.check(chunk)
        # A stream is on its turn's list from its first chunk on: one that never says anything
        # does not cut its turn off.
        with alone(stream.lock, self._where):
            if not self._begun:
                self._begun = True
                self._work.attend(stream, face, _nothing_to_close)

    def _why_closed(self) -> str:
        if self.stream.taken_back:
            return "was taken back by `retract`"
        if self._was_left:
            return "was cut off by an error; open another for what follows"
        return "was closed"

    def push(self, *chunks: Any) -> Plan[str]:
        """Stores a chunk, or several in one commit; the text of it to show. One that is no chunk at
        all is refused and changes nothing; whatever else goes wrong ends the stream.
        """
        try:
            return (yield from self._work.store_chunks(self.stream, chunks))
        except InvalidMessage:
            raise
        except BaseException as error:
            yield from self.leave(error)
            raise

    def deadline(self, error: BaseException) -> Deadline | None:
        return self._work.deadline(error)

    def finish(self) -> bool:
        """The message is whole, if its format says so, and becomes an entry with whatever the turn
        stores next; False where it was closed before.
        """
        stream = self.stream
        with alone(stream.lock, self._where):
            if stream.closed:
                self.was_cut_off |= stream.taken_back
                return False
            stream.closed = True
            # The turn's end may have made the message: nothing more can be in it.
            self.was_cut_off = stream.shut
            if not stream.shut:
                stream.finish()
        return True

    def close(self) -> Plan[None]:
        """The message is whole, if its format says so; nothing where it was closed before."""
        if self.finish():
            yield from self._work.close_stream(self.stream)

    def leave(self, error: BaseException | None = None) -> Plan[None]:
        """The message stays as it is, partial. What goes wrong here is not raised: an error is on
        its way to the caller already.
        """
        # First: another thread may push at any moment.
        self._has_ended_with_turn |= isinstance(error, TurnInterrupted)
        self.stream.closed = self._was_left = True
        if not self._work.is_cut_loose(error):
            with self._work.untold():
                yield from self._work.close_stream(self.stream)


@bordered
class PushStream:
    """A message of a turn, from a source that pushes. In a `with` block it is closed by leaving the
    block, and cut off by an exception.
    """

    def __init__(self, work: RunningTurn, format: str) -> None:
        self._open = OpenStream(work, format)
        self.message_id = self._open.stream.id.hex()

    def push(self, chunk: Any) -> str:
        """Stores a chunk and returns its text, to be shown: it is durable now. A push that raises
        anything but `InvalidMessage` ends the stream: what was stored of it is a partial message,
        and what follows needs another stream.
        """
        self._open.begin(self, chunk)
        return run(self._open.push(chunk))

    def close(self) -> None:
        """Ends the message; a second time does nothing."""
        run(self._open.close())

    def __enter__(self) -> "PushStream":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            run(self._open.close())
        else:
            run(self._open.leave(error), self._open.deadline(error))


def _nothing_to_close() -> None:
    return
