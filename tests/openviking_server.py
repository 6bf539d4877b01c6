"""`holdfast serve-openviking` for tests: a real process on a real store, spoken with over HTTP.

with Served(path) as server:
    server.post("/s/messages", {"role": "user", "content": "Hello."})     # the result of the answer
    server.ask("GET", "/s").status                                        # or all of it
    server.kill()                                                         # SIGKILL
    server.start()                                                        # again, on the same store
"""

import http.client
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from commanding import surroundings

LIMIT_S = 60
SESSIONS = "/api/v1/sessions"


class Answer(NamedTuple):
    """An HTTP answer: its status, and its body as JSON."""

    status: int
    body: Any

    @property
    def result(self) -> Any:
        assert self.status == 200, self
        return self.body["result"]

    @property
    def code(self) -> str:
        """The error's code."""
        assert self.body["status"] == "error", self
        return self.body["error"]["code"]


class Served:
    """A server in a process of its own."""

    COMMAND = "serve-openviking"

    def __init__(self, store: Path, *arguments: object, key: str | None = None) -> None:
        self._command = [sys.executable, "-m", "holdfast.cli.main", self.COMMAND, str(store)]
        self._command += ["--port", "0", "--json", *map(str, arguments)]
        self._key = key
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> "Served":
        self.process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=surroundings(),
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        told = json.loads(line)
        self.port = int(told["address"].rpartition(":")[2])
        self.key = self._key or told["token"]
        return self

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(LIMIT_S)
        self._close()

    def end(self) -> tuple[int, str]:
        """SIGTERM; its exit code and what it said on stderr."""
        assert self.process is not None and self.process.stderr is not None
        self.process.terminate()
        code = self.process.wait(LIMIT_S)
        said = self.process.stderr.read()
        self._close()
        return code, said

    def _close(self) -> None:
        assert self.process is not None
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> "Served":
        # It may be running: a test starts it again after a kill.
        if self.process is None or self.process.poll() is not None:
            self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Any request, with this server's key unless the headers say otherwise."""
        data = raw if raw is not None or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            sent = {"X-API-Key": self.key, **(headers or {})}
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return Answer(answer.status, json.loads(answer.read()))
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """What is below the sessions."""
        return self.ask("GET", SESSIONS + path).result

    def post(self, path: str, body: Any = None) -> Any:
        return self.ask("POST", SESSIONS + path, body).result

    def say(self, session: str, text: str, **more: Any) -> Any:
        return self.post(f"/{session}/messages", {"role": "user", "content": text, **more})

    def live(self, session: str) -> list[str]:
        """The words of the messages in the context."""
        return words(self.get(f"/{session}/context")["messages"])

    def archived(self, session: str) -> list[str]:
        """The words in all archives, in order."""
        found: list[str] = []
        for number in range(1, self.get(f"/{session}")["commit_count"] + 1):
            archive = self.get(f"/{session}/archives/archive_{number:03d}")
            found += words(archive["messages"])
        return found


def words(messages: list[dict[str, Any]]) -> list[str]:
    return [message["parts"][0]["text"] for message in messages]


class HttpExtractorStub:
    """An extractor on loopback. It keeps what it was called with, and fails as often as it is
    told.
    """

    def __init__(self, failures: int = 0) -> None:
        self.calls: list[dict[str, Any]] = []
        self.failures = failures
        self.called = threading.Condition()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                answer = stub.answer(body)
                self.send_response(200 if answer is not None else 500)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def answer(self, archive: dict[str, Any]) -> dict[str, Any] | None:
        with self.called:
            self.calls.append(archive)
            self.called.notify_all()
            if self.failures > 0:
                self.failures -= 1
                return None
        said = " ".join(words(archive["messages"]))
        before = archive["previous_overview"]
        return {"overview": f"{before} {said}".strip(), "memories_extracted": {"events": 1}}

    def wait_for(self, calls: int) -> None:
        """Until it was called so often."""
        with self.called:
            assert self.called.wait_for(lambda: len(self.calls) >= calls, LIMIT_S)

    def __enter__(self) -> "HttpExtractorStub":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
