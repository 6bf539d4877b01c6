"""One streamed run of the SDK in a turn of Holdfast.

The turn begins when the runner reads the history, so what it reads is what its turn follows on; it
waits for the turn of another process. The runner runs ahead of whoever reads its events, so they
are stored where it puts them, in their order, by a thread of the run: a reader is handed each one
after that. A call of a tool is stored before the runner goes on to run it (I-22); one that can't be
stored ends the run. The runner stores the items of a response by itself when it has run their
tools; those are known by then.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from holdfast.adapters.framework import asynchronous
from holdfast.adapters.openai_agents.items import FORMAT, Item, is_call, same
from holdfast.errors import AlreadyAccepted, SessionEnded, StoreUnavailable
from holdfast.formats.sdk_objects import plain
from holdfast.runtime.plans.plan import run
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store
from holdfast.runtime.turn import Turn
from holdfast.runtime.turns.streams.push_stream import PushStream

T = TypeVar("T")

CALL_LIMIT_S = 30.0
"""How long the runner waits for a call to be stored. One that takes longer is not run."""

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class ReadRun:
    """A run that nobody streams: the session that it has read, and what the runner has given since."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.given: list[Item] = []


class StreamedRun:
    """A run whose stream is read through `HoldfastSession.stream`. One that had `read` its history when it
    was asked for goes on in that session.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        event_id: str | int | None,
        read: ReadRun | None = None,
    ) -> None:
        self._store, self._key = store, key
        self._event_id = event_id
        self._given = [] if read is None else read.given
        self.session: Session | None = None if read is None else read.session
        self._turn: Turn | None = None
        self._push: PushStream | None = None
        self._stored: list[Item] = []
        self._on_the_way: dict[int, Future[None]] = {}
        self._failure: BaseException | None = None
        self._ending: Future[None] | None = None
        # One thread: what is stored keeps the order in which it came.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-run")

    def listen(self, queue: Any) -> None:
        """Has each event stored when the runner puts it into its queue."""
        # The queue is the one place that every event passes in its order: the runner's
        # task puts them there, and whoever reads the run takes them out, perhaps much
        # later.
        put = queue.put_nowait
        for event in self._missed(_waiting(queue)):
            self._take(event)

        def stored_first(event: Any) -> None:
            storing = self._take(event)
            if storing is not None and _makes_calls(event.data):
                # The runner goes on to its tools when this returns, and ends when it
                # raises.
                self._wait_for_call(storing)
            put(event)

        queue.put_nowait = stored_first

    def _missed(self, waiting: list[Any]) -> list[Any]:
        """Those of the events that came before anybody listened, but for the responses that the runner
        has stored itself by now.
        """
        missed: list[Any] = []
        response: list[Any] = []
        for event in waiting:
            if getattr(event, "type", None) != "raw_response_event":
                continue
            response.append(event)
            if event.data.type in _ENDS:
                output = _output(event.data)
                if not [item for item in output if _taken(item, self._given)]:
                    missed += response
                response = []
        return missed + response

    def _take(self, event: Any) -> Future[None] | None:
        if getattr(event, "type", None) != "raw_response_event":
            return None
        storing = self._thread.submit(self._store_event, event.data)
        self._on_the_way[id(event)] = storing
        return storing

    def _wait_for_call(self, storing: Future[None]) -> None:
        done, _ = wait([storing], CALL_LIMIT_S)
        if not done:
            raise StoreUnavailable(
                where=self._store._work.engine.where,
                problem=f"a call of a tool was not stored in {CALL_LIMIT_S:g} seconds",
                remedy="The tool was not run",
            )
        storing.result()

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
            # A run that is taken up again does not read the history, and one that was
            # listened to late has read it.
            if self.session is None:
                self.session = self._store.session(self._key)
            self._turn = self.session.turn(format=FORMAT)
        return self._turn

    def _store_event(self, event: Any) -> None:
        # Nothing is stored behind a gap, and whoever comes later is told why there is
        # one.
        if self._failure is not None:
            raise self._failure
        try:
            self._push_event(event)
        except BaseException as failure:
            self._failure = failure
            raise

    def _push_event(self, event: Any) -> None:
        if self._push is None:
            self._push = self._begun().stream(FORMAT)
        self._push.push(event)
        if event.type in _ENDS:
            push, self._push = self._push, None
            push.close()
            self._stored += _output(event)

    async def add(self, items: Sequence[Item]) -> None:
        """Stores a batch of the runner's, but for what its stream has brought."""
        await self.begin()
        await self._done(self._add, list(items))

    def _add(self, items: list[Item]) -> None:
        # The runner brings all items of a step when its tools have run; those of the
        # response were stored as they were streamed.
        new = [item for item in items if not _taken(item, self._stored)]
        if self._event_id is not None and new:
            self._accept(new.pop(0))
        self._begun().add_all(new, FORMAT)

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

    async def end(
        self, calls: Sequence[tuple[str, str, Any]], error: BaseException | None
    ) -> None:
        """Has calls wait for approval, each an id, a name and arguments, and ends the turn as leaving
        its block would.
        """
        ending = self.ended(calls, error)
        await asyncio.shield(asyncio.wrap_future(ending))

    def ended(
        self, calls: Sequence[tuple[str, str, Any]], error: BaseException | None
    ) -> Future[None]:
        """As `end`, and waits for nothing. A run ends once."""
        if self._ending is None:
            self._ending = self._thread.submit(self._end, calls, error)
            # Not waited for: what the thread was given, it does all the same.
            self._thread.shutdown(wait=False)
        return self._ending

    def _end(
        self, calls: Sequence[tuple[str, str, Any]], error: BaseException | None
    ) -> None:
        try:
            for call_id, name, arguments in calls:
                named = (name, arguments, call_id)
                self._begun().call(*named, needs_approval=True)
        except BaseException as failure:
            self._leave(failure)
            raise
        # What was not stored is told by the turn's end, too.
        self._leave(error or self._failure)

    def _leave(self, error: BaseException | None) -> None:
        if self._turn is not None:
            run(self._turn._work.leave_block(error))

    async def _done(self, work: Callable[..., T], *arguments: Any) -> T:
        """What this comes to on the run's thread. A cancelled caller does not undo it."""
        doing = self._thread.submit(work, *arguments)
        return await asyncio.shield(asyncio.wrap_future(doing))


def _makes_calls(event: Any) -> bool:
    return event.type in _ENDS and any(is_call(item) for item in _output(event))


def _output(event: Any) -> list[Item]:
    """The items of a response that has ended."""
    output = plain(event.response.output)
    return output if isinstance(output, list) else []


def _taken(item: Item, known: list[Item]) -> bool:
    """Whether an item is known. It is known no more then, for it comes once."""
    for place, one in enumerate(known):
        if same(one, item):
            del known[place]
            return True
    return False


def _waiting(queue: Any) -> list[Any]:
    """What is in a queue, which keeps it."""
    waiting = []
    while not queue.empty():
        waiting.append(queue.get_nowait())
        queue.task_done()
    for event in waiting:
        queue.put_nowait(event)
    return waiting
