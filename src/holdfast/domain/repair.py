"""Repair: from the messages a model should see to a dialogue every provider accepts (I-9, I-10).

Repair decides which messages are shown, which result belongs to which call, and in what order they
stand. It works from the notes beside the payloads; a payload is read only where something of it may
have to be left out. How a step is worded for a provider (merged roles, call ids, images) is its
format's part.

What holds for the steps that come out:

* every step shows something, in every format;
* after a run of assistant steps that make calls stand their results, one tool step per call, in call order;
* no tool step stands anywhere else.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from holdfast.domain.message import (
    Call,
    CallNote,
    Image,
    MessageNote,
    Other,
    Part,
    Refusal,
    Result,
    Role,
    Text,
    Thinking,
    target_of,
)

UNKNOWN_OUTCOME = "interrupted: the outcome of this call is unknown"
INTERRUPTED = f"[{UNKNOWN_OUTCOME}]"
RUNNING = "[no result yet: the call is still running]"
WAITING = "[waiting for approval]"
CONTINUE = "(There is no new message. Continue.)"
"""What stands after a model's own message at the end of a context: providers want the last word to
be somebody else's. Nobody has said it, and it is never stored.
"""
MADE = frozenset((INTERRUPTED, RUNNING, WAITING))
"""What repair puts in the place of a result. Nobody has said it, and it is never stored (FAULTS
A10).
"""


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as the view holds it: in the order the model should see it.

    `turn` is the number of its turn, None outside one. `running`: that turn has not ended.
    `waiting`: ids of calls in it that wait for approval; `started`: of those that had to wait and
    that the running turn has started. `body` is the frozen payload, the caller's edited version
    where a shape has one.
    """

    id: str
    seq: int
    turn: int | None
    note: MessageNote
    body: bytes
    running: bool = False
    waiting: tuple[str, ...] = ()
    at: int = 0
    started: tuple[str, ...] = ()


Messages = Sequence[StoredMessage]
Order = list[StoredMessage]
"""Messages in one of the orders of a log; `log.fold` lists them."""


def ids_of(messages: Iterable[StoredMessage]) -> list[str]:
    return [message.id for message in messages]


def seqs_of(messages: Iterable[StoredMessage]) -> list[int]:
    return [message.seq for message in messages]


class Piece(msgspec.Struct, frozen=True):
    """A part, and the block of its own format that it was read from."""

    part: Part
    raw: Any = None


class Step(msgspec.Struct, frozen=True, gc=False):
    """One message of a valid dialogue, before a format shapes it.

    `source` is set when this is a stored message, whole: a format that equals the source's sends
    its payload as it is (I-14). Otherwise `pieces` is what is left of it, or what repair made;
    `format` says whose raw blocks they hold, and `shows` names the stored messages they came from.
    A tool step holds exactly one Result.
    """

    role: Role
    source: StoredMessage | None = None
    pieces: tuple[Piece, ...] = ()
    format: str = "holdfast"
    shows: tuple[str, ...] = ()


Read = Callable[[str, bytes], Sequence[Piece]]

# Where a call or a result stands: the index of its message, and its place among the message's calls
# or results.
_Place = tuple[int, int]
Pairs = dict[_Place, _Place]


def repair(seen: Messages, read: Read) -> list[Step]:
    """The valid dialogue that these messages make. Plain messages pass unread."""
    # Most dialogues are plain throughout, and long: nothing is paired for them.
    for message in seen:
        if not message.note.plain:
            return _Arranging(seen, read).steps()
    return [Step(message.note.role, message) for message in seen]


def may_cut(before: Step, after: Step) -> bool:
    """Whether shaping may be done in two pieces with the cut between these neighbours.

    Formats that put results and user text into one message need more than a user step after the
    cut: results, text and system messages before it could all belong to the same message.
    """
    return after.role == "user" and before.role == "assistant"


def calls_of(message: StoredMessage) -> Sequence[CallNote]:
    """The calls of a message. Only a model calls tools: what looks like a call in anybody else's
    message was run by nobody, no provider takes it there, and it is not shown.
    """
    return message.note.calls if message.note.role == "assistant" else ()


def pair(seen: Messages) -> Pairs:
    """Which result answers which call. A result that names its call answers that one. Else ids are
    the provider's, and are reused (FAULTS E4): nearness decides.

    A result that stands in one message with its call answers that one. Any other takes the latest
    call before it that is still open, in its own turn when that has a call of this id at all; one
    stored ahead of its call may take a later one of its turn. What stays unpaired is a stray or a
    repetition.
    """
    made = {(message.turn, call.id) for message in seen for call in calls_of(message)}
    pairs = _targeted(seen)
    begun: dict[Any, list[_Place]] = {}
    early: list[tuple[_Place, tuple[int | None, str]]] = []
    for index, message in enumerate(seen):
        for place, call_id in enumerate(_untargeted(message)):
            call = _beside(index, message, call_id, pairs)
            if call is not None:
                pairs[call] = (index, place)
                continue
            key = (message.turn, call_id)
            # Ids are reused (FAULTS E4): a call of its own turn comes before a nearer one.
            own_turn = message.turn is not None and key in made
            stack = begun.get(key if own_turn else call_id)
            call = _latest_open(stack, pairs)
            if call is not None:
                pairs[call] = (index, place)
            elif own_turn and stack is None:
                early.append(((index, place), key))
        _begin(index, message, begun)
    for result, key in early:
        # Stored ahead of its call: it takes the first of its turn.
        left = [call for call in begun.get(key, ()) if call not in pairs]
        if left:
            pairs[min(left)] = result
    return pairs


