"""What ends a wait that a client has asked for, before what it waits for has come: the client goes,
its token counts no more, or the server is told to end.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal

from starlette.requests import Request

from holdfast.server.auth import Identity, Tokens, bearer
from holdfast.server.problems import SenderGone, ServerStopping, TokenRevoked

LOOK_S = 1.0
"""How often it is looked whether the tokens of those who wait still count."""
Cut = Literal["stopping", "revoked"]
"""Why the server ends a wait by itself."""
ENDLESS = "holdfast.endless"
"""What a request has in its scope whose answer goes on until somebody ends it."""
AWAITED = "holdfast.awaited"
"""What a request has in its scope that has waited for news."""


def is_stopping(request: Request) -> bool:
    """Whether the server was told to end."""
    closing: asyncio.Event = request.app.state.closing
    return closing.is_set()


def why_cut(request: Request) -> Cut | None:
    """Why nobody is to be told any more on this request; None if it is not so, or the client has
    gone by itself.
    """
    if is_stopping(request):
        return "stopping"
    token = bearer(request.headers.raw)
    watch: TokenWatch = request.app.state.token_watch
    if token is not None and not watch.counts(token, request.state.identity):
        return "revoked"
    return None


def insist_still(request: Request) -> None:
    """Raises if the token of a request that has waited counts no more."""
    if why_cut(request) == "revoked":
        raise TokenRevoked


async def cut_short(request: Request, *, for_news: bool = True) -> None:
    """Returns when nobody is to wait any longer for an answer to this request. It waits `for_news`,
    or for what is done for it.
    """
    if for_news:
        request.scope[AWAITED] = True
    closing: asyncio.Event = request.app.state.closing
    tasks = [
        asyncio.ensure_future(_gone(request)),
        asyncio.ensure_future(closing.wait()),
        asyncio.ensure_future(token_revoked(request)),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def attended(request: Request, work: Awaitable[Any]) -> Any:
    """Does this work while its sender is there; `SenderGone` when it goes before, or may not ask any
    more. One that waits when the server is told to end may ask again.
    """
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(cut_short(request, for_news=False))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
            if task.cancelled():
                insist_still(request)
                raise ServerStopping if is_stopping(request) else SenderGone
        return task.result()
    finally:
        leaving.cancel()


async def token_revoked(request: Request) -> None:
    """Returns when the token of this request counts no more; never, if it needed none."""
    watch: TokenWatch = request.app.state.token_watch
    token = bearer(request.headers.raw)
    if token is None:
        await asyncio.Event().wait()
    else:
        await watch.revoked(token, request.state.identity)


async def _gone(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class TokenWatch:
    """Whether the tokens of those who wait still count. One look for all of them: a thousand who
    wait cost no more than one, until the tokens change.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._waiting: dict[asyncio.Event, tuple[str, Identity]] = {}
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def counts(self, token: str, who: Identity) -> bool:
        """Whether this token is still for the same."""
        return self._tokens.identity(token) == who

    async def revoked(self, token: str, who: Identity) -> None:
        """Returns when this token counts no more."""
        told = asyncio.Event()
        self._waiting[told] = (token, who)
        if self._looking is None:
            known = self._tokens.version()
            self._looking = asyncio.create_task(self._look(known))
        try:
            # After it is among those who wait: a change before that is nobody's news.
            if self.counts(token, who):
                await told.wait()
        finally:
            del self._waiting[told]
            if not self._waiting and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look(self, known: int) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._tokens.version()
            if now != known:
                known = now
                for told, (token, who) in self._waiting.items():
                    if not self.counts(token, who):
                        told.set()
