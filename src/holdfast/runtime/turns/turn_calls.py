"""The calls of a running turn: which were made, started, answered, and which are to be run now
(I-22).

A turn has one writer, so what it has started it knows by itself; what was asked, decided and
answered is in the log. All of it is safe to use from several threads: tools run side by side.
"""

import threading
from collections.abc import Iterable
from typing import Any

from holdfast.domain.approval import Here
from holdfast.domain.log.fold import Log
from holdfast.domain.message import Call, MessageNote
from holdfast.domain.repair import StoredMessage, calls_of, pair
from holdfast.domain.reset_policy import asking_scope
from holdfast.domain.turn import CallToRun
from holdfast.runtime.live.message import parts_of
from holdfast.runtime.live.session_log import SessionLog


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
        self.call_id, self.message, self.index, self.started = (
            call_id,
            message,
            index,
            started,
        )
        self.waiting = self.answered = self.storing = False


class CallBook:
    """What a turn knows of its calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[OpenCall] = []

    def note(self, message: str, note: MessageNote) -> None:
        """A message of the turn was stored, with these calls and these answers."""
        with self._lock:
            if any(call.message == message for call in self._calls):
                return  # it was noted before: somebody was interrupted
            self._calls += [
                OpenCall(call.id, message, index)
                for index, call in enumerate(note.calls)
            ]
        for call_id in note.answers if note.target is None else ():
            self.answer(call_id)

    def answer(self, call_id: str) -> OpenCall | None:
        """The call that an outcome for this id belongs to; it has one from now on."""
        with self._lock:
            fitting = [
                call
                for call in self._calls
                if call.call_id == call_id and not call.answered and not call.waiting
            ]
            if not fitting:
                return None
            newest = fitting[-1].message
            call = next(call for call in fitting if call.message == newest)
            call.answered = True
            return call

    def is_made(self, call_id: str) -> bool:
        """Whether the model has made a call of this id that nobody has started."""
        with self._lock:
            return self._made(call_id) is not None

    def _made(self, call_id: str) -> OpenCall | None:
        return next(
            (
                c
                for c in self._calls
                if c.call_id == call_id and not c.started and not c.answered
            ),
            None,
        )

    def here(self, call_id: str) -> Here | None:
        """What became of this id in this turn."""
        with self._lock:
            mine = [call for call in self._calls if call.call_id == call_id]
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
                if any(
                    c.call_id == call_id and (c.storing or not asks)
                    for c in self._calls
                ):
                    return None
                call = OpenCall(call_id, message, 0)
                self._calls.append(call)
            call.started, call.waiting, call.storing = True, asks, True
            return call, is_new

    def stored(self, call: OpenCall) -> None:
        """It is in the log that this call was begun."""
        call.storing = False

    def begin_approved(self, call_id: str, message: str, index: int) -> OpenCall | None:
        """The call that an approval is used for; None when another thread is using it."""
        with self._lock:
            at_place = [
                c for c in self._calls if (c.message, c.index) == (message, index)
            ]
            if any(c.started and not c.waiting for c in at_place):
                return None
            for other in at_place:
                self._calls.remove(other)
            call = OpenCall(call_id, message, index, started=True)
            self._calls.append(call)
            return call

    def forget(self, call: OpenCall) -> None:
        """It could not be stored that this call was begun: it can be made again."""
        with self._lock:
            if call in self._calls:
                self._calls.remove(call)

    def take_back(self, call: OpenCall) -> None:
        """The same for one that the model has made: it is as it was made."""
        with self._lock:
            call.started = call.waiting = call.storing = False

    def begun(self) -> set[tuple[str, int]]:
        """The places of the calls that were started or have an outcome."""
        with self._lock:
            return {
                (c.message, c.index)
                for c in self._calls
                if c.answered or (c.started and not c.waiting)
            }


def was_asked(session: SessionLog, call_id: str) -> bool:
    """Whether anybody was ever asked about this call id: in any session of the key, or of those it
    was forked from.
    """
    return any(
        session.engine.accepted(asking_scope(scope), call_id) is not None
        for scope in dict.fromkeys(session.scopes())
    )


def answered(log: Log, call_id: str) -> set[tuple[str, int]]:
    """The places of the calls of this id that have an outcome."""
    standing = log.natural
    places = {
        (seen.id, index)
        for seen in standing
        for index, call in enumerate(calls_of(seen))
        if call.id == call_id
    }
    if not places:
        return set()
    pairs = pair(standing)
    return places & {(standing[at].id, index) for at, index in pairs}


def to_run(
    session: SessionLog, number: int, begun: Iterable[tuple[str, int]]
) -> list[CallToRun]:
    """The calls that are to be run now: those made in this turn, and those that were approved since
    they were made.
    """
    log = session.log()
    with session.lock:
        since = log.since_turn(number)
        done = {*begun, *((since[at].id, index) for at, index in pair(since))}
        places = [(ask.message, ask.index) for ask in log.approved()]
        for seen in since:
            if seen.turn == number and seen.id not in log.retracted:
                said = enumerate(calls_of(seen))
                places += [
                    (seen.id, index)
                    for index, call in said
                    if call.whole or not seen.note.partial
                ]
        due = [
            p
            for p in dict.fromkeys(places)
            if p not in done and (p not in log.asks or log.asks[p].may_start)
        ]
        names = {id for id, _ in due}
        makers = {seen.id: seen for seen in log.natural if seen.id in names}
        return [
            _to_run(session, makers[id], index) for id, index in due if id in makers
        ]


def _to_run(session: SessionLog, seen: StoredMessage, index: int) -> CallToRun:
    whole = session.told(seen)
    said = [part for part in parts_of(whole.note, whole.body) if isinstance(part, Call)]
    text = said[index].arguments if index < len(said) else ""
    return CallToRun(
        seen.note.calls[index].id, seen.note.calls[index].name, _parsed(text), seen.id
    )


def _parsed(text: str) -> Any:
    import json  # not before a call is left to run

    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:  # cut off, or never JSON: it is for the tool to say so
        return text
