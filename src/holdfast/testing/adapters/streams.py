"""What the three APIs send, event by event, when a model speaks.

Each function gives a whole stream of one answer: a list of `(name, data)`, as server-sent events
carry them. `number` makes the ids in it its own, so that two answers of one session are not taken
for one.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.testing.completions import call_deltas

Event = tuple[str | None, Any]
Item = tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]
"""An item of a Responses stream: as it is opened, its deltas, and as it is when done."""

CallPieces = tuple[str, str, Sequence[str]]
"""A call: its id, the tool, and the pieces of its arguments."""


def named(events: list[dict[str, Any]]) -> list[Event]:
    """Events that carry their name as `type`, as the Responses and Messages APIs send them."""
    return [(event["type"], event) for event in events]


def completions_script(
    texts: Sequence[str],
    *,
    calls: Sequence[CallPieces] = (),
    reasoning: Sequence[str] = (),
    refusal: Sequence[str] = (),
    finish: str = "stop",
    number: int = 1,
) -> list[Event]:
    """A Chat Completions stream: role, reasoning, text, refusal, calls with split arguments,
    finish, usage, [DONE].
    """
    deltas = [
        {"role": "assistant", "content": ""},
        *_completions_words(texts, reasoning, refusal),
    ]
    deltas += _completions_calls(calls)
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish})
    frame: dict[str, Any] = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-test",
    }
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    chunks: list[Any] = []
    for choice in choices:
        chunks.append({**frame, "choices": [choice], "usage": None})
    chunks += [{**frame, "choices": [], "usage": usage}, "[DONE]"]
    return [(None, chunk) for chunk in chunks]


def _completions_words(
    texts: Sequence[str], reasoning: Sequence[str], refusal: Sequence[str]
) -> list[dict[str, Any]]:
    words = [{"reasoning_content": piece} for piece in reasoning]
    words += [{"content": piece} for piece in texts]
    return words + [{"refusal": piece} for piece in refusal]


def _completions_calls(calls: Sequence[CallPieces]) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = []
    for index, (call_id, name, pieces) in enumerate(calls):
        deltas += call_deltas(index, call_id, name, pieces)
    return deltas


RESPONSES_USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 18,
}


def responses_script(
    texts: Sequence[str],
    *,
    calls: Sequence[CallPieces] = (),
    reasoning: Sequence[str] = (),
    refusal: Sequence[str] = (),
    end: str = "response.completed",
    number: int = 1,
) -> list[Event]:
    """A Responses stream, with the events a server sends around each item."""
    items = [_reasoning_item(reasoning, number)] if reasoning else []
    items += [_message_item(texts, refusal, number)] if texts or refusal else []
    items += [
        _call_item(f"fc_{number}_{index}", *call) for index, call in enumerate(calls)
    ]
    frame = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "gpt-test",
        "parallel_tool_calls": True,
    }
    frame |= {"tools": [], "tool_choice": "auto", "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": frame}]
    for place, (opened, deltas, done) in enumerate(items):
        events.append(
            {
                "type": "response.output_item.added",
                "output_index": place,
                "item": opened,
            }
        )
        events += [
            {**delta, "output_index": place, "item_id": done["id"]} for delta in deltas
        ]
        events.append(
            {"type": "response.output_item.done", "output_index": place, "item": done}
        )
    status = end.removeprefix("response.")
    closing: dict[str, Any] = {
        "status": status,
        "output": [item[2] for item in items],
        "usage": RESPONSES_USAGE,
    }
    if status == "incomplete":
        closing["incomplete_details"] = {"reason": "max_output_tokens"}
    if status == "failed":
        closing |= {
            "error": {"code": "server_error", "message": "broke"},
            "usage": None,
        }
    events.append({"type": end, "response": {**frame, **closing}})
    return named(
        [{**event, "sequence_number": number} for number, event in enumerate(events)]
    )


def _reasoning_item(pieces: Sequence[str], number: int) -> Item:
    opened = {
        "id": f"rs_{number}",
        "type": "reasoning",
        "summary": [],
        "encrypted_content": "gAAAA",
    }
    deltas = [
        {
            "type": "response.reasoning_summary_text.delta",
            "summary_index": 0,
            "delta": piece,
        }
        for piece in pieces
    ]
    return (
        opened,
        deltas,
        {**opened, "summary": [{"type": "summary_text", "text": "".join(pieces)}]},
    )


def _message_item(texts: Sequence[str], refusal: Sequence[str], number: int) -> Item:
    opened = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    content: list[dict[str, Any]] = []
    deltas: list[dict[str, Any]] = []
    if texts:
        empty = {"type": "output_text", "text": "", "annotations": []}
        deltas.append(
            {"type": "response.content_part.added", "content_index": 0, "part": empty}
        )
        deltas += [
            {
                "type": "response.output_text.delta",
                "content_index": 0,
                "delta": text,
                "logprobs": [],
            }
            for text in texts
        ]
        content.append(
            {
                "type": "output_text",
                "text": "".join(texts),
                "annotations": [],
                "logprobs": [],
            }
        )
    if refusal:
        place = len(content)
        deltas += [
            {"type": "response.refusal.delta", "content_index": place, "delta": text}
            for text in refusal
        ]
        content.append({"type": "refusal", "refusal": "".join(refusal)})
    return opened, deltas, {**opened, "status": "completed", "content": content}


def _call_item(item_id: str, call_id: str, name: str, pieces: Sequence[str]) -> Item:
    opened = {"id": item_id, "type": "function_call", "call_id": call_id, "name": name}
    deltas = [
        {"type": "response.function_call_arguments.delta", "delta": piece}
        for piece in pieces
    ]
    done = {**opened, "arguments": "".join(pieces), "status": "completed"}
    return {**opened, "arguments": "", "status": "in_progress"}, deltas, done


def anthropic_script(
    texts: Sequence[str],
    *,
    calls: Sequence[CallPieces] = (),
    thinking: Sequence[str] = (),
    signature: str = "c2ln",
    finish: str = "end_turn",
    number: int = 1,
) -> list[Event]:
    """A Messages stream: thinking with its signature, text, calls with split input, stop reason and
    usage.
    """
    blocks = _thinking(thinking, signature) + _words(texts)
    blocks += [_tool_use(*call) for call in calls]
    usage = {"input_tokens": 11, "cache_read_input_tokens": 4, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [],
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "ping"},
    ]
    for index, (block, deltas) in enumerate(blocks):
        events.append(
            {"type": "content_block_start", "index": index, "content_block": block}
        )
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta}
            for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": finish, "stop_sequence": None}
    events.append(
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 7}}
    )
    events.append({"type": "message_stop"})
    return named(events)


Block = tuple[dict[str, Any], list[dict[str, Any]]]
"""A block of a Messages stream: as it is opened, and its deltas."""


def _thinking(pieces: Sequence[str], signature: str) -> list[Block]:
    if not pieces:
        return []
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    deltas.append({"type": "signature_delta", "signature": signature})
    return [({"type": "thinking", "thinking": "", "signature": ""}, deltas)]


def _words(texts: Sequence[str]) -> list[Block]:
    if not texts:
        return []
    deltas = [{"type": "text_delta", "text": text} for text in texts]
    return [({"type": "text", "text": ""}, deltas)]


def _tool_use(call_id: str, name: str, pieces: Sequence[str]) -> Block:
    deltas = []
    # The API's first delta of a call's input is empty.
    for piece in ["", *pieces]:
        deltas.append({"type": "input_json_delta", "partial_json": piece})
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas
