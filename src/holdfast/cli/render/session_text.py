"""An outline as lines for people: a gutter with the numbers of messages, and beside it who said
what.

Text is printed as the user saw it: a partial message ends where its stream was cut, and says so. A
call stands with its outcome. Whatever the model no longer sees is marked with the reason.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.cli.output import Piece, split
from holdfast.domain.log.explain import Outline, Section
from holdfast.domain.message import Call, Part, Refusal, Result, Text, Thinking, Usage
from holdfast.domain.repair import StoredMessage
from holdfast.domain.turn import ToolCall, TurnRecord
from holdfast.exporters import units
from holdfast.exporters.messages import Messages
from holdfast.exporters.safe_text import cells, cut, harmless, wrapped
from holdfast.exporters.units import CALL_STATES, VIEWS
from holdfast.runtime.live.message import Message

# Characters of a message, an outcome and a call; with --full there is no limit.
TEXT_MAX, OUTCOME_MAX, CALL_MAX = 4000, 600, 300
CUT = "▌"
LABEL_CELLS = 60

Line = tuple[Piece, ...]

ENDS = {"completed": "good", "interrupted": "bad", "failed": "bad", "abandoned": "bad"}
STATE_STYLES = {
    "open": "tool",
    "waiting": "bad",
    "approved": "tool",
    "rewound": "bad",
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
        self._outline = outline
        self._spent = spent
        self._full = full
        self._messages: Messages = {}
        # Messages whose results stand below their calls, and need not be shown again.
        self._answered = outline.answered()
        self._gutter = len(str(outline.log.head)) + 1
        self._width: int | None = None
        if width is not None:
            # On the narrowest of screens lines may run over; a column of letters is no text.
            self._width = max(20, width - self._gutter - 2)

    def section(self, section: Section, messages: Messages) -> Iterator[Line]:
        """A turn with its end, or what stands outside of one."""
        self._messages = messages
        if section.turn is not None:
            yield from self._turn(section.turn)
        for seen in section.messages:
            if seen.id in self._outline.covers:
                yield from self._summary(seen)
            else:
                yield from self._message(seen)

    def _turn(self, turn: TurnRecord) -> Iterator[Line]:
        when = units.moment(turn.started_at)
        if turn.ended_at is not None:
            when += f" · {units.lasted(turn.started_at, turn.ended_at)}"
        line: list[Piece] = [
            (f"turn {turn.number}", "strong"),
            (f" · {when} · ", "quiet"),
            (turn.end or "running", ENDS.get(turn.end or "", "tool")),
        ]
        why = turn.error or turn.reason
        if why:
            line.append(f": {why}")
        tokens = units.tokens(self._spent.get(turn.number, Usage()))
        if tokens:
            line.append((f" · {tokens}", "quiet"))
        yield tuple(line)

    def _summary(self, seen: StoredMessage) -> Iterator[Line]:
        stands_for = units.many(len(self._outline.covered(seen.id)), "message")
        spans = []
        for first, last in self._outline.covers[seen.id]:
            spans.append(f"{first}–{last}" if first != last else str(first))
        about = f" of {stands_for} ({', '.join(spans)}), {units.moment(seen.at)}"
        yield from self._headed(seen, ("summary", "system"), about, self._marks(seen))
        yield from self._said(self._messages[seen.id].text)

    def _message(self, seen: StoredMessage) -> Iterator[Line]:
        """One message: who, what became of it, and what was said. Nothing when all of it stands
        below its call already.
        """
        message = self._messages[seen.id]
        parts: list[Part] = []
        # What is erased has no payload that could be taken apart.
        if message.state != "erased":
            parts = message.parts
        if seen.id in self._answered:
            parts = [part for part in parts if not isinstance(part, Result)]
            # Words beside the results, as some formats have them, are still to be
            # shown.
            if not parts:
                return
        yield from self._headed(
            seen, (message.role, message.role), "", self._marks(seen)
        )
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
        text = VIEWS[view]
        # That it is erased says enough: nobody sees it.
        if text and message.state != "erased":
            reason = self._outline.retracted.get(seen.id)
            if view == "retracted" and reason:
                text = f"{text}: {reason}"
            marks.append((text, VIEW_STYLES.get(view, "")))
        labels = self._labels(seen)
        if labels:
            marks.append((", ".join(labels), "quiet"))
        pieces: list[Piece] = []
        for mark in marks:
            pieces += [" · ", mark]
        return pieces

    def _labels(self, seen: StoredMessage) -> list[str]:
        """Its labels in words, but for the one that the view tells already."""
        found = []
        for name, value in self._outline.log.labels.get(seen.id, {}).items():
            if name != "visible_to_model":
                found.append(_labelled(name, value, full=self._full))
        return found

    def _parts(
        self, seen: StoredMessage, message: Message, parts: list[Part]
    ) -> Iterator[Line]:
        # By their order in the message, not by their ids: providers use ids again
        # (FAULTS E4).
        calls = iter(self._outline.calls.get(seen.id, ()))
        cut = message.state == "partial"
        last = -1  # the part whose words were cut
        for at, part in enumerate(parts):
            if isinstance(part, Text | Refusal):
                last = at
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

    def _said(self, text: str, *, cut: bool = False) -> list[Line]:
        lines = list(self._block(text, TEXT_MAX, ""))
        if cut:
            lines[-1] = (*lines[-1], (CUT, "bad"))
        return lines

    def _call(self, part: Call, call: ToolCall | None) -> Iterator[Line]:
        lines = list(self._block(f"▸ {units.call(part)}", CALL_MAX, "tool"))
        if call is None:  # its message was cut off in the middle of it
            yield from self._stated(lines, ("never whole", "bad"))
            return
        state = CALL_STATES[call.state], STATE_STYLES[call.state]
        yield from self._stated(lines, state)
        outcome = self._messages.get(call.outcome or "")
        if outcome is None:
            return
        for result in outcome.parts:
            if isinstance(result, Result) and result.call_id == part.id:
                yield from self._outcome(outcome, result)
                return

    def _outcome(self, outcome: Message, result: Result) -> Iterator[Line]:
        first, *rest = self._block(result.content, OUTCOME_MAX, "", indent=2)
        # The outcome is a message with a number of its own, which takes the place of
        # the margin.
        line: list[Piece] = [(f"{outcome.seq:>{self._gutter}}  ", "quiet"), *first[1:]]
        if outcome.late:
            line.append(("  late: its turn had been overtaken", "bad"))
        yield tuple(line)
        yield from rest

    def _stated(self, lines: list[Line], state: tuple[str, str]) -> list[Line]:
        """The state stands behind the call if there is room, else below it."""
        taken = 0
        for piece in lines[-1][1:]:
            taken += cells(split(piece)[0])
        if self._width is None or taken + 2 + len(state[0]) <= self._width:
            return [*lines[:-1], (*lines[-1], "  ", state)]
        return [*lines, (lines[-1][0], "  ", state)]

    def _block(
        self, text: str, limit: int | None, style: str, *, indent: int = 0
    ) -> Iterator[Line]:
        # Models often end in line breaks, which would be a gap on the screen.
        text = text.rstrip("\n")
        if not self._full:
            text = units.shortened(text, limit)
        width = None if self._width is None else self._width - indent
        margin = " " * (self._gutter + 2)
        for line in wrapped(harmless(text), width):
            yield margin, " " * indent, (line, style)


def _labelled(name: str, value: Any, *, full: bool) -> str:
    """A label in few words: of what a session was in another store, only which one it was."""
    if name == "story" and isinstance(value, dict):
        return f"brought over from {value.get('kind')} {value.get('id')}"
    text = str(value)
    if full or cells(text) <= LABEL_CELLS:
        return f"{name}={text}"
    # What an adapter keeps beside a message is for programs, and its beginning says little.
    if isinstance(value, dict):
        return f"{name}={{…}}"
    return f"{name}={cut(text, LABEL_CELLS)}"
