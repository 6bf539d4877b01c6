"""An outline as lines for people: a gutter with the numbers of messages, and beside it who said
what.

Text is printed as the user saw it: a partial message ends where its stream was cut, and says so. A
call stands with its outcome. Whatever the model no longer sees is marked with the reason.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.cli.output import Piece
from holdfast.domain.log.explain import Outline, Section
from holdfast.domain.message import Call, Part, Refusal, Result, Text, Thinking, Usage
from holdfast.domain.repair import StoredMessage
from holdfast.domain.turn import ToolCall, TurnRecord
from holdfast.exporters import units
from holdfast.exporters.messages import Messages
from holdfast.exporters.safe_text import cells, harmless, wrapped
from holdfast.exporters.units import CALL_STATES, VIEWS
from holdfast.runtime.live.message import Message

TEXT_MAX, OUTCOME_MAX, CALL_MAX = 4000, 600, 300
CUT = "▌"

Line = tuple[Piece, ...]

ENDS = {"completed": "good", "interrupted": "bad", "failed": "bad", "abandoned": "bad"}
STATE_STYLES = {
    "open": "tool",
    "waiting": "bad",
    "approved": "tool",
    "denied": "bad",
    "done": "good",
    "failed": "bad",
    "unknown": "bad",
}
VIEW_STYLES = {
    "retracted": "bad",
    "hidden": "bad",
    "summarised": "quiet",
    "rewound": "bad",
    "left out": "bad",
}


class Printer:
    """Prints sections of an outline, within a width or, without one, never broken."""

    def __init__(
        self,
        outline: Outline,
        *,
        spent: Mapping[int, Usage],
        width: int | None,
        full: bool,
    ) -> None:
        self._outline, self._spent, self._full = outline, spent, full
        self._messages: Messages = {}
        self._answered = outline.answered()
        self._gutter = len(str(outline.head)) + 1
        self._width = None if width is None else max(20, width - self._gutter - 2)

    def section(self, section: Section, messages: Messages) -> Iterator[Line]:
        """A turn with its end, or what stands outside of one."""
        self._messages = messages
        if section.turn is not None:
            yield from self._turn(section.turn)
        for seen in section.messages:
            yield from (
                self._summary(seen) if seen.id in self._outline.covers else self._message(seen)
            )

    def _turn(self, turn: TurnRecord) -> Iterator[Line]:
        end, style = turn.end or "running", ENDS.get(turn.end or "", "tool")
        lasted = (
            f" · {units.lasted(turn.started_at, turn.ended_at)}"
            if turn.ended_at is not None
            else ""
        )
        why = f": {turn.error or turn.reason}" if turn.error or turn.reason else ""
        began = units.moment(turn.started_at)
        tokens = units.tokens(self._spent.get(turn.number, Usage()))
        head: Line = (
            (f"turn {turn.number}", "strong"),
            (f" · {began}{lasted} · ", "quiet"),
            (end, style),
            why,
        )
        yield (*head, (f" · {tokens}", "quiet")) if tokens else head

    def _summary(self, seen: StoredMessage) -> Iterator[Line]:
        stands_for = units.many(len(self._outline.covered(seen.id)), "message")
        covers = self._outline.covers[seen.id]
        spans = ", ".join(
            f"{first}–{last}" if first != last else f"{first}" for first, last in covers
        )
        about = f" of {stands_for} ({spans}), {units.moment(seen.at)}"
        yield from self._headed(seen, ("summary", "system"), about, self._marks(seen))
        yield from self._said(self._messages[seen.id].text)

    def _message(self, seen: StoredMessage) -> Iterator[Line]:
        """One message: who, what became of it, and what was said. Nothing when it is told with its
        call already.
        """
        message = self._messages[seen.id]
        parts = message.parts if message.state != "erased" else []
        if seen.id in self._answered:
            parts = [part for part in parts if not isinstance(part, Result)]
            if not parts:
                return
        yield from self._headed(seen, (message.role, message.role), "", self._marks(seen))
        yield from self._parts(seen, message, parts)

    def _headed(
        self, seen: StoredMessage, who: Piece, about: str, marks: list[Piece]
    ) -> Iterator[Line]:
        yield (f"{seen.seq:>{self._gutter}}  ", "quiet"), who, (about, "quiet"), *marks

    def _marks(self, seen: StoredMessage) -> list[Piece]:
        marks: list[Piece] = []
        message = self._messages[seen.id]
        if message.state == "partial":
            marks.append(("cut off: the user saw no more of it", "bad"))
        if message.state == "erased":
            marks.append(("erased", "bad"))
        if seen.note.late:
            marks.append(("late: its turn had been overtaken", "bad"))
        view = self._outline.view(seen)
        text, style = VIEWS[view], VIEW_STYLES.get(view, "")
        reason = self._outline.retracted.get(seen.id) if view == "retracted" else ""
        if text and message.state != "erased":
            marks.append((f"{text}: {reason}" if reason else text, style))
        labels = {
            name: value
            for name, value in self._outline.labels(seen.id).items()
            if name != "visible_to_model"
        }
        if labels:
            marks.append(
                (", ".join(_labelled(name, value) for name, value in labels.items()), "quiet")
            )
        return [piece for mark in marks for piece in (" · ", mark)]

    def _parts(self, seen: StoredMessage, message: Message, parts: list[Part]) -> Iterator[Line]:
        calls = iter(self._outline.calls.get(seen.id, ()))
        cut = message.state == "partial"
        last = max(
            (at for at, part in enumerate(parts) if isinstance(part, Text | Refusal)), default=-1
        )
        for at, part in enumerate(parts):
            if isinstance(part, Text):
                yield from self._said(part.text, cut=cut and at == last)
            elif isinstance(part, Call):
                yield from self._call(part, next(calls, None))
            elif isinstance(part, Result):
                yield from self._block(
                    f"result of {part.call_id}: {part.content}", OUTCOME_MAX, "tool"
                )
            else:
                yield from self._block(units.aside(part), TEXT_MAX, "quiet")
                if self._full and isinstance(part, Thinking):
                    yield from self._block(part.text, None, "quiet")

    def _said(self, text: str, *, cut: bool = False) -> Iterator[Line]:
        lines = list(self._block(text, TEXT_MAX, ""))
        if cut:
            lines = [*lines[:-1], (*lines[-1], (CUT, "bad"))]
        return iter(lines)

    def _call(self, part: Call, call: ToolCall | None) -> Iterator[Line]:
        state, style = "never whole", "bad"
        if call is not None:
            state, style = CALL_STATES[call.state], STATE_STYLES[call.state]
        yield from self._stated(
            list(self._block(f"▸ {units.call(part)}", CALL_MAX, "tool")), (state, style)
        )
        outcome = (
            self._messages.get(call.outcome)
            if call is not None and call.outcome is not None
            else None
        )
        if outcome is not None:
            late: list[Piece] = (
                [("  late: its turn had been overtaken", "bad")] if outcome.late else []
            )
            said = [
                each
                for each in outcome.parts
                if isinstance(each, Result) and each.call_id == part.id
            ]
            for result in said[:1]:
                first, *rest = self._block(result.content, OUTCOME_MAX, "", indent=2)
                yield ((f"{outcome.seq:>{self._gutter}}  ", "quiet"), *first[1:], *late)
                yield from rest

    def _stated(self, lines: list[Line], state: tuple[str, str]) -> Iterator[Line]:
        """The state stands behind the call if there is room, else below it."""
        taken = sum(cells(piece if isinstance(piece, str) else piece[0]) for piece in lines[-1][1:])
        if self._width is None or taken + 2 + len(state[0]) <= self._width:
            return iter([*lines[:-1], (*lines[-1], "  ", state)])
        return iter([*lines, (lines[-1][0], "  ", state)])

    def _block(
        self, text: str, limit: int | None, style: str, *, indent: int = 0
    ) -> Iterator[Line]:
        text = units.shortened(text.rstrip("\n"), None if self._full else limit)
        width = None if self._width is None else self._width - indent
        margin = " " * (self._gutter + 2)
        for line in wrapped(harmless(text), width):
            yield margin, " " * indent, (line, style) if style else line


def _labelled(name: str, value: Any) -> str:
    """A label in few words; what a session was in another store is a long story."""
    if name == "story" and isinstance(value, dict):
        return f"brought over from {value.get('kind')} {value.get('id')}"
    return f"{name}={value}"
