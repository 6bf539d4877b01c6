"""One run of an agent in a turn of Holdfast.

The turn begins before the history is read, so what the run goes on from is what its turn follows
on; it waits for the turn of another process. The run's own messages are known by its `run_id`: they
are stored as far as the run has them, at each of its steps. One that the run has changed since is
stored again, and the older one leaves the view.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pydantic_ai.messages import ModelResponse
from pydantic_ai.tools import DeferredToolRequests

from holdfast.adapters.framework import asynchronous
from holdfast.adapters.pydantic_ai.closing import DEFERRED, history_of
from holdfast.adapters.pydantic_ai.messages import (
    FORMAT,
    payload_of,
    payloads_of,
    plain_of,
)
from holdfast.adapters.pydantic_ai.outcomes import Outcomes
from holdfast.domain.entry import Labelled
from holdfast.domain.message import Spoken
from holdfast.errors import HoldfastError
from holdfast.runtime.live.session_log import speak
from holdfast.runtime.plans.plan import Plan, read
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.session import Session
from holdfast.runtime.turn_async import AsyncTurn
from holdfast.runtime.turns.end_turn import COMPLETED
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.start_turn import already
from holdfast.runtime.turns.streams.push_stream_async import AsyncPushStream
from holdfast.runtime.turns.turn_messages import store_messages

HIDDEN = {"visible_to_model": False}
CHANGES = 2
"""So many of the last messages of a run may still be changed by it."""


class RunMessage:
    """A message of the run, as it was stored."""

    def __init__(self, message: Any, payload: dict[str, Any], id: str) -> None:
        self.message, self.payload, self.id = message, payload, id


class HistoryRun:
    """A run of an agent, from its beginning to its end."""

    def __init__(self, session: Session, run_id: str, event_id: str | None) -> None:
        self._session, self._run_id = session, run_id
        self._event_id = event_id
        self._turn: AsyncTurn | None = None
        self._push: AsyncPushStream | None = None
        self._stored: list[RunMessage] = []
        self._early: list[str] = []
        """Outcomes of tools that were stored before the request which has them all."""
        self._answered: set[str] = set()
        self._live: list[Any] = []
        self._before: list[Any] | None = None
        """What the run went on from."""
        self._is_reshaped = False
        self.outcomes = Outcomes()
        self._lock = asyncio.Lock()

    async def around(self, ctx: Any, handler: Any) -> Any:
        """Does the run in a turn."""
        # Before the turn as well: for a request that is known, nobody waits for the
        # session.
        await self._refuse_known()
        async with asynchronous(self._session).turn(format=FORMAT) as turn:
            self._turn = turn
            await self._begin(ctx)
            try:
                result = await handler()
                await self._finish(result)
            except BaseException:
                # What the run had by then; its own error says what went wrong.
                with contextlib.suppress(HoldfastError):
                    await self._store_the_rest()
                raise
            return result

    async def _as_stored(self) -> list[Any]:
        """The history as it was stored, which may have what can't be sent."""
        found: list[Any] = await arun(read(partial(history_of, self._session)))
        return found

    async def _begin(self, ctx: Any) -> None:
        # Again, now that nobody else is in the session.
        await self._refuse_known()
        given = list(ctx.messages)
        looking = partial(history_of, self._session, to_send=True)
        history = await arun(read(looking))
        # The caller has brought a history of its own: the session is to show that one.
        if given and given != history and given != await self._as_stored():
            payloads = payloads_of(given)
            await asynchronous(self._session).record(payloads, format=FORMAT)
            history = await arun(read(looking))
        # In place: this list is the run's own.
        ctx.messages[:] = history
        self._live = ctx.messages

    async def _refuse_known(self) -> None:
        log, event_id = self._session._log, self._event_id
        if event_id is None:
            return
        known = await arun(read(partial(log.engine.accepted, log.scope, event_id)))
        if known is not None:
            raise await arun(read(partial(already, log, event_id, known)))

    async def store(self, live: list[Any]) -> None:
        """Stores what is new among the run's messages."""
        async with self._lock:
            self._live = live
            own: list[Any] = []
            before: list[Any] = []
            for message in live:
                if message.run_id == self._run_id:
                    own.append(message)
                else:
                    before.append(message)
            if own:
                self._look_at(before)
                await self._store(own)

    async def _store_the_rest(self) -> None:
        known = self.outcomes.known(self._live)
        await self.store(self._live if known is None else [*self._live, known])

    def _look_at(self, before: list[Any]) -> None:
        """Whether something was taken out of, or put into, what the run went on from."""
        if self._before is None:
            self._before = before
        elif len(before) != len(self._before):
            self._is_reshaped = True
        else:
            pairs = zip(before, self._before, strict=True)
            self._is_reshaped |= any(one is not other for one, other in pairs)

    async def _store(self, own: list[Any]) -> None:
        same = self._same(own)
        gone = [known.id for known in self._stored[same:]]
        new = own[same:]
        if not gone and not new:
            return
        if not gone and self._push is not None and isinstance(new[0], ModelResponse):
            if await self._close_stream(new[0]):
                new = new[1:]
        if gone or new:
            payloads = [payload_of(message) for message in new]
            ids = await arun(self._written(payloads, gone))
            del self._stored[same:]
            for message, payload, id in zip(new, payloads, ids, strict=True):
                self._stored.append(RunMessage(message, payload, id))

    def _same(self, own: list[Any]) -> int:
        """How many of the messages are stored as they are."""
        for place, known in enumerate(self._stored):
            if place >= len(own):
                return place
            if own[place] is not known.message or place >= len(self._stored) - CHANGES:
                if payload_of(own[place]) != known.payload:
                    return place
                known.message = own[place]
        return len(self._stored)

    def _written(self, payloads: list[Any], gone: list[str]) -> Plan[list[str]]:
        """Stores messages, and takes those out of the view whose place they take."""
        work = self._work
        gone = gone + self._early
        spoken = [speak(payload, FORMAT, **self._facts()) for payload in payloads]
        event = work.session.event(self._event_id) if payloads else None
        if not gone and event is None:
            ids = yield from store_messages(work, spoken)
        else:
            ids = yield from self._swapped(work, spoken, gone, event)
        self._early = []
        if payloads:
            # The first message of the run has it.
            self._event_id = None
        work.spoke_last = COMPLETED
        return ids

    def _facts(self) -> dict[str, Any]:
        return {} if self._event_id is None else {"event": self._event_id}

    def _swapped(
        self,
        work: RunningTurn,
        spoken: list[Spoken],
        gone: list[str],
        event: tuple[str, str] | None,
    ) -> Plan[list[str]]:
        session = work.session
        drafts = []
        for id in gone:
            drafts.append(
                session.draft("label", Labelled(id, HIDDEN), turn=work.number)
            )
        said = [session.message(each, turn=work.number) for each in spoken]
        yield from work.write(*drafts, *said, event=event)
        ids = []
        for each, draft in zip(spoken, said, strict=True):
            work.calls.note(draft.id.hex(), each.note)
            ids.append(draft.id.hex())
        return ids

    async def _close_stream(self, response: Any) -> bool:
        """Ends the message that was streamed with the response that the run goes on with. False
        when that is another than what was shown: then it is a message of its own.
        """
        push, self._push = self._push, None
        assert push is not None
        payload = payload_of(response)
        shown = push._open.stream.shown
        said = sum(
            len(part.content) for part in response.parts if part.part_kind == "text"
        )
        if said < shown:
            await push.close()
            self._early.append(push.message_id)
            return False
        await push.push({"final": payload})
        await push.close()
        self._stored.append(RunMessage(response, payload, push.message_id))
        return True

    async def take(self, ctx: Any, event: Any) -> None:
        """Stores what an event brings."""
        kind = getattr(event, "event_kind", None)
        if kind == "part_start":
            await self._chunk(
                ctx, {"start": plain_of(event.part), "index": event.index}
            )
        elif kind == "part_delta":
            await self._chunk(
                ctx, {"delta": plain_of(event.delta), "index": event.index}
            )
        elif kind == "part_end" and event.part.part_kind != "text":
            await self._chunk(ctx, {"end": plain_of(event.part), "index": event.index})
        elif kind in ("function_tool_result", "output_tool_result"):
            await self._outcome(ctx, event.part)

    async def _chunk(self, ctx: Any, chunk: dict[str, Any]) -> None:
        if self._push is None:
            assert self._turn is not None
            self._push = self._turn.stream(FORMAT)
            chunk["begin"] = self._beside(ctx)
        await self._push.push(chunk)

    async def _outcome(self, ctx: Any, part: Any) -> None:
        """Stores what one of several tools answered while the others still run: the run keeps it
        until all of them have, and then has them in one request.
        """
        self._answered.add(part.tool_call_id)
        calls = {call.tool_call_id for call in _last_calls(ctx.messages)}
        # The last one: the run has them all in one request now.
        if calls <= self._answered:
            return
        async with self._lock:
            request = {
                "parts": [plain_of(part)],
                "kind": "request",
                "state": "interrupted",
            }
            spoken = speak({**request, **self._beside(ctx)}, FORMAT)
            self._early += await arun(store_messages(self._work, [spoken]))

    def _beside(self, ctx: Any) -> dict[str, Any]:
        """What the run's messages say of themselves."""
        now = self._session._log.world.now()
        moment = datetime.fromtimestamp(now / 1000, UTC).isoformat()
        named = {"run_id": ctx.run_id, "conversation_id": ctx.conversation_id}
        return {"timestamp": moment, **named}

    @property
    def _work(self) -> RunningTurn:
        assert self._turn is not None
        return self._turn._work

    async def _finish(self, result: Any) -> None:
        messages = result.all_messages()
        closing = self.outcomes.closing(messages, result.output)
        if closing is not None:
            messages = [*messages, closing]
        await self.store(messages)
        if self._is_reshaped:
            payloads = payloads_of(messages)
            await asynchronous(self._session).record(payloads, format=FORMAT)
        if isinstance(result.output, DeferredToolRequests):
            await self._wait_for(result.output)

    async def _wait_for(self, requests: Any) -> None:
        """Has calls wait: for approval, or for a result from elsewhere."""
        assert self._turn is not None
        for call in requests.approvals:
            await self._turn.call(
                call.tool_name, call.args or {}, call.tool_call_id, needs_approval=True
            )
        ids = [call.tool_call_id for call in requests.calls]
        maker = _maker(self._stored, ids)
        if maker is not None:
            await asynchronous(self._session).label(maker, **{DEFERRED: ids})

    async def use_approval(self, call: Any) -> None:
        """Notes that an approved call is run now. One that was approved by other means than ours is
        noted as such.
        """
        assert self._turn is not None
        named = (call.tool_name, call.args or {}, call.tool_call_id)
        if (await self._turn.call(*named)).waiting:
            decide = asynchronous(self._session).decide
            await decide(call.tool_call_id, True, by="deferred_tool_results")
            await self._turn.call(*named)


def _last_calls(messages: Sequence[Any]) -> list[Any]:
    """The calls that the last response makes."""
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return list(message.tool_calls)
    return []


def _maker(stored: list[RunMessage], ids: list[str]) -> str | None:
    """The message that makes these calls."""
    for known in reversed(stored):
        if isinstance(known.message, ModelResponse):
            if any(call.tool_call_id in ids for call in known.message.tool_calls):
                return known.id
    return None
