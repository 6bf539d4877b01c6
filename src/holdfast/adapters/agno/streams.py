"""Agno's runs, streamed with everything durable before it is shown."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from holdfast.adapters.agno import shown as showing
from holdfast.adapters.agno.runs import RunTable
from holdfast.adapters.agno.shown import (
    ShownEvent,
    prompt_of,
    refuse_known,
    settle_held,
)
from holdfast.adapters.framework import asynchronous
from holdfast.domain.arguments import kind_of
from holdfast.errors import BadArgument
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun

Block = dict[str, Any]


class StreamedRuns(RunTable):
    """`stream` and `astream`."""

    def stream(
        self,
        agent: Any,
        input: Any,
        *,
        session_id: str,
        request_id: str | None = None,
        stream_events: bool = False,
        **options: Any,
    ) -> Iterator[Any]:
        """`agent.run(input, stream=True, …)`, with the prompt durable before the model is asked and
        each event before it is yielded. Another run of the session waits until this one is over.
        The same `request_id` again raises `AlreadyAccepted`.
        """
        run_id = self._run_id(request_id)
        prompt = prompt_of(input, {**_facts(agent, options), "run_id": run_id})
        with self._kept(session_id).words.turn(take=[]):
            kept = self._kept(session_id)  # as it is now: this may have waited long
            # Before this run begins: what a run that was cut off has shown is part of
            # its history.
            settle_held(self.store, kept)
            refuse_known(kept, run_id)
            key = showing.shown_key(kept)
            with self.store.turn(key, prompt, format=showing.FORMAT) as turn:
                push: Any = None
                named = {"session_id": session_id, "run_id": run_id, **options}
                for event in agent.run(input, stream=True, stream_events=True, **named):
                    seen = ShownEvent(event, run_id)
                    if seen.text:
                        push = push or turn.stream()
                        push.push(seen.text)
                    elif seen.call is not None:
                        # Closed before the call is stored, so that the words stand
                        # before it; `close` gives None.
                        push = push and push.close()
                        turn.call(*_called(seen.call))
                    elif seen.result is not None:
                        turn.result(*_answered(seen.result))
                    if stream_events or seen.is_told:
                        yield event
                if push is not None:
                    push.close()
            settle_held(self.store, self._kept(session_id))

    async def astream(
        self,
        agent: Any,
        input: Any,
        *,
        session_id: str,
        request_id: str | None = None,
        stream_events: bool = False,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """As `stream`, with `agent.arun`."""
        run_id = self._run_id(request_id)
        prompt = prompt_of(input, {**_facts(agent, options), "run_id": run_id})
        words = await arun(read(lambda: self._kept(session_id).words))
        async with asynchronous(words).turn(take=[]):
            kept = self._kept(session_id)
            await arun(read(lambda: settle_held(self.store, kept)))
            await arun(read(lambda: refuse_known(kept, run_id)))
            key = showing.shown_key(kept)
            aside = await arun(read(lambda: self.store.session(key)))
            starting = asynchronous(aside).turn(prompt, format=showing.FORMAT)
            async with starting as turn:
                push: Any = None
                named = {"session_id": session_id, "run_id": run_id, **options}
                events = agent.arun(input, stream=True, stream_events=True, **named)
                async for event in events:
                    seen = ShownEvent(event, run_id)
                    if seen.text:
                        push = push or turn.stream()
                        await push.push(seen.text)
                    elif seen.call is not None:
                        push = push and await push.close()
                        await turn.call(*_called(seen.call))
                    elif seen.result is not None:
                        await turn.result(*_answered(seen.result))
                    if stream_events or seen.is_told:
                        yield event
                if push is not None:
                    await push.close()
            await arun(read(lambda: settle_held(self.store, self._kept(session_id))))

    def _run_id(self, request_id: str | None) -> str:
        if request_id is None:
            return self.store._work.world.chance(16).hex()
        if not isinstance(request_id, str) or not request_id:
            given = kind_of(request_id)
            raise BadArgument(parameter="request_id", takes="a text", given=given)
        return request_id


def _facts(agent: Any, options: Block) -> Block:
    """Whose run it is, for the case that Agno can't say it any more."""
    kinds = {kind.__name__ for kind in type(agent).__mro__}
    component = "agent"
    for kind in ("Team", "Workflow"):
        component = kind.lower() if kind in kinds else component
    return {
        f"{component}_id": getattr(agent, "id", None),
        f"{component}_name": getattr(agent, "name", None),
        "user_id": options.get("user_id"),
        "session_type": component,
    }


def _called(tool: Any) -> tuple[str, Any, str]:
    return tool.tool_name, tool.tool_args or {}, tool.tool_call_id


def _answered(tool: Any) -> tuple[str, str, bool]:
    return tool.tool_call_id, str(tool.result), bool(tool.tool_call_error)
