"""The same store for asyncio: the same names, awaited.

These faces hold no logic: each call builds the plan that the sync face would, freezing what it was
given before anything waits, and drives it on the event loop.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Generator, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.domain.arguments import Durability, OnBusy, State
from holdfast.domain.entry import Entry
from holdfast.domain.reset_policy import Policy
from holdfast.domain.turn import ToolCall
from holdfast.engine.address import shown
from holdfast.engine.late_import import loading
from holdfast.engine.store_info import Backup, Problem, StoreInfo
from holdfast.runtime.border import bordered, checked
from holdfast.runtime.catalog import maintenance, read_session
from holdfast.runtime.catalog.follow_session import following, next_events
from holdfast.runtime.catalog.list_sessions import Listed, sessions
from holdfast.runtime.catalog.page import Page
from holdfast.runtime.catalog.pending import PendingMessage, pending
from holdfast.runtime.catalog.search import Hit, search
from holdfast.runtime.changes.append import append, append_all, instructions, label
from holdfast.runtime.changes.approve import decide
from holdfast.runtime.changes.end_session import end, stop
from holdfast.runtime.changes.erase import Erasure, erase, retain
from holdfast.runtime.changes.fork_rewind import fork, rewind
from holdfast.runtime.changes.open_session import (
    find_session,
    open_session,
    reset_key,
)
from holdfast.runtime.changes.receive import accept, start_turn
from holdfast.runtime.clock import World
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.follow import Event
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.live.totals import SessionInfo, TurnInfo
from holdfast.runtime.live.transcript import TELLING, Transcript
from holdfast.runtime.open_store import OpenStore, open_at
from holdfast.runtime.plans.deadline import deadline_for
from holdfast.runtime.plans.plan import News
from holdfast.runtime.plans.plan_asyncio import (
    arun,
    insist_on_asyncio,
    obtained,
    shielded,
)
from holdfast.runtime.turn_async import StartingTurn
from holdfast.runtime.turns.outbox import Owed, Receipt, outbox
from holdfast.runtime.turns.start_turn import TurnRequest, start
from holdfast.runtime.turns.turn_owner import current_loop

if TYPE_CHECKING:
    from holdfast.domain.record.memory import Memory
    from holdfast.runtime.changes.compact import Compaction, Summary
    from holdfast.runtime.changes.record import Recorded
    from holdfast.runtime.tracing.tracing import Tracing


@bordered
class AsyncSession:
    """One conversation, for asyncio; see `Session`."""

    id: str
    key: str | None
    epoch: int
    tenant: str

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._memory: Memory | None = None
        self.id = log.id
        self.key = log.key
        self.epoch = log.epoch
        self.tenant = log.tenant

    def turn(
        self,
        message: Any = None,
        *,
        format: str = "openai.chat",
        event_id: str | int | None = None,
        on_busy: OnBusy = "wait",
        reply_to: str | int | None = None,
        lease_s: float = 30,
        take: Sequence[str | Message | Receipt] | None = None,
    ) -> StartingTurn:
        """Starts a turn: takes what waits in the inbox and then `message`, which is durable once
        this was awaited.
        """
        # Made now, not when it is awaited: the message is frozen here, and the caller
        # may change it before (I-3).
        wish = TurnRequest(
            self._log.world,
            message,
            format=format,
            event_id=event_id,
            on_busy=on_busy,
            reply_to=reply_to,
            lease_s=lease_s,
            take=take,
        )
        return StartingTurn(start(self._log, wish))

    def append(
        self,
        message: Any,
        *,
        format: str = "openai.chat",
        event_id: str | int | None = None,
    ) -> Awaitable[str]:
        """Stores one message outside a turn and returns its id. While a turn runs, one's own too,
        it stands after all of that turn in the context; `Turn.add` puts one into the turn.
        """
        return arun(append(self._log, message, format=format, event_id=event_id))

    def append_all(
        self, messages: Sequence[Any], *, format: str = "openai.chat"
    ) -> Awaitable[list[str]]:
        """Stores several messages outside a turn in one commit, all or none, and returns
        their ids.
        """
        return arun(append_all(self._log, messages, format=format))

    def record(
        self, messages: Sequence[Any], *, format: str = "openai.chat"
    ) -> "Awaitable[Recorded]":
        """For agents that keep their own list of messages: stores what is new in the list, and
        keeps its shape as the context. Recording a list again, merged, trimmed, reloaded or copied,
        loses nothing and doubles nothing.
        """
        # loaded by those who record: most programs don't
        with loading(self._log.engine.where):
            from holdfast.domain.record.memory import Memory
            from holdfast.runtime.changes.record import record

        self._memory = self._memory or Memory()
        return arun(record(self._log, self._memory, messages, format=format))

    def context(
        self, format: str = "openai.chat", *, prefill: bool = False
    ) -> Awaitable[Context]:
        """What the model sees, ready to send; valid for its format, whatever the log holds.

        While a turn runs it ends with something for the model to answer: after a message of the
        model's own, with one that says to continue. With `prefill` the model's own message stays
        the last, for providers that go on with it.
        """
        return arun(read_session.context(self._log, format, prefill=prefill))

    async def transcript(
        self, after: int = 0, limit: int | None = None
    ) -> AsyncIterator[Message]:
        """Iterates over all messages after seq `after`, in order, nothing left out."""
        transcript = Transcript(self._log)
        left = limit
        while left is None or left > 0:
            page, seq = await arun(read_session.messages(transcript, after, TELLING))
            # Not `if not page`: a page of entries may have no message among them, and
            # more may follow.
            if seq == after:
                return
            for message in page[:left]:
                yield message
            after = seq
            left = None if left is None else left - len(page)

    def head(self) -> Awaitable[int]:
        """The seq of the session's last entry."""
        return arun(read_session.head(self._log))

    async def entries(self, after: int = 0) -> AsyncIterator[Entry]:
        """Iterates over the entries of the log after seq `after`."""
        while page := await arun(read_session.entries(self._log, after)):
            for entry in page:
                yield entry
            after = page[-1].seq

    async def follow(self, after: str | None = None) -> AsyncIterator[Event]:
        """Iterates over events until the session is over: those of the log, then live ones as they
        happen, chunks included, each once. It begins at the first entry, or after the event whose
        cursor is given. What is noted of a session that is over, an erasure or the result of a call
        that came late, is told to whoever follows it again.
        """
        log = self._log
        follower = await arun(following(log, after))
        # From before the first look on: what is committed while a page is read is heard
        # of, too.
        with News(log.engine, log.id) as news:
            while events := await arun(next_events(log, follower, news)):
                for event in events:
                    yield event

    def pending(self) -> Awaitable[list[Message]]:
        """The messages in the inbox: accepted, and not yet taken into a turn. Those that callers of
        `turn` wait with are among them: only their own turns take them.
        """
        return arun(read_session.pending(self._log))

    def calls(self) -> Awaitable[list[ToolCall]]:
        """Every tool call of the session with its state: open, waiting, approved, rewound, denied,
        done, failed or unknown.
        """
        return arun(read_session.calls(self._log))

    def turns(
        self, after: int = 0, limit: int | None = None
    ) -> Awaitable[list[TurnInfo]]:
        """The turns with numbers above `after`: how each ended, and the tokens it spent."""
        return arun(read_session.turns(self._log, after, limit))

    def info(self) -> Awaitable[SessionInfo]:
        """The session at a glance: its state, counts, title and usage."""
        return arun(read_session.info(self._log))

    def instructions(self, text: str | None = None) -> Awaitable[str | None]:
        """Reads the system prompt or, given a text, sets a new version of it."""
        return arun(instructions(self._log, text))

    def label(self, message_id: str | int, **labels: Any) -> Awaitable[None]:
        """Puts labels on a message, values of JSON by name; `visible_to_model=False` takes it out
        of the context.
        """
        return arun(label(self._log, message_id, labels))

    def decide(
        self,
        call_id: str | int,
        approved: bool,
        *,
        by: str | int,
        message: str | None = None,
        index: int | None = None,
    ) -> Awaitable[None]:
        """Answers a call that waits for approval. An approval is for its exact arguments, and is
        used once. Where several calls with this id wait, `message` is the id of the message that
        makes the call, and `index` its place among the calls of that; `calls` gives both.
        """
        return arun(decide(self._log, call_id, approved, by, message, index))

    def compact(
        self, summary: "Summary", *, keep_turns: int = 4
    ) -> "Awaitable[Compaction | None]":
        """Puts a summary in the place of all but the last turns; a function that gives it may be a
        coroutine function. In one's own running turn, too; see `Session.compact`.
        """
        with loading(self._log.engine.where):
            from holdfast.runtime.changes.compact import compact

        return arun(compact(self._log, summary, keep_turns=keep_turns))

    def rewind(self, to_message: str) -> Awaitable[None]:
        """Lets the model's view end with this message from now on; the transcript keeps what came
        after, and rewinding to a later message brings it back.
        """
        return arun(rewind(self._log, to_message))

    async def fork(
        self, at: str | None = None, key: str | None = None
    ) -> "AsyncSession":
        """Makes a new session that shares the past of this one, up to message `at`, with the labels
        that it was accepted with, or all of it, without copying it.
        """
        return AsyncSession(await arun(fork(self._log, at=at, key=key)))

    def stop(self, reason: str = "user") -> Awaitable[bool]:
        """Ends the running turn as interrupted, whichever process it runs in; False when none was
        running.
        """
        return arun(stop(self._log, reason))

    def end(self, reason: str) -> Awaitable[None]:
        """Ends the session: what runs is interrupted, and no more turns can start. It can still be
        read, and the next `Store.session` of its key makes a new one. Ending it again changes
        nothing.
        """
        return arun(end(self._log, reason))

    def __repr__(self) -> str:
        return f"<AsyncSession {self.id[:8]} key={self.key!r} epoch={self.epoch}>"


