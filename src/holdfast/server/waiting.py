"""What ends a wait that a client has asked for, before what it waits for has come: the client goes,
or the server is told to end.
"""

import asyncio

from starlette.requests import Request


def is_stopping(request: Request) -> bool:
    """Whether the server was told to end."""
    closing: asyncio.Event = request.app.state.closing
    return closing.is_set()


async def cut_short(request: Request) -> None:
    """Returns when nobody is to wait any longer for an answer to this request."""
    closing: asyncio.Event = request.app.state.closing
    tasks = [
        asyncio.ensure_future(_gone(request)),
        asyncio.ensure_future(closing.wait()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _gone(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
