"""A Messages API on loopback that says what a test wrote down, piece by piece.

An answer is a list of pieces: text, a dict for a tool call, `HOLD` where the stream stops until the
test lets go. Requests that are not the conversation's own (Claude Code asks small models for titles)
get a word.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOLD = object()


class Api:
    """What was asked, and what is going to be answered."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answers: list[list[Any]] = []
        self.let_go = threading.Event()
        self.lock = threading.Lock()
        self.address = ""

    def next_answer(self, request: dict[str, Any]) -> list[Any]:
        with self.lock:
            # Only the agent itself has tools.
            if not request.get("tools"):
                return ["ok"]
            self.requests.append(request)
            return self.answers.pop(0) if self.answers else ["(the script is over)"]


@contextmanager
def serving(*answers: list[Any]) -> Iterator[Api]:
    """The API, on a port of its own."""
    api = Api()
    api.answers = list(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "count_tokens" in self.path:
                self._json({"input_tokens": 10})
                return
            answer = api.next_answer(body)
            if not body.get("stream"):
                blocks = [{"type": "text", "text": "".join(map(str, answer))}]
                self._json({**_opening(0), "content": blocks, "stop_reason": "end_turn"})
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            for event in _events(api, answer):
                line = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
                self.wfile.write(line.encode())
                self.wfile.flush()

        def _json(self, said: Any) -> None:
            raw = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that was killed

    server = Server(("127.0.0.1", 0), Handler)
    api.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        api.let_go.set()
        server.shutdown()
        server.server_close()


def _opening(number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number:04}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }


def _events(api: Api, answer: list[Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": _opening(len(api.requests))}
    index, open_text = -1, False
    stop = "end_turn"
    for piece in answer:
        if piece is HOLD:
            api.let_go.wait(60)
        elif isinstance(piece, str):
            if not open_text:
                index, open_text = index + 1, True
                block = {"type": "text", "text": ""}
                yield {"type": "content_block_start", "index": index, "content_block": block}
            delta = {"type": "text_delta", "text": piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        else:
            if open_text:
                yield {"type": "content_block_stop", "index": index}
            index, open_text, stop = index + 1, False, "tool_use"
            call = {"type": "tool_use", "id": piece["id"], "name": piece["name"], "input": {}}
            yield {"type": "content_block_start", "index": index, "content_block": call}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(piece["input"])}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
    if open_text:
        yield {"type": "content_block_stop", "index": index}
    over = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": over, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}