@bordered
class AsyncOwed(Owed):
    """A reply that is stored and owed to somebody; see `Owed`."""

    def sent(  # type: ignore[override]
        self, platform_id: str | int | None = None
    ) -> Awaitable[None]:
        """Confirms that the reply has arrived: it is owed no more. Confirming it twice changes
        nothing.
        """
        return arun(self._work.sent(platform_id))

    def failed(self, reason: str) -> Awaitable[None]:  # type: ignore[override]
        """Records that a try did not go through: the reply stays owed, and another sender may claim
        it.
        """
        return arun(self._work.failed(reason))


@bordered
class AsyncStore:
    """All sessions of one tenant in one place, for asyncio; see `Store`."""

    tenant: str

    def __init__(self, work: OpenStore) -> None:
        self._work = work
        self.tenant = work.tenant
        self._loop: Any = None

    async def session(
        self, key: str, *, reset: Policy | None = None, create: bool = True
    ) -> AsyncSession:
        """The key's current session, made if there is none; a `reset` policy is applied in the same
        transaction.
        """
        return AsyncSession(
            await arun(open_session(self._work, key, reset=reset, create=create))
        )

    def turn(
        self,
        key: str,
        message: Any = None,
        *,
        reset: Policy | None = None,
        format: str = "openai.chat",
        event_id: str | int | None = None,
        on_busy: OnBusy = "wait",
        reply_to: str | int | None = None,
        lease_s: float = 30,
        take: Sequence[str | Message | Receipt] | None = None,
    ) -> StartingTurn:
        """Starts a turn in the key's current session, which is made if there is none and reset if
        that is due: what a gateway calls for each inbound message. All is one transaction;
        otherwise as `Session.turn`.
        """
        request = TurnRequest(
            self._work.world,
            message,
            format=format,
            event_id=event_id,
            on_busy=on_busy,
            reply_to=reply_to,
            lease_s=lease_s,
            take=take,
        )
        return StartingTurn(start_turn(self._work, key, request, reset=reset))

    def accept(
        self,
        key: str,
        message: Any,
        *,
        format: str = "openai.chat",
        event_id: str | int | None = None,
        reply_to: str | int | None = None,
        labels: dict[str, Any] | None = None,
    ) -> Awaitable[Receipt]:
        """Stores a message in the inbox of the key's current session, and nothing more: what a
        webhook calls before it answers. The next turn takes it. An `event_id` that came before
        gives the receipt of that time. `labels` are put on the message: what belongs to it and is
        not for the model.
        """
        return arun(
            accept(
                self._work,
                key,
                message,
                format=format,
                event_id=event_id,
                reply_to=reply_to,
                labels=labels,
            )
        )

    async def outbox(
        self, limit: int = 50, *, claim_s: float | None = None
    ) -> list[AsyncOwed]:
        """Replies to send, oldest first; with `claim_s`, each is given to one sender at a time."""
        works = await arun(outbox(self._work, limit=limit, claim_s=claim_s))
        return [AsyncOwed(work) for work in works]

    def pending(
        self, *, after: str | None = None, limit: int = 50
    ) -> Awaitable[Page[PendingMessage]]:
        """What waits in the inboxes of all sessions, oldest first; see `Store.pending`."""
        return arun(pending(self._work, after=after, limit=limit))

    def for_tenant(self, name: str) -> "AsyncStore":
        """The store of another tenant on the same engine; see `Store.for_tenant`. It may be awaited
        like everything here, though there is nothing to wait for.
        """
        return _Derived(self._work.for_tenant(name))

    async def get(self, session_id: str) -> AsyncSession:
        """A session by its id, or by an unambiguous beginning of it."""
        return AsyncSession(await arun(find_session(self._work, session_id)))

    async def reset(self, key: str, *, reason: str = "command") -> AsyncSession:
        """Ends the key's current session, what runs in it included, and gives the key a new one,
        whose epoch is one higher. What waits in the inbox goes on in the new session.
        """
        return AsyncSession(await arun(reset_key(self._work, key, reason=reason)))

    def sessions(
        self,
        *,
        key: str | None = None,
        state: State | None = None,
        text: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Awaitable[Page[Listed]]:
        """A page of sessions, newest activity first."""
        return arun(
            sessions(
                self._work, key=key, state=state, text=text, after=after, limit=limit
            )
        )

    def search(
        self,
        text: str,
        *,
        limit: int = 20,
        role: str | None = None,
        tool: str | None = None,
        state: str | None = None,
        key: str | None = None,
        session: str | None = None,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
    ) -> Awaitable[list[Hit]]:
        """Messages of all sessions that have all of these words, the last stored first; "words in
        quotes" next to each other; the last word, from two letters on, also as the beginning of
        one. Of a word 64 letters count. An empty text finds all messages, punctuation alone none.
        All that was said is looked through, calls and results too, also if it is hidden, retracted
        or waits; not summaries. What a fork shares with its parent is found there. `state` is that
        of the session ("open", "running", "ended") or of the message ("partial", or "complete",
        which all others are); `tool` is one that the message calls or answers for; `limit` is 1,000
        at most. Complete as of the call; in a PostgreSQL store that was opened read-only, as of the
        last time that a store open for writing has searched.
        """
        return arun(
            search(
                self._work,
                text,
                limit=limit,
                role=role,
                tool=tool,
                state=state,
                key=key,
                session=session,
                since=since,
                until=until,
            )
        )

    def erase(self, session_id: str, *, preview: bool = False) -> Awaitable[Erasure]:
        """Takes all words of a session out of the store; an audit entry stays."""
        return arun(erase(self._work, session_id, preview=preview))

    def retain(self, days: float, *, preview: bool = True) -> Awaitable[list[Erasure]]:
        """Erases the sessions that had no news for so many days, more than 0, and forgets the events that they
        accepted; with `preview` it only tells which ones. Called again, it goes on where it was
        interrupted.
        """
        return arun(retain(self._work, days, preview=preview))

    def info(self) -> Awaitable[StoreInfo]:
        """What is in this store and how large it is, all tenants together; cheap."""
        return arun(maintenance.info(self._work.engine))

    def check(self) -> Awaitable[list[Problem]]:
        """Looks for damage and broken promises in the whole store, and changes nothing."""
        return arun(maintenance.check(self._work.engine))

    def backup(self, to: str | os.PathLike[str]) -> Awaitable[Backup]:
        """Copies the whole store, as of one moment, to a new file while others write, and verifies
        the copy.
        """
        return arun(maintenance.backup(self._work.engine, to))

    async def close(self) -> None:
        """Ends the turns that this process still runs, as interrupted, and closes the store once
        all is written. What could not be written in thirty seconds is told, `StoreUnavailable`,
        and the store is closed all the same.
        """
        await self._close(None)

    async def _close(self, error: BaseException | None) -> None:
        deadline = deadline_for(error, self._work.engine.where)
        # Shielded: a close that is cancelled halfway would leave turns without an end,
        # and threads behind.
        await shielded(partial(self._work.close, deadline))

    def __repr__(self) -> str:
        return f"<AsyncStore {self._work.engine.where} tenant={self.tenant!r}>"

    async def __aenter__(self) -> "AsyncStore":
        self._work.refuse_closed()
        self._loop = current_loop()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the store. Not if its coroutine is dropped, wherever Python happens to be: then it
        is closed when nobody holds it any more.
        """
        if not isinstance(error, GeneratorExit) or current_loop() is self._loop:
            await self._close(error)


class _Derived(AsyncStore):
    """A store that is there already: awaiting it gives itself."""

    def __await__(self) -> Generator[Any, Any, AsyncStore]:
        # The `yield` below is never reached: it makes this a generator function, for
        # `__await__` has to give an iterator, and this one ends with the store at once.
        return self
        yield


class OpeningStore:
    """A store about to be opened: await it, or enter it with `async with`."""

    def __init__(self, where: str | os.PathLike[str], options: dict[str, Any]) -> None:
        self._where, self._options = where, options
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, Any, AsyncStore]:
        return self._open().__await__()

    def __repr__(self) -> str:
        return f"<OpeningStore {shown(self._where)}: await it, or enter it with `async with`>"

    async def _open(self) -> AsyncStore:
        insist_on_asyncio()
        # Opening may block, so a thread does it. If the caller is cancelled meanwhile,
        # the store is closed as soon as it is there: nobody else would know of it.
        work = await obtained(
            lambda: open_at(self._where, **self._options), let_go=OpenStore.close
        )
        return AsyncStore(work)

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return await self._store.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._store is not None
        await self._store.__aexit__(kind, error, trace)


@checked
def open_async(
    where: str | os.PathLike[str] = "holdfast.db",
    *,
    durability: Durability = "power",
    tenant: str = "default",
    read_only: bool = False,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    tracing: "Tracing | None" = None,
    world: World | None = None,
) -> OpeningStore:
    """Opens a store for asyncio: `store = await open_async(…)`, or `async with open_async(…) as
    store`.
    """
    return OpeningStore(
        where,
        {
            "durability": durability,
            "tenant": tenant,
            "read_only": read_only,
            "token": token,
            "ca": ca,
            "tracing": tracing,
            "world": world,
        },
    )
