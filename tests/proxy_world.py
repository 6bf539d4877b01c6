"""Both sides of `holdfast proxy` for tests: a provider that can be held, cut and killed, and the proxy as a
thread or a process.

with provider() as upstream, proxied(path, upstream) as proxy:
    upstream.answer(chat_script(["Hel", "lo"]), hold_after=3)     # the next answer stops there…
    …
    upstream.go_on()                                              # …until this
"""

import json
import queue
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from holdfast.server.proxy.app import ProxySettings
from holdfast.server.proxy.serve import server_of
from openviking_server import Served
from sse_server import Event, Provider
from wire_server import served_in_thread

LIMIT_S = 60
KEY = "sk-a-key-that-nobody-stores"


class Seen(NamedTuple):
    """A request as the provider got it."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Planned(NamedTuple):
    """An answer that the provider is to give. `ending` is "well", "cut" (in the middle of the body) or
    "closed" (the end of the connection is the end of the body).
    """

    body: bytes
    pieces: list[bytes]
    status: int = 200
    hold_after: int | None = None
    ending: str = "well"
    headers: dict[str, str] = {}


class HeldProvider:
    """A provider on loopback, strict unless it is told to take what others take, too. Answers are given
    in the order in which they were planned.
    """

    def __init__(self, *, strict: bool = True) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.world = self  # type: ignore[attr-defined]
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self.seen: queue.Queue[Seen] = queue.Queue()
        self.held: queue.Queue[int] = queue.Queue()
        """Told each time an answer is held, with the number of pieces it has sent."""
        self.ended: queue.Queue[bool] = queue.Queue()
        """Told at the end of each answer: whether all of it could be sent."""
        self._planned: queue.Queue[Planned] = queue.Queue()
        self._gate = threading.Semaphore(0)
        self._judge = Provider(self.url, strict=strict)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def answer(
        self,
        events: list[Event],
        *,
        hold_after: int | None = None,
        ending: str = "well",
        encoding: str | None = None,
        kind: str = "text/event-stream; charset=utf-8",
    ) -> bytes:
        """Streams these events; what the body will be. `kind` is what they are called."""
        pieces = []
        for name, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            pieces.append(((f"event: {name}\n" if name else "") + f"data: {text}\n\n").encode())
        headers = {"content-type": kind} if kind else {}
        if encoding is not None:
            headers["content-encoding"] = encoding
            packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
            pieces = [packer.compress(each) + packer.flush(zlib.Z_SYNC_FLUSH) for each in pieces]
            pieces[-1] += packer.flush()
        self._planned.put(
            Planned(b"", pieces, hold_after=hold_after, ending=ending, headers=headers)
        )
        return b"".join(pieces)

    def answer_whole(self, body: Any, *, status: int = 200, **headers: str) -> bytes:
        """Answers with one JSON object; its bytes."""
        raw = body if isinstance(body, bytes) else json.dumps(body, indent=1).encode()
        told = {"content-type": "application/json", **headers}
        self._planned.put(Planned(raw, [], status=status, headers=told))
        return raw

    def go_on(self) -> None:
        """An answer that is held goes on."""
        self._gate.release()

    def close(self) -> None:
        """It is gone, with all its connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(LIMIT_S)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    @property
    def world(self) -> HeldProvider:
        return self.server.world  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self._take()

    do_POST = do_GET

    def _take(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = Seen(self.command, self.path, headers, raw)
        self.world.seen.put(seen)
        planned = self.world._planned.get(timeout=LIMIT_S)
        is_judged = self.path.split("?")[0].endswith(("/completions", "/responses", "/messages"))
        if planned.status == 200 and is_judged and "content-encoding" not in headers:
            problems = self.world._judge.judged(self.path, seen.body)
            if problems:
                message = {"error": {"type": "invalid_request_error", "message": problems}}
                planned = Planned(json.dumps(message).encode(), [], status=400)
        self.send_response(planned.status)
        for name, value in planned.headers.items():
            self.send_header(name, value)
        if not planned.pieces:
            self.send_header("content-length", str(len(planned.body)))
            self.end_headers()
            self.wfile.write(planned.body)
            return
        self._stream(planned)

    def _stream(self, planned: Planned) -> None:
        is_chunked = planned.ending != "closed"
        self.send_header("transfer-encoding", "chunked") if is_chunked else self.send_header(
            "connection", "close"
        )
        self.end_headers()
        try:
            for number, piece in enumerate(planned.pieces):
                if number == planned.hold_after:
                    self.world.held.put(number)
                    assert self.world._gate.acquire(timeout=LIMIT_S)
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            if planned.ending == "well":
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.world.ended.put(False)
            self.close_connection = True
            return
        self.world.ended.put(True)
        self.close_connection = planned.ending != "well"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its own."""


@contextmanager
def provider(*, strict: bool = True) -> Iterator[HeldProvider]:
    """A provider for the time of a `with` block."""
    held = HeldProvider(strict=strict)
    try:
        yield held
    finally:
        held.close()


class ProxyClients:
    """The providers' own clients, through a proxy; each is made when it is first used."""

    def __init__(self, port: int, session: str | None = None, **headers: str) -> None:
        if session is not None:
            headers["Holdfast-Session"] = session
        self._base = f"http://127.0.0.1:{port}"
        self._headers = headers

    @cached_property
    def openai(self) -> Any:
        # Loaded here: a provider in a process of its own needs neither client.
        import openai

        return openai.OpenAI(base_url=f"{self._base}/v1", **self._options(openai))

    @cached_property
    def anthropic(self) -> Any:
        import anthropic

        return anthropic.Anthropic(base_url=self._base, **self._options(anthropic))

    def _options(self, package: Any) -> dict[str, Any]:
        named = {"api_key": KEY, "max_retries": 0, "default_headers": self._headers}
        return {**named, "http_client": _connections(package)}

    def stream(self, format: str, messages: list[Any], **more: Any) -> Any:
        """A stream, as the provider's client gives it."""
        if format == "anthropic":
            return self.anthropic.messages.create(
                model="m", max_tokens=9, messages=messages, stream=True, **more
            )
        if format == "openai.chat":
            return self.openai.chat.completions.create(
                model="m", messages=messages, stream=True, **more
            )
        return self.openai.responses.create(model="m", input=messages, stream=True, **more)

    def whole(self, format: str, messages: list[Any], **more: Any) -> Any:
        """An answer that is not streamed."""
        if format == "anthropic":
            return self.anthropic.messages.create(
                model="m", max_tokens=9, messages=messages, **more
            )
        if format == "openai.chat":
            return self.openai.chat.completions.create(model="m", messages=messages, **more)
        return self.openai.responses.create(model="m", input=messages, **more)


@cache
def _connections(package: Any) -> Any:
    """What all clients of a package connect with: each would load the machine's certificates."""
    return package.DefaultHttpxClient(verify=False, timeout=LIMIT_S)


@contextmanager
def cut_off() -> Iterator[None]:
    """What is read here breaks off, and the provider's client says so."""
    try:
        yield
    except Exception as error:
        # Each client has a package of its own that raises the second.
        assert type(error).__name__ in ("APIConnectionError", "RemoteProtocolError"), repr(error)
    else:
        raise AssertionError("a half answer looks whole")


@contextmanager
def proxied(store: Path, upstream: HeldProvider, **settings: Any) -> Iterator[int]:
    """A proxy in this process; its port."""
    made = ProxySettings(upstream=upstream.url, **settings)
    make, tracing = partial(server_of, settings=made), made.tracing
    with served_in_thread(store, make, tracing=tracing) as port:
        yield port


class ProxyProcess(Served):
    """A proxy in a process of its own, that can be killed and started again."""

    COMMAND = "proxy"

    def __init__(self, store: Path, upstream: HeldProvider, *arguments: object) -> None:
        super().__init__(store, "--upstream", upstream.url, *arguments, key="")


def told(store: Path, key: str, **how: Any) -> list[tuple[str, str, str]]:
    """What is in a session: role, words and state of each message."""
    with holdfast.open(store, **how) as opened:
        session = opened.session(key, create=False)
        return [(each.role, each.text, each.state) for each in session.transcript()]


def turns(store: Path, key: str) -> list[str | None]:
    """How the turns of a session have ended."""
    with holdfast.open(store) as opened:
        return [turn.end for turn in opened.session(key, create=False).turns()]


def keys(store: Path) -> list[str]:
    """The keys of all sessions, those that nobody has named as `proxy:…`."""
    with holdfast.open(store) as opened:
        found = [str(info.key) for info in opened.sessions(limit=100)]
    return sorted("proxy:…" if key.startswith("proxy:") else key for key in found)


def half_heard_of(upstream: HeldProvider, script: Any, ask: Callable[[], Any], **more: Any) -> Any:
    """The stream of an answer of which a client has heard "one two "; its provider waits before
    "three".
    """
    place = next(n for n, (_, data) in enumerate(script) if "three" in json.dumps(data))
    upstream.answer(script, hold_after=place, **more)
    stream, seen = ask(), ""
    for chunk in stream:
        seen += chunk.to_json()
        if "two" in seen:
            break
    upstream.held.get(timeout=LIMIT_S)
    return stream
