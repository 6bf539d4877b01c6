"""Values of a graph's state as JSON: messages by reference, the rest as it is where JSON holds it.

{"$m": id}             a message of the thread's transcript; with "as", with these fields of its data
                       in place of its own, and without those that are null there
{"$p": payload}        a message that is not in the transcript
{"$s": [k, t, items]}  a list: the first `k` and the last `t` items of the one before, `items` between
{"$delta": value}      a snapshot of a delta channel
{"$send": [node, value]}, {"$set": value}    a task that was sent, a value that replaces another
{"$t": [way, base64]}  anything else, as LangGraph's own serialiser writes it; never a pickle
"""

import base64
from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite, Send

from holdfast.adapters.langchain_payloads import (
    Typed,
    body_of,
    is_json,
    is_message,
    message_of,
)
from holdfast.domain.arguments import kind_of
from holdfast.errors import BadArgument

Encoded = Any
"""JSON data, with the marks above in it."""
Keep = Callable[[Any], Encoded | None]
"""Gives the reference to a message, which is put into the transcript if it is new there; None for
one that stays out of it.
"""


def typed(value: Any, dumps: Callable[[Any], Typed]) -> Typed:
    """What the serialiser makes of it, unless that is a pickle: stored bytes are data (I-20)."""
    takes, given = (
        "what LangGraph's serialiser can write without pickle",
        kind_of(value),
    )
    try:
        way, raw = dumps(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadArgument(parameter="checkpoint", takes=takes, given=given) from error
    if way == "pickle":
        raise BadArgument(parameter="checkpoint", takes=takes, given=given)
    return way, raw


class Encoder:
    """Writes values. `keep` is asked about each message."""

    def __init__(self, dumps: Callable[[Any], Typed], keep: Keep) -> None:
        self._dumps = dumps
        self._keep = keep

    def encode(self, value: Any) -> Encoded:
        """The value as JSON data."""
        kind = type(value)
        # Most values are these, and are done with after one look.
        if kind is str or kind is bool or value is None:
            return value
        if kind is list or kind is tuple:
            return [self.encode(item) for item in value]
        if kind is dict:
            return self._dict(value)
        if is_message(value):
            return self._message(value)
        if isinstance(value, _DeltaSnapshot):
            return {"$delta": self.encode(value.value)}
        if kind is Send and getattr(value, "timeout", None) is None:
            return {"$send": [value.node, self.encode(value.arg)]}
        if kind is Overwrite:
            return {"$set": self.encode(value.value)}
        if is_json(value):
            return value
        return self._typed(value)

    def _dict(self, value: dict[Any, Any]) -> Encoded:
        for key in value:
            # A key that looks like a mark of ours would be read as one.
            if type(key) is not str or key.startswith("$"):
                return self._typed(value)
        return {key: self.encode(item) for key, item in value.items()}

    def _message(self, message: Any) -> Encoded:
        known = self._keep(message)
        if known is not None:
            return known
        payload, _ = body_of(message, self._serialised)
        return {"$p": payload}

    def _typed(self, value: Any) -> Encoded:
        way, raw = self._serialised(value)
        return {"$t": [way, base64.b64encode(raw).decode()]}

    def _serialised(self, value: Any) -> Typed:
        return typed(value, self._dumps)


class Decoder:
    """Reads values. `find` gives a message of the transcript by its id, with some fields of its
    data in place of its own.
    """

    def __init__(
        self, loads: Callable[[Typed], Any], find: Callable[[str, Any], Any]
    ) -> None:
        self._loads = loads
        self._find = find

    def decode(self, value: Encoded) -> Any:
        """The value that was encoded."""
        if type(value) is list:
            return [self.decode(item) for item in value]
        if type(value) is not dict:
            return value
        for mark in value:
            if mark.startswith("$"):
                return self._marked(mark, value)
        return {key: self.decode(item) for key, item in value.items()}

    def _marked(self, mark: str, value: dict[str, Any]) -> Any:
        inner = value[mark]
        if mark == "$m":
            return self._find(inner, value.get("as"))
        if mark == "$p":
            return self._message(inner)
        if mark == "$delta":
            return _DeltaSnapshot(self.decode(inner))
        if mark == "$send":
            return Send(inner[0], self.decode(inner[1]))
        if mark == "$set":
            return Overwrite(self.decode(inner))
        way, raw = inner
        return self.load((way, base64.b64decode(raw)))

    def _message(self, payload: Any) -> Any:
        return message_of(payload, self.load)

    def load(self, stored: Typed) -> Any:
        """A typed value; a pickle is never read, whoever has written it (I-20)."""
        if stored[0] == "pickle":
            raise BadArgument(parameter="serde", takes="no pickles", given="a pickle")
        return self._loads(stored)


def spliced(before: Encoded, after: Encoded) -> Encoded:
    """A list as its difference from the one before; anything else as it is."""
    if type(before) is not list or type(after) is not list or not before:
        return after
    shared = min(len(before), len(after))
    first = 0
    while first < shared and before[first] == after[first]:
        first += 1
    last = 0
    while last < shared - first and before[-1 - last] == after[-1 - last]:
        last += 1
    if not first and not last:
        return after
    return {"$s": [first, last, after[first : len(after) - last]]}


def joined(before: Encoded, change: Encoded) -> Encoded:
    """What `spliced` was made from."""
    if type(change) is not dict or "$s" not in change:
        return change
    first, last, items = change["$s"]
    if type(before) is not list:
        return items
    # A damaged step may have left it shorter than it was: then less of it is kept.
    tail = before[max(first, len(before) - last) :] if last else []
    return [*before[:first], *items, *tail]
