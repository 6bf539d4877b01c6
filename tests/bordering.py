"""Every public call with every wrong value, sync and async: the walk behind the tests of the
border.

The signatures are walked, so a new method or parameter is tried from its first day; one that nobody
knows a right value for fails and says so.
"""

import contextlib
import inspect
import math
from collections.abc import Iterator
from typing import Any

import holdfast
from holdfast.errors import BadArgument, HoldfastError
from holdfast.testing import temporary_store

ODD: list[Any] = [
    None,
    0,
    5,
    -1,
    2**70,
    10**5000,
    1.5,
    math.nan,
    math.inf,
    True,
    b"x",
    "",
    " ",
    "\x00",
    "\ud800",
    "x" * 70_000,
    [],
    {},
    [1],
    {"a": object()},
    object(),
    ("a",),
    object,
    {"role": []},
    [[[[]]]],
    "claude",
]

RIGHT: dict[str, Any] = {
    "key": "k",
    "message": "hi",
    "event_id": None,
    "reply_to": "r",
    "lease_s": 30,
    "on_busy": "interrupt",
    "chunk": "a piece",
    "format": "openai.chat",
    "reset": None,
    "create": True,
    "limit": 5,
    "reason": "why",
    "text": "hello",
    "after": 0,
    "Store.sessions.after": None,
    "Session.follow.after": None,
    "Store.pending.after": None,
    "state": None,
    "role": None,
    "tool": None,
    "session": None,
    "since": None,
    "until": None,
    "preview": True,
    "days": 10,
    "messages": [{"role": "user", "content": "x"}],
    "summary": "in short",
    "keep_turns": 1,
    "index": 0,
    "at": None,
    "approved": True,
    "by": "ann",
    "name": "f",
    "arguments": {"a": 1},
    "needs_approval": False,
    "content": "done",
    "error": "why",
    "Turn.result.error": False,
    "Turn.deliver.format": "text",
    "Turn.stream.format": "text",
    "chunks": ["a", "b"],
    "call_id": "c1",
    "Session.decide.call_id": "asked",
    "Turn.call.call_id": "c9",
    "platform_id": "p",
    "take": None,
    "labels": {"from": "ann"},
    "claim_s": None,
    "prefill": False,
    "Store.for_tenant.name": "else",
    "config": None,
    "visible_to_model": False,
    "note": "fine",
}
"""A right value for each parameter; where a name means something else in one method, the method
stands before it.
"""

METHODS_OF = ("Store", "Session", "Turn", "PushStream", "Owed", "AgentCache")
"""The classes whose methods are walked; each one's async twin is walked with it."""
MADE = {
    "open": {
        "where": "b.db",
        "durability": "process",
        "tenant": "t",
        "read_only": False,
        "token": None,
        "ca": None,
        "tracing": None,
        "world": None,
    },
    "open_async": {
        "where": "b.db",
        "durability": "process",
        "tenant": "t",
        "read_only": False,
        "token": None,
        "ca": None,
        "tracing": None,
        "world": None,
    },
    "copy": {"source": "a.db", "target": "b.db", "tenant": "default", "progress": None},
    "AgentCache": {"factory": object, "size": 4, "idle_s": 60, "world": None},
    "Idle": {"hours": 1, "minutes": 0},
    "Daily": {"at": "04:00", "tz": "UTC"},
    "testing.temporary_store": {"tenant": "t"},
}
"""Functions and classes that a caller calls by name, with right arguments."""
CALLED_BY_US = ("World", "Policy")
"""What a caller may write for us to call."""
ENDLESS_MAX = 50
ERASED_ALONE = 4
MOMENT_DAYS = 1e-9


def calls() -> Iterator[tuple[str, str, str]]:
    """(class, method, parameter) of everything that is public and takes something. Labels are
    parameters, too: the one that has a meaning, and any other.
    """
    for name in METHODS_OF:
        for method, function in _methods(getattr(holdfast, name)):
            for parameter in list(inspect.signature(function).parameters.values())[1:]:
                if parameter.kind is not parameter.VAR_KEYWORD:
                    yield name, method, parameter.name
    yield from (("Session", "label", label) for label in ("visible_to_model", "note"))


def unknown() -> list[str]:
    """Public calls that take something and that nobody walks."""
    walked = {f"{face}.{method}.{parameter}" for face, method, parameter in calls()}
    walked |= {f"{name}.{parameter}" for name, right in MADE.items() for parameter in right}
    return sorted(each for each in public() if each.replace("Async", "") not in walked)


