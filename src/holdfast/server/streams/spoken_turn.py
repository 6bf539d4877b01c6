"""A running turn as it is spoken: what the streams of other programs have in common.

    begin  (text | thinking | call | arguments)*  called*  whole      a message of the model's
    result                                                            what a tool answered
    asked, denied                                                     a call that waits, or may not run
    user                                                              what was said to the model meanwhile
    end                                                               the turn's one end

The turn is told from its start, so no cursor is needed: what is finished is read from the log, what
is being spoken from the journal. A message that was followed as chunks gives what is still missing
of it when it is finished.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from holdfast.domain.chunk import SHOWN, Delta, beyond, units
from holdfast.domain.entry import Decided, Entry, legible_note
from holdfast.domain.message import Call, MessageNote, Refusal, Result, Text, Thinking
from holdfast.runtime.live.message import parts_of, text_of
from holdfast.server.streams.occurrence import Occurrence

Kind = Literal[
    "begin",
    "text",
    "thinking",
    "call",
    "arguments",
    "called",
    "whole",
    "result",
    "asked",
    "denied",
    "user",
    "end",
]


class SpokenPart(NamedTuple):
    """One step of it. `text`: words, thoughts, a piece of a call's arguments or, once it is
    `called`, all of them; what a tool answered; why a turn ended. `name`: a tool's, why a model
    stopped, or how a turn ended. `failed`: a tool's error, a call or a message that was cut off.
    """

    kind: Kind
    message_id: str = ""
    text: str = ""
    call_id: str = ""
    name: str = ""
    failed: bool = False


class _OpenCall:
    """A call that is being made."""

    def __init__(self, id: str, name: str) -> None:
        self.id, self.name, self.arguments = id, name, ""


class _OpenMessage:
    """What was told of a message that is being spoken."""

    def __init__(self) -> None:
        self.thoughts = 0
        self.calls: dict[int, _OpenCall] = {}


class SpokenTurn:
    """Reads the occurrences of one turn, in order."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ended = False
        self._open: dict[str, _OpenMessage] = {}
        self._waiting: dict[str, str] = {}
        self._asked: set[tuple[str, str]] = set()

    def take(self, occurrence: Occurrence) -> Iterator[SpokenPart]:
        """What this adds to the turn."""
        if occurrence.kind == "entry":
            assert occurrence.entry is not None
            yield from self._entry(occurrence.entry, occurrence.text)
        elif occurrence.turn == self.number and occurrence.message_id is not None:
            yield from self._begun(occurrence.message_id)
            for delta in occurrence.deltas:
                yield from self._delta(occurrence.message_id, delta)

    def _begun(self, message_id: str) -> Iterator[SpokenPart]:
        if message_id not in self._open:
            self._open[message_id] = _OpenMessage()
            yield SpokenPart("begin", message_id)

    def _delta(self, id: str, delta: Delta) -> Iterator[SpokenPart]:
        kind, index, value = delta
        message = self._open[id]
        if kind in SHOWN:
            yield SpokenPart("text", id, value)
        elif kind == "thinking":
            message.thoughts += units(value)
            yield SpokenPart("thinking", id, value)
        elif kind == "call" and value.get("id") and value.get("name"):
            call = message.calls[index] = _OpenCall(value["id"], value["name"])
            yield SpokenPart("call", id, call_id=call.id, name=call.name)
        elif kind == "arguments" and index in message.calls:
            call = message.calls[index]
            call.arguments += value
            yield SpokenPart("arguments", id, value, call.id, call.name)

    def _entry(self, entry: Entry, missing: str) -> Iterator[SpokenPart]:
        note = legible_note(entry)
        if note is None:
            return
        if entry.kind == "message" and note.inbox:
            # Nobody has taken it yet.
            self._waiting[entry.id.hex()] = text_of(parts_of(note, entry.body))
        elif entry.kind == "decision":
            # Whoever decides is in no turn.
            yield from self._decided(note)
        elif entry.turn == self.number:
            yield from self._step(entry, note, missing)

    def _decided(self, note: Decided) -> Iterator[SpokenPart]:
        call = (note.message, note.call_id)
        if not note.approved and call in self._asked:
            yield SpokenPart("denied", note.message, call_id=note.call_id)

    def _step(self, entry: Entry, note: Any, missing: str) -> Iterator[SpokenPart]:
        if entry.kind == "message" and not note.late:
            yield from self._message(entry, note, missing)
        elif entry.kind == "take":
            for id in note.takes:
                if id in self._waiting:
                    yield SpokenPart("user", id, self._waiting.pop(id))
        elif entry.kind == "ask":
            self._asked.add((note.message, note.call_id))
            yield SpokenPart("asked", note.message, call_id=note.call_id)
        elif entry.kind == "end":
            self.ended = True
            words = note.error or note.reason or ""
            yield SpokenPart("end", text=words, name=note.end)

    def _message(
        self, entry: Entry, note: MessageNote, missing: str
    ) -> Iterator[SpokenPart]:
        id = entry.id.hex()
        if note.role == "assistant":
            yield from self._finished(id, entry, note, missing)
            return
        parts = parts_of(note, entry.body)
        if note.role == "user" and not note.answers:
            yield SpokenPart("user", id, text_of(parts))
        for part in parts:
            if isinstance(part, Result):
                failed = part.error or note.failed
                yield SpokenPart("result", id, part.content, part.call_id, "", failed)

    def _finished(
        self, id: str, entry: Entry, note: MessageNote, missing: str
    ) -> Iterator[SpokenPart]:
        is_new = id not in self._open
        # All of a new one is in its parts.
        missing = "" if is_new else missing
        yield from self._begun(id)
        message = self._open.pop(id)
        known = {call.id: call for call in message.calls.values()}
        whole = {call.id: call.whole for call in note.calls}
        thoughts = message.thoughts
        for part in parts_of(note, entry.body):
            if isinstance(part, Thinking):
                if rest := beyond(part.text, thoughts):
                    yield SpokenPart("thinking", id, rest)
                thoughts = max(0, thoughts - units(part.text))
            elif isinstance(part, Text | Refusal) and is_new and part.text:
                yield SpokenPart("text", id, part.text)
            elif isinstance(part, Call):
                # The words that are missing come before the calls, as all others did.
                if missing:
                    yield SpokenPart("text", id, missing)
                    missing = ""
                is_whole = whole.get(part.id, True) and not note.partial
                yield from self._called(id, part, known.get(part.id), is_whole)
        if missing:
            yield SpokenPart("text", id, missing)
        yield SpokenPart("whole", id, name=note.finish or "", failed=note.partial)

    def _called(
        self, id: str, call: Call, known: _OpenCall | None, is_whole: bool
    ) -> Iterator[SpokenPart]:
        if known is None:
            known = _OpenCall(call.id, call.name)
            yield SpokenPart("call", id, call_id=call.id, name=call.name)
        # Stored arguments may be spaced in another way than they were spoken: then nothing is
        # missing.
        if call.arguments.startswith(known.arguments):
            rest = call.arguments[len(known.arguments) :]
            if rest:
                yield SpokenPart("arguments", id, rest, call.id, call.name)
        failed = not is_whole
        yield SpokenPart("called", id, call.arguments, call.id, call.name, failed)
