"""The sessions that pass through the proxy: which one a request belongs to, and what is running in
each.

A turn begins with a list that brings something new, and goes on while its calls are answered: until an
answer makes no calls. The same list again is another attempt at the same turn, so a turn whose answer
failed, or was not heard by its client to its end, stays open for a moment.
"""

import asyncio
import contextlib
from collections import OrderedDict
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from holdfast.domain.record.memory import Memory
from holdfast.errors import (
    Conflict,
    HoldfastError,
    NotFound,
    SessionBusy,
    SessionEnded,
    TurnInterrupted,
)
from holdfast.runtime.aio import AsyncSession, AsyncStore
from holdfast.runtime.changes.record_turn import (
    GivenList,
    go_on_with,
    start_in,
    start_with,
)
from holdfast.runtime.clock import mint
from holdfast.runtime.plans.plan_asyncio import arun
from holdfast.runtime.turn_async import AsyncTurn
from holdfast.runtime.turns.end_turn import Ending
from holdfast.runtime.turns.recovery import settle_if_dead
from holdfast.server.proxy.dialects import RESPONSES, Request
from holdfast.server.proxy.kinds import (
    Before,
    Kind,
    answers_calls_of,
    is_again,
    kind_of,
    own_messages,
    told_kind,
)
from holdfast.server.proxy.list_index import ListIndex
from holdfast.server.proxy.lists.branches import LeftBranches
from holdfast.server.proxy.lists.shared_past import (
    closest,
    is_of_agent,
    parting_from,
)
from holdfast.server.proxy.lists.stored_lists import (
    last_turn,
    stored_before,
    stored_beside,
)
from holdfast.server.proxy.lists.whole_list import RESPONSE, made_whole
from holdfast.server.proxy.marks import Marks, marks_of, opening
from holdfast.server.proxy.naming import (
    Headers,
    NamedSession,
    name_of,
    told_by_codex,
    tries_again,
)
from holdfast.server.proxy.recording import AnswerRecording

RETRY_S = 10.0
"""For so long, a turn whose answer failed waits for another attempt."""
RESULTS_S = 600.0
"""For so long, a turn whose calls are being run waits for their results."""
LEAVING_S = 1.0
"""For so long, a request waits for the one before it in its session, whose client may be leaving."""
KNOWN_MAX = 1000
"""So many sessions are remembered, beside those that are in use."""
LOOK_BACK = 200
"""So many sessions are looked through for a list that is not known, once in a process."""
_OWN = "proxy:"
"""What the keys of sessions begin with that nobody has named."""


class OpenTurn(NamedTuple):
    """A turn that waits for the next request, and how it ends if none comes."""

    turn: AsyncTurn
    calls: tuple[str, ...]
    ending: Ending
    timer: asyncio.TimerHandle


class ProxiedSession:
    """A session, and what passes through the proxy for it."""

    def __init__(
        self, session: AsyncSession | None, key: str, scope: str | None
    ) -> None:
        self.session = session
        """None until its first turn makes it."""
        self.key, self.scope = key, scope
        """The scope in which it is found by its list; None if it has a name that is enough."""
        self.name: NamedSession | None = None
        """How its client names it, if that is enough."""
        self.memory = Memory()
        self.branches = LeftBranches()
        self.lock = asyncio.Lock()
        self.before: Before | None = None
        self.beside: Marks = ()
        """What was asked and answered beside it last."""
        self.is_loaded = False
        self.turn = 0
        """The number of the last turn that was started here."""
        self.waiting: OpenTurn | None = None
        self.flight: AnswerRecording | None = None


