"""An answer on its way: each of its chunks is stored, and then passed on (I-5)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.domain.message import MessageNote, Spoken, thaw
from holdfast.errors import HoldfastError
from holdfast.runtime.turn_async import AsyncTurn
from holdfast.runtime.turns.end_turn import COMPLETED, Ending
from holdfast.server.proxy.answers import prefill_chunks
from holdfast.server.proxy.dialects import Request
from holdfast.server.proxy.marks import Marks, marks_of

LEFT = "its client left, and asked for something else"


def _nothing(recording: "AnswerRecording") -> None:
    return


class AnswerRecording:
    """The answer to one request. `heard` is called when all of it is known, before its client has the
    end of it; `over` once, when it has ended in one way or another.
    """

    def __init__(
        self,
        turn: AsyncTurn,
        request: Request,
        marks: Marks,
        over: Callable[["AnswerRecording"], Awaitable[None]],
        heard: Callable[["AnswerRecording"], None] = _nothing,
    ) -> None:
        self.turn, self.request, self.marks = turn, request, marks
        self.ending = COMPLETED
        self.may_be_tried_again = False
        self.is_whole = False
        self.answer: Marks = ()
        self.note: MessageNote | None = None
        """What is noted of the answer, as far as it came."""
        self.calls: tuple[str, ...] = ()
        self.response_id: str | None = None
        self.has_end = False
        """Whether the mark of its end has come, though more may follow."""
        self.is_closed = False
        """Whether nothing is added to it any more."""
        self.is_left = False
        """Whether its client has gone."""
        self.exchange: asyncio.Task[None] | None = None
        """What reads the answer."""
        self._tell_over, self._tell_heard = over, heard
        self._stream = turn.stream(request.dialect.format)
        # With the first words of the answer: an attempt that has none has said nothing.
        self._lead = prefill_chunks(request.prefill)
        self._is_ending = self._is_heard = False
        self._over, self._left = asyncio.Event(), asyncio.Event()

    @property
    def message_id(self) -> str:
        return self._stream.message_id

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Where the answer is stored, for a client that wants the rest of it."""
        session = self.turn._work.session.id
        return [
            (b"holdfast-session-id", session.encode()),
            (b"holdfast-message-id", self.message_id.encode()),
        ]

    async def push(self, chunks: list[Any]) -> None:
        """Stores chunks, in one commit: they may be passed on now."""
        lead, self._lead = self._lead, []
        await self._stream._push_all([*lead, *chunks])

    def hear(self) -> None:
        """All of the answer is there: what follows on it is known from now on."""
        if not self._is_heard:
            self._is_heard = self.is_whole = True
            self._take(self._spoken())
            self._tell_heard(self)

    async def close(self) -> None:
        """Stores that the answer is whole, before its client has the end of it: a process that is killed
        right then leaves a whole message.
        """
        self.is_closed = True
        await self._stream.close()

    async def finish(self) -> None:
        """The answer came to its end."""
        # The client did not hear all of it, and may ask again.
        await self._end(COMPLETED, again=self.is_left)

    async def fail(self, why: str, *, again: bool) -> None:
        """The answer failed; with `again`, its client may try once more."""
        await self._end(Ending("failed", error=why), again=again)

    async def break_off(self, why: str) -> None:
        """The provider sends no more; its client may try once more."""
        await self._cut(Ending("failed", error=why))

    async def leave(self, why: str) -> None:
        """Nobody reads on."""
        await self._cut(Ending("interrupted", why))

    async def _cut(self, ending: Ending) -> None:
        # What comes after the mark of its end is no part of it.
        if self._is_heard or self.has_end:
            await self.finish()
        else:
            await self._end(ending, again=True)

    async def _end(self, ending: Ending, *, again: bool) -> None:
        if self._is_ending:
            return
        self._is_ending = True
        try:
            # A store that can't take it now is told of its end by the turn's.
            with contextlib.suppress(HoldfastError):
                self.is_whole = ending is COMPLETED
                self._take(self._spoken())
                await self._stream.close()
            # The mark of the end was there, but what came before it is not a whole
            # message.
            if ending is COMPLETED and not self.is_whole:
                ending = Ending("failed", error="the answer was not whole")
            self.ending, self.may_be_tried_again = ending, again
            await self._tell_over(self)
        finally:
            self._over.set()

    def _spoken(self) -> Spoken | None:
        try:
            return self._stream._open.stream.message()
        # What a provider sends may be no message at all; what was shown of it is kept.
        except Exception:
            return None

    def _take(self, spoken: Spoken | None) -> None:
        if spoken is None:
            return
        self.note = spoken.note
        self.is_whole = self.is_whole and not spoken.note.partial
        self.calls = tuple(call.id for call in spoken.note.calls)
        self.answer = marks_of([thaw(spoken.body)])

    def client_left(self) -> None:
        """The client is gone; what comes is stored all the same."""
        self.is_left = True
        self._left.set()

    async def over_or_left(self, seconds: float) -> None:
        """Returns when it is over, or its client has left; or after so many seconds, unless it is
        about to be over.
        """
        waits = [asyncio.create_task(each.wait()) for each in (self._over, self._left)]
        try:
            await asyncio.wait(
                waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()
        if self._is_ending or self._is_heard:
            await self._over.wait()

    async def stop(self) -> None:
        """Its client has left and wants something else: no more of it is read."""
        if self.exchange is not None:
            self.exchange.cancel(LEFT)
        await self._over.wait()
