"""What the model will be sent, message by message: where in the list each stored message stands, and
what in it nobody has stored.

A context is a list of payloads. The messages that a payload shows are told by its format, as long as
there are any; what repair makes in the place of a missing outcome has no id. So the dialogue is
shaped once more, with a mark on each of these, and only to see where they come out.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.log.fold import Log
from holdfast.domain.log.view import live
from holdfast.domain.message import Call, Part, Result
from holdfast.domain.repair import (
    RUNNING,
    WAITING,
    Step,
    calls_of,
    repair,
)
from holdfast.formats import registry
from holdfast.formats.format import Format

MARK = "made:"
"""What the ids begin with that stand for what nobody has stored."""


class MadeResult(msgspec.Struct, frozen=True):
    """What the model is told of a call without an outcome. `mark` stands for it among the ids."""

    message: str
    mark: str
    result: Result

    @property
    def code(self) -> str:
        """The reason why it is there."""
        if self.result.content == RUNNING:
            return "running"
        if self.result.content == WAITING:
            return "waiting_for_approval"
        return "interrupted"


class SentList:
    """A context, and what each place in it is for."""

    def __init__(
        self, log: Log, payloads: Sequence[Any], format: str, *, goes_on: bool
    ) -> None:
        """`goes_on`: the last payload says that the turn goes on, and shows no message."""
        self.format = format
        self.payloads = payloads
        self._shape: Format = registry.get(format)
        self.places: dict[str, list[int]] = {}
        """Where each message stands."""
        self.together: dict[int, tuple[str, ...]] = {}
        """The ids at each place, each once."""
        self.steps: dict[str, list[Step]] = {}
        self.made: dict[str, list[MadeResult]] = {}
        """By the message that makes the call."""
        self._marks = 0
        self.instructions: list[int] = []
        self.opening: int | None = None
        self.continuation = len(payloads) - 1 if goes_on else None
        steps = repair(live(log.visible, log.running), registry.read)
        marked = [self._noted(*each) for each in _with_owners(steps)]
        self._place(log, marked)

    def _noted(self, step: Step, owner: str) -> Step:
        """Takes note of a step, marked if nobody has stored it."""
        ids = (step.source.id,) if step.source is not None else step.shows
        if not ids:
            mark = f"{MARK}{self._marks}"
            self._marks += 1
            [piece] = step.pieces
            assert isinstance(piece.part, Result)
            made = MadeResult(owner, mark, piece.part)
            self.made.setdefault(owner, []).append(made)
            return replace(step, shows=(mark,))
        for id in ids:
            self.steps.setdefault(id, []).append(step)
        return step

    def _place(self, log: Log, marked: list[Step]) -> None:
        lead = len(self._shape.close([], log.instructions))
        self.instructions = list(range(lead))
        shaped = self._shape.shape(marked, used=set(), first=True)
        for place, (_, ids) in enumerate(shaped, lead):
            self.together[place] = tuple(dict.fromkeys(ids))
            if not ids:
                # Nothing but the dialogue's beginning is made by a format itself.
                self.opening = place
            for id in self.together[place]:
                self.places.setdefault(id, []).append(place)

    def at(self, id: str) -> list[Any]:
        """The payloads that show this message, or made result."""
        return [self.payloads[place] for place in self.places.get(id, ())]

    def read(self, place: int) -> list[Part]:
        """What the payload at this place says."""
        return [piece.part for piece in self._shape.read(self.payloads[place])]

    def others(self, id: str) -> list[str]:
        """The ids that share a payload with this one."""
        found: dict[str, None] = {}
        for place in self.places.get(id, ()):
            found.update(dict.fromkeys(self.together[place]))
        found.pop(id, None)
        return list(found)

    def parts(self, id: str) -> list[Part]:
        """What is sent of this message: read from its payload, or where that shows others too, as
        it goes into it.
        """
        if not self.others(id):
            try:
                return [
                    piece.part
                    for payload in self.at(id)
                    for piece in self._shape.read(payload)
                ]
            # Whatever a format trips over in a payload that it has made, and never reads.
            except Exception:
                pass
        return [part for step in self.steps.get(id, ()) for part in parts_of_step(step)]


def parts_of_step(step: Step) -> list[Part]:
    """What a step of a dialogue says."""
    pieces: Sequence[Any] = step.pieces
    if step.source is not None:
        pieces = registry.read(step.source.note.format, step.source.body)
    return [piece.part for piece in pieces]


def _with_owners(steps: list[Step]) -> Iterator[tuple[Step, str]]:
    """Each step; the outcome of a call with the id of the message that makes the call. Outcomes stand
    after their calls, one for each, in the same order.
    """
    open_calls: deque[str] = deque()
    for step in steps:
        if step.role == "tool":
            yield step, open_calls.popleft() if open_calls else ""
            continue
        if step.source is not None:
            open_calls.extend(step.source.id for _ in calls_of(step.source))
        else:
            for piece in step.pieces:
                if isinstance(piece.part, Call):
                    open_calls.append(step.shows[0])
        yield step, ""
