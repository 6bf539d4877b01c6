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
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import islice

from starlette.responses import Response

from holdfast.engine.protocol import NewRows
from holdfast.errors import HoldfastError, TurnInterrupted
from holdfast.runtime.aio import AsyncSession
from holdfast.runtime.clock import World
from holdfast.runtime.plans.plan import read
from holdfast.runtime.plans.plan_asyncio import arun, on_this_loop
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
OVERTAKEN_MAX = 256
"""So many turns that others have ended are kept, for what their clients finish late."""
GONE = "its client's lease ran out"


class Answers:
    """What was answered to requests with an `Idempotency-Key`; the last so many. An error is no
    answer, and what it came of is done again, unless it is one of the `final` ones.
    """

    def __init__(self, *final: type[Exception]) -> None:
        self._final = final
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
        self._forget_some()
        # Shielded: whoever asks again while this is being done gets what it comes to.
        return await asyncio.shield(task)

    def _forget_some(self) -> None:
        # What is still being done stays, even if there is too much of it: sent again, it
        # would be done a second time.
        over = (key for key, (_, task) in self._given.items() if task.done())
        for key in list(islice(over, max(0, len(self._given) - ANSWERS_MAX))):
            del self._given[key]

    def forget(self, key: str | None) -> None:
        """What was answered to this key holds no more: it is done anew."""
        if key is not None:
            self._given.pop(key, None)

    def _drop_failed(self, key: str, task: asyncio.Task[Response]) -> None:
        # Looked at here, so that nobody complains of an error that nobody has seen.
        error = None if task.cancelled() else task.exception()
        failed = task.cancelled() or error is not None
        if isinstance(error, self._final):
            return
        if failed and self._given.get(key, (b"", None))[1] is task:
            del self._given[key]


def _again(given: Response) -> Response:
    headers = {**given.headers, REPLAYED: "true"}
    return Response(given.body, given.status_code, headers)


async def _answered(work: Callable[[], Awaitable[Response]]) -> Response:
    return await work()


class LeasedStream:
    """A message that a client pushes in batches."""

    def __init__(self, stream: AsyncPushStream) -> None:
        self.stream = stream
        self.closed = False
        self.lock = asyncio.Lock()
        self._texts: list[str] = []

    @property
    def taken(self) -> int:
        """How many chunks of it were stored."""
        return len(self._texts)

    def note(self, texts: list[str]) -> None:
        """More chunks were stored; this is what each of them says."""
        self._texts += texts

    def text_from(self, index: int, end: int) -> str:
        """The text of the chunks from this number up to that one, for a client that did not get the
        answer. By chunk: which of them went into one commit, a client can't know.
        """
        return "".join(self._texts[index:end])


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
        # That the turn is over stays so. What was stored late has the same answer: sent again, it
        # would be stored a second time.
        self.answers = Answers(TurnInterrupted)
        self.is_ending = False
        """Whether its own client has asked for its end."""
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


async def ended_elsewhere(held: LeasedTurn) -> None:
    """Returns when somebody else has ended the turn: who stops it, takes it over or resets its
    session does so in the store, and its own process notices when it renews the lease.
    """
    work = held.work
    engine, id = work.session.engine, work.session.id
    news = asyncio.Event()
    wake = on_this_loop(news.set)

    def heard(rows: NewRows) -> None:
        # Rows are words of a turn that goes on.
        if rows is None:
            wake()

    def is_over() -> bool:
        state = engine.state(id)
        return state is None or state.turn is None or state.fence != work.number

    stop = engine.watch_rows(id, heard)
    try:
        while not work.ended:
            # While the store can't say, the turn is believed to run.
            with suppress(HoldfastError):
                if await arun(read(is_over)):
                    break
            await news.wait()
            news.clear()
    finally:
        stop()
    work.close()


class LeasedTurns:
    """All turns that this process holds, by tenant and id."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._turns: dict[tuple[str, str], LeasedTurn] = {}
        self._overtaken: OrderedDict[tuple[str, str], LeasedTurn] = OrderedDict()
        self._starts: dict[str, Answers] = {}
        self._news = asyncio.Event()
        self._abandoning: dict[tuple[str, str], asyncio.Event] = {}
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
            # The log tells how.
            self._over(held)
            return None
        return held

    def overtaken(self, tenant: str, turn_id: str) -> LeasedTurn | None:
        """A turn of this process's that others have ended: what its client has finished is stored
        under it all the same (I-7).
        """
        self.get(tenant, turn_id)  # whether it is over is looked at here, too
        return self._overtaken.get((tenant, turn_id))

    def _over(self, held: LeasedTurn) -> None:
        """The turn is over: its client has ended it, or it was stopped or taken over."""
        if held.is_ending:
            self.let_go(held)
        else:
            self.set_aside(held)

    def set_aside(self, held: LeasedTurn) -> None:
        """Others have ended the turn. Its client does not know it yet, or has more of it to store."""
        self._overtaken[held.session.tenant, held.id] = held
        while len(self._overtaken) > OVERTAKEN_MAX:
            self._overtaken.popitem(last=False)
        self.let_go(held)

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
                    self._over(held)
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
        name = (held.session.tenant, held.id)
        self._turns.pop(name, None)
        self.abandoned += 1
        self.starts(held.session.tenant).forget(held.start_key)
        over = self._abandoning[name] = asyncio.Event()
        try:
            # Else somebody has ended it, or the store can't be used now: then the turn is dropped with
            # this object, and settled by the keeper of its store's leases or by the next one who looks.
            with suppress(HoldfastError):
                work = held.work
                await arun(abandon(work.session, work.number, GONE))
            held.work.close()
        finally:
            del self._abandoning[name]
            over.set()
        # Last: whoever pushes in it is told how it ended.
        held.over.set()

    async def settled(self, tenant: str, turn_id: str) -> None:
        """Returns when this turn is not being settled: meanwhile nobody holds it, and it runs."""
        over = self._abandoning.get((tenant, turn_id))
        if over is not None:
            await over.wait()
