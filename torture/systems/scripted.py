"""A scripted model on loopback, for programs that speak the Messages API, the Responses API or Chat
Completions.

A prompt may hold a line `DO: [STEP, …]`; the n-th request after that prompt plays the n-th step:

    {"text": …}   {"think": …}   {"tools": [[NAME, ARGUMENTS], …]}     what is said; may stand together
    {"hold": TEXT}      says this, tells `halfway`, and goes on once `go_on` is set: the time for a kill or an interrupt
    {"cut": TEXT}       says this and hangs up           {"status": 500}      answers with an error

A prompt without steps is answered with a few words. Ids are counted, so that a script gives the
same files again.
"""

import gzip
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

ASIDE = re.compile(
    r"<(system-reminder|environment_context|turn-context|user_instructions)>.*?</\1>", re.DOTALL
)
STEPS = re.compile(r"DO: (\[.*\])")


def do(*steps: dict[str, Any]) -> str:
    """The line of a prompt that says what the model will do."""
    return f"DO: {json.dumps(list(steps))}"


class Scripted:
    """The model. `requests` holds the path and the body of each request, in order."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.halfway, self.go_on = threading.Event(), threading.Event()
        self.numbers = count(1)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Scripted":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def id(self, prefix: str) -> str:
        return f"{prefix}_{next(self.numbers):024d}"

    def step(self, body: dict[str, Any]) -> dict[str, Any]:
        """What is answered to a request."""
        return step_for(body.get("messages") or body.get("input") or [])


def step_for(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What comes next after these messages, or items."""
    last, text = max(_prompts(messages), default=(-1, ""), key=lambda prompt: prompt[0])
    found = STEPS.findall(text)
    if not found:
        return {"text": f"Noted: {' '.join(text.split())[:60]}"}
    steps = json.loads(found[-1])
    rounds, was_mine = 0, False
    for message in messages[last + 1 :]:
        mine = message.get("role") == "assistant" or "call" in message.get("type", "").removesuffix(
            "_output"
        )
        mine = (mine or message.get("type") == "reasoning") and not message.get(
            "type", ""
        ).endswith("_output")
        rounds, was_mine = rounds + (mine and not was_mine), mine
    return steps[rounds] if rounds < len(steps) else {"text": "All done here."}


