"""What the streams over HTTP are held against: a Starlette application that only echoes.

`POST /push/{stream}` hands the chunks that it is given to whoever reads `GET /stream/{stream}`, in
the same frames as `holdfast serve` and on the same uvicorn. Nothing is stored, guarded or looked up.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

EVENTS = "text/event-stream"
LINES = "application/x-ndjson"


class Batch(msgspec.Struct):
    """What a request, or a line of one, says."""

    index: int
    chunks: list[str]


_read = msgspec.json.Decoder(Batch).decode
_write = msgspec.json.encode
queues: dict[str, "asyncio.Queue[str]"] = {}


def queue(stream: str) -> "asyncio.Queue[str]":
    return queues.setdefault(stream, asyncio.Queue())


def echoed(stream: str, raw: bytes) -> bytes:
    """Hands a batch on; what is answered."""
    batch = _read(raw)
    text = "".join(batch.chunks)
    queue(stream).put_nowait(text)
    return _write({"text": text, "index": batch.index + len(batch.chunks)})


async def push(request: Request) -> Response:
    stream = request.path_params["stream"]
    if request.headers.get("content-type") == LINES:
        return Answers(request, stream)
    return Response(echoed(stream, await request.body()), media_type="application/json")


class Answers(Response):
    """A line for each line. (`StreamingResponse` would take the request's body for news of its end.)"""

    def __init__(self, request: Request, stream: str) -> None:
        super().__init__(media_type=LINES)
        del self.headers["content-length"]
        self._request, self._stream = request, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        rest = b""
        try:
            async for data in self._request.stream():
                *lines, rest = (rest + data).split(b"\n")
                body = b"".join(echoed(self._stream, line) + b"\n" for line in lines)
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except ClientDisconnect:
            return
        await send({"type": "http.response.body"})


async def read(request: Request) -> Response:
    return StreamingResponse(_frames(request.path_params["stream"]), media_type=EVENTS)


async def _frames(stream: str) -> AsyncIterator[bytes]:
    own, number = queue(stream), 0
    while True:
        data = _write({"message_id": stream, "text": await own.get()})
        number += 1
        yield b"event: chunk\nid: %d\ndata: %b\n\n" % (number, data)


app = Starlette(
    routes=[
        Route("/push/{stream}", push, methods=["POST"]),
        Route("/stream/{stream}", read),
    ]
)


def main(options: dict[str, Any]) -> None:
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", **options)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    # The parser and the loop that `holdfast serve` has.
    main(dict(word.split("=") for word in sys.argv[1:]) or {"http": "httptools"})
