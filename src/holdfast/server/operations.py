"""An operation: one method at one address, what it takes and gives, as types.

The types decode requests and encode answers, and the OpenAPI document is made from them: what is
documented is what is done. An endpoint gets a `WireRequest` and gives a `Response`.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from holdfast.errors import BadArgument
from holdfast.exporters.entry_json import encoded
from holdfast.runtime.aio import AsyncSession, AsyncStore
from holdfast.server.auth import Identity, needs
from holdfast.server.problems import WireProblem

KEY_MAX = 255
"""An `Idempotency-Key` may be so long."""
REPLAYED = "idempotency-replayed"
"""The header of an answer that was given before."""


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a request says in its body, as JSON. A field that is not known is refused: it may be a
    misspelt one.
    """


class MessagesBody(Body):
    """A body with one message, or with several."""

    message: Any = None
    messages: list[Any] | None = None

    def __post_init__(self) -> None:
        if self.message is not None and self.messages is not None:
            raise ValueError("`message` or `messages`, not both")


class Query(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a request says in its address, behind the question mark."""


EVENTS = "text/event-stream"
"""The media of an answer that goes on: server-sent events."""
LINES = "application/x-ndjson"
"""The media of a request, and of its answer, that both go on: a JSON object a line."""


class Operation(NamedTuple):
    """What is said of an operation in the OpenAPI document."""

    method: str
    path: str
    scope: str | None
    about: str
    body: type[Body] | None
    query: type[Query] | None
    gives: Any
    status: int
    takes_key: bool
    takes_match: bool
    takes_tag: bool
    """Whether it is answered with 304 to who has its `ETag` already."""
    media: str
    nothing: str | None
    """When it is answered with 204 instead."""


class WireRequest:
    """A request whose sender is known: what it says, decoded, and the store of its tenant."""

    def __init__(self, request: Request, body: Any, query: Any) -> None:
        self.request = request
        self.body, self.query = body, query
        self.identity: Identity = request.state.identity
        self.path: Mapping[str, str] = request.path_params

    @property
    def tenants(self) -> Any:
        """The stores of all tenants; see `tenants.Tenants`."""
        return self.request.app.state.tenants

    @property
    def turns(self) -> Any:
        """The turns that are held for clients; see `turns.held.LeasedTurns`."""
        return self.request.app.state.turns

    @property
    def store(self) -> AsyncStore:
        """The sessions of the sender's tenant, and no others."""
        store: AsyncStore = self.tenants.store(self.identity.tenant)
        return store

    async def session(self) -> AsyncSession:
        """The session in the address; of another tenant's it is said that there is none."""
        found: AsyncSession = await self.tenants.session(
            self.identity.tenant, self.path["session"]
        )
        return found

    @property
    def key(self) -> str | None:
        """The header `Idempotency-Key`."""
        given = self.request.headers.get("idempotency-key")
        if given is not None:
            if not 0 < len(given) <= KEY_MAX or not given.isprintable():
                takes = f"up to {KEY_MAX} printable characters"
                raise BadArgument(
                    parameter="Idempotency-Key", takes=takes, given="others"
                )
        return given

    @property
    def match(self) -> int | None:
        """The head that the sender knows, in the header `If-Match`."""
        return head_in("If-Match", self.request.headers.get("if-match"))


Handler = Callable[[WireRequest], Awaitable[Response]]


def route(
    method: str,
    path: str,
    handler: Handler,
    *,
    scope: str | None,
    body: type[Body] | None = None,
    query: type[Query] | None = None,
    gives: Any = None,
    status: int = 200,
    takes_key: bool = False,
    takes_match: bool = False,
    takes_tag: bool = False,
    media: str = "application/json",
    nothing: str | None = None,
    lines: Handler | None = None,
) -> Route:
    """The route of an operation; the docstring of its handler is what is said about it. `lines` is
    for requests whose body is lines of JSON: it reads them itself.
    """

    async def endpoint(request: Request) -> Response:
        said = _query(request, query) if query is not None else None
        if lines is not None and _is_lines(request):
            return await lines(WireRequest(request, None, said))
        told = await _body(request, body) if body is not None else None
        return await handler(WireRequest(request, told, said))

    endpoint.__name__ = handler.__name__
    guarded = needs(scope)(endpoint)
    about = " ".join((handler.__doc__ or "").split())
    guarded.operation = Operation(
        method,
        path,
        scope,
        about,
        body,
        query,
        gives,
        status,
        takes_key,
        takes_match,
        takes_tag,
        media,
        nothing,
    )
    return Route(path, guarded, methods=[method])


def name_patterns(routes: Iterable[BaseRoute]) -> None:
    """Has each endpoint know the pattern of its address, also those that are no operations."""
    for each in routes:
        if isinstance(each, Route):
            each.endpoint.pattern = each.path_format  # type: ignore[attr-defined]


def pattern_of(scope: Scope) -> str | None:
    """The pattern of the address that a request came to; None if it came to none of ours."""
    pattern: str | None = getattr(scope.get("endpoint"), "pattern", None)
    return pattern


def _is_lines(request: Request) -> bool:
    media = request.headers.get("content-type", "").partition(";")[0]
    return media.strip().lower() == LINES


def _query(request: Request, kind: type[Query]) -> Query:
    given = dict(request.query_params)
    try:
        # Not strict: in an address everything is text.
        return msgspec.convert(given, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise _mistake("the address", error) from None


async def _body(request: Request, kind: type[Body]) -> Body:
    raw = await request.body()
    return read_body(raw, kind)


def read_body(raw: bytes, kind: type[Body]) -> Body:
    """A body, decoded; nothing at all counts as an empty object."""
    raw = raw or b"{}"
    try:
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.ValidationError:
            raise
        # A ValidationError is a DecodeError, too, hence the clause above: such a body
        # was JSON, and reading it in another way would not help.
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Halves of surrogate pairs are JSON, and can be stored; msgspec does not read them.
            # Decoded here: `json` would guess at the encoding, and take what is no UTF-8.
            told = json.loads(raw.decode(), parse_constant=_no_number)
            return msgspec.convert(told, type=kind)
    except msgspec.ValidationError as error:
        raise _mistake("the body", error) from None
    except (ValueError, RecursionError):
        takes = "JSON in UTF-8"
        raise BadArgument(parameter="the body", takes=takes, given="others") from None


def _no_number(name: str) -> Any:
    # Python takes NaN and Infinity for numbers. They are no JSON, and nobody else could
    # read what is stored of them.
    raise ValueError(name)


def _mistake(place: str, error: msgspec.ValidationError) -> WireProblem:
    # What it says names the field and the types, never what was given.
    return WireProblem("bad_argument", f"In {place}: {error}.", parameter=place)


def answer(
    value: Any, *, status: int = 200, head: int | None = None, again: bool = False
) -> Response:
    """A value as JSON; with `head`, its `ETag`. `again`: it was answered before."""
    more = {}
    if head is not None:
        more["etag"] = f'"{head}"'
    if again:
        more[REPLAYED] = "true"
    return Response(encoded(value), status, headers=more, media_type="application/json")


def head_in(name: str, header: str | None) -> int | None:
    """The head that an entity tag of ours says; None where none is given, or any will do."""
    if header is None or header.strip() == "*":
        return None
    text = header.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        takes = 'the `ETag` of an answer, such as "12"'
        raise BadArgument(parameter=name, takes=takes, given="others")
    return int(text)
