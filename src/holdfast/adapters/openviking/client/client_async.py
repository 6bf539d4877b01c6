"""The client for asyncio: the same names, awaited. What waits for a disk or the network does so on
a thread.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from holdfast.adapters.openviking.client.client import Client, CommitHandle
from holdfast.adapters.openviking.client.options import (
    AnySession,
    ClientOptions,
    MessageFields,
    Role,
)
from holdfast.adapters.openviking.client.reports import CommitReport, DeliveryReport
from holdfast.adapters.openviking.client.unsent import UnsentSession


class AsyncClient:
    """Messages and commits for OpenViking, durable in Holdfast before they are sent; takes what
    `Client` takes.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:1933", **options: Unpack[ClientOptions]
    ) -> None:
        self._make = partial(Client, url, **options)
        self._client: Client | None = None
        self._opening = asyncio.Lock()

    async def _own(self) -> Client:
        # Opening a store may wait for a disk, and two tasks may be the first at once.
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(self._make)
        return self._client

    async def add_message(
        self,
        session: AnySession,
        role: Role,
        content: str | None = None,
        **fields: Unpack[MessageFields],
    ) -> str:
        """Stores a message and returns its id; see `Client.add_message`."""
        client = await self._own()
        add = partial(
            client.add_message,
            session,
            role,
            content,
            **fields,
        )
        return await asyncio.to_thread(add)

    async def add_messages(
        self, session: AnySession, messages: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        """Stores several messages, all or none; see `Client.add_messages`."""
        client = await self._own()
        return await asyncio.to_thread(
            client.add_messages,
            session,
            messages,
        )

    async def commit(
        self, session: AnySession, *, event_id: str | int | None = None, **options: Any
    ) -> "AsyncCommitHandle":
        """Asks for a commit; see `Client.commit`."""
        client = await self._own()
        handle = await asyncio.to_thread(
            client.commit, session, event_id=event_id, **options
        )
        return AsyncCommitHandle(handle)

    async def retry_commits(
        self, session: AnySession | None = None
    ) -> "list[AsyncCommitHandle]":
        """Asks again for each commit that has failed; see `Client.retry_commits`."""
        client = await self._own()
        handles = await asyncio.to_thread(client.retry_commits, session)
        return [AsyncCommitHandle(handle) for handle in handles]

    async def send(self, session: AnySession) -> None:
        """Has what is new in this session sent; see `Client.send`."""
        client = await self._own()
        await asyncio.to_thread(client.send, session)

    async def flush(self, timeout_s: float | None = 30) -> bool:
        """Waits until OpenViking has all; see `Client.flush`."""
        client = await self._own()
        return await asyncio.to_thread(client.flush, timeout_s)

    async def resume(self, *, everywhere: bool = False) -> int:
        """Has all that is left sent; see `Client.resume`."""
        client = await self._own()
        return await asyncio.to_thread(client.resume, everywhere=everywhere)

    async def unsent(self) -> list[UnsentSession]:
        """The sessions of which something is left; see `Client.unsent`."""
        client = await self._own()
        return await asyncio.to_thread(client.unsent)

    async def context(
        self, session: AnySession, *, token_budget: int | None = None
    ) -> dict[str, Any]:
        """What OpenViking would show a model now; see `Client.context`."""
        client = await self._own()
        return await asyncio.to_thread(
            client.context, session, token_budget=token_budget
        )

    async def report(self, session: AnySession) -> DeliveryReport:
        """How far a session has come; see `Client.report`."""
        client = await self._own()
        return await asyncio.to_thread(client.report, session)

    async def close(self, timeout_s: float = 5) -> None:
        """Sends what can be sent in this time; see `Client.close`."""
        # One that was never used has opened nothing.
        if self._client is not None:
            await asyncio.to_thread(self._client.close, timeout_s)

    async def __aenter__(self) -> "AsyncClient":
        await self._own()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncCommitHandle:
    """A commit that was asked for; see `CommitHandle`."""

    def __init__(self, handle: CommitHandle) -> None:
        self._handle = handle
        self.id = handle.id

    async def report(self) -> CommitReport:
        """What has become of it so far."""
        return await asyncio.to_thread(self._handle.report)

    async def wait(self, timeout_s: float | None = None) -> CommitReport:
        """Waits until it is over or time is up, and gives what has become of it."""
        return await asyncio.to_thread(self._handle.wait, timeout_s)
