"""A gateway between a client and OpenViking's server, which loses answers when told."""

import contextlib
import http.client
import json
import threading
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LIMIT_S = 180.0


class Gateway:
    """Stands before the server, and loses answers when told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lose: list[tuple[int, Callable[[], Any]]] = []
        self._seen = threading.Condition()
        self._paths: list[str] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                gateway._pass(self)

            do_POST = do_GET

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def lose_next(self, then: Callable[[], Any] = lambda: None, skip: int = 0) -> None:
        """Has the answer to the next write lost; `then` is called when it was done. `skip`: after so
        many others.
        """
        self._lose.append((skip, then))

    def wait_for(self, end: str) -> None:
        """Waits until a request to such a path has come."""
        with self._seen:
            self._seen.wait_for(lambda: any(path.endswith(end) for path in self._paths), LIMIT_S)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _pass(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("content-length") or 0)
        body = request.rfile.read(length) if length else None
        with self._seen:
            self._paths.append(request.path)
            self._seen.notify_all()
        lost = self._take() if request.command == "POST" else None
        try:
            status, content = self._forward(request, body)
        except (OSError, http.client.HTTPException):
            # The server is dead: so is the connection to it, and the client sees that.
            request.close_connection = True
            return
        if lost is not None:
            lost()
            request.close_connection = True
            return
        with contextlib.suppress(ConnectionError):  # the client was killed
            request.send_response(status)
            request.send_header("content-type", "application/json")
            request.send_header("content-length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes | None) -> tuple[int, bytes]:
        # One connection to the server for each of the client's: when the server dies, it is told.
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT_S)
        headers = {"content-type": "application/json"}
        connection.request(request.command, request.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    def _take(self) -> Callable[[], Any] | None:
        if not self._lose:
            return None
        skip, then = self._lose[0]
        if skip:
            self._lose[0] = (skip - 1, then)
            return None
        del self._lose[0]
        return then


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, method=method)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.load(answer)["result"]
