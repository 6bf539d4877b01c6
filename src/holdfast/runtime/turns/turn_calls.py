"""The calls of a running turn: which were made, started, answered, and which are to be run now
(I-22).

A turn has one writer, so what it has started it knows by itself; what was asked, decided and
answered is in the log. All of it is safe to use from several threads: tools run side by side.
"""

import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from holdfast.domain.approval import Here, digests_of
from holdfast.domain.log.fold import Log
from holdfast.domain.message import Call, MessageNote
from holdfast.domain.repair import StoredMessage, calls_of, pair
from holdfast.domain.reset_policy import asking_scope
from holdfast.domain.turn import CallToRun, Place
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
    """What a turn knows of its calls. A turn may have thousands, and a model may use one id for
    all of them: nothing here but `begun` goes through them all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: set[str] = set()
        self._at: dict[Place, OpenCall] = {}
        self._newest: dict[str, OpenCall] = {}
        # By id and message, in the order they were made, those without an outcome.
        self._open: dict[str, dict[str, deque[OpenCall]]] = {}

    def _add(self, call: OpenCall) -> None:
        self._at[call.message, call.index] = call
        self._newest[call.call_id] = call
        messages = self._open.setdefault(call.call_id, {})
        # At the end, where the newest message is looked for.
        calls = messages.pop(call.message, deque())
        calls.append(call)
        messages[call.message] = calls

    def _remove(self, call: OpenCall) -> None:
        if self._at.get((call.message, call.index)) is not call:
            return
        del self._at[call.message, call.index]
        if call in self._open[call.call_id].get(call.message, ()):
            self._open[call.call_id][call.message].remove(call)
        if self._newest[call.call_id] is call:
            del self._newest[call.call_id]
            for other in self._at.values():
                if other.call_id == call.call_id:
                    self._newest[call.call_id] = other

    def _unanswered(self, call_id: str) -> Iterator[OpenCall]:
        """The calls of this id that have no outcome, in the order they were made. A model may use
        an id again.
        """
        for calls in self._open.get(call_id, {}).values():
            for call in calls:
                if not call.answered:
                    yield call

    def _made(self, call_id: str) -> Iterator[OpenCall]:
        """The calls of this id that the model has made and nobody has started."""
        for call in self._unanswered(call_id):
            if not call.started:
                yield call

    def note(self, message: str, note: MessageNote) -> None:
        """A message of the turn was stored, with these calls and these answers."""
        with self._lock:
            if message in self._noted:
                return  # it was noted before: somebody was interrupted
            for index, call in enumerate(note.calls):
                # Some may have been, if the interrupt came here.
                if (message, index) not in self._at:
                    self._add(OpenCall(call.id, message, index))
            self._noted.add(message)
        # An outcome with a target was given by `answer` before it was stored.
        if note.target is None:
            for call_id in note.answers:
                self.answer(call_id)

    def answer(self, call_id: str) -> OpenCall | None:
        """The call that an outcome for this id belongs to; it has one from now on."""
        with self._lock:
            messages = self._open.get(call_id, {})
            # Ids are used again: the newest message is meant, and in it the first call.
            for message in reversed(messages):
                for call in messages[message]:
                    if call.answered or call.waiting:
                        continue
                    # Before it is stored: the next outcome is another call's.
                    call.answered = True
                    _drop_answered(messages, message)
                    return call
            return None

    def leave_unanswered(self, call: OpenCall) -> None:
        """It could not be stored that this call has an outcome: it can be answered again."""
        with self._lock:
            call.answered = False
            calls = self._open[call.call_id].setdefault(call.message, deque())
            if call not in calls:
                # All before it have outcomes, or it would not have been dropped.
                calls.appendleft(call)

    def is_made(self, call_id: str) -> bool:
        """Whether the model has made a call of this id that nobody has started."""
        with self._lock:
            return next(self._made(call_id), None) is not None

    def made(self, call_id: str) -> list[Place]:
        """The places of the calls of this id that the model has made and nobody has started."""
        with self._lock:
            return [(call.message, call.index) for call in self._made(call_id)]

    def here(self, call_id: str) -> Here | None:
        """What became of this id in this turn."""
        with self._lock:
            newest = self._newest.get(call_id)
        if newest is None:
            return None
        return "done" if newest.answered else "started"

    def begin(
        self,
        call_id: str,
        message: str,
        *,
        asks: bool,
        among: Collection[Place] = (),
    ) -> tuple[OpenCall, bool] | None:
        """The call to be started or asked about, the model's own or a new one in `message`, and
        whether it is new. `among`: where just one of these calls of the model's is meant. None when
        another thread has begun it just now: of several, one starts a call.
        """
        with self._lock:
            call = next(self._made(call_id), None)
            if among:
                call = self._first_among(call_id, among)
                if call is None:
                    return None
            is_new = call is None
            if call is None:
                # What is in the log already may be asked about once more, but not started.
                if call_id in self._newest and not asks:
                    return None
                for known in self._unanswered(call_id):
                    if known.storing:
                        return None
                call = OpenCall(call_id, message, 0)
                self._add(call)
            call.started = True
            call.waiting = asks
            call.storing = True
            return call, is_new

    def _first_among(self, call_id: str, places: Collection[Place]) -> OpenCall | None:
        for call in self._made(call_id):
            if (call.message, call.index) in places:
                return call
        return None

    def stored(self, call: OpenCall) -> None:
        """It is in the log that this call was begun."""
        call.storing = False

    def begin_approved(self, call_id: str, message: str, index: int) -> OpenCall | None:
        """The call that an approval is used for; None when another thread is using it."""
        with self._lock:
            known = self._at.get((message, index))
            if known is not None:
                if known.runs:
                    return None
                # In place of the one that waited.
                self._remove(known)
            call = OpenCall(call_id, message, index, started=True)
            self._add(call)
            return call

    def forget(self, call: OpenCall) -> None:
        """It could not be stored that this call was begun: it can be made again."""
        with self._lock:
            self._remove(call)

    def take_back(self, call: OpenCall) -> None:
        """It could not be stored that this call of the model's was begun: it is as it was made."""
        with self._lock:
            call.started = call.waiting = call.storing = False

    def begun(self) -> set[Place]:
        """The places of the calls that were started or have an outcome."""
        with self._lock:
            places = set()
            for place, call in self._at.items():
                if call.answered or call.runs:
                    places.add(place)
            return places


