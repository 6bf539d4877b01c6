"""The HTTP side: who asks, what they send, and the envelope of the answer.

Nothing that was said is logged: neither bodies nor answers, and of an error only its kind.
"""

import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.adapters.openviking.server.problem import RequestProblem, problem_of
from holdfast.adapters.openviking.server.service import ClientRequest, Service
from holdfast.adapters.openviking.server.sessions.directory import Requester
from holdfast.errors import HoldfastError

BODY_MAX = 16 << 20
"""A request may be so large, in bytes: a batch of a hundred long messages is smaller."""
Tokens = Mapping[str, Requester]
"""Who each token is for."""
Answer = Callable[[Requester, ClientRequest], Any]
Endpoint = Callable[[Request], Awaitable[Response]]
NOTHING_ELSE = {"error": None, "telemetry": None, "profile": None}
"""What OpenViking's answers have besides."""
_log = logging.getLogger("holdfast.openviking")


def app(service: Service, tokens: Tokens) -> Starlette:
    """The endpoints, for whoever has one of these tokens."""
    session = "/api/v1/sessions/{session_id}"
    result = f"{session}/tool-results/{{tool_result_id}}"
    table: list[tuple[str, str, Answer]] = [
        ("POST", "/api/v1/sessions", service.create),
        ("GET", "/api/v1/sessions", service.list_sessions),
        ("GET", session, service.get),
        ("DELETE", session, service.delete),
        ("PATCH", f"{session}/config", service.configure),
        ("POST", f"{session}/messages", service.add),
        ("POST", f"{session}/messages/batch", service.add_batch),
        ("POST", f"{session}/commit", service.commit),
        ("GET", f"{session}/context", service.context),
        ("GET", f"{session}/archives/{{archive_id}}", service.archive),
        ("GET", f"{session}/tool-results", service.tool_results),
        ("GET", result, service.tool_result),
        ("GET", f"{result}/search", service.search_tool_result),
        ("GET", "/api/v1/tasks", service.tasks),
        ("GET", "/api/v1/tasks/{task_id}", service.task),
    ]
    routes = [Route("/health", _health), Route("/ready", _ready)]
    for method, path, answer in table:
        routes.append(Route(path, _endpoint(answer, tokens), methods=[method]))
    handlers: Any = {HTTPException: _unknown}
    return Starlette(routes=routes, exception_handlers=handlers)


def _endpoint(answer: Answer, tokens: Tokens) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            requester = _requester(request, tokens)
            body = await _body(request)
            asked = ClientRequest(
                request.path_params,
                request.query_params,
                body,
            )
            # On a thread: the store is asked and answers there, and a sync takes its time.
            result = await run_in_threadpool(answer, requester, asked)
        except RequestProblem as problem:
            return _refusal(problem)
        except HoldfastError as error:
            _log.warning("%s: %s", request.method, error.code)
            return _refusal(problem_of(error))
        except Exception as error:
            # A defect. Not left to the server: it would log the error's words, and they may quote
            # a message.
            _log.error(
                "%s: a defect (%s)",
                request.method,
                type(error).__name__,
            )
            return _refusal(RequestProblem("INTERNAL", "Something went wrong here."))
        return _json({"status": "ok", "result": result, **NOTHING_ELSE})

    return endpoint


def _requester(request: Request, tokens: Tokens) -> Requester:
    given = request.headers.get("x-api-key", "")
    # OpenViking takes either header.
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if not given and scheme.lower() == "bearer":
        given = bearer.strip()
    requester = None
    for token, owner in tokens.items():
        # In a time that does not tell how much of it was right, and all of them.
        if hmac.compare_digest(token.encode(), given.encode()):
            requester = owner
    if requester is None:
        raise RequestProblem(
            "UNAUTHENTICATED",
            "Missing or invalid API key.",
        )
    account = request.headers.get("x-openviking-account") or requester.account
    user = request.headers.get("x-openviking-user") or requester.user
    if Requester(account, user) != requester:
        raise RequestProblem(
            "PERMISSION_DENIED",
            "This API key is another user's.",
        )
    return requester


async def _body(request: Request) -> Any:
    # A body of any other request is not read: nothing would be made of it.
    if request.method not in ("POST", "PATCH"):
        return None
    raw = bytearray()
    try:
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > BODY_MAX:
                limit = f"A request takes at most {BODY_MAX} bytes."
                raise RequestProblem("RESOURCE_EXHAUSTED", limit)
    except ClientDisconnect:
        raise RequestProblem(
            "INVALID_ARGUMENT",
            "The request was cut off.",
        ) from None
    return _parsed(bytes(raw)) if raw else None


def _parsed(raw: bytes) -> Any:
    # Half of a surrogate pair is JSON, too, and is kept as everywhere in Holdfast.
    try:
        return json.loads(raw)
    except RecursionError:
        problem = "The body is nested too deeply."
    except (json.JSONDecodeError, UnicodeDecodeError):
        problem = "The body is not JSON in UTF-8."
    except ValueError:
        # What Python says of some thousand digits.
        problem = "The body has a number of too many digits."
    raise RequestProblem("INVALID_ARGUMENT", problem)


def _refusal(problem: RequestProblem) -> Response:
    error = {"code": problem.code, "message": problem.message}
    if problem.details is not None:
        error["details"] = problem.details
    return _json(
        {"status": "error", "error": error},
        problem.status,
    )


def _json(value: Any, status: int = 200) -> Response:
    # Not `JSONResponse`: it can't write half of a surrogate pair, which another program may have
    # stored.
    text = json.dumps(value, separators=(",", ":"))
    return Response(text, status, media_type="application/json")


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok", "healthy": True, "version": "holdfast"})


async def _ready(request: Request) -> Response:
    return JSONResponse({"status": "ready"})


async def _unknown(request: Request, error: HTTPException) -> Response:
    # A client that asks for search or resources is told that they are not here, not that they are
    # empty.
    if error.status_code == 404 and request.url.path.startswith("/api/"):
        words = "Holdfast serves OpenViking's sessions and tasks; there is nothing else here."
        return _refusal(RequestProblem("UNIMPLEMENTED", words))
    problem = RequestProblem("NOT_FOUND", "There is nothing here.")
    if error.status_code == 405:
        problem = RequestProblem("INVALID_ARGUMENT", "Method Not Allowed")
    answer = _refusal(problem)
    answer.status_code = error.status_code
    return answer
