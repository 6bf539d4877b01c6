"""Plays a case against a server: real connections, one for each request, and real faults."""

import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from holdfast.runtime.clock import RealWorld, real_tick
from holdfast.testing.wire.case_file import Case, CaseStep
from holdfast.testing.wire.event_lines import EventLines

LIMIT_S = 30.0
LEAVE_S = 0.3
"""A client that leaves waits so long first: nothing must have been answered until then."""
AGAIN_S = 0.05
CUTS = (0, 1, 40, 150, 300, 333, 500, 800)
"""A stream that is cut often is cut after so many bytes, in turn."""
_NAME = re.compile(r"\$\{(\w+)\}")


class WireAnswer(NamedTuple):
    """What was answered."""

    status: int
    headers: dict[str, str]
    body: Any


class Unlike(Exception):
    """An answer that is not as the case says."""


class Player:
    """A server to play cases against, and the tokens of two tenants."""

    def __init__(self, base: str, *, token: str, other_token: str) -> None:
        self._base = urlsplit(base)
        self._tokens = {"one": token, "other": other_token, "nobody": None}
        self._world = RealWorld()

    def play(self, case: Case) -> str | None:
        """What is wrong with the server's answers; None if nothing is."""
        # Keys of its own for each case: a server may have been played against before.
        run = self._world.chance(8).hex()
        known: dict[str, Any] = {"run": run, "key": f"wire:{run}"}
        for number, step in enumerate(case.step, 1):
            try:
                self._take(step, known)
            except (Unlike, OSError) as error:
                return f"step {number} ({step.do}): {error}"
        return None

    def _take(self, step: CaseStep, known: dict[str, Any]) -> None:
        if step.fault == "cut_often":
            self._cut_often(step, known)
            return
        if step.fault is not None:
            self._faulty(step, known)
            return
        if step.at_once > 1:
            with ThreadPoolExecutor(step.at_once) as pool:
                asked = []
                for _ in range(step.at_once):
                    asked.append(pool.submit(self._ask, step, known))
            answers = [each.result() for each in asked]
            for each in answers:
                _compare(step, known, each)
            for path in step.same:
                found = {json.dumps(_at(each.body, path)) for each in answers}
                if len(found) > 1:
                    raise Unlike(f"`{path}` differs: {sorted(found)}")
            _save(step, known, answers[0])
            return
        end = real_tick() + step.until_s
        while True:
            answer = self._ask(step, known)
            try:
                _compare(step, known, answer)
                break
            except Unlike:
                if real_tick() >= end:
                    raise
                time.sleep(AGAIN_S)
        _save(step, known, answer)

    def _ask(self, step: CaseStep, known: dict[str, Any]) -> WireAnswer:
        with self._connected() as connection:
            connection.sendall(self._request(step, known))
            if step.take:
                return _read_events(connection, EventLines(), step.take)
            return _read(connection)

    def _cut_often(self, step: CaseStep, known: dict[str, Any]) -> None:
        """Two readers of one stream, one of which is cut off all the time."""
        whole = self._ask(step, known)
        _compare(step, known, whole)
        lines = EventLines(step.headers.get("Last-Event-ID", ""))
        taken: list[Any] = []
        # Far more tries than events: some cuts come before the first byte of one.
        for number in range(100 * step.take):
            headers = {**step.headers, "Last-Event-ID": lines.last_id}
            asked = msgspec.structs.replace(step, headers=headers)
            with self._connected() as connection:
                connection.sendall(self._request(asked, known))
                # What was half read is lost with its connection.
                lines = EventLines(lines.last_id)
                left = CUTS[number % len(CUTS)]
                wanted = step.take - len(taken)
                told = _read_events(connection, lines, wanted, left)
            taken += told.body["events"]
            if len(taken) >= step.take:
                break
        if taken != whole.body["events"]:
            raise Unlike(f"cut off often, a reader took {taken}, not {whole.body}")
        _save(step, known, whole)

    def _faulty(self, step: CaseStep, known: dict[str, Any]) -> None:
        with self._connected() as connection:
            request = self._request(step, known)
            if step.fault == "cut_body":
                head, _, body = request.partition(b"\r\n\r\n")
                cut = head + b"\r\n\r\n" + body[: len(body) // 2]
                connection.sendall(cut)
                return
            connection.sendall(request)
            if step.fault == "lose_answer":
                # Its first byte says that it was done; the rest is lost.
                if not connection.recv(1):
                    raise Unlike("the connection was closed without an answer")
                return
            connection.settimeout(LEAVE_S)
            try:
                connection.recv(1)
            except TimeoutError:
                return
            raise Unlike("it was answered, and should have waited")

    def _connected(self) -> socket.socket:
        place = (self._base.hostname or "127.0.0.1", self._base.port or 80)
        return socket.create_connection(place, LIMIT_S)

    def _request(self, step: CaseStep, known: dict[str, Any]) -> bytes:
        method, _, path = _filled(step.do, known).partition(" ")
        body = b""
        if step.raw is not None:
            body = _filled(step.raw, known).encode()
        elif step.body is not None:
            body = json.dumps(_filled(step.body, known)).encode()
        headers = {
            "Host": self._base.netloc,
            # One connection for each request: a fault in one step must not reach the
            # next.
            "Connection": "close",
            "Content-Length": str(len(body)),
            "Content-Type": "application/json",
            **{name: _filled(text, known) for name, text in step.headers.items()},
        }
        token = self._tokens[step.sender]
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        prefix = self._base.path.rstrip("/")
        lines = [f"{method} {prefix}{path} HTTP/1.1"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


def _read_events(
    connection: socket.socket, lines: EventLines, count: int, left: int = 1 << 30
) -> WireAnswer:
    """So many events of a stream, or as many as its first bytes hold."""
    from http.client import HTTPException, HTTPResponse

    response = HTTPResponse(connection)
    events: list[Any] = []
    try:
        response.begin()
        media = response.headers.get_content_type()
        while len(events) < count and left > 0 and media == "text/event-stream":
            piece = response.read1(min(left, 1 << 16))
            if not piece:
                break
            left -= len(piece)
            events += lines.feed(piece)
    except HTTPException as error:
        raise Unlike(f"no stream ({type(error).__name__})") from None
    # More may have come with the last one: nobody has asked for it.
    body = {"events": events[:count]}
    # The reader comes back after the last event that it took, not after the last that
    # came.
    if len(events) > count:
        lines.last_id = events[count - 1]["id"]
    return WireAnswer(response.status, _headers(response), body)


def _headers(response: Any) -> dict[str, str]:
    return {name.lower(): text for name, text in response.getheaders()}


def _read(connection: socket.socket) -> WireAnswer:
    from http.client import HTTPException, HTTPResponse

    response = HTTPResponse(connection)
    try:
        response.begin()
        raw = response.read()
    except HTTPException as error:
        raise Unlike(f"no answer ({type(error).__name__})") from None
    headers = _headers(response)
    body: Any = raw.decode("utf-8", "replace")
    media = headers.get("content-type", "")
    if "ndjson" in media:
        body = _joined(raw)
    elif "json" in media:
        body = json.loads(raw)
    return WireAnswer(response.status, headers, body)


def _joined(raw: bytes) -> dict[str, Any]:
    """An answer of lines, as one: a server may answer several with one."""
    body: dict[str, Any] = {"text": "", "index": None, "problem": None}
    for line in raw.splitlines():
        told = json.loads(line) if line.strip() else {}
        body["text"] += told.pop("text", "")
        body.update(told)
    return body


def _compare(step: CaseStep, known: dict[str, Any], answer: WireAnswer) -> None:
    if answer.status != step.status:
        raise Unlike(f"status {answer.status}, not {step.status}: {answer.body}")
    if step.code is not None:
        media = answer.headers.get("content-type", "").partition(";")[0]
        if media != "application/problem+json":
            raise Unlike(f"a problem is application/problem+json, not {media}")
        code = _at(answer.body, "code")
        if code != step.code:
            raise Unlike(f"code {code}, not {step.code}")
    for path, value in _filled(step.expect, known).items():
        found = _at(answer.body, path)
        if found != value:
            raise Unlike(f"`{path}` is {found!r}, not {value!r}")
    for path in step.absent:
        found = _at(answer.body, path)
        if found is not None:
            raise Unlike(f"`{path}` is {found!r}, not null")
    for path, number in step.count.items():
        found = _at(answer.body, path)
        if not isinstance(found, list) or len(found) != number:
            raise Unlike(f"`{path}` has not {number} items: {found!r}")
    for name, text in _filled(step.headers_of, known).items():
        given = answer.headers.get(name.lower())
        if given != text:
            raise Unlike(f"the header {name} is {given!r}, not {text!r}")


def _save(step: CaseStep, known: dict[str, Any], answer: WireAnswer) -> None:
    for name, path in step.save.items():
        known[name] = _at(answer.body, path)


def _at(body: Any, path: str) -> Any:
    """The value at a path; None where there is none."""
    for word in path.split("."):
        if isinstance(body, list) and word.lstrip("-").isdigit():
            place = int(word)
            body = body[place] if -len(body) <= place < len(body) else None
        elif isinstance(body, dict):
            body = body.get(word)
        else:
            return None
    return body


def _filled(value: Any, known: dict[str, Any]) -> Any:
    """The value, with what was saved in the place of its names."""
    if isinstance(value, str):
        return _NAME.sub(lambda name: str(known[name[1]]), value)
    if isinstance(value, list):
        return [_filled(each, known) for each in value]
    if isinstance(value, dict):
        return {name: _filled(each, known) for name, each in value.items()}
    return value
