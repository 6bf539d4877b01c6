"""`holdfast serve` for tests: a real process on a real store, or a thread of this one with other limits.

with WireServer(path) as server:
    turn = server.ask("POST", "/v1/turns", {"key": "k", "message": "Hello."}).body["id"]
    server.kill()                                        # SIGKILL
    server.start()                                       # again, on the same store
"""

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from commanding import command
from holdfast.server.app import Settings
from holdfast.server.auth import Tokens, digest_of, identity
from holdfast.server.serving.listening import listening
from holdfast.server.serving.serve import server_of
from openviking_server import LIMIT_S, Served


class Told(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: Any

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self
        return self.body["code"]

    @property
    def done(self) -> Any:
        """The body of an answer that is no problem."""
        assert self.status < 300, self
        return self.body


def ask(
    port: int,
    token: str | None,
    method: str,
    path: str,
    body: Any = None,
    *,
    raw: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Told:
    """One request on a connection of its own."""
    data = raw if raw is not None or body is None else json.dumps(body).encode()
    sent = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, path, data, {**sent, **(headers or {})})
        answer = connection.getresponse()
        said = answer.read()
        told = {name.lower(): text for name, text in answer.getheaders()}
        parsed = json.loads(said) if "json" in told.get("content-type", "") else said.decode()
        return Told(answer.status, told, parsed)
    finally:
        connection.close()


class WireServer(Served):
    """A server in a process of its own."""

    COMMAND = "serve"

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Told:  # type: ignore[override]
        token = more.pop("token", self.key)
        return ask(self.port, token, method, path, body, **more)

    def turn(self, key: str, message: Any = "Hello.", **more: Any) -> dict[str, Any]:
        """A turn that was started."""
        headers = more.pop("headers", None)
        body = {"key": key, "message": message, **more}
        return self.ask("POST", "/v1/turns", body, headers=headers).done

    def stream(self, turn: str, *chunks: str, close: bool = False) -> str:
        """A message with these chunks; its id."""
        id = self.ask("POST", f"/v1/turns/{turn}/streams").done["message_id"]
        push = {"index": 0, "chunks": chunks, "close": close}
        self.ask("POST", f"/v1/turns/{turn}/streams/{id}", push).done  # noqa: B018
        return id

    def end(self, turn: str | None = None) -> Any:
        """Ends a turn; without one, the server, by SIGTERM."""
        if turn is None:
            return super().end()
        return self.ask("POST", f"/v1/turns/{turn}/end").done

    def texts(self, session: str) -> list[tuple[str, str]]:
        """The words of a transcript, each with the state of its message."""
        page = self.ask("GET", f"/v1/sessions/{session}/transcript").done
        return [(each["text"], each["state"]) for each in page["items"]]


def new_token(path: Path, tenant: str, scope: str) -> str:
    """A token that was added to a file."""
    done = command("token", path, "--tenant", tenant, "--scope", scope, "--json")
    return done.json["token"]


@contextmanager
def in_thread(store: Path, **settings: Any) -> Iterator[tuple[int, str]]:
    """A server in this process, with settings that no command has; its port and a token."""
    token = "hf_in_thread"
    tokens = Tokens({digest_of(token): identity("default", "admin")})
    made = Settings(tokens=tokens, **settings)
    with served_in_thread(store, lambda opened: server_of(opened, made)) as port:
        yield port, token


@contextmanager
def served_in_thread(
    store: Path, make: Callable[[Any], Any], *, tracing: Any = None
) -> Iterator[int]:
    """What this makes of an open store is served in this process; its port."""
    begun, server = threading.Event(), []

    async def serve() -> None:
        opening = holdfast.open_async(store, durability="process", tracing=tracing)
        async with opening as opened:
            server.append(make(opened))
            begun.set()
            await server[0].serve(sockets=[listener])

    with listening("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        assert begun.wait(LIMIT_S)
        try:
            yield listener.getsockname()[1]
        finally:
            server[0].should_exit = True
            thread.join(LIMIT_S)
