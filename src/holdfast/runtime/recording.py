"""Recording a caller's own list: what is new goes into the transcript, the list's shape becomes the view (I-12).

The commit is guarded by the head it was computed from: if anybody has written meanwhile, it is computed again.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.entry import Draft, Edit, Shape
from holdfast.domain.fingerprint import snapshot
from holdfast.domain.fold import Log
from holdfast.domain.message import MessageNote, freeze, thaw
from holdfast.domain.reconcile import Reconciled, Remembered, reconcile, remember
from holdfast.domain.repair import Seen
from holdfast.domain.view import ranges
from holdfast.engine.protocol import Refused
from holdfast.errors import InvalidMessage
from holdfast.formats import registry
from holdfast.runtime.drive import Plan, Read
from holdfast.runtime.room import Room, speak

_NO_NOTE = MessageNote()


class Recorded(msgspec.Struct, frozen=True):
    """What a recording came to: ids of the messages that were new, and the seq up to which the log now goes."""

    new: tuple[str, ...]
    head: int


class Memory:
    """What one handle presented last, by format."""

    def __init__(self) -> None:
        self.anchors: dict[str, list[Remembered]] = {}


def record(room: Room, memory: Memory, messages: Sequence[Any], *, format: str) -> Plan[Recorded]:
    """Stores what is new in this list and keeps its shape; see `Session.record`."""
    if isinstance(messages, str | bytes | dict) or not isinstance(messages, Sequence):
        raise InvalidMessage(problem=f"a {type(messages).__name__} is not a list of messages", place="messages")
    payloads = [message if type(message) is dict else _plain(message, at) for at, message in enumerate(messages)]
    first = _Attempt(room, memory, payloads, format)  # before anything waits: the list is the caller's and may change
    return _commit(room, memory, payloads, format, first)


def _plain(message: Any, index: int) -> Any:
    payload = registry.plain(message)
    if not isinstance(payload, dict | list):
        raise InvalidMessage(problem=f"a {type(payload).__name__} is not a message", place=f"messages[{index}]")
    return payload


def _commit(room: Room, memory: Memory, payloads: list[Any], format: str, first: "_Attempt") -> Plan[Recorded]:
    attempt = first
    while True:
        if attempt.drafts:
            outcome = yield room.submit(drafts=attempt.drafts, head=attempt.head)
            if isinstance(outcome, Refused):
                if outcome.why == "ended":
                    raise (yield Read(room.ended))
                attempt = yield Read(partial(_Attempt, room, memory, first.frozen(), format))
                continue
        memory.anchors[format] = attempt.anchors if attempt is first else _rebound(attempt.anchors, payloads)
        room.contexts.forget_given(format)
        return Recorded(attempt.new, attempt.head + len(attempt.drafts))


class _Attempt:
    """What recording this list means for the log as it is now."""

    def __init__(self, room: Room, memory: Memory, payloads: list[Any], format: str) -> None:
        shape = registry.get(format)
        self._format = format
        log = room.log()
        with room.lock:
            self.head = log.head
            shown = room.contexts.shown(log, shape)
            remembered, given = memory.anchors.get(format, []), room.contexts.given(log, format)
            if given:
                remembered = remember(remembered, handed=given)
            found = reconcile(payloads, shown=shown, remembered=remembered, known=_Wordings(log))
            messages = tuple(self._message(room, payload, format) for payload in found.new)
            self.new = tuple(draft.id.hex() for draft in messages)
            order, self.anchors = found.settle(self.new)
            self._leading = [snapshot(payload) for payload in payloads[: len(payloads) - len(self.anchors)]]
            changed = found.instructions is not None and found.instructions != log.instructions
            prompt = (room.draft("instructions", body=freeze(found.instructions)),) if changed else ()
            view = self._view(room, log, found, order, shown, messages, len(prompt))
        self.drafts: tuple[Draft, ...] = (*prompt, *messages, *view)

    def frozen(self) -> list[Any]:
        """The list as it was when this was asked."""
        return [*self._leading, *(anchor.snapshot for anchor in self.anchors)]

    def _message(self, room: Room, payload: Any, format: str) -> Draft:
        return room.message(speak(payload, format), turn=None)

    def _view(
        self,
        room: Room,
        log: Log,
        found: Reconciled,
        order: list[str],
        shown: Any,
        messages: tuple[Draft, ...],
        skip: int,
    ) -> tuple[Draft, ...]:
        """The view entry that makes the context equal the caller's list, if its shape is not the natural one."""
        visible = {id for _, ids in shown for id in ids}
        now = [seen.id for seen in log.order]
        natural = [id for id in now if id in visible] + list(self.new)
        if order == natural and not found.edits:
            return ()
        first = log.head + 1 + skip
        seqs = {seen.id: seen.seq for seen in log.standing}
        seqs |= {id: first + index for index, id in enumerate(self.new)}
        order = [id for id in order if id in seqs]
        kept = _with_unseen(order, now, visible)
        everything = [
            *log.standing,
            *(Seen(draft.id.hex(), seqs[draft.id.hex()], None, _NO_NOTE, b"") for draft in messages),
        ]
        edits, restored = _edits(log, found, seqs, self._format)
        note = Shape(ranges(everything, [seqs[id] for id in kept]), edits, restored)
        return (room.draft("view", note),)


def _rebound(anchors: list[Remembered], payloads: list[Any]) -> list[Remembered]:
    """A later attempt saw copies; what is remembered are the caller's own objects."""
    own = payloads[len(payloads) - len(anchors) :]
    return [replace(anchor, object=payload) for anchor, payload in zip(anchors, own, strict=True)]


class _Wordings(dict[str, Any]):
    """How the view words single messages, looked up only when asked."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    @cached_property
    def _bodies(self) -> dict[str, bytes]:
        return {seen.id: self._log.worded(seen).body for seen in self._log.standing}

    def __missing__(self, id: str) -> Any:
        return thaw(self._bodies[id])

    def get(self, id: str, default: Any = None) -> Any:
        return self[id] if id in self._bodies else default

    def __contains__(self, id: object) -> bool:
        return id in self._bodies

    def __iter__(self) -> Any:
        return iter(self._bodies)

    def items(self) -> Any:
        return [(id, self[id]) for id in self._bodies]


def _with_unseen(order: list[str], now: list[str], visible: set[str]) -> list[str]:
    """The caller's order, with what repair doesn't show (a stray, a blank) left where it stood."""
    present = set(order)
    after: dict[str | None, list[str]] = {}
    previous = None
    for id in now:
        if id in visible:
            previous = id
        elif id not in present:
            after.setdefault(previous, []).append(id)
    out = list(after.get(None, ()))
    for id in order:
        out.append(id)
        out.extend(after.get(id, ()))
    return out


def _edits(log: Log, found: Reconciled, seqs: dict[str, int], format: str) -> tuple[dict[int, Edit], tuple[int, ...]]:
    bodies = {seen.id: seen.body for seen in log.standing}
    edits, restored = {}, []
    for id, payload in found.edits.items():
        if id in bodies and thaw(bodies[id]) == payload:
            restored.append(seqs[id])
        else:
            spoken = speak(payload, format)
            edits[seqs[id]] = Edit(spoken.note, thaw(spoken.body))
    return edits, tuple(restored)
