"""Many clients at once that leave in the middle, meet errors and cuts, and try again: what each was shown is
stored, each question once, and each context is the list that its client has.
"""

import http.client
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing.providers import check
from proxy_world import LIMIT_S, proxied

CLIENTS, TURNS = 12, 3


class _Handler(BaseHTTPRequestHandler):
    """Answers with words that nobody has said before; one time in four it fails or hangs up."""

    protocol_version = "HTTP/1.1"
    wbufsize = 0
    chances = random.Random(1)
    refused: list[str] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.refused += check("openai.chat", body["messages"], prefill=False)
        luck = self.chances.random()
        if luck < 0.1:
            self.send_response(500)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        words = [f"{self.chances.random()} " for _ in range(self.chances.randrange(2, 9))]
        try:
            for word in words[: len(words) // 2 if luck < 0.25 else None]:
                self._event({"delta": {"content": word}, "finish_reason": None})
            if luck < 0.25:
                self.close_connection = True
                return
            self._event({"delta": {}, "finish_reason": "stop"})
            self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _event(self, choice: dict[str, Any]) -> None:
        raw = b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(raw), raw))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its own."""


@contextmanager
def unreliable() -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(LIMIT_S)


class Asking:
    """A client with a list of its own."""

    def __init__(self, number: int, port: int, *, is_named: bool) -> None:
        self.number, self._port = number, port
        self._headers = {"Holdfast-Session": f"s{number}"} if is_named else {}
        self._chances = random.Random(number)
        self.list: list[dict[str, str]] = []
        self.shown: list[str] = []

    def talk(self) -> None:
        for turn in range(TURNS):
            self.list.append({"role": "user", "content": f"Question {self.number}.{turn}"})
            tries = 0
            while (answer := self._ask(tries)) is None:
                tries += 1
            self.list.append({"role": "assistant", "content": answer})

    def _ask(self, tries: int) -> str | None:
        """The answer, if all of it came and was waited for."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT_S)
        body = json.dumps({"model": "m", "stream": True, "messages": self.list})
        headers = {**self._headers, "X-Stainless-Retry-Count": str(tries)}
        connection.request("POST", "/v1/chat/completions", body, headers)
        leaves = self._chances.random() < 0.2
        text, rest, is_whole = "", b"", False
        try:
            answer = connection.getresponse()
            while answer.status == 200 and (data := answer.read1(100 if leaves else 9999)):
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    is_whole = is_whole or b"[DONE]" in event
                    if not is_whole:
                        delta = json.loads(event[6:])["choices"][0]["delta"]
                        text += delta.get("content", "")
                if leaves and text:
                    return None
        except http.client.HTTPException:
            return None
        finally:
            self.shown += [text] if text else []
            connection.close()
        return text if is_whole else None


@pytest.mark.parametrize("is_named", [True, False])
def test_what_was_shown_is_stored_and_nothing_twice(tmp_path: Path, is_named: bool) -> None:
    store = tmp_path / "a.db"
    with unreliable() as upstream, proxied(store, upstream) as port:
        clients = [Asking(number, port, is_named=is_named) for number in range(CLIENTS)]
        threads = [threading.Thread(target=client.talk) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    assert _Handler.refused == []
    with holdfast.open(store) as opened:
        sessions = {}
        for info in opened.sessions(limit=100):
            session = opened.get(info.id)
            first = next(iter(session.transcript())).text
            sessions.setdefault(first, []).append(session)
        assert len(sessions) == CLIENTS
        for client in clients:
            [session] = sessions[client.list[0]["content"]]
            said = list(session.transcript())
            asked = [message.text for message in said if message.role == "user"]
            assert asked == [each["content"] for each in client.list[::2]]
            answers = [message.text for message in said if message.role == "assistant"]
            for words in client.shown:
                assert any(answer.startswith(words) for answer in answers)
            assert list(session.context("openai.chat")) == client.list
            assert {turn.end for turn in session.turns()} == {"completed"}
