"""What a client is given: its settings, the fields of a message, a session. Both faces take the
same.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import msgspec

import holdfast
from holdfast import AsyncSession, AsyncStore, Session, Store
from holdfast.domain.arguments import (
    Rule,
    choice,
    flag,
    kept,
    number,
    optional,
    refuse,
    text,
    whole,
)
from holdfast.domain.message import freeze
from holdfast.errors import BadArgument, InvalidMessage
from holdfast.runtime.border import RULES

AnyStore = Store | AsyncStore | str | os.PathLike[str]
AnySession = Session | AsyncSession | str
Role = Literal["user", "assistant"]


_RULES = {
    "background": flag,
    "timeout_s": number("seconds", most=86_400, above=0),
    "grace_s": number("seconds", most=86_400),
    "threads": whole(1, 64),
}


_PEER = re.compile(r"[A-Za-z0-9_.@-]*")


def _peer(parameter: str, value: object) -> str:
    peer = text(parameter, value)
    if _PEER.fullmatch(peer):
        return peer
    raise refuse(parameter, "letters, digits and any of _ . @ -", value)


KINDS = ("user_query", "assistant_step", "tool_transport", "checkpoint")
# What OpenViking would refuse, and only after it was stored.
_MESSAGE_RULES: dict[str, Rule] = {
    "created_at": text,
    "peer_id": _peer,
    "turn_id": text,
    "message_kind": choice(*KINDS),
}
_CALL_RULES: dict[str, Rule] = {
    "timeout_s": optional(number("seconds", most=31_536_000)),
    "token_budget": optional(whole()),
    "everywhere": flag,
    "event_id": optional(RULES["event_id"]),
}


def check(**given: Any) -> None:
    """Refuses arguments of a call that can't be what they are meant to be, by their names."""
    for name, value in given.items():
        kept(_CALL_RULES[name], name, value)


class ClientOptions(TypedDict, total=False):
    """What a client may be given beside the address of its server."""

    store: AnyStore
    api_key: str | None
    account: str | None
    user: str | None
    background: bool
    timeout_s: float
    grace_s: float
    threads: int
    on_problem: Callable[[str, str], object] | None


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The same with what is meant where nothing is said.

    `background`: threads send by themselves; without it, `flush` does. `timeout_s`: how long an
    answer is waited for. `grace_s`: how long a request without an answer may still arrive.
    `on_problem` is called with the id of a session and a sentence.
    """

    store: AnyStore = "holdfast.db"
    api_key: str | None = None
    account: str | None = None
    user: str | None = None
    background: bool = True
    timeout_s: float = 300
    grace_s: float = 30
    threads: int = 2
    on_problem: Callable[[str, str], object] | None = None

    def __post_init__(self) -> None:
        # Here, where the caller sees it: a thread would fail over it later, or wait for ever.
        for name, rule in _RULES.items():
            rule(name, getattr(self, name))
        if self.on_problem is not None and not callable(self.on_problem):
            takes = "a function of a session's id and a sentence"
            given = repr(self.on_problem)[:60]
            raise BadArgument(parameter="on_problem", takes=takes, given=given)

    def headers(self) -> dict[str, str]:
        """Who asks, as OpenViking wants it told."""
        given = {
            "X-API-Key": self.api_key,
            "X-OpenViking-Account": self.account,
            "X-OpenViking-User": self.user,
        }
        headers = {}
        for name, value in given.items():
            if value is not None:
                headers[name] = _header(name, value)
        return headers


class MessageFields(TypedDict, total=False):
    """What a message may have beside its role and its words. With `event_id`, the same event is one
    message, however often it is added; the others are OpenViking's.
    """

    parts: Sequence[Mapping[str, Any]] | None
    created_at: str | None
    peer_id: str | None
    turn_id: str | None
    message_kind: str | None
    event_id: str | int | None


_FIELDS = ("content", "created_at", "peer_id", "turn_id", "message_kind")


def payload_of(
    role: object, content: str | None, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """A message in OpenViking's shape."""
    # A misspelt field would be left out without a word.
    for name in fields:
        if name not in MessageFields.__annotations__:
            raise TypeError(f"add_message() has no parameter {name!r}")
    payload: dict[str, Any] = {"role": insist_on_role(role)}
    given = {**fields, "content": content}
    check(event_id=given.get("event_id"))
    _check_message(given)
    for name in _FIELDS:
        if given.get(name) is not None:
            payload[name] = given[name]
    if given.get("parts") is not None:
        payload["parts"] = objects("parts", given["parts"])
    return payload


def payloads_of(messages: object) -> list[dict[str, Any]]:
    """Several messages in OpenViking's shape."""
    given = objects("messages", messages)
    for message in given:
        insist_on_role(message.get("role"))
        # It would be left out without a word, and the message stored as often as it comes.
        if message.get("event_id") is not None:
            takes = "messages without `event_id`, which `add_message` has"
            raise BadArgument(parameter="messages", takes=takes, given="one with it")
        _check_message(message)
    return given


def _check_message(given: Mapping[str, Any]) -> None:
    for name, rule in _MESSAGE_RULES.items():
        if given.get(name) is not None:
            kept(rule, name, given[name])


def objects(parameter: str, given: object) -> list[dict[str, Any]]:
    """A list of JSON objects, each of them a copy."""
    takes = "a list of dicts"
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    if not is_list:
        raise BadArgument(parameter=parameter, takes=takes, given=repr(given)[:60])
    copies = []
    for each in given:  # type: ignore[attr-defined]
        if not isinstance(each, Mapping):
            raise BadArgument(parameter=parameter, takes=takes, given=repr(each)[:60])
        copies.append(dict(each))
    return copies


def insist_on_json(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a commit: stored now, sent later, perhaps by another process."""
    try:
        freeze(options)
        # Half of a surrogate pair can be stored, and no request can be made of it.
        msgspec.json.encode(options)
    except (InvalidMessage, TypeError, UnicodeEncodeError) as error:
        given = str(error)[:60]
        raise BadArgument(parameter="options", takes="JSON", given=given) from None
    return options


def insist_on_role(role: object) -> str:
    """A role that OpenViking knows."""
    if role in ("user", "assistant"):
        return str(role)
    raise BadArgument(
        parameter="role", takes='"user" or "assistant"', given=repr(role)[:60]
    )


def opened(store: AnyStore) -> tuple[Store, bool]:
    """The store, and whether it is ours to close."""
    if isinstance(store, Store):
        return store, False
    # Both faces of a store work on the same engine; what is opened elsewhere is closed there.
    if isinstance(store, AsyncStore):
        return Store(store._work), False
    return holdfast.open(store), True


def _header(name: str, value: str) -> str:
    # A line break would begin another header: a key that was read with its line is a common one.
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        takes = "printable ASCII, without line breaks"
        raise BadArgument(
            parameter=name,
            takes=takes,
            given=type(value).__name__,
        )
    return value
