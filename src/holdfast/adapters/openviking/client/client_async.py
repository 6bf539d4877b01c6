"""The client for asyncio: the same names, awaited. What waits for a disk or the network does so on
a thread.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from holdfast.adapters.openviking.client.client import (
    AnySession,
    AnyStore,
    Client,
    CommitHandle,
    Role,
)
from holdfast.adapters.openviking.client.reports import CommitReport, DeliveryReport


class AsyncClient:
    """Messages and commits for OpenViking, durable in Holdfast before they are sent; takes what
    `Client` takes.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:1933",
        *,
        store: AnyStore = "holdfast.db",
        api_key: str | None = None,
        account: str | None = None,
        user: str | None = None,
        background: bool = True,
        timeout_s: float = 300,
        grace_s: float = 30,
        threads: int = 2,
        on_problem: Callable[[str, str], object] | None = None,
    ) -> None:
        self._make = partial(
            Client,
            url,
            store=store,
            api_key=api_key,
            account=account,
            user=user,
            background=background,
            timeout_s=timeout_s,
            grace_s=grace_s,
            threads=threads,
            on_problem=on_problem,
        )
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
        *,
        parts: Sequence[Mapping[str, Any]] | None = None,
        created_at: str | None = None,
        peer_id: str | None = None,
        turn_id: str | None = None,
        message_kind: str | None = None,
        event_id: str | int | None = None,
    ) -> str:
        """Stores a message and returns its id; see `Client.add_message`."""
        client = await self._own()
        return await asyncio.to_thread(
            client.add_message,
            session,
            role,
            content,
            parts=parts,
            created_at=created_at,
            peer_id=peer_id,
            turn_id=turn_id,
            message_kind=message_kind,
            event_id=event_id,
        )

    async def add_messages(
        self, session: AnySession, messages: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        """Stores several messages, all or none; see `Client.add_messages`."""
        client = await self._own()
        return await asyncio.to_thread(client.add_messages, session, messages)

    async def commit(
        self, session: AnySession, *, event_id: str | int | None = None, **options: Any
    ) -> "AsyncCommitHandle":
        """Asks for a commit; see `Client.commit`."""
        client = await self._own()
        handle = await asyncio.to_thread(
            client.commit, session, event_id=event_id, **options
        )
        return AsyncCommitHandle(handle)

    async def send(self, session: AnySession) -> None:
        """Has what is new in this session sent; see `Client.send`."""
        client = await self._own()
        await asyncio.to_thread(client.send, session)

    async def flush(self, timeout_s: float | None = 30) -> bool:
        """Waits until OpenViking has all; see `Client.flush`."""
        client = await self._own()
        return await asyncio.to_thread(client.flush, timeout_s)

    async def resume(self) -> int:
        """Looks for what is unsent in the whole store; see `Client.resume`."""
        client = await self._own()
        return await asyncio.to_thread(client.resume)

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
