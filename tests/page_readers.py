"""What pages make of the streams of other programs, as strict as the published clients are: what these
refuse is refused here. `./dev streams` runs the clients themselves.
"""

from typing import Any

Json = dict[str, Any]


def ui_message(parts: list[Json]) -> Json:
    """The message that a page of the AI SDK shows after these parts; `end` is how it ended."""
    shown: list[Json] = []
    message: Json = {"id": None, "parts": shown, "end": None}
    open: dict[str, Json] = {}
    tools: dict[str, Json] = {}
    for part in parts:
        kind, _, phase = part["type"].rpartition("-")
        assert message["end"] is None, f"{part} after the end"
        if part["type"] == "start":
            assert message["id"] is None
            message["id"] = part["messageId"]
        elif part["type"] == "start-step":
            shown.append({"type": "step-start"})
        elif part["type"] == "finish-step":
            assert not open, f"{open} is open at the end of its step"
        elif kind in ("text", "reasoning") and phase == "start":
            assert part["id"] not in open
            open[part["id"]] = {"type": kind, "text": ""}
            shown.append(open[part["id"]])
        elif kind in ("text", "reasoning") and phase == "delta":
            open[part["id"]]["text"] += part["delta"]
        elif kind in ("text", "reasoning") and phase == "end":
            del open[part["id"]]
        elif part["type"].startswith("tool-"):
            _tool(part, tools, shown)
        elif part["type"] in ("finish", "abort", "error"):
            message["end"] = part
        else:
            raise AssertionError(f"a page does not know {part}")
    return message


def _tool(part: Json, tools: dict[str, Json], shown: list[Json]) -> None:
    id, type = part["toolCallId"], part["type"]
    if type == "tool-input-start":
        assert part["dynamic"] is True
        tools[id] = {"type": "tool", "name": part["toolName"], "said": "", "state": "streaming"}
        shown.append(tools[id])
        return
    tool = tools[id]
    if type == "tool-input-delta":
        tool["said"] += part["inputTextDelta"]
    elif type in ("tool-input-available", "tool-input-error"):
        tool["input"], tool["state"] = part["input"], type.removeprefix("tool-")
    elif type in ("tool-output-available", "tool-output-error"):
        tool["output"] = part.get("output", part.get("errorText"))
        tool["state"] = type.removeprefix("tool-")
    else:
        assert type in ("tool-approval-request", "tool-output-denied"), part
        tool["state"] = type.removeprefix("tool-")


def ag_ui_messages(events: list[Json]) -> tuple[list[Json], Json | None]:
    """The messages that a client of AG-UI has after these events, and the event that ended the run."""
    messages: dict[str, Json] = {}
    texts: set[str] = set()
    spans: set[str] = set()
    thoughts: set[str] = set()
    calls: set[str] = set()
    ended: Json | None = None
    assert events[0]["type"] == "RUN_STARTED"
    for event in events[1:]:
        type, id = event["type"], event.get("messageId", "")
        assert ended is None, f"{event} after the end"
        if type == "MESSAGES_SNAPSHOT":
            messages = {message["id"]: dict(message) for message in event["messages"]}
        elif type == "TEXT_MESSAGE_START":
            assert id not in texts
            texts.add(id)
            fresh = {"id": id, "role": event["role"], "content": ""}
            messages.setdefault(id, fresh)
        elif type == "TEXT_MESSAGE_CONTENT":
            assert id in texts
            messages[id]["content"] += event["delta"]
        elif type == "TEXT_MESSAGE_END":
            texts.remove(id)
        elif type in ("REASONING_START", "REASONING_END"):
            (spans.add if type.endswith("START") else spans.remove)(id)
        elif type == "REASONING_MESSAGE_START":
            assert event["role"] == "reasoning"
            thoughts.add(id)
            messages[id] = {"id": id, "role": "reasoning", "content": ""}
        elif type == "REASONING_MESSAGE_CONTENT":
            assert id in thoughts
            messages[id]["content"] += event["delta"]
        elif type == "REASONING_MESSAGE_END":
            thoughts.remove(id)
        elif type == "TOOL_CALL_START":
            assert event["toolCallId"] not in calls
            calls.add(event["toolCallId"])
            function = {"name": event["toolCallName"], "arguments": ""}
            call = {"id": event["toolCallId"], "type": "function", "function": function}
            messages[event["parentMessageId"]].setdefault("toolCalls", []).append(call)
        elif type == "TOOL_CALL_ARGS":
            assert event["toolCallId"] in calls
            _call_of(messages, event["toolCallId"])["function"]["arguments"] += event["delta"]
        elif type == "TOOL_CALL_END":
            calls.remove(event["toolCallId"])
        elif type == "TOOL_CALL_RESULT":
            told = {"toolCallId": event["toolCallId"], "content": event["content"]}
            messages[id] = {"id": id, "role": event["role"], **told}
        elif type in ("RUN_FINISHED", "RUN_ERROR"):
            assert not (texts or spans or thoughts or calls), "something is still open"
            ended = event
        else:
            assert type == "CUSTOM", f"{event} is not known"
    return list(messages.values()), ended


def _call_of(messages: dict[str, Json], id: str) -> Json:
    [*_, call] = [
        call
        for message in messages.values()
        for call in message.get("toolCalls", ())
        if call["id"] == id
    ]
    return call
