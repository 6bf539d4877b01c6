"""Events of the kit, made short; and the examples of its page."""

from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.genai import types

PLACE = {"app_name": "garden", "user_id": "ann", "session_id": "s"}
OF_ANN = {"app_name": "garden", "user_id": "ann"}


def said(words: str, author: str = "gardener", **more: Any) -> Event:
    """An event with words; `state` is what it sets."""
    role = "user" if author == "user" else "model"
    actions = EventActions(state_delta=more.pop("state", {}))
    content = types.Content(role=role, parts=[types.Part(text=words)])
    more.setdefault("invocation_id", "e-1")
    return Event(author=author, content=content, actions=actions, **more)


def call(call_id: str, **more: Any) -> Event:
    made = types.FunctionCall(id=call_id, name="water", args={"row": 7, "how": None})
    content = types.Content(role="model", parts=[types.Part(function_call=made)])
    return Event(author="gardener", invocation_id="e-1", content=content, **more)


def answer(call_id: str) -> Event:
    given = types.FunctionResponse(id=call_id, name="water", response={"result": "wet"})
    content = types.Content(role="user", parts=[types.Part(function_response=given)])
    return Event(author="gardener", invocation_id="e-1", content=content)


def compaction() -> Event:
    summary = types.Content(role="model", parts=[types.Part(text="They met.")])
    made = EventCompaction(start_timestamp=1.5, end_timestamp=2.5, compacted_content=summary)
    actions = EventActions(compaction=made)
    return Event(author="user", invocation_id="e-2", actions=actions)


def picture() -> Event:
    parts = [
        types.Part(text="see", thought=True, thought_signature=b"\x00\xff"),
        types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89PNG\x00")),
        types.Part(file_data=types.FileData(file_uri="gs://b/x.png", mime_type="image/png")),
    ]
    content = types.Content(role="model", parts=parts)
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=11, candidates_token_count=7
    )
    return Event(
        author="painter",
        branch="gardener.painter",
        invocation_id="e-1",
        content=content,
        usage_metadata=usage,
        finish_reason=types.FinishReason.STOP,
        custom_metadata={"a": [1, {"b": None}], "long": "ü" * 5000},
        long_running_tool_ids={"c2", "c1"},
        model_version="m-1",
    )


def rewind() -> Event:
    actions = EventActions(rewind_before_invocation_id="e-1", artifact_delta={"f.txt": 2})
    return Event(author="user", invocation_id="e-3", actions=actions)


def error() -> Event:
    return Event(author="gardener", invocation_id="e-1", error_code="X", error_message="no")


def words(session: Any) -> list[str]:
    """The words of a session's events."""
    found = []
    for event in session.events:
        parts = (event.content.parts if event.content else None) or []
        found.append("".join(part.text or "" for part in parts))
    return found


async def run_example(code: str, scope: dict[str, Any]) -> None:
    """Runs an example that awaits."""
    lines = "\n".join(f"    {line}" for line in code.splitlines())
    exec(f"async def main():\n{lines}\n", scope)
    await scope["main"]()
