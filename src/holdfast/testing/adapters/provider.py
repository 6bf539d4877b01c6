"""A strict provider on loopback, with a script: what a framework's own client is pointed at.

It speaks Chat Completions, the Responses API and the Messages API, streamed and whole. Each request
is judged by the provider's published rules (`holdfast.testing.providers`) before it is answered;
one that breaks a rule gets the provider's own 400, and the client raises.

    with serve() as provider:
        provider.answer("ask-1", ScriptedAnswer(("Casa ", "Lola."), stalls_after=1))
        ...                        # a client at provider.url asks "ask-1: where to eat?"
        provider.stalled.wait()    # one piece is out, and the stream stands still
        provider.go_on.set()

A prompt is known by its mark, a word that stands in it and nowhere else. The n-th answer of a mark
is given to the request that has n - 1 results of tools after it, so a request that is made again is
answered the same.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from holdfast.testing.adapters.streams import (
    Event,
    anthropic_script,
    completions_script,
    responses_script,
)
from holdfast.testing.adapters.whole_answers import whole_answer
from holdfast.testing.providers import check

APIS = {
    "completions": ("openai.chat", "messages"),
    "responses": ("openai.responses", "input"),
    "messages": ("anthropic", "messages"),
}
"""Of each API, by the last part of its path: the format of its messages and where they stand."""

# A row that is given up must not leave a thread behind for good.
STALL_LIMIT_S = 120.0


@dataclass(frozen=True)
class ScriptedAnswer:
    """What the model says: text in pieces, then calls of tools, each a name and its arguments.
    After `stalls_after` pieces the stream stands still until the provider is told to go on.
    """

    pieces: Sequence[str] = ("Yes.",)
    calls: Sequence[tuple[str, dict[str, Any]]] = ()
    stalls_after: int | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class JudgedRequest:
    """A request that came in, and what the provider would refuse in it."""

    path: str
    body: dict[str, Any]
    problems: tuple[str, ...]

    @property
    def messages(self) -> list[Any]:
        """The messages of the request, whichever API it is for."""
        given = self.body.get("messages", self.body.get("input", []))
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        return list(given)

    @property
    def words(self) -> str:
        """All texts in its messages, in their order."""
        return "\n".join(texts_in(self.messages))


class ScriptedProvider:
    """What a running server answers, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[JudgedRequest] = []
        self.stalled, self.go_on = threading.Event(), threading.Event()
        self._answers: dict[str, Sequence[ScriptedAnswer]] = {}
        self._numbers = count(1)

    def answer(self, mark: str, *answers: ScriptedAnswer) -> None:
        """Says what is answered to the prompt with this mark: the first, and then one after each
        result of a tool.
        """
        self._answers[mark] = answers

    def take(self, path: str, body: dict[str, Any]) -> JudgedRequest:
        """Keeps a request, with what is wrong with it."""
        api = _last_part(path)
        problems: list[str] = []
        # Made twice: its messages are needed to find its problems.
        asked = JudgedRequest(api, body, ())
        if api in APIS:
            # A request for the next answer must not end with the model's own words.
            problems = check(APIS[api][0], asked.messages, prefill=False)
            if not asked.messages:
                problems = ["there are no messages"]
        asked = JudgedRequest(api, body, tuple(problems))
        self.asked.append(asked)
        return asked

    def answer_to(self, asked: JudgedRequest) -> tuple[ScriptedAnswer, int]:
        """The answer to a request, and a number that is its own."""
        where, answers = -1, tuple[ScriptedAnswer, ...]()
        for mark, scripted in self._answers.items():
            # The last mark is the prompt that is asked now; those before it are
            # history.
            place = asked.words.rfind(mark)
            if place > where:
                where, answers = place, tuple(scripted)
        if not answers:
            return ScriptedAnswer(), next(self._numbers)
        done = _results_after(asked, where)
        return answers[min(done, len(answers) - 1)], next(self._numbers)

    def stall(self) -> None:
        """Stands still until told to go on."""
        self.stalled.set()
        self.go_on.wait(STALL_LIMIT_S)


