"""Three views of a session, row by row: what the user saw, what the model will be sent, what is
stored; and why they are not the same.

A row is a message with its place in each of the three, or something that is in one of them alone:
an outcome that nobody has stored, instructions, a message that is still being spoken. What is
stored is what the others are held against, so a row without a difference is the same in all three.
Nothing here reads or writes anything (I-9): the same log gives the same rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from holdfast.domain.log.explain import Outline
from holdfast.domain.message import (
    Call,
    Image,
    Other,
    Part,
    Refusal,
    Result,
    Text,
    Thinking,
    Usage,
)
from holdfast.domain.repair import StoredMessage
from holdfast.domain.turn import ToolCall
from holdfast.exporters.safe_text import one_line
from holdfast.exporters.units import CALL_STATES, many
from holdfast.runtime.live.message import Message
from holdfast.server.page.page_sections import ViewedSection
from holdfast.server.page.reasons import ViewDifference, saw, sent
from holdfast.server.page.sent_differences import SentDifferences
from holdfast.server.page.sent_list import MadeResult, SentList
from holdfast.server.page.shown_parts import ShownPart, shown_parts, without_words

RowKind = Literal["message", "summary", "instructions", "made", "spoken"]


class SawCell(msgspec.Struct, frozen=True):
    """What the user saw of a message. `cut`: its stream ended here, and no more of it was shown."""

    parts: list[ShownPart]
    cut: bool = False


class SentCell(msgspec.Struct, frozen=True):
    """What the model will be sent of a message: where in the context, counted from 0. Nowhere in it
    are instructions that go beside the list.
    """

    places: list[int]
    parts: list[ShownPart]


class StoredCell(msgspec.Struct, frozen=True):
    """What is stored of a message. `seq` is that of its entry, null while it is still being spoken;
    `state` is that of a message, or "spoken".
    """

    seq: int | None
    state: str
    format: str
    parts: list[ShownPart]
    at: int | None
    late: bool = False
    labels: dict[str, Any] = {}
    model: str | None = None
    usage: Usage | None = None


class ShownOutcome(msgspec.Struct, frozen=True):
    """What answered a call, and the message that did."""

    message: str
    seq: int
    late: bool
    parts: list[ShownPart]


class ShownCall(msgspec.Struct, frozen=True):
    """A call that a message makes. `state` is what became of it, null where it was cut off in the
    middle; `says` are the words for it.
    """

    call_id: str
    name: str
    state: str | None
    says: str
    outcome: ShownOutcome | None


class ViewRow(msgspec.Struct, frozen=True):
    """A message, or what stands in one view alone, in each of the three views; null where it is not
    there.
    """

    id: str
    kind: RowKind
    role: str
    saw: SawCell | None
    sent: SentCell | None
    stored: StoredCell | None
    calls: list[ShownCall] = []
    differences: list[ViewDifference] = []


Messages = Mapping[str, Message]
"""By id, with their payloads."""


class ThreeViews:
    """The rows of a session. `sections` are all that it has, in order; `aside`: those of their
    messages that stand nowhere in the log any more, with the reason.
    """

    def __init__(
        self,
        outline: Outline,
        sent_list: SentList,
        sections: Sequence[ViewedSection],
        aside: Mapping[str, str],
    ) -> None:
        self._outline = outline
        self._sent = sent_list
        order = [seen for section in sections for seen in section.messages]
        self._differences = SentDifferences(outline, sent_list, order, aside)
        self._aside = aside

    def of_message(
        self, seen: StoredMessage, messages: Messages, owed_to: Sequence[str] = ()
    ) -> Iterator[ViewRow]:
        """The row of a message, and those of what the model is told of its calls. `owed_to`: whom
        the reply of its turn is owed to.
        """
        message = messages[seen.id]
        parts = [] if message.state == "erased" else message.parts
        is_summary = seen.id in self._outline.covers
        departs = self._differences.of(seen, message, parts)
        cell = None
        if seen.id in self._sent.places:
            said = self._differences.sent_parts(seen.id)
            cell = SentCell(self._sent.places[seen.id], shown_parts(said))
        if message.payload is None and message.state != "erased":
            shown, why, departs = None, [saw("unreadable")], [sent("unreadable")]
        elif is_summary:
            shown, why = None, [saw("summary", stands_for=self._stands_for(seen.id))]
        elif self._is_hidden(seen):
            shown, why = None, [saw("hidden_from_user")]
        else:
            shown, why = what_user_saw(message, parts)
            if owed_to and shown is not None and self._is_owed(seen):
                why.append(saw("owed", whom=one_line(", ".join(owed_to))))
        yield ViewRow(
            id=seen.id,
            kind="summary" if is_summary else "message",
            role=message.role,
            saw=shown,
            sent=cell,
            stored=self._stored(seen, message, parts),
            calls=list(self._calls(seen, parts, messages)),
            differences=[*why, *departs],
        )
        for made in self._sent.made.get(seen.id, ()):
            yield self._made(made)

    def _is_hidden(self, seen: StoredMessage) -> bool:
        """Whether a label says that the user was not shown it."""
        return self._outline.log.labels.get(seen.id, {}).get("visible_to_user") is False

    def _is_owed(self, seen: StoredMessage) -> bool:
        """Whether a message is part of the reply that its turn owes: what stands, and was not
        confirmed by the turn itself (I-23).
        """
        log = self._outline.log
        turn = log.turn_record(seen.turn)
        is_confirmed = turn is not None and seen.seq <= turn.sent_seq
        stands = not is_confirmed and seen.id not in log.retracted
        return seen.note.role == "assistant" and stands

    def _stands_for(self, summary: str) -> str:
        return many(len(self._outline.covered(summary)), "message")

    def _stored(
        self, seen: StoredMessage, message: Message, parts: list[Part]
    ) -> StoredCell:
        state = message.state
        if seen.id in self._outline.log.waiting:
            state = "pending"
        elif self._aside.get(seen.id) == "elsewhere":
            state = "elsewhere"
        return StoredCell(
            seq=seen.seq,
            state=state,
            format=message.format,
            parts=shown_parts(parts),
            at=message.at,
            late=message.late,
            labels=self._outline.log.labels.get(seen.id, {}),
            model=message.model,
            usage=message.usage,
        )

    def _calls(
        self, seen: StoredMessage, parts: list[Part], messages: Messages
    ) -> Iterator[ShownCall]:
        # By their order in the message, not by their ids: providers use ids again (FAULTS E4).
        known = iter(self._outline.calls.get(seen.id, ()))
        if seen.note.role != "assistant":
            return
        for part in parts:
            if isinstance(part, Call):
                call = next(known, None)
                state = None if call is None else call.state
                says = "never whole" if state is None else CALL_STATES[state]
                outcome = None if call is None else _outcome(call, messages)
                yield ShownCall(part.id, part.name, state, says, outcome)

    def _made(self, made: MadeResult) -> ViewRow:
        return ViewRow(
            id=made.mark,
            kind="made",
            role="tool",
            saw=None,
            sent=SentCell(
                self._sent.places.get(made.mark, []), shown_parts([made.result])
            ),
            stored=None,
            differences=[sent(made.code)],
        )

    def of_spoken(self, message: Message) -> ViewRow:
        """The row of a message that is still being spoken."""
        shown, why = what_user_saw(message, message.parts)
        if shown is not None:
            # It goes on: nothing is cut.
            shown = SawCell(shown.parts)
            why = [each for each in why if each.code != "cut_off"]
        stored = StoredCell(
            None, "spoken", message.format, shown_parts(message.parts), None
        )
        return ViewRow(
            id=message.id,
            kind="spoken",
            role=message.role,
            saw=shown,
            sent=None,
            stored=stored,
            differences=[*why, sent("still_spoken")],
        )

    def lead(self) -> list[ViewRow]:
        """What stands before all messages: the instructions, and what a provider wants in front."""
        rows = []
        log = self._outline.log
        if log.instructions:
            said = shown_parts([Text(log.instructions)])
            stored = StoredCell(log.instructions_seq, "complete", "text", said, None)
            places = self._sent.instructions
            rows.append(
                ViewRow(
                    id="instructions",
                    kind="instructions",
                    role="system",
                    saw=None,
                    sent=SentCell(places, said),
                    stored=stored,
                    differences=[saw("instructions")],
                )
            )
        if self._sent.opening is not None:
            rows.append(self._only_sent("opening", self._sent.opening))
        return rows

    def tail(self) -> list[ViewRow]:
        """What stands after all messages."""
        if self._sent.continuation is None:
            return []
        return [self._only_sent("continuation", self._sent.continuation)]

    def _only_sent(self, code: str, place: int) -> ViewRow:
        parts = shown_parts(self._sent.read(place))
        return ViewRow(
            id=code,
            kind="made",
            role="user",
            saw=None,
            sent=SentCell([place], parts),
            stored=None,
            differences=[sent(code)],
        )


def _outcome(call: ToolCall, messages: Messages) -> ShownOutcome | None:
    message = messages.get(call.outcome or "")
    if message is None:
        return None
    for part in message.parts:
        if isinstance(part, Result) and part.call_id == call.call_id:
            parts = shown_parts([part])
            return ShownOutcome(message.id, message.seq, message.late, parts)
    return None


def what_user_saw(
    message: Message, parts: Iterable[Part]
) -> tuple[SawCell | None, list[ViewDifference]]:
    """What a user saw of a message that is stored so, and why that is not all of it."""
    if message.state == "erased":
        return None, [saw("erased")]
    if message.role == "system":
        return None, [saw("system_message")]
    seen: list[Part] = []
    codes: dict[str, None] = {}
    is_own = message.role == "user"
    for part in parts:
        code = _not_seen(part, is_own=is_own)
        if code is None:
            seen.append(part)
        else:
            codes[code] = None
    if message.late:
        codes["late"] = None
    cell = None
    if not without_words(seen):
        cell = SawCell(shown_parts(seen), cut=message.state == "partial")
        if cell.cut:
            codes["cut_off"] = None
    elif not codes:
        codes["no_words"] = None
    return cell, [saw(code) for code in codes]


def _not_seen(part: Part, *, is_own: bool) -> str | None:
    """Why the user did not see a part; None where they did. What is in their own message they have
    sent.
    """
    match part:
        case Text() | Refusal():
            return None
        case Result():
            return "tool_outcome"
        case Call():
            return "call_not_shown"
        case Thinking():
            return "thinking_not_shown"
        case Image() | Other():
            return None if is_own else "not_words"
