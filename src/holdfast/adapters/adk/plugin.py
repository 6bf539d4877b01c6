"""`HoldfastPlugin`: what the kit's runner tells a plug-in and no session service.

A session service sees whole events. A plug-in sees the pieces of a streamed one before they are
yielded, and where an invocation begins and ends: so an invocation is a turn, and what is shown of it
is durable by then.
"""

import asyncio
from typing import Any

from google.adk.plugins.base_plugin import BasePlugin

from holdfast.adapters.adk.run import InvocationRun


class HoldsTurns:
    """A session service whose invocations hold turns."""

    async def _begin(self, context: Any) -> None:
        raise NotImplementedError

    async def _end(self, context: Any, error: Exception | None) -> None:
        raise NotImplementedError

    def _run_of(self, session: Any, invocation_id: str) -> InvocationRun | None:
        raise NotImplementedError


class HoldfastPlugin(BasePlugin):
    """Goes with `HoldfastSessionService`; runs on other services are none of its business."""

    def __init__(self, name: str = "holdfast") -> None:
        super().__init__(name=name)

    async def on_user_message_callback(
        self, *, invocation_context: Any, user_message: Any
    ) -> None:
        """The turn begins, before the message is stored."""
        await _begin(invocation_context)

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """The turn begins, where an invocation goes on without a message."""
        await _begin(invocation_context)

    async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        """What runs the agent is known from here on."""
        run = _run_of(callback_context._invocation_context)
        if run is not None:
            run.is_worked_on_by(asyncio.current_task())

    async def on_event_callback(self, *, invocation_context: Any, event: Any) -> None:
        """A piece of a stream is stored before it is yielded."""
        run = _run_of(invocation_context)
        if run is not None:
            run.is_read_by(asyncio.current_task())
            if event.partial:
                await run.push(event)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """The turn is over."""
        await _end(invocation_context, None)

    async def on_run_error_callback(
        self, *, invocation_context: Any, error: Exception
    ) -> None:
        """The turn has failed."""
        await _end(invocation_context, error)


async def _begin(context: Any) -> None:
    service = context.session_service
    if isinstance(service, HoldsTurns):
        await service._begin(context)
        run = service._run_of(context.session, context.invocation_id)
        if run is not None:
            run.is_read_by(asyncio.current_task())


async def _end(context: Any, error: Exception | None) -> None:
    service = context.session_service
    if isinstance(service, HoldsTurns):
        await service._end(context, error)


def _run_of(context: Any) -> InvocationRun | None:
    service = context.session_service
    if not isinstance(service, HoldsTurns):
        return None
    return service._run_of(context.session, context.invocation_id)