def texts_in(value: Any) -> list[str]:
    """All strings in a value of JSON, in their order, but for those that say what things are."""
    if isinstance(value, str):
        return [value]
    found = []
    if isinstance(value, list):
        for each in value:
            found += texts_in(each)
    if isinstance(value, dict):
        for key, each in value.items():
            # Marks are looked for in what was said. Names of kinds and ids could only
            # mislead.
            if key not in ("type", "role", "id", "status"):
                found += texts_in(each)
    return found


def _results_after(asked: JudgedRequest, place: int) -> int:
    """How many results of tools stand after the prompt at this place of the words."""
    results, before = 0, 0
    for message in asked.messages:
        said = texts_in(message)
        if before > place:
            results += _results_in(message)
        before += sum(len(text) + 1 for text in said)
    return results


def _results_in(message: dict[str, Any]) -> int:
    if message.get("role") == "tool" or message.get("type") == "function_call_output":
        return 1
    content = message.get("content")
    if not isinstance(content, list):
        return 0
    return int(any(block.get("type") == "tool_result" for block in content))


def _last_part(path: str) -> str:
    return path.split("?")[0].rstrip("/").rsplit("/", 1)[-1]


@contextmanager
def serve() -> Iterator[ScriptedProvider]:
    """A provider on a free port of loopback, for the time of a `with` block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    # A handler may stand still in the middle of an answer: it must not keep the process
    # alive.
    server.daemon_threads = True
    provider = ScriptedProvider(f"http://127.0.0.1:{server.server_port}")
    server.provider = provider  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        # A handler that stands still in an answer lets go.
        provider.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        provider: ScriptedProvider = self.server.provider  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = provider.take(self.path, body)
        if asked.problems or asked.path not in APIS:
            self._refuse(asked)
            return
        answer, number = provider.answer_to(asked)
        events = _events(asked.path, answer, number)
        try:
            if body.get("stream"):
                self._stream(provider, events, answer)
            else:
                if answer.stalls_after is not None:
                    provider.stall()
                self._send(200, whole_answer(asked.path, events))
        except ConnectionError:
            # Its client is gone: killed, or it has hung up.
            self.close_connection = True

    def _stream(
        self, provider: ScriptedProvider, events: list[Event], answer: ScriptedAnswer
    ) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        # unsaid, a client may ask again on a connection that is about to close
        self.send_header("connection", "close")
        self.end_headers()
        said = 0
        for name, data in events:
            # Before the event and not after it: all pieces up to here are at the
            # client, which reads them while the stream stands still.
            if said == answer.stalls_after:
                provider.stall()
                # Counted on, so that it stalls here once.
                said += 1
            self._event(name, data)
            said += _is_text(data)
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, name: str | None, data: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        head = f"event: {name}\n" if name else ""
        raw = f"{head}data: {text}\n\n".encode()
        # A chunk of HTTP's own: its length in hexadecimal, and the event.
        length = f"{len(raw):x}".encode()
        self.wfile.write(length + b"\r\n" + raw + b"\r\n")
        self.wfile.flush()

    def _refuse(self, asked: JudgedRequest) -> None:
        words = "; ".join(asked.problems) or f"there is no {asked.path} here"
        error = {"type": "invalid_request_error", "message": words}
        self._send(
            400, {"type": "error", "error": {**error, "param": None, "code": None}}
        )

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what a run prints is its own."""


def _is_text(data: Any) -> bool:
    """Whether an event carries a piece of the answer's text."""
    if not isinstance(data, dict):
        return False
    if data.get("type") == "response.output_text.delta":
        return True
    delta = data.get("delta")
    if isinstance(delta, dict) and delta.get("type") == "text_delta":
        return True
    for choice in data.get("choices", ()):
        if choice["delta"].get("content"):
            return True
    return False


def _events(api: str, answer: ScriptedAnswer, number: int) -> list[Event]:
    calls = []
    for index, (name, arguments) in enumerate(answer.calls):
        calls.append((f"call_{number}_{index}", name, [json.dumps(arguments)]))
    if api == "completions":
        finish = "tool_calls" if calls else "stop"
        return completions_script(
            answer.pieces, calls=calls, finish=finish, number=number
        )
    if api == "responses":
        return responses_script(answer.pieces, calls=calls, number=number)
    finish = "tool_use" if calls else "end_turn"
    return anthropic_script(answer.pieces, calls=calls, finish=finish, number=number)
