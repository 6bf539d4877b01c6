"""The calls of a running turn: which were made, started, answered, and which are to be run now
(I-22).

A turn has one writer, so what it has started it knows by itself; what was asked, decided and
answered is in the log. All of it is safe to use from several threads: tools run side by side.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.domain.approval import Here
from holdfast.domain.log.fold import Log
from holdfast.domain.message import Call, MessageNote
from holdfast.domain.repair import StoredMessage, calls_of, pair
from holdfast.domain.reset_policy import asking_scope
from holdfast.domain.turn import CallToRun
from holdfast.runtime.live.message import parts_of
from holdfast.runtime.live.session_log import SessionLog

Place = tuple[str, int]
"""A call by the id of its message and its index among the calls of that."""


class OpenCall:
    """A call of this turn that may still be answered."""

    __slots__ = (
        "answered",
        "call_id",
        "index",
        "message",
        "started",
        "storing",
        "waiting",
    )

    def __init__(
        self, call_id: str, message: str, index: int, *, started: bool = False
    ) -> None:
        self.call_id = call_id
        self.message = message
        self.index = index
        self.started = started
        self.waiting = False
        self.answered = False
        self.storing = False

    @property
    def runs(self) -> bool:
        """Whether it was started, and not merely asked about."""
        return self.started and not self.waiting


class CallBook:
    """What a turn knows of its calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[OpenCall] = []

    def _named(self, call_id: str) -> list[OpenCall]:
        """The calls of this id, in the order they were made. A model may use an id again."""
        return [call for call in self._calls if call.call_id == call_id]

    def _made(self, call_id: str) -> OpenCall | None:
        """The first call of this id that the model has made and nobody has started."""
        for call in self._named(call_id):
            if not call.started and not call.answered:
                return call
        return None

    def note(self, message: str, note: MessageNote) -> None:
        """A message of the turn was stored, with these calls and these answers."""
        with self._lock:
            if any(call.message == message for call in self._calls):
                return  # it was noted before: somebody was interrupted
            for index, call in enumerate(note.calls):
                self._calls.append(OpenCall(call.id, message, index))
        # An outcome with a target was given by `answer` before it was stored.
        if note.target is None:
            for call_id in note.answers:
                self.answer(call_id)

    def answer(self, call_id: str) -> OpenCall | None:
        """The call that an outcome for this id belongs to; it has one from now on."""
        with self._lock:
            fitting = []
            for call in self._named(call_id):
                if not call.answered and not call.waiting:
                    fitting.append(call)
            # Ids are used again: the newest message is meant, and in it the first call.
            for call in fitting:
                if call.message == fitting[-1].message:
                    # Before it is stored: the next outcome is another call's.
                    call.answered = True
                    return call
            return None

    def is_made(self, call_id: str) -> bool:
        """Whether the model has made a call of this id that nobody has started."""
        with self._lock:
            return self._made(call_id) is not None

    def here(self, call_id: str) -> Here | None:
        """What became of this id in this turn."""
        with self._lock:
            mine = self._named(call_id)
        if not mine:
            return None
        return "done" if mine[-1].answered else "started"

    def begin(
        self, call_id: str, message: str, *, asks: bool
    ) -> tuple[OpenCall, bool] | None:
        """The call to be started or asked about, the model's own or a new one in `message`, and
        whether it is new. None when another thread has begun it just now: of several, one starts a
        call.
        """
        with self._lock:
            call = self._made(call_id)
            is_new = call is None
            if call is None:
                for known in self._named(call_id):
                    # What is in the log already may be asked about once more, but not started.
                    if known.storing or not asks:
                        return None
                call = OpenCall(call_id, message, 0)
                self._calls.append(call)
            call.started = True
            call.waiting = asks
            call.storing = True
            return call, is_new

    def stored(self, call: OpenCall) -> None:
        """It is in the log that this call was begun."""
        call.storing = False

    def begin_approved(self, call_id: str, message: str, index: int) -> OpenCall | None:
        """The call that an approval is used for; None when another thread is using it."""
        with self._lock:
            kept = []
            for known in self._calls:
                if (known.message, known.index) != (message, index):
                    kept.append(known)
                elif known.runs:
                    return None
            # In place of the one that waited.
            call = OpenCall(call_id, message, index, started=True)
            self._calls = [*kept, call]
            return call

    def forget(self, call: OpenCall) -> None:
        """It could not be stored that this call was begun: it can be made again."""
        with self._lock:
            if call in self._calls:
                self._calls.remove(call)

    def take_back(self, call: OpenCall) -> None:
        """It could not be stored that this call of the model's was begun: it is as it was made."""
        with self._lock:
            call.started = call.waiting = call.storing = False

    def begun(self) -> set[Place]:
        """The places of the calls that were started or have an outcome."""
        with self._lock:
            return {
                (call.message, call.index)
                for call in self._calls
                if call.answered or call.runs
            }


def was_asked(session: SessionLog, call_id: str) -> bool:
    """Whether anybody was ever asked about this call id: in any session of the key, or of those it
    was forked from.
    """
    return any(
        session.engine.accepted(asking_scope(scope), call_id) is not None
        for scope in dict.fromkeys(session.scopes())
    )


def answered(log: Log, call_id: str) -> set[Place]:
    """The places of the calls of this id that have an outcome."""
    standing = log.natural
    places: set[Place] = set()
    for seen in standing:
        for index, call in enumerate(calls_of(seen)):
            if call.id == call_id:
                places.add((seen.id, index))
    # Pairing walks the whole log: not for an id that nobody has called.
    return places & _paired(standing) if places else places


def _paired(messages: Sequence[StoredMessage]) -> set[Place]:
    """The places of the calls among these messages that have an outcome."""
    return {(messages[at].id, index) for at, index in pair(messages)}


def to_run(session: SessionLog, number: int, begun: set[Place]) -> list[CallToRun]:
    """The calls that are to be run now: those made in this turn, and those that were approved since
    they were made.
    """
    log = session.log()
    with session.lock:
        since = log.since_turn(number)
        done = begun | _paired(since)
        due = []
        # Each once: what was made and approved in this turn is in both.
        for place in dict.fromkeys([*_approved(log), *_made_in(log, since, number)]):
            ask = log.asks.get(place)
            if place not in done and (ask is None or ask.may_start):
                due.append(place)
        makers = {seen.id: seen for seen in log.natural} if due else {}
        return [
            _to_run(session, makers[id], index) for id, index in due if id in makers
        ]


def _approved(log: Log) -> list[Place]:
    return [(ask.message, ask.index) for ask in log.approved()]


def _made_in(log: Log, since: Sequence[StoredMessage], number: int) -> Iterator[Place]:
    """The places of the calls that the model has made in this turn and not taken back."""
    for seen in since:
        if seen.turn != number or seen.id in log.retracted:
            continue
        for index, call in enumerate(calls_of(seen)):
            # Of a message that was cut off, the last call may be half a call.
            if call.whole or not seen.note.partial:
                yield seen.id, index


def _to_run(session: SessionLog, seen: StoredMessage, index: int) -> CallToRun:
    whole = session.with_payload(seen)
    said = [part for part in parts_of(whole.note, whole.body) if isinstance(part, Call)]
    # The payload of a placeholder has none of the calls that its note still names (I-25).
    text = said[index].arguments if index < len(said) else ""
    call = seen.note.calls[index]
    return CallToRun(call.id, call.name, _parsed(text), seen.id)


def _parsed(text: str) -> Any:
    import json  # not before a call is left to run

    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except ValueError:
        # Cut off, or never JSON: it is for the tool to say so.
        return text
