"""A Holdfast server on loopback, in this process and on real sockets, for tests of the engine over
HTTP.

    with RemoteServers() as servers:
        url = servers.add(store)                      # this store, under an address of its own
        holdfast.open(url, token=TOKEN)

Many stores on one listener: starting a server for each law would take longer than the law. Where a
process is to be killed, `KilledServer` runs `holdfast serve` in one.
"""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn

from holdfast.runtime.aio import AsyncStore
from holdfast.runtime.open_store import OpenStore
from holdfast.server.app import Settings, make_app
from holdfast.server.auth import Tokens, digest_of, identity

TOKEN = "hf_the-token-of-red"
DEFAULT = "hf_the-token-of-those-without-a-name"
OTHER = "hf_the-token-of-blue"
READER = "hf_the-token-of-one-who-reads"
EDITOR = "hf_the-token-of-one-who-writes"
OPERATOR = "hf_the-token-of-the-operator"
TOKENS = Tokens(
    {
        digest_of(TOKEN): identity("red", "admin"),
        digest_of(DEFAULT): identity("default", "admin"),
        digest_of(OTHER): identity("blue", "admin"),
        digest_of(READER): identity("red", "read"),
        digest_of(EDITOR): identity("red", "write"),
        digest_of(OPERATOR): identity("*", "admin"),
    }
)
LIMIT_S = 60.0


class RemoteServers:
    """One listener; each store that is added has an address of its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._apps: dict[str, Any] = {}
        self._listener = socket.socket(proto=socket.IPPROTO_TCP)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self.port = self._listener.getsockname()[1]
        config = uvicorn.Config(
            self._dispatch,
            interface="asgi3",
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve(sockets=[self._listener])), daemon=True
        )

    def add(self, work: OpenStore) -> str:
        """The address under which this store is served."""
        name = f"/s{next(self._numbers)}"
        self._apps[name] = make_app(AsyncStore(work), Settings(tokens=TOKENS))
        return f"http://127.0.0.1:{self.port}{name}"

    async def _dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        name, _, rest = scope["path"].removeprefix("/").partition("/")
        scope = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
        await self._apps[f"/{name}"](scope, receive, send)

    def __enter__(self) -> "RemoteServers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(LIMIT_S)
        self._listener.close()


SERVE = """
import asyncio, sys
from holdfast.runtime.aio import AsyncStore
from holdfast.runtime.open_store import open_at
from remote_server import TOKENS
from holdfast.server.app import Settings, make_app
import socket, uvicorn
work = open_at(sys.argv[1], tenant="red")
listener = socket.socket(proto=socket.IPPROTO_TCP)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", int(sys.argv[2])))
listener.listen(128)
app = make_app(AsyncStore(work), Settings(tokens=TOKENS))
print("ready", listener.getsockname()[1], flush=True)
config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
"""


class KilledServer:
    """A server in a process of its own, which is killed and started again on the same port."""

    def __init__(self, place: Path | str) -> None:
        self._place, self._port = str(place), 0
        self._process: subprocess.Popen[str] | None = None
        self.start()
        self.url = f"http://127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        here = Path(__file__).parent
        paths = os.pathsep.join([str(here.parent / "src"), str(here)])
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, self._place, str(self._port)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().split()
        assert line and line[0] == "ready", "the server did not start"
        self._port = int(line[1])

    def kill(self) -> None:
        """Ends it as the kernel does when memory is short."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(LIMIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def freeze(self) -> None:
        """It takes connections from now on, and answers nobody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> "KilledServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
