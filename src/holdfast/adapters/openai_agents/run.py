"""One streamed run of the SDK in a turn of Holdfast.

The turn begins when the runner reads the history, so what it reads is what its turn follows on; it
waits for the turn of another process. The runner runs ahead of whoever reads its events, so they
are stored where it puts them, in their order, by a thread of the run: a reader is handed each one
after that. A call of a tool is stored before the runner goes on to run it (I-22). The runner stores
the items of a response by itself when it has run their tools; those are known by then.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast.adapters.framework import asynchronous
from holdfast.adapters.openai_agents.items import Item, is_call, same
from holdfast.errors import AlreadyAccepted, SessionEnded
from holdfast.formats.sdk_objects import plain
from holdfast.runtime.plans.plan import run
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store
from holdfast.runtime.turn import Turn
from holdfast.runtime.turns.streams.push_stream import PushStream

T = TypeVar("T")

FORMAT = "openai.responses"
CALL_LIMIT_S = 30.0
"""How long the runner waits for a call to be stored, before it goes on to run it."""

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class StreamedRun:
    """A run whose stream is read through `HoldfastSession.stream`."""

    def __init__(self, store: Store, key: str, event_id: str | int | None) -> None:
        self._store, self._key = store, key
        self._event_id = event_id
        self.session: Session | None = None
        self._turn: Turn | None = None
        self._push: PushStream | None = None
        self._stored: list[Item] = []
        self._on_the_way: dict[int, Future[None]] = {}
        # One thread: what is stored keeps the order in which it came.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-run")

    def listen(self, queue: Any) -> None:
        """Has each event stored when the runner puts it into its queue."""
        put = queue.put_nowait

        def stored_first(event: Any) -> None:
            self._take(event)
            put(event)

        queue.put_nowait = stored_first

    def _take(self, event: Any) -> None:
        if getattr(event, "type", None) != "raw_response_event":
            return
        storing = self._thread.submit(self._store_event, event.data)
        self._on_the_way[id(event)] = storing
        if event.data.type in _ENDS and _makes_calls(event.data):
            # The runner goes on to its tools when this returns.
            storing.exception(CALL_LIMIT_S)

    async def wait_for(self, event: Any) -> None:
        """Returns when this event is stored."""
        storing = self._on_the_way.pop(id(event), None)
        if storing is not None:
            await asyncio.shield(asyncio.wrap_future(storing))

    async def begin(self) -> Session:
        """The session of this run, in which its turn is running now."""
        while self.session is None:
            session = await asyncio.to_thread(self._store.session, self._key)
            try:
                turn = await asynchronous(session).turn(format=FORMAT)
            except SessionEnded:
                # Begun anew while this run waited: it begins there, too.
                continue
            self._turn, self.session = Turn(turn._work), session
        return self.session

    def _begun(self) -> Turn:
        if self._turn is None:
            # A run that is taken up again does not read the history.
            self.session = self._store.session(self._key)
            self._turn = self.session.turn(format=FORMAT)
        return self._turn

    def _store_event(self, event: Any) -> None:
        if self._push is None:
            self._push = self._begun().stream(FORMAT)
        self._push.push(event)
        if event.type in _ENDS:
            push, self._push = self._push, None
            push.close()
            output = plain(event.response.output)
            self._stored += output if isinstance(output, list) else []

    async def add(self, items: Sequence[Item]) -> None:
        """Stores a batch of the runner's, but for what its stream has brought."""
        await self.begin()
        await self._done(self._add, list(items))

    def _add(self, items: list[Item]) -> None:
        new = [item for item in items if not self._is_stored(item)]
        if self._event_id is not None and new:
            self._accept(new.pop(0))
        self._begun().add_all(new, FORMAT)

    def _is_stored(self, item: Item) -> bool:
        for place, stored in enumerate(self._stored):
            if same(stored, item):
                del self._stored[place]
                return True
        return False

    def _accept(self, item: Item) -> None:
        """Stores the first item of the run under the caller's name for the request."""
        event_id, self._event_id = self._event_id, None
        turn = self._begun()
        assert self.session is not None
        receipt = self._store.accept(self._key, item, format=FORMAT, event_id=event_id)
        waiting = [message.id for message in self.session.pending()]
        if receipt.message_id not in waiting:
            raise AlreadyAccepted(
                event_id=str(event_id),
                message_id=receipt.message_id,
                session_id=receipt.session_id,
                turn_id=None,
                standing="its answer is in the session",
            )
        turn.inbox(take=[receipt])

    async def wait_for_approval(self, calls: Sequence[tuple[str, str, Any]]) -> None:
        """Has calls wait for approval: each an id, a name and arguments."""
        for call_id, name, arguments in calls:
            await self._done(self._ask, call_id, name, arguments)

    def _ask(self, call_id: str, name: str, arguments: Any) -> None:
        self._begun().call(name, arguments, call_id=call_id, needs_approval=True)

    async def leave(self, error: BaseException | None) -> None:
        """Ends the turn as leaving its block would."""
        try:
            await self._done(self._leave, error)
        finally:
            self._thread.shutdown(wait=False)

    def _leave(self, error: BaseException | None) -> None:
        if self._turn is not None:
            run(self._turn._work.leave_block(error))

    async def _done(self, work: Callable[..., T], *arguments: Any) -> T:
        """What this comes to on the run's thread. A cancelled caller does not undo it."""
        doing = self._thread.submit(work, *arguments)
        return await asyncio.shield(asyncio.wrap_future(doing))


def _makes_calls(event: Any) -> bool:
    output = plain(event.response.output)
    return isinstance(output, list) and any(is_call(item) for item in output)
