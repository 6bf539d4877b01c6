"""A loopback server that behaves as OpenViking's session endpoints do, and as badly as told.

    with VikingServer() as viking:
        viking.next("drop")                # the next write is done, and its answer never comes
        viking.kill(); viking.start()      # its port is dead in between; `wipe` loses live messages

Faults are taken by the next request that writes (`POST`), one each:

    drop     done, and the connection closed without an answer
    die      not done, and the connection closed
    error    not done, 500
    failed   done, 500
    busy     not done, 503
    hiccup   not done, 400: it has read one of its own files while that was being written
    slow     answered by nobody for `slow_s`, done then
    twice    done, and answered twice on one connection
    torn     done, and half of the answer sent
    orphan   the connection closed, and done `slow_s` later: its proxy was restarted meanwhile
    proxy    not answered by OpenViking: a page with status 503, and done `slow_s` later
    strange  done, and answered with 200 and `strange` for a result
    liar     not done, and answered so
"""

import contextlib
import json
import socket
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

NOT_DONE = {
    "error": (500, "INTERNAL"),
    "busy": (503, "UNAVAILABLE"),
    "hiccup": (400, "INVALID_ARGUMENT"),
}
OK_STATES = ("completed", "failed")


class VikingServer:
    """Sessions as OpenViking keeps them, in memory."""

    def __init__(self) -> None:
        self.sessions: dict[str, dict[str, Any]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.faults: deque[str] = deque()
        self.requests: list[tuple[str, str]] = []
        self.blinks = 0
        self.slow_s = 1.0
        self.strange: Any = None
        self.task_end = "completed"
        self.on_write: Any = None
        self.lock = threading.RLock()
        self._open: set[socket.socket] = set()
        self._serving = 0
        self._served = threading.Condition()
        self._server: Any = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    # What a test says. `blinks`: to so many reads the session looks empty.

    def next(self, *faults: str) -> None:
        self.faults.extend(faults)

    def wipe(self, id: str) -> None:
        """What a kill -9 in the middle of an append does: all live messages are gone."""
        self.sessions[id]["live"] = []

    def start(self) -> None:
        self._server = _Listener(("127.0.0.1", self.port), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def kill(self) -> None:
        """The port is dead, and so are all connections."""
        self._server.shutdown()
        self._server.server_close()
        for connection in [*self._open]:
            _cut(connection)

    def __enter__(self) -> "VikingServer":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    # What a test asks.

    def live(self, id: str) -> list[str]:
        """The words of the live messages."""
        session = self.sessions.get(id, {"live": []})
        return [words(message) for message in session["live"]]

    def archives(self, id: str) -> list[list[str]]:
        return [
            [words(message) for message in archive["messages"]]
            for archive in self.sessions[id]["archives"]
        ]

    def everything(self, id: str) -> list[str]:
        """Archived and live, in order."""
        return [text for archive in self.archives(id) for text in archive] + self.live(id)

    def wait_until_idle(self) -> None:
        """Waits until no request is being served, those included that nobody waits for any more."""
        with self._served:
            assert self._served.wait_for(lambda: not self._serving, 30)

    # What it answers.

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        url = urlsplit(path)
        parts = [unquote(part) for part in url.path.split("/")[3:]]
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        with self.lock:
            if parts[0] == "tasks":
                return self._tasks(parts[1:], query)
            if method == "POST" and parts == ["sessions"]:
                return self._create(body["session_id"])
            id, *rest = parts[1:]
            if method == "POST" and rest == ["messages", "batch"]:
                return self._add(id, body["messages"])
            if id not in self.sessions:
                return _no("NOT_FOUND", f"Session {id} not found")
            if method == "POST" and rest == ["commit"]:
                return self._commit(id, body)
            if self.blinks and method == "GET":
                # A file that is being written looks empty to a reader.
                self.blinks -= 1
                return 200, {"message_count": 0, "commit_count": 0, "messages": []}
            if rest == ["context"]:
                return 200, self._context(id)
            if rest[:1] == ["archives"]:
                return self._archive(id, rest[1])
            session = self.sessions[id]
            counts = {"message_count": len(session["live"])}
            return 200, {**counts, "commit_count": len(session["archives"])}

    def _count(self, more: int) -> None:
        with self._served:
            self._serving += more
            self._served.notify_all()

    def _create(self, id: str) -> tuple[int, Any]:
        if "/" in id or id.startswith("bad"):
            return _no("INVALID_ARGUMENT", "Invalid session id")
        self.sessions.setdefault(id, {"live": [], "archives": []})
        return 200, {"session_id": id}

    def _add(self, id: str, messages: list[Any]) -> tuple[int, Any]:
        if len(messages) > 100:
            return _no("INVALID_ARGUMENT", "at most 100 messages")
        if id.startswith("bad") or any("poison" in json.dumps(each) for each in messages):
            return _no("INVALID_ARGUMENT", "Invalid message")
        session = self.sessions.setdefault(id, {"live": [], "archives": []})
        kept = [{"id": f"msg_{uuid4().hex}", **message} for message in messages]
        session["live"] = session["live"] + kept
        return 200, {"message_count": len(session["live"]), "added": len(kept)}

    def _commit(self, id: str, options: dict[str, Any]) -> tuple[int, Any]:
        if options.get("keep_recent_count", 0) < 0:
            return _no("INVALID_ARGUMENT", "keep_recent_count")
        session = self.sessions[id]
        kept = options.get("keep_recent_count", 0)
        border = max(0, len(session["live"]) - kept)
        archived, session["live"] = session["live"][:border], session["live"][border:]
        if not archived:
            return 200, {"status": "skipped", "archived": False, "reason": "no_messages"}
        number = len(session["archives"]) + 1
        task = str(uuid4())
        address = f"viking://user/default/sessions/{id}/history/archive_{number:03d}"
        session["archives"].append({"messages": archived, "task": task})
        self.tasks[task] = {"task_id": task, "status": self.task_end, "resource_id": id}
        self.tasks[task]["result"] = {"archive_uri": address}
        if self.task_end == "failed":
            self.tasks[task]["error"] = "429 from the model"
        return 200, {
            "status": "accepted",
            "archived": True,
            "task_id": task,
            "archive_uri": address,
        }

    def _state(self, archive: dict[str, Any]) -> str:
        return self.tasks[archive["task"]]["status"]

    def _context(self, id: str) -> dict[str, Any]:
        session = self.sessions[id]
        pending: list[Any] = []
        for archive in reversed(session["archives"]):
            if self._state(archive) in OK_STATES:
                break
            pending = archive["messages"] + pending
        return {"latest_archive_overview": "", "messages": pending + session["live"]}

    def _archive(self, id: str, name: str) -> tuple[int, Any]:
        number = int(name.removeprefix("archive_"))
        archives = self.sessions[id]["archives"]
        if number > len(archives) or self._state(archives[number - 1]) != "completed":
            return _no("NOT_FOUND", f"Archive {name} not found")
        return 200, {"archive_id": name, "messages": archives[number - 1]["messages"]}

    def _tasks(self, rest: list[str], query: dict[str, str]) -> tuple[int, Any]:
        if not rest:
            own = query.get("resource_id")
            return 200, [each for each in self.tasks.values() if each["resource_id"] == own]
        if rest[0] not in self.tasks:
            return _no("NOT_FOUND", "Task not found or expired")
        return 200, self.tasks[rest[0]]


def words(message: dict[str, Any]) -> str:
    """What a message says; a tool's part as its name and its output."""
    if "content" in message:
        return message["content"]
    said = []
    for part in message["parts"]:
        tool = f"{part.get('tool_name')}={part.get('tool_output')}"
        said.append(part["text"] if part["type"] == "text" else tool)
    return " ".join(said)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


def _no(code: str, message: str) -> tuple[int, Any]:
    status = {"NOT_FOUND": 404, "INVALID_ARGUMENT": 400}[code]
    return status, {"code": code, "message": message}


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


def _handler(server: VikingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            server._open.add(self.connection)

        def finish(self) -> None:
            server._open.discard(self.connection)
            super().finish()

        def do_GET(self) -> None:
            server._count(1)
            try:
                length = int(self.headers.get("content-length") or 0)
                self._serve(json.loads(self.rfile.read(length)) if length else None)
            except ConnectionError:
                self.close_connection = True  # the client was killed
            finally:
                server._count(-1)

        do_POST = do_GET

        def _serve(self, body: Any) -> None:
            server.requests.append((self.command, self.path))
            fault = server.faults.popleft() if body is not None and server.faults else ""
            if fault == "slow":
                time.sleep(server.slow_s)
            if fault == "die":
                return self._close()
            if fault in ("orphan", "proxy"):
                # Not idle before that is done.
                server._count(1)
                threading.Thread(target=self._late, args=(body,), daemon=True).start()
                return self._close() if fault == "orphan" else self._page(503)
            if fault == "liar":
                return self._say(200, server.strange)
            if fault in NOT_DONE:
                status, code = NOT_DONE[fault]
                return self._say(status, {"code": code, "message": "Expecting value"})
            status, result = server.answer(self.command, self.path, body)
            if body is not None and server.on_write is not None:
                server.on_write(self.path, body)
            if fault == "drop":
                return self._close()
            if fault == "strange":
                return self._say(200, server.strange)
            if fault == "failed":
                return self._say(500, {"code": "INTERNAL", "message": "no"})
            for _ in range(2 if fault == "twice" else 1):
                self._say(status, result, torn=fault == "torn")

        def _late(self, body: Any) -> None:
            time.sleep(server.slow_s)
            server.answer(self.command, self.path, body)
            server._count(-1)

        def _page(self, status: int) -> None:
            content = b"<html>Try again later.</html>"
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _close(self) -> None:
            self.close_connection = True
            _cut(self.connection)

        def _say(self, status: int, result: Any, torn: bool = False) -> None:
            ok = status == 200
            said = {"status": "ok", "result": result} if ok else {"error": result}
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if torn else content)
            if torn:
                self._close()

        def log_message(self, *words: Any) -> None:
            pass

    return Handler
