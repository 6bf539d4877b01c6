"""The book that a running turn keeps of its calls: which were made, started and answered (I-22).

A turn has one writer, so what it has started it knows by itself. The book is safe to use from
several threads: tools run side by side.
"""

import threading
from collections import deque
from collections.abc import Collection, Iterator

import msgspec

from holdfast.domain.approval import Here
from holdfast.domain.message import MessageNote
from holdfast.domain.turn import Place
from holdfast.engine.wake_signal import alone
from holdfast.errors import BadArgument


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


class MeantCall(msgspec.Struct, frozen=True):
    """Which of several calls with one id its caller means: that of this message, the one at this
    index among the calls of a message; or the one that the id itself has `named`.
    """

    message: str | None = None
    index: int | None = None
    named: Place | None = None

    @property
    def is_named(self) -> bool:
        """Whether the caller has said more than the id."""
        return (self.message, self.index, self.named) != (None, None, None)

    def fits(self, message: str, index: int) -> bool:
        """Whether the call at this place can be meant."""
        return self.message in (None, message) and self.index in (None, index)

    def several(self, call_id: str, makers: Collection[str]) -> BadArgument:
        """The error when more than one call can be meant, made by these messages."""
        parameter, what = "message", "the id of the message that makes the call"
        if len(makers) == 1:
            parameter, what = (
                "index",
                "the place of the call among those of its message",
            )
        return BadArgument(
            parameter=parameter,
            takes=f"{what} (`CallToRun.{parameter}`): several calls {call_id!r} have no outcome",
            given="None",
        )


class CallBook:
    """What a turn knows of its calls. A turn may have thousands, and a model may use one id for
    all of them: nothing here but `begun` goes through them all.
    """

    def __init__(self, where: str = "") -> None:
        self._where = where
        self._lock = threading.RLock()
        self._noted: set[str] = set()
        self._at: dict[Place, OpenCall] = {}
        self._newest: dict[str, OpenCall] = {}
        # By id and message, in the order they were made, those without an outcome.
        self._open: dict[str, dict[str, deque[OpenCall]]] = {}
        # By id, in the order they were started, those without an outcome.
        self._running: dict[str, dict[OpenCall, None]] = {}

    def _add(self, call: OpenCall) -> None:
        self._at[call.message, call.index] = call
        self._newest[call.call_id] = call
        messages = self._open.setdefault(call.call_id, {})
        # At the end, where the newest message is looked for.
        calls = messages.pop(call.message, deque())
        calls.append(call)
        messages[call.message] = calls
        self._follow(call)

    def _follow(self, call: OpenCall) -> None:
        """Keeps what runs together, after anything of this call has changed."""
        running = self._running.setdefault(call.call_id, {})
        if call.runs and not call.answered:
            running[call] = None
        else:
            running.pop(call, None)

    def _remove(self, call: OpenCall) -> None:
        if self._at.get((call.message, call.index)) is not call:
            return
        del self._at[call.message, call.index]
        self._running[call.call_id].pop(call, None)
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
        with alone(self._lock, self._where):
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
        """The call that an outcome belongs to which the provider's payload gives this id; it has
        one from now on.
        """
        with alone(self._lock, self._where):
            messages = self._open.get(call_id, {})
            # Ids are used again: the newest message is meant, and in it the first call.
            for message in reversed(messages):
                for call in messages[message]:
                    if call.answered or call.waiting:
                        continue
                    self._mark_answered(call)
                    return call
            return None

    def _mark_answered(self, call: OpenCall) -> None:
        # Before it is stored: the next outcome is another call's.
        call.answered = True
        self._follow(call)
        _drop_answered(self._open[call.call_id], call.message)

    def answer_meant(self, call_id: str, meant: MeantCall) -> OpenCall | None:
        """The call of this turn that an outcome belongs to; it has one from now on. None when no
        call of the turn can be meant. Raises `BadArgument` when several can: tools run side by
        side, and end in any order.
        """
        with alone(self._lock, self._where):
            known = self._at.get(meant.named) if meant.named is not None else None
            if known is not None:
                # Else it is of a call that has an outcome, or that waits: not another's.
                call = None if known.answered or known.waiting else known
            else:
                running = self._running.get(call_id, ())
                found = [
                    each for each in running if meant.fits(each.message, each.index)
                ]
                if len(found) > 1:
                    raise meant.several(call_id, {each.message for each in found})
                call = found[0] if found else self._first_made(call_id, meant)
            if call is not None:
                self._mark_answered(call)
            return call

    def _first_made(self, call_id: str, meant: MeantCall) -> OpenCall | None:
        """What nobody has started is answered by those who keep no account of it: the newest
        message first, and in it the calls in their order.
        """
        for calls in reversed(self._open.get(call_id, {}).values()):
            for call in calls:
                is_open = not (call.answered or call.waiting)
                if is_open and meant.fits(call.message, call.index):
                    return call
        return None

    def leave_unanswered(self, call: OpenCall) -> None:
        """It could not be stored that this call has an outcome: it can be answered again."""
        with alone(self._lock, self._where):
            call.answered = False
            calls = self._open[call.call_id].setdefault(call.message, deque())
            if call not in calls:
                # All before it have outcomes, or it would not have been dropped.
                calls.appendleft(call)
            self._follow(call)

    def is_made(self, call_id: str, place: Place | None = None) -> bool:
        """Whether the model has made a call of this id that nobody has started: any, or the one at
        this place.
        """
        with alone(self._lock, self._where):
            if place is None:
                return next(self._made(call_id), None) is not None
            call = self._at.get(place)
            return call is not None and not call.started and not call.answered

    def made(self, call_id: str) -> list[Place]:
        """The places of the calls of this id that the model has made and nobody has started."""
        with alone(self._lock, self._where):
            return [(call.message, call.index) for call in self._made(call_id)]

    def here(self, call_id: str) -> Here | None:
        """What became of this id in this turn."""
        with alone(self._lock, self._where):
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
        with alone(self._lock, self._where):
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
            self._follow(call)
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
        with alone(self._lock, self._where):
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
        with alone(self._lock, self._where):
            self._remove(call)

    def take_back(self, call: OpenCall) -> None:
        """It could not be stored that this call of the model's was begun: it is as it was made."""
        with alone(self._lock, self._where):
            call.started = call.waiting = call.storing = False
            self._follow(call)

    def begun(self) -> set[Place]:
        """The places of the calls that were started or have an outcome."""
        with alone(self._lock, self._where):
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
