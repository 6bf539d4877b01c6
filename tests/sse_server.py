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

from holdfast.testing.adapters.streams import (
    Event,
    anthropic_script,
    responses_script,
)
from holdfast.testing.adapters.streams import (
    completions_script as chat_script,
)
from holdfast.testing.providers import check

JUDGED = {
    "completions": ("openai.chat", "messages"),
    "responses": ("openai.responses", "input"),
    "messages": ("anthropic", "messages"),
}
__all__ = ["Provider", "anthropic_script", "chat_script", "responses_script", "serve"]


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