def _drop_answered(messages: dict[str, deque[OpenCall]], message: str) -> None:
    """Calls at the front of a message that have an outcome are looked at no more."""
    calls = messages[message]
    while calls and calls[0].answered:
        calls.popleft()
    if not calls:
        del messages[message]


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
        approved = _approved(log)
        # What was approved may have been answered in any turn since it was made.
        done = begun | _paired(log.natural if approved else since)
        due = []
        # Each once: what was made and approved in this turn is in both.
        for place in dict.fromkeys([*approved, *_made_in(log, since, number)]):
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
    call = seen.note.calls[index]
    text = _arguments(session, seen, index)
    return CallToRun(call.id, call.name, _parsed(text), seen.id)


def _arguments(session: SessionLog, seen: StoredMessage, index: int) -> str:
    whole = session.with_payload(seen)
    said = [part for part in parts_of(whole.note, whole.body) if isinstance(part, Call)]
    # The payload of a placeholder has none of the calls that its note still names (I-25).
    return said[index].arguments if index < len(said) else ""


def digests_at(
    session: SessionLog, log: Log, places: Collection[Place]
) -> Mapping[Place, str]:
    """What an approval of each of these calls would be bound to."""
    with session.lock:
        makers = {seen.id: seen for seen in log.natural}
        digests = {}
        for message, index in places:
            seen = makers.get(message)
            if seen is not None:
                # The call is handed to the tool as `{}` where the model said nothing.
                text = _arguments(session, seen, index).strip() or "{}"
                name = seen.note.calls[index].name
                digests[message, index] = digests_of(name, text)[0]
        return digests


def _parsed(text: str) -> Any:
    import json  # not before a call is left to run

    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except ValueError:
        # Cut off, or never JSON: it is for the tool to say so.
        return text
