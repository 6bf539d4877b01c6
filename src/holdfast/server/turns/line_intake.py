"""Batches of chunks, and the lines of a request that is held open: each is a batch.

    hear ──► lines that wait ──► one commit ──► tell ──► the next, with all that has come meanwhile

A piece of a request is heard where it comes in, and what follows from it is done in callbacks: no
task is woken for a line. What is rare (a line that closes the message, or is refused; somebody else
who pushes into the same message) is done by a task.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import msgspec

from holdfast.errors import BadArgument, InvalidMessage
from holdfast.server.limits import BodyLimit
from holdfast.server.operations import Body, read_body
from holdfast.server.problems import WireProblem
from holdfast.server.serving.straight_body import StraightBody
from holdfast.server.turns.held import LeasedStream, LeasedTurn

WAITING_BYTES_MAX = 64 << 10
"""A client is read no further while so much of what it has said is not stored."""
PACE_MAX_S, PACE_A_LINE_S = 0.008, 0.0005


class PushBody(Body):
    index: int
    chunks: list[Any] = []
    close: bool = False


class Pushed(msgspec.Struct, frozen=True):
    """The text of these chunks, to be shown: it is durable. `index` is that of the chunk after them,
    from which their client goes on.
    """

    text: str
    index: int


async def stored(stream: LeasedStream, batches: list[PushBody]) -> Pushed:
    """Stores these batches, one after the other, in one commit."""
    async with stream.lock:
        new = fitting(stream, batches)
        if new:
            await stream.stream._push_all(new)
            _note(stream)
        if batches[-1].close and not stream.closed:
            await _close(stream)
        return _told(stream, batches)


def _note(stream: LeasedStream) -> None:
    texts = stream.stream._texts
    if not texts:
        raise _cut_off(stream)
    stream.note(texts)


async def _close(stream: LeasedStream) -> None:
    await stream.stream.close()
    if stream.stream._open.was_cut_off:
        raise _cut_off(stream)
    stream.closed = True


def _cut_off(stream: LeasedStream) -> WireProblem:
    id = stream.stream.message_id
    detail = f"Message `{id}` was cut off before it was closed."
    return WireProblem("conflict", detail, index=stream.taken)


def _told(stream: LeasedStream, batches: list[PushBody]) -> Pushed:
    """What the client of these batches is told, which are stored."""
    texts, ends = [], []
    for batch in batches:
        end = batch.index + len(batch.chunks)
        texts.append(stream.text_from(batch.index, end))
        ends.append(end)
    # Not the number of those that are stored: of batches that come again, the client may not have
    # been told the words of later ones, and would go on behind them.
    return Pushed("".join(texts), max(ends))


def fitting(stream: LeasedStream, batches: list[PushBody]) -> list[Any]:
    """What is new in these batches; refused where a chunk is missing before one of them."""
    new: list[Any] = []
    for batch in batches:
        known = stream.taken + len(new)
        if not 0 <= batch.index <= known:
            id = stream.stream.message_id
            detail = f"The next chunk of message `{id}` is number {stream.taken}."
            raise WireProblem("conflict", detail, index=stream.taken)
        new += batch.chunks[known - batch.index :]
    return new


class LineIntake:
    """Stores lines in their order, each once what comes before it is stored. `tell` is called with
    what was stored.
    """

    def __init__(
        self,
        held: LeasedTurn,
        stream: LeasedStream,
        body: StraightBody,
        limit: BodyLimit,
        tell: Callable[[Pushed], None],
    ) -> None:
        self._held, self._stream = held, stream
        self._body, self._limit, self._tell = body, limit, tell
        self.problem: Exception | None = None
        """Why nothing more is taken."""
        self._refused, self._quiet = asyncio.Event(), asyncio.Event()
        self._quiet.set()
        self._rest = b""
        self._lines: list[bytes] = []
        self._bytes = 0
        self._groups: deque[list[PushBody]] = deque()
        self._unread: Exception | None = None
        self._too_long: Exception | None = None
        self._is_storing = self._is_stopped = False
        self._apart: asyncio.Future[None] | None = None
        # What is heard comes on the connection: it is done as part of the request.
        self._context = copy_context()

    def hear(self, data: bytes) -> None:
        """Some more of the request."""
        if self._is_stopped:
            return
        if b"\n" not in data:
            self._rest += data
        else:
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines += self._short_enough(lines)
            self._bytes += len(data)
        self._short_enough([self._rest])
        if self._bytes > WAITING_BYTES_MAX:
            self._body.pause()
        if not self._is_storing and (self._lines or self._too_long is not None):
            self._is_storing = True
            self._quiet.clear()
            self._held.begin()
            _heard_together(asyncio.get_running_loop()).add(self._begin)

    def _short_enough(self, lines: list[bytes]) -> list[bytes]:
        """These lines, up to the first that is too long: that one is refused."""
        for number, line in enumerate(lines):
            try:
                self._limit.line(len(line))
            except WireProblem as error:
                self._too_long = error
                return lines[:number]
        return lines

    async def take(self, data: bytes) -> None:
        """The same for a request whose connection is not at hand; waits until it is stored."""
        self.hear(data)
        await self.rest()

    async def end(self) -> None:
        """The request has ended: what is left of it is a line, too."""
        self.hear(b"\n")
        await self.rest()
        if self.problem is not None:
            raise self.problem

    async def rest(self) -> None:
        """Returns when nothing is being stored."""
        await self._quiet.wait()

    async def refused(self) -> None:
        """Returns when a line was refused."""
        await self._refused.wait()

    def stop(self) -> None:
        """Nothing more is taken; what is being stored is told."""
        self._is_stopped = True
        self._lines.clear()
        self._groups.clear()

    def _begin(self) -> None:
        """Stores what waits."""
        # A copy: it may have come here from there, and a context is entered once.
        self._context.copy().run(self._go_on)

    def _go_on(self) -> None:
        """The next commit, or the end of it."""
        while not self._groups and self._unread is None and self._lines:
            lines, self._lines, self._bytes = self._lines, [], 0
            self._body.resume()
            batches, self._unread = _batches(lines)
            self._groups.extend(_until_closed(batches))
        if self._groups:
            self._store(self._groups.popleft())
            return
        # What was said before it is stored.
        problem = self._unread or self._too_long
        if problem is not None:
            self._refuse(problem)
        self._come_to_rest()

    def _come_to_rest(self) -> None:
        self._is_storing = False
        self._held.finish()
        self._quiet.set()

    def _store(self, batches: list[PushBody]) -> None:
        stream = self._stream
        if batches[-1].close or not _is_locked_now(stream.lock):
            self._apart = asyncio.ensure_future(self._store_apart(batches))
            return
        try:
            new = fitting(stream, batches)
            if not new:
                stream.lock.release()
                self._told(_told(stream, batches))
                return
            stream.stream._push_then(
                new, lambda _: self._stored(batches), self._failed(batches)
            )
        except Exception as error:
            self._failed(batches)(error)

    def _stored(self, batches: list[PushBody]) -> None:
        stream = self._stream
        try:
            _note(stream)
        except WireProblem as error:
            self._failed(batches)(error)
            return
        stream.lock.release()
        self._told(_told(stream, batches))

    def _failed(self, batches: list[PushBody]) -> Callable[[BaseException], None]:
        def failed(error: BaseException) -> None:
            self._stream.lock.release()
            self._apart = asyncio.ensure_future(self._store_apart(batches, error))

        return failed

    def _told(self, pushed: Pushed) -> None:
        try:
            self._tell(pushed)
        finally:
            # Whatever becomes of the answer: the turn is held until this has come to its end.
            if self._lines or self._groups or self._unread or self._too_long:
                self._begin()
            else:
                self._come_to_rest()

    async def _store_apart(
        self, batches: list[PushBody], failed: BaseException | None = None
    ) -> None:
        """The same by a task; `failed`, where it was tried."""
        try:
            try:
                if failed is not None:
                    raise failed
                self._tell(await stored(self._stream, batches))
            except (InvalidMessage, WireProblem):
                # Those before the one that can't be stored are stored.
                for batch in batches:
                    self._tell(await stored(self._stream, [batch]))
        except Exception as error:
            self._refuse(error)
        finally:
            self._go_on()

    def _refuse(self, error: Exception) -> None:
        if self.problem is None:
            self.problem = error
        self._unread = self._too_long = None
        self.stop()
        self._refused.set()


class _HeardTogether:
    """What is begun together, once all who have said something at one moment are heard: the writer
    takes it as one batch. The more there are at once, the longer others are waited for: a commit
    costs as much as storing a good many lines, and whoever is heard alone waits for nobody.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next: list[Callable[[], None]] = []
        self._due = 0.0

    def add(self, begin: Callable[[], None]) -> None:
        if not self._next:
            # In the past, most often: then it is the next thing that is done.
            self._loop.call_at(self._due, self._begin)
        self._next.append(begin)

    def _begin(self) -> None:
        heard, self._next = self._next, []
        self._due = self._loop.time() + min(PACE_MAX_S, len(heard) * PACE_A_LINE_S)
        for begin in heard:
            begin()


