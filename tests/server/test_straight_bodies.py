"""Bodies that go on, past those who only look how they begin: through servers that know our shortcut and
through those that do not.
"""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import TurnInterrupted
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import adrive
from holdfast.server.app import Settings, make_app
from holdfast.server.auth import Tokens, digest_of, identity
from holdfast.server.serving.slow_clients import _ConnectedBody
from holdfast.server.serving.straight_body import StraightBody
from holdfast.server.turns import line_intake
from holdfast.server.turns.push import LinesPushed
from line_pusher import LinePusher
from wire_server import ask, in_thread

TOKEN = "hf_any"
LIMIT_S = 60
NUMBERS = itertools.count(1)


class AnyServer:
    """One request of an application, as a server hands it over that is not ours."""

    def __init__(self, app: Any, method: str, path: str, **headers: str) -> None:
        address, _, query = path.partition("?")
        headers = {"authorization": f"Bearer {TOKEN}", **headers}
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": address,
            "raw_path": address.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self._told: asyncio.Queue[Any] = asyncio.Queue()
        self._got = b""
        self._task = asyncio.create_task(app(self.scope, self._said.get, self._told.put))

    def say(self, body: bytes, *, more: bool = True) -> None:
        self._said.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        self._said.put_nowait({"type": "http.disconnect"})

    async def status(self) -> int:
        async with asyncio.timeout(LIMIT_S):
            return (await self._told.get())["status"]

    async def told_until(self, end: bytes) -> bytes:
        """What is told next, up to these bytes."""
        async with asyncio.timeout(LIMIT_S):
            while end not in self._got:
                self._got += (await self._told.get())["body"]
        told, _, self._got = self._got.partition(end)
        return told + end

    async def line(self) -> Any:
        return json.loads(await self.told_until(b"\n"))

    async def whole(self) -> Any:
        self.say(b"", more=False)
        await self._task
        while not self._told.empty():
            self._got += self._told.get_nowait().get("body", b"")
        return self._got

    async def over(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self._task


async def posted(app: Any, path: str, body: Any) -> Any:
    request = AnyServer(app, "POST", path)
    request.say(json.dumps(body).encode(), more=False)
    await request.status()
    await request.over()
    return json.loads(await request.whole())


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[Any]:
    settings = Settings(tokens=Tokens({digest_of(TOKEN): identity("default", "admin")}))
    async with holdfast.open_async(path) as store:
        app = make_app(store, settings)
        async with app.router.lifespan_context(app):
            yield app


async def spoken(app: Any) -> tuple[Any, str, str]:
    """A turn, where its session is followed, and the address of a message that is spoken in it."""
    turn = await posted(app, "/v1/turns", {"key": "k", "message": "Hello."})
    streams = f"/v1/turns/{turn['id']}/streams"
    message = (await posted(app, streams, {}))["message_id"]
    followed = f"/v1/sessions/{turn['session_id']}/stream?after=now"
    return turn, followed, f"{streams}/{message}"


def test_lines_and_events_go_through_any_server(tmp_path: Path) -> None:
    async def play() -> tuple[list[Any], bytes]:
        async with served(tmp_path / "s.db") as app:
            _, followed, place = await spoken(app)
            reader = AnyServer(app, "GET", followed)
            assert await reader.status() == 200
            await reader.told_until(b"\n\n")
            pusher = AnyServer(app, "POST", place, **{"content-type": "application/x-ndjson"})
            assert await pusher.status() == 200
            pusher.say(b'{"index": 0, "chunks": ["Ca')
            pusher.say(b'sa "]}\n')
            told = [await pusher.line()]
            pusher.say(b'{"index": 1, "chunks": ["Lo"]}\n{"index": 2, "chunks": ["la"]}')
            told.append(await pusher.line())
            pusher.say(b"", more=False)
            told.append(await pusher.line())
            await pusher.over()
            seen = await reader.told_until(b'la"}')
            reader.leave()
            await reader.over()
            return told, seen

    told, seen = asyncio.run(play())
    assert told == [
        {"text": "Casa ", "index": 1},
        {"text": "Lo", "index": 2},
        {"text": "la", "index": 3},
    ]
    assert [line.rpartition(b'"text":')[2] for line in seen.split(b"\n") if b'"text"' in line] == [
        b'"Casa "}',
        b'"Lo"}',
        b'"la"}',
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with in_thread(tmp_path_factory.mktemp("straight") / "s.db") as served:
        yield served


def opened(server: Any) -> tuple[str, str]:
    """A new turn, and the address of a message that is being spoken in it."""
    port, token = server
    start = {"key": f"k{next(NUMBERS)}", "message": "Hello."}
    turn = ask(port, token, "POST", "/v1/turns", start).done
    streams = f"/v1/turns/{turn['id']}/streams"
    message = ask(port, token, "POST", streams, {}).done["message_id"]
    return turn["session_id"], f"{streams}/{message}"


def test_a_client_that_waits_to_be_told_to_go_on_is_told(server):
    """`Expect: 100-continue`, as curl asks before it sends a body."""
    _, place = opened(server)
    port, token = server
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client:
        head = f"POST {place} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n"
        head += "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n"
        client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        got = b""
        while b"200 OK" not in got:
            got += client.recv(4096)
        line = b'{"index": 0, "chunks": ["a"]}\n'
        client.sendall(b"%x\r\n%b\r\n" % (len(line), line))
        while b'"index":1' not in got:
            got += client.recv(4096)


def test_what_waits_for_a_client_that_does_not_listen_is_told_before_what_is_new(server):
    """It listens a little, and stops again: nothing passes what has to wait."""
    _, place = opened(server)
    words = "The kelp holds fast. " * 200
    with LinePusher(*server, place) as pusher:
        told, said = [pusher.say(0, "") or pusher.answer()], 1
        for _ in range(8):
            for _ in range(200):
                pusher.say(said, f"{said} {words}")
                said += 1
            # Some of it is taken, so that there is room again while some still waits.
            while told[-1]["index"] < said - 150:
                told.append(pusher.answer())
        pusher.say(said, close=True)
        pusher.finish()
        told += pusher.answers()
    assert "".join(each["text"] for each in told) == "".join(f"{n} {words}" for n in range(1, said))
    assert [each["index"] for each in told] == sorted(each["index"] for each in told)


def test_a_client_is_read_no_further_than_can_be_stored(server, monkeypatch):
    """What it has said and is not stored is little, however much it says."""
    _, place = opened(server)
    paused, waiting = [], []

    hear, pause = line_intake.LineIntake.hear, _ConnectedBody.pause

    def hearing(intake, data):
        hear(intake, data)
        waiting.append(intake._bytes)

    def pausing(body):
        paused.append(body)
        pause(body)

    monkeypatch.setattr(line_intake.LineIntake, "hear", hearing)
    monkeypatch.setattr(line_intake, "WAITING_BYTES_MAX", 10_000)
    monkeypatch.setattr(_ConnectedBody, "pause", pausing)
    with LinePusher(*server, place) as pusher:
        lines = b"".join(b'{"index": %d, "chunks": ["abcdefgh"]}\n' % n for n in range(20_000))
        for at in range(0, len(lines), 5000):
            pusher.line(lines[at : at + 5000])
        pusher.finish()
        told = pusher.answers()
    assert told[-1]["index"] == 20_000
    assert "".join(each["text"] for each in told) == "abcdefgh" * 20_000
    # What has come with one look at the connection is heard all the same.
    assert paused and max(waiting) < 10_000 + (512 << 10) < len(lines)


def test_a_line_waits_for_a_request_that_pushes_into_the_same_message(tmp_path: Path) -> None:
    """Else both would take the place of the next chunk for their own."""

    async def play() -> tuple[int, Any]:
        async with served(tmp_path / "s.db") as app:
            turn, _, place = await spoken(app)
            [stream] = app.state.turns.get("default", turn["id"]).streams.values()
            pusher = AnyServer(app, "POST", place, **{"content-type": "application/x-ndjson"})
            assert await pusher.status() == 200
            async with stream.lock:
                pusher.say(b'{"index": 0, "chunks": ["a"]}\n')
                await asyncio.sleep(0.1)
                taken = stream.taken
            told = await pusher.line()
            pusher.leave()
            await pusher.over()
            return taken, told

    assert asyncio.run(play()) == (0, {"text": "a", "index": 1})


class SlowBody(StraightBody):
    """A connection whose client takes nothing until it is told to."""

    is_free = False

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes] = []
        self.room = asyncio.Event()

    def write(self, body: bytes) -> None:
        self.told.append(body)

    async def pass_on(self, message: Any) -> None:
        await self.room.wait()
        self.told.append(message["body"])


def test_no_answer_passes_one_that_is_on_its_way() -> None:
    """There is room again, and whoever waited for it was not woken yet."""

    async def play() -> list[int]:
        lines = LinesPushed(None, None, None)  # type: ignore[arg-type]
        body = lines._body = SlowBody()
        answering = asyncio.create_task(lines._answer())
        await asyncio.sleep(0)
        lines._tell(line_intake.Pushed("a", 1))
        await asyncio.sleep(0.01)
        body.is_free = True
        lines._tell(line_intake.Pushed("b", 2))
        body.room.set()
        while len(body.told) < 2:
            await asyncio.sleep(0)
        lines._tell(line_intake.Pushed("c", 3))
        await asyncio.sleep(0.01)
        answering.cancel()
        return [json.loads(line)["index"] for line in body.told]

    assert asyncio.run(play()) == [1, 2, 3]


class Stopped(Exception):
    pass


def test_a_plan_is_driven_without_a_task_whatever_it_waits_for(tmp_path: Path) -> None:
    """A commit and nothing else, most often; but it may read, fail or end before that."""

    async def driven(plan: Any) -> Any:
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        adrive(plan, told.set_result, told.set_exception)
        return await told

    async def play() -> list[Any]:
        async with holdfast.open_async(tmp_path / "s.db") as store:
            session = await store.session("k")
            log = session._log

            def nothing() -> Any:
                return "at once"
                yield

            def reads() -> Any:
                head = yield from read(lambda: log.state().head)
                return head, (yield from read(lambda: "twice"))

            def fails() -> Any:
                raise Stopped
                yield

            def fails_reading() -> Any:
                def stop() -> None:
                    raise Stopped

                yield from read(stop)

            found = [await driven(nothing()), await driven(reads())]
            for plan in (fails, fails_reading):
                with pytest.raises(Stopped):
                    await driven(plan())
            with suppress(TurnInterrupted):
                async with session.turn("Hello.") as turn:
                    stream = turn.stream("text")
                    found.append(await pushed(stream, "a", "b"))
                    await session.stop("enough")
                    with pytest.raises(TurnInterrupted):
                        await pushed(stream, "c")
            return found

    assert asyncio.run(play()) == ["at once", (1, "twice"), "ab"]


async def pushed(stream: Any, *chunks: str) -> str:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stream._push_then(chunks, told.set_result, told.set_exception)
    return await told