def beside_their_calls(seen: Messages) -> Order:
    """These messages in the order in which a context shows them: results after the run of calls
    that they answer, wherever they were stored.
    """
    # As nearly all are: there is nothing to move.
    if all(message.note.role != "tool" for message in seen):
        return list(seen)
    pairs = pair(seen)
    left = {index for index, _ in pairs.values() if seen[index].note.role == "tool"}
    moved = frozenset(left)
    order: Order = []
    run = _CallRun(seen)
    for index, message in enumerate([*seen, None]):
        if index in moved:
            continue
        calls = range(len(calls_of(message))) if message else range(0)
        if not (calls and run.is_joined_by(index)):
            for call in run.end():
                answer = pairs.get(call, (-1, 0))[0]
                # One message may answer several calls, and is shown once.
                if answer in left:
                    left.remove(answer)
                    order.append(seen[answer])
        for place in calls:
            run.add((index, place), pairs.get((index, place)))
        if message:
            order.append(message)
    return order


class _CallRun:
    """Calls said one by one, all before the first result of any of them: one model response (FAULTS
    E6), whose results stand after all of it.
    """

    def __init__(self, seen: Messages) -> None:
        self._seen = seen
        self.calls: list[_Place] = []
        # where the first of their results stands
        self._answered_at = len(seen)

    def is_joined_by(self, index: int) -> bool:
        """Whether the calls of the message at this index belong to the same response."""
        if not self.calls:
            return False
        first = self._seen[self.calls[0][0]]
        return first.turn == self._seen[index].turn and self._answered_at > index

    def add(self, call: _Place, answer: _Place | None) -> None:
        self.calls.append(call)
        if answer is not None:
            self._answered_at = min(self._answered_at, answer[0])

    def end(self) -> list[_Place]:
        """The calls of this run, whose results are due now; another one may begin."""
        calls, self.calls = self.calls, []
        self._answered_at = len(self._seen)
        return calls


def _untargeted(message: StoredMessage) -> Sequence[str]:
    """The ids of the calls that it answers, for a result that does not say which ones it means."""
    return message.note.answers if message.note.target is None else ()


def _beside(
    index: int, message: StoredMessage, call_id: str, pairs: Pairs
) -> _Place | None:
    """The first call of this id in the result's own message that is still open."""
    for place, call in enumerate(calls_of(message)):
        is_made = call.whole or not message.note.partial
        if is_made and call.id == call_id and (index, place) not in pairs:
            return index, place
    return None


def _targeted(seen: Messages) -> Pairs:
    """The pairs whose result says which call it answers."""
    asked: dict[str, int] = {}
    for index, message in enumerate(seen):
        # The first result counts; what names the same call again is a repetition.
        if message.note.target:
            asked.setdefault(message.note.target, index)
    pairs: Pairs = {}
    if not asked:
        return pairs
    for index, message in enumerate(seen):
        for place in range(len(calls_of(message))):
            answer = asked.get(target_of(message.id, place))
            if answer is not None:
                pairs[index, place] = (answer, 0)
    return pairs


def _begin(index: int, message: StoredMessage, begun: dict[Any, list[_Place]]) -> None:
    """Puts the message's calls on the stacks of its turn and of all turns, the first call
    on top.
    """
    for place, call in reversed(list(enumerate(calls_of(message)))):
        stack = begun.setdefault((message.turn, call.id), [])
        # Its arguments were cut off: nobody can have run it. That the turn has such an id counts.
        if message.note.partial and not call.whole:
            continue
        stack.append((index, place))
        begun.setdefault(call.id, []).append((index, place))


def _latest_open(stack: list[_Place] | None, pairs: Pairs) -> _Place | None:
    while stack:
        place = stack.pop()
        if place not in pairs:
            return place
    return None


