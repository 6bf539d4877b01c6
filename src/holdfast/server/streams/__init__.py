"""Streams: what happens in a session, told as it happens, to any number of readers."""

from typing import Any

from starlette.routing import Route

from holdfast.server.operations import EVENTS, route
from holdfast.server.sessions import SESSION
from holdfast.server.streams.event_frames import StreamedEvent
from holdfast.server.streams.session_stream import StreamQuery, stream
from holdfast.server.streams.turn_stream import (
    UiMessages,
    ag_ui_run,
    ui_message_list,
    ui_message_stream,
)

__all__ = ["routes"]

AI_SDK = "/v1/ai-sdk/{session}"
AG_UI = "/v1/ag-ui/{session}"


def routes() -> list[Route]:
    """The routes of this package."""
    told: dict[str, Any] = {"scope": "read", "gives": StreamedEvent, "media": EVENTS}
    over = "The session is over, and all of it was told."
    return [
        route("GET", f"{SESSION}/stream", stream, query=StreamQuery, nothing=over, **told),
        # The AI SDK's own address, below an `api` of `/v1/ai-sdk`.
        route("GET", f"{AI_SDK}/stream", ui_message_stream, nothing="No turn is running.",
              **told),
        route("GET", f"{AI_SDK}/messages", ui_message_list, scope="read", gives=UiMessages),
        route("GET", AG_UI, ag_ui_run, **told),
        # Its clients post what they want to be run.
        route("POST", AG_UI, ag_ui_run, **told),
    ]  # fmt: skip
