"""The streams of a tenant: each is the current session of a key, and each of its records an entry.

Load, decide, commit: the commit is guarded by the head that the decision was made from, so of two
servers that decide at once one decides again. A stream that was deleted is a session that has ended; its
address begins with a new one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from holdfast.domain.entry import Entry
from holdfast.domain.message import thaw
from holdfast.errors import NotFound
from holdfast.runtime.aio import AsyncSession, AsyncStore
from holdfast.server.durable.stream_log import (
    AnyRecord,
    StreamAppended,
    StreamDeleted,
    StreamLog,
    StreamRefusal,
    StreamUnforked,
)
from holdfast.server.head_guard import guarded
from holdfast.server.problems import WireProblem

KEY = "durable-stream:"
PAGE_BYTES = 4 << 20
"""About so much is read at once."""
KNOWN_MAX = 1000
"""So many streams are remembered, beside those that are being read."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AnyRecord).decode
Decide = Callable[["KnownStream"], list[AnyRecord]]


class KnownStream:
    """A stream as far as it was read."""

    def __init__(self, path: str, session: AsyncSession) -> None:
        self.path, self.session = path, session
        self.log, self.head = StreamLog(), 0
        self.last_at = 0
        """When it was last written or read, in milliseconds."""
        self._reading = asyncio.Lock()

    async def catch_up(self) -> None:
        """Reads what is new."""
        # One at a time: two would fold the same records.
        async with self._reading:
            async for entry in self.session.entries(self.head):
                self.head = entry.seq
                # Reads move `last_at`, too, and are not stored: an entry must not move
                # it back.
                self.last_at = max(self.last_at, entry.at)
                record = _record(entry)
                if record is not None:
                    self.log.fold(record, entry.seq)
                elif entry.kind in ("closed", "erased"):
                    self.log.end()

    async def pieces(self, first: int, most: int | None = None) -> list[bytes]:
        """The pieces from this one on: so many, or as many as are large enough together."""
        places = self.log.places[first : None if most is None else first + most]
        found: list[bytes] = []
        size = 0
        if not places:
            return found
        async for entry in self.session.entries(places[0] - 1):
            if entry.seq == places[len(found)]:
                record = _record(entry)
                if not isinstance(record, StreamAppended):
                    # Its words were taken out of the store.
                    raise StreamRefusal(410, "Stream is gone")
                found.append(record.data)
                size += len(record.data)
                if len(found) == len(places) or (most is None and size >= PAGE_BYTES):
                    break
        return found

    def is_over(self, now: int) -> bool:
        """Whether its time is over."""
        created = self.log.created
        if created is None or self.log.deleted:
            return False
        if created.ttl_s is not None:
            return now >= self.last_at + created.ttl_s * 1000
        if created.expires_at is not None:
            return now >= moment(created.expires_at)
        return False


def moment(text: str) -> float:
    """A time in ISO 8601, in milliseconds; ValueError if it is none."""
    return datetime.fromisoformat(text).timestamp() * 1000


class TenantStreams:
    """Used on the event loop alone."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        # A reader holds its own: when it was last read is not stored, and is not
        # forgotten while somebody reads, even if there are more than are kept.
        self._known: WeakValueDictionary[str, KnownStream] = WeakValueDictionary()
        self._kept: OrderedDict[str, KnownStream] = OrderedDict()
        # Forgotten with the last one who waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def now(self) -> int:
        return self._store._work.world.now()

    async def get(self, path: str) -> KnownStream | None:
        """The stream at an address; None if there is none, or its time is over."""
        found = await self.find(path)
        if found is None or found.log.created is None or found.is_over(self.now):
            return None
        if found.log.deleted and not found.log.forks:
            return None
        return found

    async def find(self, path: str) -> KnownStream | None:
        """What the address stood for last."""
        try:
            session = await self._store.session(KEY + path, create=False)
        except NotFound:
            return None
        # The key is looked up first, though the stream may be remembered: another
        # server may have deleted it, and the address stands for a new session then.
        known = self._known.get(path)
        if known is None or known.session.id != session.id:
            known = KnownStream(path, session)
        self._keep(known)
        await known.catch_up()
        return known

    def _keep(self, stream: KnownStream) -> None:
        self._known[stream.path] = self._kept[stream.path] = stream
        self._kept.move_to_end(stream.path)
        if len(self._kept) > KNOWN_MAX:
            self._kept.popitem(last=False)

    @asynccontextmanager
    async def alone(self, *paths: str) -> AsyncIterator[None]:
        """While nobody else of this process changes the streams at these addresses."""
        # In the same order for everybody: two streams that are forked from each other
        # at once would wait for each other otherwise.
        locks = [self._lock(path) for path in sorted(set(paths))]
        # Each is let go of again, also by one who is cancelled while it waits for the
        # next.
        async with AsyncExitStack() as held:
            for lock in locks:
                await held.enter_async_context(lock)
            yield

    def _lock(self, path: str) -> asyncio.Lock:
        known = self._locks.get(path)
        if known is None:
            known = self._locks[path] = asyncio.Lock()
        return known

    async def fresh(self, path: str) -> KnownStream:
        """The address with nothing at it."""
        found = await self.find(path)
        if found is None:
            session = await self._store.session(KEY + path)
        # A session without a record: whoever opened it was cut off before it created
        # the stream.
        elif found.log.created is None and not found.log.deleted:
            return found
        else:
            session = await self._store.reset(KEY + path, reason="deleted")
        made = KnownStream(path, session)
        self._keep(made)
        await made.catch_up()
        return made

    async def write(self, stream: KnownStream, decide: Decide) -> None:
        """Stores what is decided, from the state that it was decided from."""
        while True:
            records = decide(stream)
            if not records:
                return
            said = [_payload(record) for record in records]
            try:
                async with guarded(stream.session, stream.head) as session:
                    await session.append_all(said, format="openai.chat")
                    break
            except WireProblem as problem:
                # Somebody else wrote first. The decision is made again from what is
                # there now.
                if problem.code != "stale":
                    raise
            await stream.catch_up()
        # What was written is read back like anything else, so that the log has only one
        # way to change.
        await stream.catch_up()

    async def delete(self, stream: KnownStream) -> None:
        """Takes it away, and with it what was only kept for it."""
        if not stream.log.deleted:
            await self.write(stream, lambda _: [StreamDeleted()])
        created = stream.log.created
        # While it has forks, its address is taken, and so is that of its source: it
        # stays on its source's list.
        if stream.log.forks or created is None or created.source is None:
            return
        source = await self.find(created.source)
        if source is not None and stream.path in source.log.forks:
            await self.write(source, lambda _: [StreamUnforked(stream.path)])
            if source.log.deleted:
                await self.delete(source)


def _record(entry: Entry) -> AnyRecord | None:
    """What an entry says of a stream; None if it says nothing: it is another's, or was erased."""
    if entry.kind != "message":
        return None
    try:
        record: AnyRecord = _decode(thaw(entry.body)["content"])
    # The session is an ordinary one: others may append to it by other means, and an
    # erased entry has no body. Neither may break the stream for its readers.
    except Exception:
        return None
    return record


def _payload(record: AnyRecord) -> Any:
    return {"role": "user", "content": _encode(record).decode()}