def _prompts(messages: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    for index, message in enumerate(messages):
        texts = [ASIDE.sub("", text).strip() for text in _texts(message.get("content"))]
        if message.get("role") == "user" and any(texts):
            yield index, [text for text in texts if text][-1]


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [
        block.get("text", "")
        for block in content or ()
        if block.get("type") in ("text", "input_text")
    ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: programs that are killed leave connections behind."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_HEAD(self) -> None:
        self._json({})

    def do_GET(self) -> None:
        self._json({"object": "list", "data": [], "models": []})

    def do_POST(self) -> None:
        self.model: Scripted = self.server.model  # type: ignore[attr-defined]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            raw = gzip.decompress(raw)
        body = json.loads(raw or b"{}")
        path = self.path.split("?")[0]
        self.model.requests.append((path, body))
        answers = {
            "/messages": self._messages,
            "/responses": self._responses,
            "/chat/completions": self._chat,
        }
        answer = next((answers[end] for end in answers if path.endswith(end)), None)
        if answer is None:
            self._json({"input_tokens": len(raw) // 4})
            return
        step = self.model.step(body)
        if "status" in step:
            error = {"type": "api_error", "message": "scripted failure"}
            self._json({"type": "error", "error": error}, step["status"])
            return
        try:
            answer(body, step, len(raw) // 4)
        except (BrokenPipeError, ConnectionResetError):
            return

    # Messages.

    def _messages(self, body: dict[str, Any], step: dict[str, Any], size: int) -> None:
        blocks = list(self._blocks(step))
        usage = {"input_tokens": size, "output_tokens": 20}
        stop = "tool_use" if step.get("tools") else "end_turn"
        whole = {
            "id": self.model.id("msg"),
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
        }
        whole |= {"content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": usage}
        if not body.get("stream"):
            self._json(whole)
            return
        self._start()
        self._event("message_start", message={**whole, "content": [], "stop_reason": None})
        for index, block in enumerate(blocks):
            empty, deltas = _opened(block)
            self._event("content_block_start", index=index, content_block=empty)
            for delta in deltas:
                self._event("content_block_delta", index=index, delta=delta)
            if block["type"] == "text" and not self._goes_on(step):
                return
            self._event("content_block_stop", index=index)
        self._event(
            "message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage
        )
        self._event("message_stop")

    def _blocks(self, step: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "think" in step:
            yield {"type": "thinking", "thinking": step["think"], "signature": self.model.id("sig")}
        if text := _said(step):
            yield {"type": "text", "text": text}
        for name, arguments in step.get("tools", ()):
            yield {
                "type": "tool_use",
                "id": self.model.id("toolu"),
                "name": name,
                "input": arguments,
            }

    # Responses.

    def _responses(self, body: dict[str, Any], step: dict[str, Any], size: int) -> None:
        items = list(self._items(step))
        details = {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        usage = {"input_tokens": size, "output_tokens": 20, "total_tokens": size + 20, **details}
        whole = {
            "id": self.model.id("resp"),
            "object": "response",
            "created_at": 1_790_000_000,
            "status": "completed",
        }
        whole |= {"model": body.get("model"), "output": items, "usage": usage, "error": None}
        if not body.get("stream"):
            if self._goes_on(step):
                self._json(whole)
            return
        self._start()
        self._event(
            "response.created",
            response={**whole, "status": "in_progress", "output": [], "usage": None},
        )
        for index, item in enumerate(items):
            if item["type"] == "message":
                part = {"type": "output_text", "text": "", "annotations": []}
                where = {"output_index": index, "item_id": item["id"], "content_index": 0}
                self._event(
                    "response.output_item.added", output_index=index, item={**item, "content": []}
                )
                self._event("response.content_part.added", **where, part=part)
                for word in _words(item["content"][0]["text"]):
                    self._event("response.output_text.delta", **where, delta=word)
                if not self._goes_on(step):
                    return
            else:
                self._event("response.output_item.added", output_index=index, item=item)
            self._event("response.output_item.done", output_index=index, item=item)
        self._event("response.completed", response=whole)

    def _items(self, step: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "think" in step:
            thought = {
                "summary": [{"type": "summary_text", "text": step["think"]}],
                "encrypted_content": "gAAAA",
            }
            yield {"type": "reasoning", "id": self.model.id("rs"), **thought}
        if text := _said(step):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            yield {
                "type": "message",
                "id": self.model.id("msg"),
                "role": "assistant",
                "content": content,
            }
        for name, arguments in step.get("tools", ()):
            call = {"call_id": self.model.id("call"), "name": name}
            if isinstance(arguments, str):
                yield {
                    "type": "custom_tool_call",
                    "id": self.model.id("ctc"),
                    **call,
                    "input": arguments,
                }
            else:
                yield {
                    "type": "function_call",
                    "id": self.model.id("fc"),
                    **call,
                    "arguments": json.dumps(arguments),
                }

    # Chat Completions.

    def _chat(self, body: dict[str, Any], step: dict[str, Any], size: int) -> None:
        calls = [
            {
                "id": self.model.id("call"),
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in step.get("tools", ())
        ]
        usage = {"prompt_tokens": size, "completion_tokens": 20, "total_tokens": size + 20}
        whole = {
            "id": self.model.id("chatcmpl"),
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": body.get("model"),
        }
        finish = "tool_calls" if calls else "stop"
        if body.get("stream"):
            self._chat_stream(whole, step, calls, finish, usage)
        elif self._goes_on(step):
            said = {"role": "assistant", "content": _said(step) or None} | (
                {"tool_calls": calls} if calls else {}
            )
            choice = {"index": 0, "message": said, "finish_reason": finish}
            self._json({**whole, "choices": [choice], "usage": usage})

    def _chat_stream(
        self,
        whole: dict[str, Any],
        step: dict[str, Any],
        calls: list[dict[str, Any]],
        finish: str,
        usage: dict[str, int],
    ) -> None:
        head = {**whole, "object": "chat.completion.chunk"}
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if "think" in step:
            deltas.append({"reasoning_content": step["think"]})
        deltas += [{"content": word} for word in _words(_said(step))]
        self._start()
        for delta in deltas:
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            self._data({**head, "choices": [choice]})
        if not self._goes_on(step):
            return
        for index, call in enumerate(calls):
            delta = {"tool_calls": [{"index": index, **call}]}
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            self._data({**head, "choices": [choice]})
        choice = {"index": 0, "delta": {}, "finish_reason": finish}
        self._data({**head, "choices": [choice]})
        self._data({**head, "choices": [], "usage": usage})
        self._data("[DONE]")

    # What they share.

    def _goes_on(self, step: dict[str, Any]) -> bool:
        """Whether the answer goes on after its words."""
        if "cut" in step:
            self.close_connection = True
            self.connection.close()
            return False
        if "hold" in step:
            self.model.halfway.set()
            self.model.go_on.wait(120)
        return True

    def _json(self, value: Any, status: int = 200) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _start(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def _data(self, value: Any) -> None:
        words = value if isinstance(value, str) else json.dumps(value)
        self.wfile.write(f"data: {words}\n\n".encode())
        self.wfile.flush()

    def _event(self, kind: str, **more: Any) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode())
        self.wfile.flush()


def _said(step: dict[str, Any]) -> str:
    return str(step.get("cut") or step.get("hold") or step.get("text") or "")


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*|\s+", text)


def _opened(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as its stream begins, and its pieces."""
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [
            {"type": "text_delta", "text": word} for word in _words(block["text"])
        ]
    if block["type"] == "thinking":
        thought = {"type": "thinking_delta", "thinking": block["thinking"]}
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [thought, signed]
    return {**block, "input": {}}, [
        {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    ]
