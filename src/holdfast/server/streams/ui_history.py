"""Stored messages as the AI SDK's pages have them: what a page begins with, before it resumes a stream.

A turn is one message here, under the id that its stream has (`ui_messages`): a page that has it from
here, half of it, shows it once when it resumes.
"""

import json
from collections.abc import Iterable
from typing import Any

from holdfast.domain.message import Call, Part, Refusal, Result, Text, Thinking
from holdfast.runtime.live.message import Message, text_of

Json = dict[str, Any]
CUT_OFF = "The call was cut off."


def ui_history(messages: Iterable[Message]) -> list[Json]:
    """Messages of a transcript, in order: words, thoughts, tools with what they answered. Pictures
    and files are left out.
    """
    shown: list[Json] = []
    turns: dict[str, Json] = {}
    tools: dict[str, Json] = {}
    for message in messages:
        if message.state in ("erased", "pending"):
            continue
        parts = message.parts
        results = [part for part in parts if isinstance(part, Result)]
        for result in results:
            _answer(tools.get(result.call_id), result)
        if message.role == "assistant":
            known = turns.get(message.turn or "")
            if known is None:
                known = {"id": message.id, "role": "assistant", "parts": []}
                shown.append(known)
                if message.turn is not None:
                    turns[message.turn] = known
            known["parts"] += _step(parts, tools, is_cut=message.state == "partial")
        elif not results and message.role != "tool":
            words = {"type": "text", "text": text_of(parts)}
            shown.append({"id": message.id, "role": message.role, "parts": [words]})
    return shown


def tool_input(arguments: str) -> Any:
    """What a tool was called with; text where it is no JSON, as a custom tool's is, or is nested too
    deeply to be read.
    """
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


def _step(parts: list[Part], tools: dict[str, Json], *, is_cut: bool) -> list[Json]:
    made: list[Json] = [{"type": "step-start"}]
    for part in parts:
        if isinstance(part, Call):
            tool = tools[part.id] = _tool(part, is_cut=is_cut)
            made.append(tool)
        elif isinstance(part, Thinking | Text | Refusal) and part.text:
            kind = "reasoning" if isinstance(part, Thinking) else "text"
            # As the stream has it: words that follow each other are one part.
            if made[-1]["type"] == kind:
                made[-1]["text"] += part.text
            else:
                made.append({"type": kind, "text": part.text, "state": "done"})
    return made


def _tool(call: Call, *, is_cut: bool) -> Json:
    tool = {
        "type": "dynamic-tool",
        "toolName": call.name,
        "toolCallId": call.id,
        "state": "output-error" if is_cut else "input-available",
        "input": tool_input(call.arguments),
    }
    return {**tool, "errorText": CUT_OFF} if is_cut else tool


def _answer(tool: Json | None, result: Result) -> None:
    if tool is None:
        return
    if result.error:
        tool["state"], tool["errorText"] = "output-error", result.content
    else:
        tool["state"], tool["output"] = "output-available", result.content
