"""The border: every argument of every public call is checked here, before anything is written
(I-25).

`RULES` says once what each parameter takes, by its name; where a name means something else in one
method, the method stands before it. A parameter whose default is None takes None, too. The faces
are wrapped by class decorators, sync and async alike: a new public method is checked from its first
day, and one with a parameter that has no rule can't be imported. Arguments that a caller leaves out
are not looked at; a call costs one or two microseconds more.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from os import PathLike, fspath
from types import FunctionType
from typing import Any, TypeVar, get_args

from holdfast.domain.arguments import (
    ID_MAX,
    Durability,
    OnBusy,
    Rule,
    State,
    anything,
    choice,
    flag,
    id,
    kept,
    kind,
    kind_of,
    name,
    number,
    optional,
    refuse,
    shown,
    text,
    whole,
)
from holdfast.domain.inbox import NamedMessage
from holdfast.domain.reset_policy import Policy
from holdfast.domain.turn import CallId
from holdfast.errors import BadArgument
from holdfast.formats import registry

Face = TypeVar("Face", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])

PAGE_MAX = 1000
LEASE_MAX_S = 31_536_000
DAYS_MAX = 365_000
TENANT_MAX = 256
TOKEN_MAX = 4096


def format_name(parameter: str, value: Any) -> str:
    """The name of a format; the error lists those there are."""
    if isinstance(value, str) and registry.is_known(name := str.__str__(value)):
        return name
    raise _no_format(parameter, value, registry.known())


def stream_format(parameter: str, value: Any) -> str:
    """The name of a format, or "text" for chunks that are plain strings."""
    if isinstance(value, str) and (
        (name := str.__str__(value)) == "text" or registry.is_known(name)
    ):
        return name
    raise _no_format(parameter, value, ["text", *registry.known()])


def _no_format(parameter: str, value: Any, known: list[str]) -> BadArgument:
    takes = f"a format ({', '.join(known)})"
    return BadArgument(parameter=parameter, takes=takes, given=shown(value))


def _where(parameter: str, value: Any) -> Any:
    takes = "a path, `sqlite:///…`, `postgresql://…` or `http://…`"
    if not isinstance(value, str | PathLike):
        raise refuse(parameter, takes, value)
    # The class is asked, not the object, and `str.__str__` is called, not its own: a
    # caller's subclass of `str` may give other words each time.
    if issubclass(type(value), str):
        value = str.__str__(value)
    path = fspath(value)
    if not isinstance(path, str) or not path or "\x00" in path:
        raise refuse(parameter, takes, path)
    # Anywhere in it: `sqlite:///:memory:` and `file::memory:?cache=shared` mean the
    # same, and would be taken for the names of files here.
    if ":memory:" in path:
        takes = "a place that lasts (tests: `with holdfast.testing.temporary_store() as store`)"
        raise BadArgument(parameter=parameter, takes=takes, given='":memory:"')
    return value


def _file(parameter: str, value: Any) -> Any:
    if isinstance(value, str | PathLike):
        path = fspath(value)
        if isinstance(path, str) and path and "\x00" not in path:
            return str.__str__(path)
    raise refuse(parameter, "the path of a file", value)


def _token(parameter: str, value: Any) -> Any:
    # What is refused is not shown: it may be the secret with a line's end behind it.
    if isinstance(value, str):
        value = str.__str__(value)
        # It is a header of every request: other characters would end it, or be another one's.
        if value.isascii() and value.isprintable() and 0 < len(value) <= TOKEN_MAX:
            if " " not in value:
                return value
        given = "other text"
    else:
        given = kind_of(value)
    takes = "a server's token, letters of ASCII without a space"
    raise BadArgument(parameter=parameter, takes=takes, given=given)


def _that(takes: str, fits: Callable[[Any], bool]) -> Rule:
    """A rule for what `fits`. Text of a caller's own class is taken as plain text: its methods
    are not ours.
    """

    def check(parameter: str, value: Any) -> Any:
        if not fits(value):
            raise refuse(parameter, takes, value)
        return str.__str__(value) if isinstance(value, str) else value

    return check


def _is_chunks(value: Any) -> bool:
    # Bytes and dicts can be iterated over too, and nobody means it.
    return isinstance(value, Iterable) and not isinstance(
        value, bytes | bytearray | dict
    )


def _is_chunks_of_either_kind(value: Any) -> bool:
    return hasattr(value, "__aiter__") or _is_chunks(value)


def _is_error(value: Any) -> bool:
    return isinstance(value, str | BaseException)


def _is_summary(value: Any) -> bool:
    return isinstance(value, str) or callable(value)


def _is_session(value: Any) -> bool:
    return all(hasattr(value, each) for each in ("tenant", "key", "id", "epoch"))


def _is_world(value: Any) -> bool:
    for each in ("now", "tick", "clock", "chance"):
        if not callable(getattr(value, each, None)):
            return False
    # Asked here: the clock's name is stored with leases, and others compare it.
    return isinstance(value.clock(), str)


def _is_tracing(value: Any) -> bool:
    # Not by its class, which is loaded by those alone who use it.
    return type(value).__name__ == "Tracing" and hasattr(value, "_over")


def _moment(parameter: str, value: Any) -> Any:
    takes = "a datetime with a time zone, or milliseconds since 1970"
    # Any engine can store such a number, and compare it.
    if isinstance(value, int) and not isinstance(value, bool):
        number = int.__int__(value)
        if abs(number) < 1 << 62:
            return number
    from datetime import datetime  # for those who search: a turn needs nothing of it

    if not isinstance(value, datetime):
        raise refuse(parameter, takes, value)
    if value.tzinfo is None:
        given = "a datetime without a time zone"
        raise BadArgument(parameter=parameter, takes=takes, given=given)
    return value


def _chunk(parameter: str, value: Any) -> Any:
    # A callback that has nothing to say often says None; nothing is stored for it.
    if value is not None:
        return str.__str__(value) if isinstance(value, str) else value
    takes = "text, or a chunk of the stream's format"
    raise refuse(parameter, takes, value)


def _messages_named(parameter: str, value: Any) -> Any:
    takes = "a list of messages that wait: ids, messages or receipts"
    words = str | bytes | bytearray | memoryview
    if not isinstance(value, Sequence) or isinstance(value, words):
        raise refuse(parameter, takes, value)
    wanted = []
    for each in value:
        named = each
        # By their fields: importing the classes here would close a circle.
        for field in ("message_id", "id"):
            if not isinstance(named, str):
                named = getattr(each, field, None)
        if not isinstance(named, str) or not 0 < len(named) <= ID_MAX:
            given = f"a list with {kind_of(named if named else each)} in it"
            raise BadArgument(parameter=parameter, takes=takes, given=given)
        session = getattr(each, "session_id", None)
        if not isinstance(session, str):
            session = None
        wanted.append(NamedMessage(str.__str__(named), session))
    return tuple(wanted)


def _call_id(parameter: str, value: Any) -> Any:
    text = _CALL_ID(parameter, value)
    # One of ours also says which call it is of, where several have the same id.
    return value if type(value) is CallId else text


def _labels(parameter: str, value: Any) -> Any:
    takes = "labels by name, values of JSON"
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value):
        raise refuse(parameter, takes, value)
    if "visible_to_model" in value:
        flag("visible_to_model", value["visible_to_model"])
    return value


def _hashable(parameter: str, value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        takes = "something hashable: text, a number, a tuple of such"
        raise refuse(parameter, takes, value) from None
    return value


_FUNCTION = _that("a function", callable)
_CHUNKS = "an iterable of chunks"
_ID = id()
_CALL_ID = id(least=0)  # some models leave it empty
_MESSAGE_ID = id("the id of a message")

RULES: dict[str, Rule] = {
    # Stores
    "where": _where,
    "source": _where,
    "target": _where,
    "to": _where,
    "durability": choice(*get_args(Durability)),
    "tenant": name("the name of a tenant", bytes_max=TENANT_MAX),
    "Store.for_tenant.name": name("the name of a tenant", bytes_max=TENANT_MAX),
    "world": _that("a World: `now`, `tick`, `clock` and `chance`", _is_world),
    "progress": _FUNCTION,
    "read_only": flag,
    "tracing": _that("a `holdfast.Tracing`", _is_tracing),
    "token": _token,
    "ca": _file,
    # Names and identities
    "key": name('a name, such as "telegram:dm:42"'),
    "session_id": text,  # of any length and in any letters: what is no id is not found
    "Store.search.session": text,
    "message_id": _MESSAGE_ID,
    "to_message": _MESSAGE_ID,
    "at": _MESSAGE_ID,
    "event_id": _ID,
    "platform_id": _ID,
    "reply_to": _ID,
    "call_id": _call_id,
    "by": _ID,
    "name": text,
    # Words
    "text": text,
    "reason": text,
    "message": anything,
    "Session.decide.message": _MESSAGE_ID,
    "Turn.result.message": _MESSAGE_ID,
    "messages": kind(
        "a list of messages", Sequence, unless=(str, bytes, bytearray, memoryview)
    ),
    "take": _messages_named,
    "labels": _labels,
    "chunk": _chunk,
    "format": format_name,
    "Turn.deliver.format": stream_format,
    "Turn.stream.format": stream_format,
    "Turn.deliver.chunks": _that(_CHUNKS, _is_chunks),
    "AsyncTurn.deliver.chunks": _that(_CHUNKS, _is_chunks_of_either_kind),
    "summary": _that(
        "text, or a function of the messages it covers that gives text", _is_summary
    ),
    "arguments": anything,
    "content": anything,
    "error": _that("an exception or text", _is_error),
    "Turn.result.error": flag,
    "Session.label.visible_to_model": flag,
    # Rules and choices
    "reset": kind("a reset policy, such as Idle(hours=4) or Daily()", Policy),
    "on_busy": choice(*get_args(OnBusy)),
    "state": choice(*get_args(State)),
    "Store.search.state": choice(*get_args(State), "complete", "partial"),
    "role": choice("system", "user", "assistant", "tool"),
    "tool": text,
    "create": flag,
    "preview": flag,
    "approved": flag,
    "needs_approval": flag,
    "prefill": flag,
    # Numbers and positions
    "lease_s": number("seconds", above=0, most=LEASE_MAX_S),
    "claim_s": number("seconds", above=0, most=LEASE_MAX_S),
    "days": number("days", above=0, most=DAYS_MAX),
    "keep_turns": whole(),
    "index": whole(),
    "limit": whole(1, PAGE_MAX),
    "Store.outbox.limit": whole(1),
    "Session.transcript.limit": whole(),
    "Session.turns.limit": whole(),
    "after": whole(),
    "Store.sessions.after": name("the `next` of the page before"),
    "Store.pending.after": name("the `next` of the page before"),
    # A cursor counts the characters of each message still being spoken, so it may be
    # far longer than a name.
    "Session.follow.after": name("the cursor of an earlier event", bytes_max=1 << 20),
    "since": _moment,
    "until": _moment,
    # Agents
    "factory": _FUNCTION,
    "size": whole(1),
    "idle_s": number("seconds", above=0, most=DAYS_MAX * 86_400),
    "session": _that("a Session or an AsyncSession", _is_session),
    "config": _hashable,
}


def bordered(face: Face) -> Face:
    """Wraps every public method of this class, so that it gets arguments that keep to `RULES` and
    no others.
    """
    # A list, for the class changes under the loop.
    for each, method in list(vars(face).items()):
        if isinstance(method, FunctionType) and not each.startswith("_"):
            setattr(face, each, checked(method))
    return face


def checked(function: Function) -> Function:
    """The function, called with arguments that keep to `RULES`; the same one if there is nothing to
    check.
    """
    places, rules = _rules_of(function)
    if not rules:
        return function
    # Only those that have a rule: most calls give a message, which has none, and nothing else.
    ruled = [(at, each, rules[each]) for at, each in enumerate(places) if each in rules]
    most = len(places)

    @wraps(function)
    def guarded(*given: Any, **named: Any) -> Any:
        count = len(given)
        for at, each, rule in ruled:
            # Of too many arguments, the function itself says so.
            if at >= count or count > most:
                break
            value = kept(rule, each, given[at])
            # Nearly every argument passes as it is; then no new tuple is made.
            if value is not given[at]:
                given = (*given[:at], value, *given[at + 1 :])
        # `named` is a dict of this call alone, and keeps its keys: setting values while
        # going through it is safe.
        for each in named:
            if each in rules:
                named[each] = kept(rules[each], each, named[each])
        return function(*given, **named)

    return guarded  # type: ignore[return-value]


def _rules_of(function: Any) -> tuple[tuple[str, ...], dict[str, Rule]]:
    """The parameters that can be given by position, and the rules by name."""
    # From the code object: `inspect.signature` would have every program load `inspect`,
    # which a short command has no time for.
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    own = 1 if names[:1] == ("self",) else 0
    # Defaults belong to the last of the parameters that can be given by position.
    placed = names[: code.co_argcount]
    given = function.__defaults__ or ()
    defaults = dict(zip(placed[len(placed) - len(given) :], given, strict=True))
    defaults |= function.__kwdefaults__ or {}
    rules = _rules_of_labels(function.__qualname__)
    for each in names[own:]:
        rule = rule_for(function.__qualname__, each, defaults.get(each, ...))
        if rule is not anything:
            rules[each] = rule
    return placed, rules


def _rules_of_labels(method: str) -> dict[str, Rule]:
    """The rules for what a method takes beside its parameters: `Session.label` takes any label, and
    knows one.
    """
    prefix = method.removeprefix("Async") + "."
    return {
        each.removeprefix(prefix): rule
        for each, rule in RULES.items()
        if each.startswith(prefix)
    }


def rule_for(method: str, parameter: str, default: Any = ...) -> Rule:
    """The rule of a parameter; that of the sync face holds for its async twin."""
    asked = (
        f"{method}.{parameter}",
        f"{method.removeprefix('Async')}.{parameter}",
        parameter,
    )
    for each in asked:
        if each in RULES:
            found = RULES[each]
            # A parameter that may be left out as None may be given as None as well.
            if default is None and found is not anything:
                return optional(found)
            return found
    raise TypeError(
        f"`{parameter}` of {method} has no rule: give it one in runtime/border.py"
    )
