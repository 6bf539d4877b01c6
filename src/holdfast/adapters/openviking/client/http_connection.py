"""Requests to OpenViking, and what its answers say."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from holdfast.engine.remote.http_connection import Fate, RawConnection
from holdfast.errors import BadArgument

PROBLEM_MAX = 300
"""How much of an error's text is kept: it may quote what was sent."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """What a request came to. `code` is OpenViking's own name for an error."""

    fate: Fate
    status: int = 0
    result: Any = None
    code: str = ""
    problem: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The result, where it is an object; else an empty one."""
        return self.result if isinstance(self.result, dict) else {}

    @property
    def ok(self) -> bool:
        """Whether it was done, and its answer says so."""
        return self.fate == "answered" and 200 <= self.status < 300

    @property
    def was_sent(self) -> bool:
        """Whether the server may have read any of it."""
        return self.fate not in ("unreached", "untrusted")

    @property
    def refused(self) -> bool:
        """Whether what was sent is at fault: sent again, it would be refused again."""
        return self.fate == "answered" and self.status in (400, 413, 415, 422)

    @property
    def may_arrive(self) -> bool:
        """Whether what was sent may still be done after this: nobody who knows has said that it is
        over. A proxy that gives up, or is restarted, leaves its server at work.
        """
        if self.fate != "answered":
            return self.fate in ("lost", "late")
        if self.status in (408, 502, 504):
            return True
        # A refusal is one, whoever says it; any other answer counts if it is OpenViking's own.
        return not (self.ok or self.code or 400 <= self.status < 500)

    @property
    def missing(self) -> bool:
        """Whether there is no such session, archive or task. A 404 that does not say so comes from
        a wrong address.
        """
        return self.status == 404 and self.code == "NOT_FOUND"

    def __str__(self) -> str:
        if self.fate != "answered":
            return self.problem
        return f"{self.status} {self.code} {self.problem}".strip()


NOT_OPENVIKINGS = HttpAnswer("lost", problem="the answer is not OpenViking's")
"""Somebody else has answered, or the body was cut: what was done is not known."""


class HttpConnection:
    """One connection, used by one thread. `made` counts how often it was opened: as long as it is
    the same, the server is the same process. `address` names the server.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        parts = _address(url)
        # Without a name and a password, which an address may have in front of its host.
        self.address = f"{parts.scheme}://{parts.hostname}:{parts.port}{parts.path}"
        self._raw = RawConnection(parts, headers, timeout_s=timeout_s)

    @property
    def made(self) -> int:
        return self._raw.made

    def session(
        self, method: str, viking_id: str, path: str = "", body: Any = None
    ) -> HttpAnswer:
        """A request about one session."""
        return self.ask(
            method, f"/api/v1/sessions/{quote(viking_id, safe='')}{path}", body
        )

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        **query: str,
    ) -> HttpAnswer:
        """Sends a request and gives what it came to; never raises for what the other side does."""
        if query:
            path = f"{path}?{urlencode(query)}"
        before = self._raw.made
        answer = self._ask(method, path, body)
        was_used = self._raw.made == before
        # A server closes connections that are idle. Only what changes nothing is asked again
        # without a thought.
        if answer.fate == "lost" and was_used and method == "GET":
            answer = self._ask(method, path, body)
        return answer

    def close(self) -> None:
        """Closes the connection; the next request opens another one."""
        self._raw.close()

    def _ask(self, method: str, path: str, body: Any) -> HttpAnswer:
        data = None if body is None else json.dumps(body).encode()
        raw = self._raw.ask(method, path, data, media="application/json")
        if raw.fate != "answered":
            return HttpAnswer(raw.fate, problem=raw.problem)
        return _read(raw.status, raw.content)


def _read(status: int, content: bytes) -> HttpAnswer:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        if 200 <= status < 300:
            return NOT_OPENVIKINGS
        return HttpAnswer("answered", status)
    error = body.get("error")
    if not isinstance(error, dict):
        error = {}
    code, problem = error.get("code"), error.get("message")
    return HttpAnswer(
        "answered",
        status,
        body.get("result"),
        code if isinstance(code, str) else "",
        problem[:PROBLEM_MAX] if isinstance(problem, str) else "",
    )


def _address(url: str) -> SplitResult:
    """The parts of an address that a request can be sent to."""
    takes = "an address, http://… or https://…"
    given = repr(url)[:60]
    refused = BadArgument(parameter="url", takes=takes, given=given)
    if not isinstance(url, str):
        raise refused
    try:
        parts = urlsplit(url)
        # Looked at here: a port that is none is noticed when it is asked for.
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise refused from None
    if parts.scheme not in ("http", "https") or not is_whole:
        raise refused
    return parts
