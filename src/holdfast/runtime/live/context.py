"""A context: the list that is sent to the model.

The payloads of a long session are shared between one context and the next, so a context costs only
what is new. It is still the caller's own: before any of its payloads is looked at from Python, it
takes copies of them all, and what a caller changes in them changes nothing else. (Encoders written
in C read a list directly; they change nothing.)

A request whose last message is the model's own is refused by many providers, or asks the model to
go on with that very message. So while a turn runs, a context has one more after such a message,
from the user's side, that says to continue: in an agent's own turn, after an approval that came
late, after an answer that was cut off. A caller who means the other thing asks for it
(`prefill=True`), and gets the model's message last, as it was left. Between turns nothing is to be
answered, and a context is the history that the next message will follow.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.domain.log.fold import Log
from holdfast.domain.log.view import Ties, live, settled, stands_alone
from holdfast.domain.message import (
    copied,
    may_have_halves,
    thaw_all,
    without_halves,
)
from holdfast.domain.repair import CONTINUE, StoredMessage, repair
from holdfast.formats import registry
from holdfast.formats.format import Format, Shaped
from holdfast.formats.shaping import insist_on_messages, is_plain_dialogue

GIVEN_MAX = 4
"""So many contexts that were given out since the last recording are known again."""


class Context(list[Any]):
    """What the model sees: a list of payloads ready to send, and yours to change. `head` is the seq
    up to which the log was read; `instructions` is the system prompt, for formats that want it
    beside the list (Anthropic's `system`).
    """

    head: int
    instructions: str

    def __init__(
        self, payloads: Iterable[Any] = (), *, head: int = 0, instructions: str = ""
    ) -> None:
        super().__init__(payloads)
        self.head = head
        self.instructions = instructions
        self._owned = False
        self._continuation: Any = None

    def _go_on(self, payload: Any) -> None:
        """Puts this after the model's own last message. What its caller appends takes its place."""
        list.append(self, payload)
        self._continuation = payload

    def _without_continuation(self) -> list[Any]:
        """The payloads, without what stands at the end only because nothing else does."""
        payloads = list(super().__iter__())
        # Its caller may have taken it out, or changed it: then it is the caller's own.
        # By value: once the context owns its payloads, the one in the list is a copy.
        if payloads and payloads[-1] == self._continuation:
            payloads.pop()
        return payloads

    def _own(self) -> None:
        if not self._owned:
            self._owned = True
            super().__setitem__(
                slice(None), [copied(payload) for payload in super().__iter__()]
            )

    def __radd__(self, other: list[Any]) -> list[Any]:
        """`[extra] + context`: without this, the other list would take the shared payloads as they
        are.
        """
        return [*other, *self]

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._own()
        return list, (list(self),)


# What adds at the end. `insert` is not here: what it adds may stand anywhere.
_GROWING = frozenset({"append", "extend", "__add__", "__iadd__"})


def _owning(name: str) -> Any:
    method = getattr(list, name)

    def owned(self: Context, *args: Any, **kwargs: Any) -> Any:
        self._own()
        return method(self, *args, **kwargs)

    def grown(self: Context, *args: Any) -> Any:
        self._own()
        if self._continuation is None:
            return method(self, *args)
        if name == "__add__":
            return method(self._without_continuation(), *args)
        list.__setitem__(self, slice(None), self._without_continuation())
        self._continuation = None
        return method(self, *args)

    made = grown if name in _GROWING else owned
    made.__name__ = name
    made.__doc__ = method.__doc__
    return made


# Length, comparison and repr are not wrapped: they hand no payload to the caller.
for _name in (
    "__iter__", "__getitem__", "__setitem__", "__delitem__", "__reversed__", "__add__", "__iadd__",
    "__mul__", "__imul__", "__rmul__", "__contains__", "append", "extend", "insert", "pop",
    "remove", "clear", "copy", "index", "count", "sort", "reverse",
):  # fmt: skip
    setattr(Context, _name, _owning(_name))


class Contexts:
    """The shaped beginnings of a session's contexts, by format."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._given: dict[str, deque[_Given]] = {}

    def make(self, log: Log, format: str, *, prefill: bool = False) -> Context:
        """The context of this log, as of now. With `prefill` it may end with a message of the
        model's own.
        """
        shape = registry.get(format)
        kept, tail = self._split(log, shape, prefill=prefill)
        instructions = without_halves(log.instructions)
        self._note_given(format, log.head, kept, tail)
        context = Context(
            shape.close([], instructions),
            head=log.head,
            instructions=instructions or "",
        )
        # By `list` itself: after its own `extend`, the context would count as owning
        # payloads that it shares.
        list.extend(context, kept.payloads)
        # What was kept ends before a user message, so the last message of all is in the tail.
        list.extend(context, shape.close([payload for payload, _ in tail], None))
        if log.running is not None and not prefill and tail:
            # Nearly always it ends with what was asked, and that is always shown.
            asked = log.visible[-1].note
            last, _ = tail[-1]
            if not (asked.plain and asked.role == "user") and (
                shape.note(last).role == "assistant"
            ):
                context._go_on(shape.say("user", CONTINUE))
        return context

    def shown(self, log: Log, shape: Format) -> list[Shaped]:
        """The payloads of this log with the ids of the messages they show, instructions
        left aside.
        """
        kept, tail = self._split(log, shape)
        return _joined(kept, len(kept.payloads), tail)

    def given(self, log: Log, format: str) -> list[list[Shaped]]:
        """What the last contexts showed, the newest first, as far as the log has grown since:
        `record` knows each of them again, whatever others have done to the view meanwhile.
        """
        return [
            _joined(given.kept, given.length, given.tail)
            for given in reversed(self._given.get(format, ()))
            if given.head != log.head
        ]

    def _note_given(
        self, format: str, head: int, kept: "_Kept", tail: list[Shaped]
    ) -> None:
        given = self._given.setdefault(format, deque(maxlen=GIVEN_MAX))
        if given and given[-1].head == head:
            given.pop()
        # With the count: what is kept grows in place with every later context.
        given.append(_Given(head, kept, len(kept.payloads), tail))

    def forget_given(self, format: str) -> None:
        """A list was recorded since, and is what its handle remembers now."""
        self._given.pop(format, None)

    def know_given(self, before: "Contexts") -> None:
        """Those before it are gone, but what they gave is still in their callers' lists."""
        self._given = before._given

    def _split(
        self, log: Log, shape: Format, *, prefill: bool = False
    ) -> tuple["_Kept", list[Shaped]]:
        order, running = log.visible, log.running
        kept = self._kept.get(shape.name)
        if kept is None or not kept.is_of(log.revision, len(order)):
            kept = self._kept[shape.name] = _Kept(log.revision)
        cut = settled(order, kept.count, running, kept.ties)
        if cut > kept.count:
            kept.extend(order[kept.count : cut], shape)
        tail = order[kept.count :]
        # A result in the tail may belong to a call in the beginning: then all is repaired at once,
        # and what is kept waits for a better day.
        if not stands_alone(tail, kept.ties):
            kept, tail = _Kept(log.revision), order
        steps = repair(live(tail, running), registry.read)
        # A copy: what the tail uses must not bind the beginning, which outlives it.
        used = set(kept.used)
        shaped = shape.shape(steps, used=used, first=not kept.payloads, goes_on=prefill)
        insist_on_messages([payload for payload, _ in shaped])
        return kept, _sendable(shaped, tail)


class _Given(NamedTuple):
    """A context that was given out: the head of its log, how much of what is kept
    was in it, and the rest of it.
    """

    head: int
    kept: "_Kept"
    length: int
    tail: list[Shaped]


class _Kept:
    """A beginning that can no longer change while the log's revision stays."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.count = 0
        self.payloads: list[Any] = []
        self.ids: list[tuple[str, ...]] = []
        self.used: set[str] = set()
        self.ties = Ties()
        self._is_torn = False

    def is_of(self, revision: int, count: int) -> bool:
        """Whether it is the beginning of an order of so many messages, and all of it: if it was
        interrupted while it grew, it is none.
        """
        return not self._is_torn and self.revision == revision and self.count <= count

    def extend(self, messages: Sequence[StoredMessage], shape: Format) -> None:
        """These stand next in it."""
        self._is_torn = True
        self._add(messages, shape)
        self.count += len(messages)
        self._is_torn = False

    def _add(self, messages: Sequence[StoredMessage], shape: Format) -> None:
        # Plain messages neither call nor answer: they add no ties and use no call ids.
        if is_plain_dialogue(messages, shape.name):
            # What a long history mostly is, and what every format passes on unread.
            self._take_plain(messages)
            return
        self.ties.add(messages)
        steps = repair(messages, registry.read)
        shaped = shape.shape(steps, used=self.used, first=not self.payloads)
        insist_on_messages([payload for payload, _ in shaped])
        for payload, ids in _sendable(shaped, messages):
            self.payloads.append(payload)
            self.ids.append(ids)

    def _take_plain(self, messages: Sequence[StoredMessage]) -> None:
        payloads = thaw_all([message.body for message in messages])
        if list not in insist_on_messages(payloads):
            self.payloads += payloads
            self.ids += [(message.id,) for message in messages]
            return
        # A model response of several items is one message, and several elements of a context.
        for message, payload in zip(messages, payloads, strict=True):
            items = payload if type(payload) is list else [payload]
            self.payloads += items
            self.ids += [(message.id,)] * len(items)


def _sendable(shaped: list[Shaped], messages: Sequence[StoredMessage]) -> list[Shaped]:
    """What is shown of these messages, as it can be sent."""
    for message in messages:
        if may_have_halves(message.body):
            return [(without_halves(payload), ids) for payload, ids in shaped]
    return shaped


def _joined(kept: _Kept, count: int, tail: list[Shaped]) -> list[Shaped]:
    return [*zip(kept.payloads[:count], kept.ids[:count], strict=True), *tail]