def public() -> Iterator[str]:
    """Every parameter of every public call: functions, methods, and what callers make by a class's
    name.
    """
    functions = [("testing.temporary_store", temporary_store)]
    for name in holdfast.__all__:
        value = getattr(holdfast, name)
        if inspect.isfunction(value) or name in MADE:
            functions.append((name, value))
        if isinstance(value, type) and not name.startswith(CALLED_BY_US):
            functions += [(f"{name}.{method}", function) for method, function in _methods(value)]
    for name, function in functions:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD:
                yield f"{name}.{parameter.name}"


def _methods(face: type) -> Iterator[tuple[str, Any]]:
    """Its public methods, without those that it has from Python's own classes, or that we call."""
    for method, function in inspect.getmembers(face, inspect.isfunction):
        is_ours = function.__module__.startswith("holdfast")
        if (
            is_ours
            and not method.startswith("_")
            and not _is_hook(face, method)
            and not hasattr(list, method)
        ):
            yield method, function


def _is_hook(face: type, method: str) -> bool:
    return any(
        hasattr(getattr(holdfast, kind), method) and issubclass(face, holdfast.Policy)
        for kind in CALLED_BY_US
    )


def right(face: str, method: str, parameter: str, known: dict[str, Any]) -> Any:
    """A value that this parameter takes."""
    for table in (known, RIGHT):
        for each in (f"{face}.{method}.{parameter}", parameter):
            if each in table:
                return table[each]
    raise AssertionError(
        f"tell tests/bordering.py a right value for `{parameter}` of {face}.{method}"
    )


async def maybe(value: Any) -> Any:
    """What a call of either face gives, awaited and read to its end."""
    if inspect.isawaitable(value):
        value = await value
    if hasattr(value, "__anext__"):
        found = []
        async for each in value:
            found.append(each)
            if len(found) >= ENDLESS_MAX:
                await value.aclose()
                break
        return found
    if hasattr(value, "__next__"):
        found = [each for each, _ in zip(value, range(ENDLESS_MAX), strict=False)]
        value.close()
        return found
    return value


