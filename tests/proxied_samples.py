"""Requests that real agents have sent, and what was answered to them, as their later requests tell it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.server.proxy.dialects import (
    CHAT,
    RESPONSES,
    Dialect,
    Request,
    dialect_of,
    read_request,
)
from holdfast.server.proxy.marks import marks_of
from holdfast.server.proxy.naming import name_of

SAMPLES = Path(__file__).parent / "samples" / "proxy"
AGENTS = (
    "claude-code-2.1.325-interactive",
    "claude-code-2.1.325-print",
    "codex-0.166",
    "goose",
    "hermes-0.19",
)


class Sent(NamedTuple):
    """A request for an answer."""

    headers: dict[str, str]
    request: Request
    key: str | None


def sent(sample: str) -> list[Sent]:
    """What an agent has sent, in order, as far as it asks a model for an answer."""
    return list(_sent(sample))


def _sent(sample: str) -> Iterator[Sent]:
    for record in json.loads((SAMPLES / f"{sample}.json").read_text()):
        dialect = dialect_of(record["method"], record["path"].split("?")[0])
        body = record["body"]
        if dialect is None or body is None:
            continue
        # The recordings have their number alone.
        count = re.match(r"\[(\d+) tools\]", str(body.get("tools")))
        if count is not None:
            body["tools"] = [{}] * int(count[1])
        headers = {name.lower(): value for name, value in record["headers"].items()}
        request = read_request(dialect, json.dumps(body).encode())
        assert request is not None
        name = name_of(headers, request)
        yield Sent(headers, request, None if name is None else name.key)


def answered(all: list[Sent], place: int) -> list[Any]:
    """The messages of the model that the next request of the same conversation has after its list;
    words of our own when there is none.
    """
    asked = all[place]
    known = marks_of(asked.request.messages)
    for later in all[place + 1 :]:
        if later.key != asked.key or len(marks_of(later.request.messages)) <= len(known):
            continue
        messages = later.request.messages
        for start in range(len(messages)):
            if marks_of(messages[:start]) != known:
                continue
            # System messages may stand in between.
            found = []
            for message in messages[start:]:
                if not _is_the_models(message):
                    if found:
                        break
                    if message.get("role") not in ("system", "developer"):
                        break
                    continue
                found.append(message)
            if found:
                return found
    return [say(asked.request.dialect, f"Answer {place}.")]


def _is_the_models(message: dict[str, Any]) -> bool:
    kind = message.get("type", "")
    return message.get("role") == "assistant" or kind in ("reasoning", "function_call")


def say(dialect: Dialect, text: str) -> dict[str, Any]:
    """A message of the model's."""
    if dialect is CHAT:
        return {"role": "assistant", "content": text}
    if dialect is RESPONSES:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "id": f"msg_{text}", "role": "assistant", "content": content}
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def whole(dialect: Dialect, messages: list[Any]) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    if dialect is CHAT:
        choice = {"index": 0, "message": messages[0], "finish_reason": "stop"}
        return {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice]}
    if dialect is RESPONSES:
        return {"id": "resp_1", "object": "response", "status": "completed", "output": messages}
    content = messages[0]["content"]
    kind = {"type": "message", "role": "assistant", "model": "m"}
    return {"id": "msg_1", **kind, "content": content, "stop_reason": "end_turn", "usage": {}}
