"""Who asks: tokens, what each may do, and whose sessions it may see.

A token is 256 random bits. Only its digest is kept (`token_file`): such a token can't be guessed,
and one round of SHA-256 is enough. Each is for one tenant and has one scope: `read`, `write` (and
read), or `admin` (all of it).
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.runtime.clock import World
from holdfast.server.problems import CHALLENGE, WireProblem

SCOPES = ("read", "write", "admin")
"""Each has all that those before it have."""
PREFIX = "hf_"
"""What a token begins with, so that it is known for one wherever it is found."""
TOKEN_BYTES = 32
Endpoint = Callable[[Request], Awaitable[Response]]


class Identity(NamedTuple):
    """Who asks: the tenant whose sessions are seen, and all that may be done."""

    tenant: str
    scopes: frozenset[str]
    name: str = ""


def identity(tenant: str, scope: str, name: str = "") -> Identity:
    """An identity with this scope and all below it."""
    upto = SCOPES.index(scope) + 1
    return Identity(tenant, frozenset(SCOPES[:upto]), name)


def fresh_token(world: World) -> str:
    """A token that nobody can guess."""
    raw = base64.urlsafe_b64encode(world.chance(TOKEN_BYTES)).decode().rstrip("=")
    return PREFIX + raw


def digest_of(token: str) -> str:
    """What is kept of a token."""
    given = token.encode("utf-8", "surrogateescape")
    return "sha256:" + hashlib.sha256(given).hexdigest()


class Tokens:
    """Who each token is for, by the token's digest."""

    def __init__(self, known: Mapping[str, Identity]) -> None:
        self._known = dict(known)

    def identity(self, token: str) -> Identity | None:
        """Whose token this is, if it is anybody's."""
        # A look-up in a dict takes a time that tells of the digest, and that tells nobody what to
        # try next.
        return self._known.get(digest_of(token))

    def version(self) -> int:
        """Another number when there may be other tokens than before."""
        return 0

    def identities(self) -> list[Identity]:
        """All who may ask."""
        return list(self._known.values())


class Authentication:
    """Finds out who asks, for `request.state.identity`; None for a request without a token. A
    wrong token is refused here, whatever it asks for.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            given = bearer(scope["headers"])
            who = None
            if given is not None:
                who = self._tokens.identity(given)
                if who is None:
                    raise _unauthenticated("This token is not known here.")
            scope.setdefault("state", {})["identity"] = who
        await self._app(scope, receive, send)


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token in the header `Authorization`, if there is one."""
    for name, value in headers:
        if name.lower() == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            # Another scheme is no token: what it asks for is refused if it needs one.
            return token.strip() if scheme.lower() == "bearer" else None
    return None


def _unauthenticated(detail: str) -> WireProblem:
    return WireProblem("unauthenticated", detail, headers=CHALLENGE)


def insist(who: Identity | None, scope: str) -> Identity:
    """The identity, which must have this scope."""
    if who is None:
        raise _unauthenticated("Give a token: `Authorization: Bearer …`.")
    if scope not in who.scopes:
        detail = f"This needs a token with the scope `{scope}`."
        raise WireProblem("forbidden", detail, scope=scope)
    return who


def needs(scope: str | None) -> Callable[[Any], Any]:
    """Says what a route needs; None for one that is open to everybody. Every route says it, and a
    test looks at all of them.
    """

    def decorate(endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        async def guarded(request: Request) -> Response:
            if scope is not None:
                insist(request.state.identity, scope)
            return await endpoint(request)

        guarded.scope = scope  # type: ignore[attr-defined]
        return guarded

    return decorate