class Walk:
    """One store and what can be called on it, of either face."""

    def __init__(self, store: Any, folder: Any = None) -> None:
        self.store, self.folder = store, folder
        self.wrong: list[str] = []
        # turns: one that is dropped is ended at some moment, and something is written
        self.held: list[Any] = []
        # what a call was refused on, which is as it was before
        self.spare: tuple[str, str, Any] | None = None
        self.counted: Any = None
        self.count = 0
        self.known: dict[str, Any] = {"to": str(folder / "copy.db") if folder else "copy.db"}

    async def seed(self) -> None:
        session = await maybe(self.store.session("seed"))
        for said in ("hello", "again"):
            await self._owing(session, said)
        [first, *_] = await maybe(session.transcript())
        self.known |= {"session_id": session.id, "message_id": first.id, "to_message": first.id}

    async def _owing(self, session: Any, said: str) -> None:
        turn = await maybe(session.turn(said, reply_to="r"))
        await maybe(turn.say("there"))
        leave = turn.__exit__ if hasattr(turn, "__exit__") else turn.__aexit__
        await maybe(leave(None, None, None))

    async def subject(self, face: str, method: str) -> Any:
        """What the method is called on, in a state in which it has something to do."""
        self.counted = None
        if face == "Store":
            return self.store
        if face == "AgentCache":
            self.known |= {"AgentCache.get.session": await maybe(self.store.session("seed"))}
            self.known |= {"AgentCache.drop.session": self.known["AgentCache.get.session"]}
            return holdfast.AgentCache(lambda session: object())
        if face == "Owed":
            await self._owing(await maybe(self.store.session("seed")), "more")
            return (await maybe(self.store.outbox()))[0]
        if method in ("label", "rewind", "compact", "fork"):
            return await maybe(self.store.session("seed"))
        session = await maybe(self.store.session(f"{face}.{method} {self.count}"))
        if method == "follow":
            await maybe(session.end("told"))
        if face == "Session" and method != "decide":
            return session
        turn = await maybe(session.turn("q", on_busy="interrupt"))
        self.held.append(turn)
        await maybe(turn.call("f", {"a": 1}, call_id="c1"))
        if method == "decide":
            await maybe(turn.call("pay", {"a": 1}, call_id="asked", needs_approval=True))
            return session
        return turn.stream() if face == "PushStream" else turn

    async def call(self, face: str, method: str, parameter: str, odd: Any) -> None:
        """Calls the method with this value in the place of a right one; only our errors come out.
        Where a value was refused and nothing was written, the next one is tried on the same
        subject, and on a new one if that has anything else to say.
        """
        self.count += 1
        spare, self.spare = self.spare, None
        if spare is not None and spare[:2] == (face, method):
            came = await self._tell(spare[2], face, method, parameter, odd)
            if came == "refused":
                self.spare = spare
                return
            if came == "done":
                return await self._leave()
        await self._leave()
        subject = await self.subject(face, method)
        if await self._tell(subject, face, method, parameter, odd) == "refused":
            self.spare = (face, method, subject)
        else:
            await self._leave()

    async def _tell(self, subject: Any, face: str, method: str, parameter: str, odd: Any) -> str:
        """What came of one call: it was done or refused, or something was in its way."""
        function = getattr(subject, method)
        named = {
            each.name: right(face, method, each.name, self.known)
            for each in inspect.signature(function).parameters.values()
            if each.kind is not each.VAR_KEYWORD
        }
        named |= {parameter: right(face, method, parameter, self.known)}
        what = f"{type(subject).__name__}.{method}({parameter}={_brief(odd)})"
        before, self.counted = self.counted or await maybe(self.store.info()), None
        try:
            given = await maybe(function(**{**named, parameter: odd}))
            self.held += [given] if hasattr(given, "interrupt") else []
            return "done"
        except BadArgument as error:
            after = self.counted = await maybe(self.store.info())
            if (before.sessions, before.entries) != (after.sessions, after.entries):
                self.wrong.append(f"{what}: refused, and yet something was written")
            if error.parameter != parameter or len(str(error)) > 400:
                self.wrong.append(f"{what}: told as {str(error)[:200]}")
            return "refused"
        except HoldfastError:
            return "trouble"
        except BaseException as error:
            self.wrong.append(f"{what}: {type(error).__name__}: {str(error)[:120]}")
            return "trouble"

    async def _leave(self) -> None:
        """Ends the turns that are held."""
        for turn in self.held:
            with contextlib.suppress(HoldfastError):
                await maybe(turn.interrupt())
        self.held.clear()

    async def readable(self) -> None:
        """The whole store can still be read, listed, searched, reset and erased."""
        await self._leave()
        steps = {
            "sessions": lambda: self.store.sessions(limit=1000),
            "outbox": lambda: self.store.outbox(),
            "search": lambda: self.store.search("hello"),
            "check": lambda: self.store.check(),
            "reset": lambda: self.store.reset("k"),
        }
        for name, step in steps.items():
            await self._try(name, step)
        problems = await maybe(self.store.check())
        self.wrong += [f"check says {problem}" for problem in problems]
        for number, listed in enumerate(await maybe(self.store.sessions(limit=1000))):
            session = await maybe(self.store.get(listed.id))
            for step in (
                session.transcript,
                session.calls,
                session.pending,
                session.info,
                session.turns,
            ):
                await self._try(f"{listed.key!r:.60} {step.__name__}", step)
            for format in ("openai.chat", "openai.responses", "anthropic"):
                await self._try(
                    f"{listed.key!r:.60} as {format}", lambda s=session, f=format: s.context(f)
                )
            if number < ERASED_ALONE:
                await self._erase(listed)
        await self._try(
            "erasing the rest at once", lambda: self.store.retain(MOMENT_DAYS, preview=False)
        )
        for listed in await maybe(self.store.sessions(limit=1000)):
            if listed.state != "ended":  # its past is shared, or it had news just now
                await self._erase(listed)

    async def _erase(self, listed: Any) -> None:
        await self._try(f"erasing {listed.key!r:.60}", lambda: self.store.erase(listed.id))

    async def _try(self, name: str, step: Any) -> None:
        try:
            await maybe(step())
        except BaseException as error:
            self.wrong.append(f"afterwards {name}: {type(error).__name__}: {str(error)[:120]}")


def _brief(odd: Any) -> str:
    if isinstance(odd, int) and abs(odd) > 10**30:
        return "a huge integer"
    return ascii(odd)[:24]
