"""An answer that is not streamed: what the events of its stream come to."""

import json
from typing import Any

from holdfast.testing.adapters.streams import Event


def whole_answer(api: str, events: list[Event]) -> dict[str, Any]:
    """The body that an API answers with when it was not asked to stream."""
    said = [data for _, data in events if isinstance(data, dict)]
    if api == "responses":
        response: dict[str, Any] = said[-1]["response"]
        return response
    return _completion(said) if api == "completions" else _message(said)


def _completion(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    text, calls, finish = "", dict[int, dict[str, Any]](), None
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            finish = choice["finish_reason"] or finish
            for call in delta.get("tool_calls", ()):
                # Only the first delta of a call has its id; the others are known by the
                # index alone.
                known = calls.setdefault(
                    call["index"], {**call, "function": {"arguments": ""}}
                )
                for key, words in call["function"].items():
                    known["function"][key] = known["function"].get(key, "") + words
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        made = []
        for call in calls.values():
            made.append({key: value for key, value in call.items() if key != "index"})
        message["tool_calls"] = made
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    # The last chunk has the usage, and no choice.
    last = chunks[-1]
    return {**last, "object": "chat.completion", "choices": [choice]}


def _message(events: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "message_start":
            whole = {**event["message"]}
        elif event["type"] == "content_block_start":
            blocks.append({**event["content_block"]})
        elif event["type"] == "content_block_delta":
            _grow(blocks[-1], event["delta"])
        elif event["type"] == "message_delta":
            whole |= event["delta"]
            whole["usage"] = {**whole["usage"], **event["usage"]}
    return {**whole, "content": blocks}


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if delta["type"] == "input_json_delta":
        if delta["partial_json"]:
            block["input"] = json.loads(delta["partial_json"])
        return
    key = delta["type"].removesuffix("_delta")
    block[key] = block[key] + delta[key]
