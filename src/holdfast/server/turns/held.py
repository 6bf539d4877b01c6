"""Turns that are held for HTTP clients: each is an object of this process, found by its id.

The process renews the store's lease for as long as it lives; the client renews its own lease here,
by any request that names the turn. A client that is gone lets it run out, and then its turn is
settled as one whose process died: what was delivered is kept as a partial message, and messages
that it had not used wait in the inbox again (I-4, I-6). If this process dies, the next one who
looks does the same.

    answers     what requests with an `Idempotency-Key` were answered: one that comes again is given
                the same. They live as long as their turn, which is as long as they can be wanted.
"""

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.clock import World
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turn_async import AsyncTurn
from holdfast.runtime.turns.recovery import abandon
from holdfast.runtime.turns.running_turn import RunningTurn
from holdfast.runtime.turns.streams.push_stream_async import AsyncPushStream
from holdfast.server.operations import REPLAYED
from holdfast.server.problems import SenderGone
from holdfast.server.turns.asked_again import reused

LOOK_S = 1.0
"""How often leases are looked at, at the least."""
ANSWERS_MAX = 4096
GONE = "its client's lease ran out"


class Answers:
    """What was answered to requests with an `Idempotency-Key`; the last so many."""

    def __init__(self) -> None:
        self._given: OrderedDict[str, tuple[bytes, asyncio.Task[Response]]] = (
            OrderedDict()
        )

    async def once(
        self, key: str | None, said: bytes, work: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Does this work, or gives the answer that it was given before. `said` is what the request
        says: another request with the same key is refused. One that failed is done again.
        """
        if key is None:
            return await work()
        while (known := self._given.get(key)) is not None:
            if known[0] != said:
                raise reused(key)
            # Whoever asked first has gone, and what it waited for was given up: then it is done
            # for this one.
            with suppress(SenderGone):
                return _again(await asyncio.shield(known[1]))
        task = asyncio.ensure_future(_answered(work))
        self._given[key] = (said, task)
        task.add_done_callback(lambda done: self._drop_failed(key, done))
        while len(self._given) > ANSWERS_MAX:
            self._given.popitem(last=False)
        # Shielded: whoever asks again while this is being done gets what it comes to.
        return await asyncio.shield(task)

    def forget(self, key: str | None) -> None:
        """What was answered to this key holds no more: it is done anew."""
        if key is not None:
            self._given.pop(key, None)

    def _drop_failed(self, key: str, task: asyncio.Task[Response]) -> None:
        # Looked at here, so that nobody complains of an error that nobody has seen.
        failed = task.cancelled() or task.exception() is not None
        if failed and self._given.get(key, (b"", None))[1] is task:
            del self._given[key]


def _again(given: Response) -> Response:
    headers = {**given.headers, REPLAYED: "true"}
    return Response(given.body, given.status_code, headers)


async def _answered(work: Callable[[], Awaitable[Response]]) -> Response:
    return await work()


class LeasedStream:
    """A message that a client pushes in batches. `taken` is how many chunks of it were stored."""

    def __init__(self, stream: AsyncPushStream) -> None:
        self.stream = stream
        self.taken = 0
        self.closed = False
        self.lock = asyncio.Lock()
        self._starts: list[int] = []
        self._texts: list[str] = []

    def note(self, count: int, text: str) -> None:
        """So many more chunks were stored, in one commit; this is their text."""
        self._starts.append(self.taken)
        self._texts.append(text)
        self.taken += count

    def text_from(self, index: int, end: int) -> str:
        """The text of the chunks from this number up to that one, as it was answered: for a client
        that did not get the answer. Nothing of a commit that began before, or goes on after.
        """
        first = bisect_left(self._starts, index)
        ends = [*self._starts[first + 1 :], self.taken]
        texts = zip(ends, self._texts[first:], strict=False)
        return "".join(text for last, text in texts if last <= end)


class LeasedTurn:
    """A turn, and how long its client is believed to be there: while a request is in the `with`
    block, and for its lease after that.
    """

    def __init__(
        self, turn: AsyncTurn, session: AsyncSession, *, lease_s: float, world: World
    ) -> None:
        self.turn, self.session = turn, session
        self.lease_s = lease_s
        self.start_key: str | None = None
        """The `Idempotency-Key` that it was started with."""
        self.answers = Answers()
        self.over = asyncio.Event()
        """Set when it is no longer held."""
        self.streams: dict[str, LeasedStream] = {}
        self._world = world
        self._due = world.tick() + lease_s
        self._asking = 0

    @property
    def id(self) -> str:
        return self.turn.id

    @property
    def work(self) -> RunningTurn:
        """The turn as the plans know it."""
        return self.turn._work

    @property
    def left_s(self) -> float:
        """How long its lease runs yet; while a request is being answered, all of it."""
        if self._asking:
            return self.lease_s
        return max(0.0, self._due - self._world.tick())

    def __enter__(self) -> "LeasedTurn":
        """A request names it: its client is there."""
        # The turn is this request's for as long as it lasts: what waits for a running turn of
        # others does not wait for its own. A request of many lines has it already.
        if not self.work.hold.is_here():
            self.work.hold.take()
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def begin(self) -> None:
        """Something that its client has asked for is being done."""
        self._asking += 1

    def finish(self) -> None:
        """It is done."""
        self._asking -= 1
        self.renew()

    def renew(self, lease_s: float | None = None) -> None:
        """Its lease begins anew, and lasts so long from now on."""
        if lease_s is not None:
            self.lease_s = self.work.lease_s = lease_s
        self._due = self._world.tick() + self.lease_s


class LeasedTurns:
    """All turns that this process holds, by tenant and id."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._turns: dict[tuple[str, str], LeasedTurn] = {}
        self._starts: dict[str, Answers] = {}
        self._news = asyncio.Event()
        self.abandoned = 0
        """How many turns were settled because their clients were gone."""

    def __len__(self) -> int:
        return len(self._turns)

    def starts(self, tenant: str) -> Answers:
        """What this tenant's starts with an `Idempotency-Key` were answered."""
        return self._starts.setdefault(tenant, Answers())

    def hold(
        self, turn: AsyncTurn, session: AsyncSession, *, lease_s: float
    ) -> LeasedTurn:
        """Holds a turn that has just been started."""
        held = LeasedTurn(turn, session, lease_s=lease_s, world=self._world)
        self._turns[session.tenant, held.id] = held
        self._news.set()
        return held

    def get(self, tenant: str, turn_id: str) -> LeasedTurn | None:
        """The turn, if this process holds it for this tenant."""
        held = self._turns.get((tenant, turn_id))
        if held is not None and held.work.ended:
            # Stopped from outside, or taken over: the log tells how.
            self.let_go(held)
            return None
        return held

    def let_go(self, held: LeasedTurn) -> None:
        """The turn is over, or not ours any more."""
        self._turns.pop((held.session.tenant, held.id), None)
        held.over.set()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Settles the turns of clients that are gone, while the block lasts."""
        watching = asyncio.ensure_future(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch(self) -> None:
        while True:
            for held in list(self._turns.values()):
                if held.work.ended:
                    self.let_go(held)
                elif held.left_s <= 0:
                    await self.abandon(held)
            soonest = min(
                (held.left_s for held in self._turns.values()), default=LOOK_S
            )
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(soonest, 0.01), LOOK_S)):
                    await self._news.wait()

    async def abandon(self, held: LeasedTurn) -> None:
        """Settles the turn of a client that is gone. If it comes back and asks for the turn again,
        it gets another, with its message if that was not used.
        """
        self._turns.pop((held.session.tenant, held.id), None)
        self.abandoned += 1
        self.starts(held.session.tenant).forget(held.start_key)
        # Else somebody has ended it, or the store can't be used now: then the turn is dropped with
        # this object, and settled by the keeper of its store's leases or by the next one who looks.
        with suppress(HoldfastError):
            work = held.work
            await arun(abandon(work.session, work.number, GONE))
        held.work.close()
        # Last: whoever pushes in it is told how it ended.
        held.over.set()