def _heard_together(loop: asyncio.AbstractEventLoop) -> _HeardTogether:
    # Kept by the loop itself: it is gone when the loop is.
    found: _HeardTogether | None = getattr(loop, "_holdfast_lines", None)
    if found is None:
        found = _HeardTogether(loop)
        loop._holdfast_lines = found  # type: ignore[attr-defined]
    return found


def _is_locked_now(lock: asyncio.Lock) -> bool:
    """Whether this lock was free, and is the caller's now."""
    if lock.locked():
        return False
    taking = lock.acquire()
    try:
        taking.send(None)
    except StopIteration:
        return True
    taking.close()  # somebody else is woken for it already
    return False


def _batches(lines: list[bytes]) -> tuple[list[PushBody], Exception | None]:
    """The batches in these lines, up to the first that can't be read, and why it can't."""
    found: list[PushBody] = []
    for line in lines:
        # One with nothing in it says that somebody is there.
        if not line.strip():
            continue
        try:
            batch: Any = read_body(line, PushBody)
            found.append(batch)
        except (BadArgument, WireProblem) as error:
            return found, error
    return found, None


def _until_closed(batches: list[PushBody]) -> list[list[PushBody]]:
    """The batches that are stored together: none follows one that closes the message."""
    found: list[list[PushBody]] = []
    for batch in batches:
        if found and not found[-1][-1].close:
            found[-1].append(batch)
        else:
            found.append([batch])
    return found
