"""What goes wrong, as a client is told it: `application/problem+json`, with the codes of `errors`.

An error of the store has its code and its fields. Those that need a person name places of this
machine; a client is told that much and no more. Of a defect only its kind is logged, and nothing at
all is told: its words may quote a message.
"""

import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import HoldfastError, OperatorNeeded, ReadOnlyStore
from holdfast.exporters.entry_json import encoded

STATUS = {
    "holdfast_error": 500,
    "caller_mistake": 400,
    "bad_argument": 400,
    "invalid_message": 400,
    "not_found": 404,
    "not_approved": 409,
    "read_only_store": 403,
    "already_accepted": 409,
    "try_again": 409,
    "session_busy": 409,
    "conflict": 409,
    "overtaken": 409,
    "turn_interrupted": 409,
    "session_ended": 409,
    "operator_needed": 503,
    "store_unavailable": 503,
    "schema_mismatch": 503,
    "damaged": 500,
    "reader_behind": 410,
    "cursor_expired": 410,
}
"""The status of each code of `errors`."""
WIRE_STATUS = {
    "unauthenticated": 401,
    "forbidden": 403,
    "method_not_allowed": 405,
    "too_slow": 408,
    "cut_off": 400,
    "stale": 409,
    "too_large": 413,
    "held_elsewhere": 421,
    "key_reused": 422,
    "rate_limited": 429,
    "defect": 500,
}
"""The status of what only the wire has: `docs/PROTOCOL.md` says when each is told."""
MEDIA_TYPE = "application/problem+json"
CHALLENGE = {"www-authenticate": 'Bearer realm="holdfast"'}
"""What an answer says that a token would change."""
_log = logging.getLogger("holdfast.server")


class WireProblem(Exception):
    """A request that is refused, with a code of `WIRE_STATUS` or `STATUS`."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(detail)
        self.code, self.detail, self.fields = code, detail, fields
        self.headers = dict(headers or {})

    @property
    def status(self) -> int:
        return WIRE_STATUS.get(self.code) or STATUS[self.code]


class SenderGone(Exception):
    """Whoever sent a request has gone before it was answered."""


class TokenRevoked(SenderGone):
    """The token of whoever waits counts no more: for the store, its sender has gone."""


class ServerStopping(Exception):
    """The server was told to end while this was waited for."""


def problem_of(error: BaseException) -> WireProblem:
    """What a client is told of this error."""
    if isinstance(error, WireProblem):
        return error
    if isinstance(error, OperatorNeeded | ReadOnlyStore):
        return WireProblem(error.code, _ASIDE.get(error.code, _ASIDE[""]))
    if isinstance(error, HoldfastError):
        return WireProblem(error.code, str(error), **_fields(error))
    if isinstance(error, HTTPException):
        return _of_routing(error)
    if isinstance(error, TokenRevoked):
        told = "This token is not known here any more."
        return WireProblem("unauthenticated", told, headers=CHALLENGE)
    if isinstance(error, ClientDisconnect | SenderGone):
        return WireProblem("cut_off", "The request was cut off.")
    if isinstance(error, ServerStopping):
        told = "The server is being stopped. Nothing was begun; ask again later."
        return WireProblem("store_unavailable", told)
    return WireProblem("defect", "Something went wrong in the server.")


_ASIDE = {
    "read_only_store": "The store is served read-only. Nothing was written.",
    "damaged": "Something in the store is damaged; its operator can tell more.",
    "": "The store can't be used now. What was not confirmed may not be stored; ask again later.",
}


def _fields(error: HoldfastError) -> dict[str, Any]:
    fields = dict(error.fields)
    # What the name could have meant, where it is the beginning of several.
    candidates = getattr(error, "candidates", ())
    if candidates:
        fields["candidates"] = list(candidates)
    return fields


def _of_routing(error: HTTPException) -> WireProblem:
    if error.status_code == 405:
        detail = "This method is not for this address."
        return WireProblem("method_not_allowed", detail, headers=error.headers)
    return WireProblem("not_found", "There is nothing at this address.", what="address")


def problem_body(problem: WireProblem) -> dict[str, Any]:
    """What is told of a problem."""
    body: dict[str, Any] = {
        "type": f"urn:holdfast:problem:{problem.code}",
        "title": problem.code.replace("_", " "),
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
    }
    for name, value in problem.fields.items():
        # A field of an error never takes the place of one that every problem has.
        body.setdefault(name, value)
    return body


def problem_response(problem: WireProblem) -> Response:
    """The answer that tells a problem."""
    return Response(
        encoded(problem_body(problem)),
        problem.status,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


class Problems:
    """Answers whatever is raised below it. A stream that has begun is cut instead: one that was
    ended would look complete.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noting)
        # Not left to the server below: it would log the error's words, which may quote a message.
        except Exception as error:
            problem = problem_of(error)
            if problem.status >= 500 and not isinstance(error, ServerStopping):
                kind = type(error).__name__
                _log.error("%s: %s (%s)", scope["method"], problem.code, kind)
            if not begun:
                await problem_response(problem)(scope, receive, send)
