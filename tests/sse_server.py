"""A provider on loopback: streams scripted server-sent events to real clients.

A script is a list of events, each `(name, data)`; `data` is JSON or a string. `serve` answers every
POST with the script set for its path's last part (`completions`, `responses`, `messages`). A script
may end well, stop quietly before its end, or break the connection, as a proxy or a dying server
would.

With `strict`, each request is judged by the provider's published rules before it is answered: what
breaks one gets the provider's own 400, and the client raises.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast.testing.providers import check

JUDGED = {
    "completions": ("openai.chat", "messages"),
    "responses": ("openai.responses", "input"),
    "messages": ("anthropic", "messages"),
}
Event = tuple[str | None, Any]


class Provider:
    """What a running server answers, and what it was asked."""

    def __init__(self, url: str, *, strict: bool = False) -> None:
        self.url, self.strict = url, strict
        self.requests: list[dict[str, Any]] = []
        self._scripts: dict[str, tuple[list[Event], bool]] = {}

    def script(self, path: str, events: list[Event], *, broken: bool = False) -> None:
        """Answers POSTs to `…/path` with these events; `broken` ends in the middle of the body."""
        self._scripts[path] = (events, broken)

    def scripted(self, path: str) -> tuple[list[Event], bool]:
        return self._scripts[_last_part(path)]

    def judged(self, path: str, request: dict[str, Any]) -> list[str]:
        """What this provider refuses in a request; nothing, if it is not strict."""
        format, key = JUDGED[_last_part(path)]
        if not self.strict:
            return []
        return check(format, request[key], prefill=False) or (
            [] if request[key] else [f"{key} is empty"]
        )


def _last_part(path: str) -> str:
    return path.split("?")[0].rstrip("/").rsplit("/", 1)[-1]


@contextmanager
def serve(*, strict: bool = False) -> Iterator[Provider]:
    """A provider on a free port, for the time of a `with` block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    provider = Provider(f"http://127.0.0.1:{server.server_port}", strict=strict)
    server.provider = provider  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        provider: Provider = self.server.provider  # type: ignore[attr-defined]
        provider.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        problems = provider.judged(self.path, provider.requests[-1])
        if problems:
            self._refuse(problems)
            return
        events, broken = provider.scripted(self.path)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        # unsaid, a client may ask again on a connection that is about to close
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            self._chunk((f"event: {name}\n" if name else "") + f"data: {text}\n\n")
        if not broken:
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, problems: list[str]) -> None:
        error = {"type": "invalid_request_error", "message": "; ".join(problems)}
        body = json.dumps(
            {"type": "error", "error": {**error, "param": None, "code": None}}
        ).encode()
        self.send_response(400)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _chunk(self, text: str) -> None:
        raw = text.encode()
        self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its own."""


def named(events: list[dict[str, Any]]) -> list[Event]:
    """Events that carry their name as `type`, as the Responses and Messages APIs send them."""
    return [(event["type"], event) for event in events]


def chat_script(
    texts: list[str],
    *,
    calls: list[tuple[str, str, list[str]]] = (),
    reasoning: list[str] = (),
    refusal: list[str] = (),
    finish: str = "stop",
) -> list[Event]:
    """A Chat Completions stream: role, reasoning, text, refusal, calls with split arguments,
    finish, usage, [DONE].
    """
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in reasoning]
    deltas += [{"content": piece} for piece in texts]
    deltas += [{"refusal": piece} for piece in refusal]
    for index, (call_id, name, pieces) in enumerate(calls):
        opened = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        deltas.append({"tool_calls": [opened]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces
        ]
    choices = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": finish})
    frame = {
        "id": "chatcmpl-1",
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
    chunks = [{**frame, "choices": [choice], "usage": None} for choice in choices]
    return [(None, chunk) for chunk in [*chunks, {**frame, "choices": [], "usage": usage}]] + [
        (None, "[DONE]")
    ]


def responses_script(
    texts: list[str],
    *,
    calls: list[tuple[str, str, list[str]]] = (),
    reasoning: list[str] = (),
    refusal: list[str] = (),
    end: str = "response.completed",
) -> list[Event]:
    """A Responses stream, with the events a server sends around each item."""
    items = [_reasoning_item(reasoning)] if reasoning else []
    items += [_message_item(texts, refusal)] if texts or refusal else []
    items += [_call_item(index, *call) for index, call in enumerate(calls)]
    usage = {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 18,
    }
    frame = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-test",
        "parallel_tool_calls": True,
    }
    frame |= {"tools": [], "tool_choice": "auto", "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": frame}]
    for place, (opened, deltas, done) in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": place, "item": opened})
        events += [{**delta, "output_index": place, "item_id": done["id"]} for delta in deltas]
        events.append({"type": "response.output_item.done", "output_index": place, "item": done})
    status = end.removeprefix("response.")
    closing: dict[str, Any] = {
        "status": status,
        "output": [item[2] for item in items],
        "usage": usage,
    }
    if status == "incomplete":
        closing["incomplete_details"] = {"reason": "max_output_tokens"}
    if status == "failed":
        closing |= {"error": {"code": "server_error", "message": "broke"}, "usage": None}
    events.append({"type": end, "response": {**frame, **closing}})
    return named([{**event, "sequence_number": number} for number, event in enumerate(events)])


def _reasoning_item(
    pieces: list[str],
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    opened = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    deltas = [
        {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": piece}
        for piece in pieces
    ]
    return (
        opened,
        deltas,
        {**opened, "summary": [{"type": "summary_text", "text": "".join(pieces)}]},
    )


def _message_item(
    texts: list[str], refusal: list[str]
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    opened = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    content: list[dict[str, Any]] = []
    deltas: list[dict[str, Any]] = []
    if texts:
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
            {"type": "output_text", "text": "".join(texts), "annotations": [], "logprobs": []}
        )
    if refusal:
        place = len(content)
        deltas += [
            {"type": "response.refusal.delta", "content_index": place, "delta": text}
            for text in refusal
        ]
        content.append({"type": "refusal", "refusal": "".join(refusal)})
    return opened, deltas, {**opened, "status": "completed", "content": content}


def _call_item(
    index: int, call_id: str, name: str, pieces: list[str]
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    opened = {"id": f"fc_{index}", "type": "function_call", "call_id": call_id, "name": name}
    deltas = [
        {"type": "response.function_call_arguments.delta", "delta": piece} for piece in pieces
    ]
    done = {**opened, "arguments": "".join(pieces), "status": "completed"}
    return {**opened, "arguments": "", "status": "in_progress"}, deltas, done


def anthropic_script(
    texts: list[str],
    *,
    calls: list[tuple[str, str, list[str]]] = (),
    thinking: list[str] = (),
    signature: str = "c2ln",
    finish: str = "end_turn",
) -> list[Event]:
    """A Messages stream: thinking with its signature, text, calls with split input, stop reason and
    usage.
    """
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in thinking]
        deltas.append({"type": "signature_delta", "signature": signature})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if texts:
        blocks.append(
            ({"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in texts])
        )
    for call_id, name, pieces in calls:
        opened = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        blocks.append(
            (
                opened,
                [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces]],
            )
        )
    usage = {"input_tokens": 11, "cache_read_input_tokens": 4, "output_tokens": 1}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [],
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": finish, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 7}})
    events.append({"type": "message_stop"})
    return named(events)