class _Arranging:
    """One pass over the view: what each message still says, and the results that are due before the
    next one.
    """

    def __init__(self, seen: Messages, read: Read) -> None:
        self._seen = seen
        self._read = read
        self._pairs = pair(seen)
        self._steps: list[Step] = []
        self._run = _CallRun(seen)
        # reasoning that waits for the step it led to
        self._held: list[Step] = []

    def steps(self) -> list[Step]:
        # This loop passes every message of a long history.
        append = self._steps.append
        for index, message in enumerate(self._seen):
            note = message.note
            if note.plain:
                if self._run.calls or self._held:
                    self._settle(note.role, message)
                append(Step(note.role, message))
            elif note.role != "tool":
                # Results come with their calls.
                self._place(index, message)
        self._pay()
        return self._steps

    def _place(self, index: int, message: StoredMessage) -> None:
        step = self._said(index, message)
        if step is None:
            return
        if _is_thinking_only(step):
            self._pay()
            self._held.append(step)
            return
        calls = self._kept(index, message)
        # Calls that join those before them stand before the results of all.
        if not (calls and not self._held and self._run.is_joined_by(index)):
            self._settle(step.role, step.source)
        self._steps.append(Step(step.role, step.source) if step.source else step)
        for place in calls:
            self._run.add((index, place), self._pairs.get((index, place)))

    def _settle(self, role: Role, source: StoredMessage | None) -> None:
        """Before a step that opens a new message: results first, then reasoning, if this step is
        what it led to.
        """
        self._pay()
        if role == "assistant" and source is not None:
            for held in self._held:
                # A signature holds only before what the model said with it, in its own format.
                if held.source and _origin(held.source) == _origin(source):
                    self._steps.append(Step(held.role, held.source))
        self._held.clear()

    def _pay(self) -> None:
        if self._run.calls:
            self._steps.extend(self._result(place) for place in self._run.end())

    def _kept(self, index: int, message: StoredMessage) -> list[int]:
        """The calls that are shown: all of a whole message, the finished and answered ones of a
        partial one.
        """
        calls = calls_of(message)
        if not message.note.partial:
            return list(range(len(calls)))
        return [place for place in range(len(calls)) if (index, place) in self._pairs]

    def _said(self, index: int, message: StoredMessage) -> Step | None:
        """What the message says besides results; None when that is nothing. Read pieces ride along
        for judging.
        """
        note, calls = message.note, calls_of(message)
        # Whole, with calls, which always show: nothing of it has to be read.
        if calls and not note.answers and not note.partial:
            return Step(note.role, message)
        read = self._read(note.format, message.body)
        # A call in anybody else's message was run by nobody (`calls_of`).
        left_out = Result if note.role == "assistant" else (Result, Call)
        pieces = tuple(piece for piece in read if not isinstance(piece.part, left_out))
        whole = len(pieces) == len(read) and not note.partial
        if note.partial:
            pieces = tuple(self._of_partial(pieces, self._kept(index, message)))
        if not _shows(note.role, pieces):
            return None
        if whole:
            return Step(note.role, message, pieces)
        return Step(note.role, None, pieces, note.format, (message.id,))

    def _of_partial(
        self, pieces: Iterable[Piece], kept: Sequence[int]
    ) -> Iterable[Piece]:
        count = -1
        for piece in pieces:
            part = piece.part
            if isinstance(part, Call):
                count += 1
                if count in kept:
                    yield piece
            elif isinstance(part, Thinking):
                if part.signed:
                    yield piece
            elif not isinstance(part, Other):
                # A provider's own block may be cut in half as well, and nobody but the provider
                # could tell.
                yield piece

    def _result(self, place: _Place) -> Step:
        answer = self._pairs.get(place)
        if answer is None:
            return self._missing(place)
        message = self._seen[answer[0]]
        note = message.note
        is_single = note.role == "tool" and len(note.answers) == 1
        if is_single and not note.partial and not note.calls:
            return Step("tool", message)
        read = self._read(note.format, message.body)
        results = [piece for piece in read if isinstance(piece.part, Result)]
        return Step("tool", None, (results[answer[1]],), note.format, (message.id,))

    def _missing(self, place: _Place) -> Step:
        message = self._seen[place[0]]
        call_id = message.note.calls[place[1]].id
        words = INTERRUPTED
        if call_id in message.waiting:
            words = WAITING
        elif message.running or call_id in message.started:
            words = RUNNING
        return Step("tool", None, (Piece(Result(call_id, words, error=True)),))


def _origin(message: StoredMessage) -> tuple[str, int | None]:
    return message.note.format, message.turn


def _says(part: Part) -> bool:
    """Whether a part shows something in every format; thinking never does by itself."""
    if isinstance(part, Text | Refusal):
        return bool(part.text) and not part.text.isspace()
    return isinstance(part, Call | Image | Other)


def _shows(role: Role, pieces: Iterable[Piece]) -> bool:
    """Whether there is anything to show, or reasoning that a later step may need."""
    for piece in pieces:
        if _says(piece.part):
            return True
        if role == "assistant" and isinstance(piece.part, Thinking):
            if piece.part.signed:
                return True
    return False


def _is_thinking_only(step: Step) -> bool:
    return bool(step.pieces) and not any(_says(piece.part) for piece in step.pieces)