class ProxiedSessions:
    """The sessions of one tenant."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        # A request, an answer and a turn that waits hold theirs: what is in use is known,
        # even if there are more of these than are kept.
        self._known: WeakValueDictionary[str, ProxiedSession] = WeakValueDictionary()
        self._kept: OrderedDict[str, ProxiedSession] = OrderedDict()
        self._index = ListIndex()
        self._responses: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._looked_at: set[str] = set()
        self._ending: set[asyncio.Task[None]] = set()
        # One request at a time: two that look for a fresh key at once would find the
        # same one, and none may look into the index while another still fills it from
        # the store.
        self._finding = asyncio.Lock()

    async def begin(self, headers: Headers, request: Request) -> AnswerRecording:
        """Stores what a request brings and gives what its answer is stored with."""
        name = name_of(headers, request)
        marks = marks_of(request.messages)
        kind: Kind | None = told_kind(headers, request, marks)
        if kind is not None:
            key = name.key if name is not None else "proxy"
            return await self._aside(key, kind, request, await self._before(key))
        async with self._finding:
            is_retry = tries_again(headers)
            proxied = await self._find(name, request, marks, is_retry)
        async with proxied.lock:
            if not await self._is_free(proxied):
                known = proxied.before
                return await self._aside(proxied.key, "aside", request, known)
            await self._load(proxied)
            await self._catch_up(proxied)
            before = proxied.before
            is_open = before is not None and before.is_open
            if not request.is_whole:
                session = proxied.session
                request = await made_whole(request, session, is_open=is_open)
                marks = marks_of(request.messages)
            kind = kind_of(request, name, marks, before, proxied.beside)
            if kind != "turn":
                return await self._aside(proxied.key, kind, request, before, marks)
            now = Before(
                marks,
                has_tools=request.has_tools,
                instructions=request.instructions,
                turn=told_by_codex(headers, "turn_id"),
            )
            try:
                turn = await self._turn(proxied, request, now)
            # Somebody else works in it, in another process.
            except SessionBusy:
                known = proxied.before
                return await self._aside(proxied.key, "aside", request, known)
            over, heard = partial(self._over, proxied), partial(self._heard, proxied)
            recording = AnswerRecording(turn, request, marks, over, heard)
            proxied.flight = recording
            proxied.before, proxied.turn = now, turn._work.number
            if proxied.scope is not None:
                scope, key = proxied.scope, proxied.key
                self._index.learn(scope, key, marks, is_open=True)
            return recording

    async def _before(self, key: str) -> Before | None:
        """What is known of a session, if there is one."""
        proxied = self._known.get(key)
        if proxied is None:
            # Only looked at. Its first turn opens it, which knows in what scope it is
            # found.
            session = await self._stored(key)
            return None if session is None else await stored_before(session)
        async with proxied.lock:
            await self._load(proxied)
            return proxied.before

    async def _load(self, proxied: ProxiedSession) -> None:
        """What its session, and the one beside it, hold from before this process."""
        if proxied.is_loaded:
            return
        proxied.is_loaded = True
        if proxied.session is not None:
            proxied.before = await stored_before(proxied.session)
            beside = await self._stored(f"{proxied.key}/side")
            if beside is not None:
                proxied.beside = await stored_beside(beside)

    async def _catch_up(self, proxied: ProxiedSession) -> None:
        """If another process has gone on in it, what is known of its lists is read from the store, as after
        a start.
        """
        session = proxied.session
        if session is None or not proxied.turn:
            return
        if await last_turn(session) > proxied.turn:
            proxied.memory, proxied.branches = Memory(), LeftBranches()
            proxied.before = await stored_before(session)

    # Which session it is.

    async def _find(
        self,
        name: NamedSession | None,
        request: Request,
        marks: Marks,
        is_retry: bool,
    ) -> ProxiedSession:
        if name is not None and name.is_strong:
            found = await self._open(name.key)
            found.name = name
            return found
        before = request.goes_on_from
        scope = "" if name is None else name.key
        key = None
        if before is not None:
            await self._look_back(scope)
            scope, key = self._responses.get(before, (scope, None))
        else:
            key = self._found(scope, marks, is_retry)
            if key is None:
                await self._look_back(scope)
                key = self._found(scope, marks, is_retry)
        if key is None:
            key = await self._fresh_key(scope)
        self._index.claim(scope, key)
        return await self._open(key, scope)

    def _found(self, scope: str, marks: Marks, is_retry: bool) -> str | None:
        key = self._index.find(scope, marks, is_retry=is_retry)
        known = None if key is None else self._known.get(key)
        if known is not None and known.flight is not None and not known.flight.is_left:
            # Somebody else is being answered who has said the same.
            if opening(marks) is not None and not is_retry:
                return None
            if not is_retry:
                return self._index.find_tip(scope, marks) or key
        return key

    async def _fresh_key(self, scope: str) -> str:
        world = self._store._work.world
        if not scope:
            return _OWN + mint(world, world.now()).hex()
        number, key = 1, scope
        while key in self._known or await self._stored(key) is not None:
            number += 1
            key = f"{scope}/{number}"
        return key

    async def _stored(self, key: str) -> AsyncSession | None:
        with contextlib.suppress(NotFound):
            return await self._store.session(key, create=False)
        return None

    async def _open(self, key: str, scope: str | None = None) -> ProxiedSession:
        found = self._known.get(key)
        if found is None:
            session = await self._stored(key)
            # Another request may have opened it while this one waited for the store.
            found = self._known.get(key) or ProxiedSession(session, key, scope)
            self._known[key] = found
        self._kept[key] = found
        self._kept.move_to_end(key)
        if len(self._kept) > KNOWN_MAX:
            self._kept.popitem(last=False)
        return found

    async def _look_back(self, scope: str) -> None:
        """Learns the lists of sessions that were there before this process."""
        if scope in self._looked_at:
            return
        self._looked_at.add(scope)
        if scope:
            number, key = 1, scope
            while (session := await self._stored(key)) is not None:
                await self._learn(scope, key, session)
                number += 1
                key = f"{scope}/{number}"
            return
        # Those too in which a turn was left running, by a proxy that was killed.
        page = await self._store.sessions(limit=LOOK_BACK)
        # The page has the newest first. What is learned last is found first, so they
        # are learned the other way around.
        for info in reversed(list(page)):
            key = info.key or ""
            # A `/` is in the keys of what was asked aside.
            is_own = key.startswith(_OWN) and "/" not in key
            if is_own and info.state != "ended":
                await self._learn("", key, await self._store.get(info.id))

    async def _learn(self, scope: str, key: str, session: AsyncSession) -> None:
        if key in self._known:
            return
        known = await stored_before(session)
        if known is not None:
            # What runs in another process is asked there.
            is_idle = (await arun(settle_if_dead(session._log))).turn is None
            self._index.learn(
                scope,
                key,
                known.marks,
                known.answer,
                is_open=known.is_open and is_idle,
            )
        for labels in session._log.labels().values():
            if isinstance(labels.get(RESPONSE), str):
                self._note_response(labels[RESPONSE], scope, key)

    def _note_response(self, response: str, scope: str, key: str) -> None:
        self._responses[response] = (scope, key)
        if len(self._responses) > KNOWN_MAX * 10:
            self._responses.popitem(last=False)

    # What runs in it.

    async def _is_free(self, proxied: ProxiedSession) -> bool:
        """Whether the request before this one is over. One whose client has left it is ended."""
        flight = proxied.flight
        if flight is None:
            return True
        await flight.over_or_left(LEAVING_S)
        if proxied.flight is not flight:
            return True
        if not flight.is_left:
            return False
        await flight.stop()
        return True

    async def _turn(
        self, proxied: ProxiedSession, request: Request, now: Before
    ) -> AsyncTurn:
        waiting, proxied.waiting = proxied.waiting, None
        if waiting is not None:
            waiting.timer.cancel()
            if _is_next(proxied.before, waiting, now):
                # Else it was stopped meanwhile, by somebody else.
                with contextlib.suppress(TurnInterrupted):
                    given = _list_of(request, proxied.memory)
                    going = go_on_with(waiting.turn._work, given)
                    return AsyncTurn((await arun(going)).work)
            else:
                await _end(waiting.turn, waiting.ending)
        proxied.memory = await proxied.branches.memory_for(
            request, now.marks, proxied.session, proxied.memory, proxied.before
        )
        return await self._start(proxied, request)

    async def _start(self, proxied: ProxiedSession, request: Request) -> AsyncTurn:
        known = proxied.session
        if known is None:
            known = await self._forked_off(proxied, request)
        if known is not None:
            starting = start_with(known._log, _list_of(request, proxied.memory))
            # Its key was reset since: it goes on in the session that is current now.
            with contextlib.suppress(SessionEnded):
                turn = AsyncTurn((await arun(starting)).work)
                proxied.session = known
                return turn
            # What is remembered is about the list in the session that has ended.
            proxied.memory, proxied.branches = Memory(), LeftBranches()
        given = _list_of(request, proxied.memory)
        starting = start_in(self._store._work, proxied.key, given)
        turn = AsyncTurn((await arun(starting)).work)
        proxied.session = AsyncSession(turn._work.session)
        return turn

    async def _forked_off(
        self, proxied: ProxiedSession, request: Request
    ) -> AsyncSession | None:
        """A new session with the past of the one that its agent has forked it off from; None if there is
        no such past here.
        """
        marks = marks_of(request.messages)
        parent = await self._parent_of(proxied, marks)
        if parent is None:
            return None
        other = self._known.get(parent.key or "")
        if other is not None and other.flight is not None:
            # Its client has the end of an answer before its turn has ended.
            await other.flight.over_or_left(LEAVING_S)
        parts = await parting_from(parent, marks)
        if parts is not None:
            # Somebody else has opened the session meanwhile: it is the one.
            with contextlib.suppress(Conflict):
                return await parent.fork(parts.at, proxied.key)
        return None

    async def _parent_of(
        self, proxied: ProxiedSession, marks: Marks
    ) -> AsyncSession | None:
        name = proxied.name
        if name is not None and name.parent is not None:
            return await self._stored(name.parent)
        client = name.client if name is not None else None
        if client is not None and is_of_agent(proxied.key, client):
            return await closest(self._store, client, marks)
        return None

    async def _over(self, proxied: ProxiedSession, recording: AnswerRecording) -> None:
        """An answer is over: what becomes of its turn."""
        try:
            self._heard(proxied, recording)
            await self._name_response(proxied, recording)
            await self._go_on(proxied, recording)
        finally:
            proxied.flight = None

    async def _go_on(self, proxied: ProxiedSession, recording: AnswerRecording) -> None:
        turn, ending = recording.turn, recording.ending
        if recording.may_be_tried_again:
            self._wait(proxied, turn, recording.calls, ending, RETRY_S)
        elif recording.calls:
            # A call that the model had to make may be the answer itself.
            if not recording.request.forces_call:
                ending = Ending("interrupted", "no results of its calls came")
            self._wait(proxied, turn, recording.calls, ending, RESULTS_S)
        else:
            if ending.end == "completed":
                self._settle(proxied)
            await _end(turn, ending)

    def _heard(self, proxied: ProxiedSession, recording: AnswerRecording) -> None:
        """What was answered, for the lists that go on from it."""
        before = proxied.before
        if before is not None:
            # As its client knows it: one that has gone has not heard it.
            is_answered = recording.is_whole and not recording.is_left
            proxied.before = before._replace(
                answer=recording.answer,
                is_answered=is_answered,
                is_open=not is_answered,
            )
        scope, key, answer = proxied.scope, proxied.key, recording.answer
        if scope is not None:
            is_open = recording.may_be_tried_again or not recording.is_whole
            self._index.learn(scope, key, recording.marks, answer, is_open=is_open)
        if recording.response_id is not None:
            self._note_response(recording.response_id, scope or "", key)

    async def _name_response(
        self, proxied: ProxiedSession, recording: AnswerRecording
    ) -> None:
        """Stores the provider's id of an answer, for the next process: what goes on from it names
        nothing else.
        """
        response = recording.response_id
        request = recording.request
        # With `store: false` the provider keeps nothing that a request could go on
        # from.
        if request.dialect is not RESPONSES or request.body.get("store") is False:
            return
        if response is not None and recording.is_whole:
            assert proxied.session is not None
            # The answer itself is stored. Without the label, only another process would
            # not find it.
            with contextlib.suppress(HoldfastError):
                label = proxied.session.label
                await label(recording.message_id, **{RESPONSE: response})

    def _settle(self, proxied: ProxiedSession) -> None:
        if proxied.scope is not None:
            self._index.settle(proxied.scope, proxied.key)

    def _wait(
        self,
        proxied: ProxiedSession,
        turn: AsyncTurn,
        calls: tuple[str, ...],
        ending: Ending,
        seconds: float,
    ) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._give_up, proxied)
        proxied.waiting = OpenTurn(turn, calls, ending, timer)

    def _give_up(self, proxied: ProxiedSession) -> None:
        waiting, proxied.waiting = proxied.waiting, None
        if waiting is not None and waiting.ending.end == "completed":
            self._settle(proxied)
        if waiting is not None:
            task = asyncio.create_task(_end(waiting.turn, waiting.ending))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    # Beside it.

    async def _aside(
        self,
        key: str,
        kind: Kind,
        request: Request,
        before: Before | None,
        marks: Marks = (),
    ) -> AnswerRecording:
        """A call that is no part of the dialogue: a turn of a session beside it."""
        owner = self._known.get(key)
        known = owner.beside if owner is not None else ()
        # What goes on there is stored there already; anything else is said anew.
        if not answers_calls_of(marks, known):
            known = ()
        name = "side" if kind == "aside" else kind
        number = 1
        # A session beside that is in use, here or by another process, takes no second
        # request: the next number does.
        while True:
            beside = f"{key}/{name}" if number == 1 else f"{key}/{name}:{number}"
            proxied = await self._open(beside)
            number += 1
            # What goes on there comes as soon as its client has the end of the answer.
            if known and number == 2:
                await self._is_free(proxied)
            if proxied.flight is not None or proxied.lock.locked():
                continue
            async with proxied.lock:
                asked = own_messages(request, before, known)
                # Marked as news: what was asked aside before stays in the view of that
                # session.
                part = request._replace(messages=asked, goes_on_from=key)
                try:
                    turn = await self._start(proxied, part)
                except SessionBusy:
                    continue
                over = partial(self._aside_over, proxied, owner)
                heard = partial(_heard_beside, owner)
                proxied.flight = AnswerRecording(turn, request, marks, over, heard)
                return proxied.flight

    async def _aside_over(
        self,
        proxied: ProxiedSession,
        owner: ProxiedSession | None,
        recording: AnswerRecording,
    ) -> None:
        _heard_beside(owner, recording)
        await _end(recording.turn, recording.ending)
        proxied.flight = None

    async def close(self) -> None:
        """The proxy is told to end: what waits is ended, as it would be without another request."""
        for proxied in list(self._known.values()):
            waiting, proxied.waiting = proxied.waiting, None
            if waiting is not None:
                waiting.timer.cancel()
                await _end(waiting.turn, waiting.ending)
        if self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)


def _list_of(request: Request, memory: Memory) -> GivenList:
    return GivenList(memory, request.messages, request.dialect.format, request.is_whole)


def _is_next(before: Before | None, waiting: OpenTurn, now: Before) -> bool:
    """Whether a request belongs to the turn that waits: it says so, its list is the last one again, or
    has results of the turn's calls.
    """
    if before is not None:
        if now.turn is not None and now.turn == before.turn:
            return True
        if is_again(now.marks, before):
            return True
    return any(("result", id) in now.marks for id in waiting.calls)


def _heard_beside(owner: ProxiedSession | None, recording: AnswerRecording) -> None:
    """What was asked and answered beside a session: its client may go on with the calls in it."""
    if owner is not None and recording.marks:
        owner.beside = (*recording.marks, *recording.answer)


async def _end(turn: AsyncTurn, ending: Ending) -> None:
    """The turn's end, unless somebody else has ended it."""
    work = turn._work
    if ending.end == "completed":
        # Unless what it said last was cut off.
        ending = work.clean_end
    with contextlib.suppress(HoldfastError):
        await arun(work.leave(ending))
