"""Why the model does not see a message, what a rewind would take, and how a session reads from
start to end.

An `Outline` is a session's log, read once: turns in the order in which they started, each with its
messages; calls beside what answered them; and for each message whether the model sees it and, if
not, why. Commands, exports and pages show it in their own ways.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.domain.entry import Entry, note_of, noted
from holdfast.domain.log.fold import Log
from holdfast.domain.log.path import back_to
from holdfast.domain.repair import StoredMessage
from holdfast.domain.turn import ToolCall, TurnRecord, tool_calls


class Section(msgspec.Struct):
    """What stands together: a turn, or one message or summary outside a turn."""

    turn: TurnRecord | None
    messages: list[StoredMessage]


class Outline:
    """What a session's entries come to, for somebody who wants to understand it."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._log = Log()
        self.retracted: dict[str, str] = {}
        self.covers: dict[str, tuple[tuple[int, int], ...]] = {}
        self.parent: tuple[str, int] | None = None
        self.previous: str | None = None
        self.erased = 0
        self._by_id: dict[str, StoredMessage] = {}
        self._log.add(map(self._noted, entries))
        self.calls = self._calls()
        self._shown = {seen.id for seen in self._log.visible}
        self._gone = self._log.gone

    def _noted(self, entry: Entry) -> Entry:
        """Takes note of an entry on its way into the fold. Payloads are read again for what is
        printed: a long history is folded without them (I-24).
        """
        note: Any = note_of(entry.kind, entry.note) if entry.kind in _NOTED else None
        if entry.kind == "message":
            self.erased += note.erased
            return msgspec.structs.replace(entry, body=b"")
        if entry.kind == "retract":
            self.retracted.update(dict.fromkeys(note.messages, note.reason or ""))
        elif entry.kind == "compaction":
            self.covers[entry.id.hex()] = note.covers
        elif entry.kind == "opened":
            self.previous = note.previous
            if note.parent is not None:
                self.parent = (note.parent, note.parent_seq or 0)
        return entry

    def _calls(self) -> dict[str, list[ToolCall]]:
        found: dict[str, list[ToolCall]] = {}
        for call in tool_calls(
            self._log.natural, running=self._log.running, asks=self._log.asks
        ):
            found.setdefault(call.message, []).append(call)
        return found

    @property
    def closed(self) -> str | None:
        """Why the session ended, if it did."""
        return self._log.closed

    @property
    def head(self) -> int:
        return self._log.head

    @property
    def instructions(self) -> str | None:
        return self._log.instructions

    @property
    def pending(self) -> list[StoredMessage]:
        """What waits in the inbox."""
        waiting = self._log.waiting
        return [seen for seen in self._log.by_seq if seen.id in waiting]

    @property
    def sections(self) -> list[Section]:
        """All that happened, in order."""
        found: list[Section] = []
        told = set()
        for seen in self._log.natural:
            turn = self._log.turns.get(seen.turn) if seen.turn is not None else None
            if turn is None or turn.number not in told:
                found.append(Section(turn, []))
            if turn is not None:
                told.add(turn.number)
            found[-1].messages.append(seen)
        empty = [
            Section(turn, [])
            for turn in self._log.turns.values()
            if turn.number not in told
        ]
        return sorted([*found, *empty], key=_begins) if empty else found

    def answered(self) -> set[str]:
        """Ids of messages that are told with the call they answer, and not once more by
        themselves.
        """
        return {
            call.outcome
            for calls in self.calls.values()
            for call in calls
            if call.outcome is not None
        }

    def view(self, seen: StoredMessage) -> str:
        """Whether the model sees this message: "shown", or why not."""
        if seen.id in self._shown:
            return "shown"
        if seen.id in self._log.waiting:
            return "waiting"
        if self._log.summary_of(seen.id, self._shown) is not None:
            return "summarised"
        if seen.seq in self._gone:
            return "rewound"
        if seen.id in self._log.hidden:
            return "retracted" if seen.id in self.retracted else "hidden"
        return "left out"

    def covered(self, summary_id: str) -> tuple[str, ...]:
        """The ids of the messages that this summary was made for."""
        return tuple(id for id, by in self._log.covered.items() if by == summary_id)

    def rewound(self, message_id: str) -> tuple[list[str], list[str]]:
        """What a rewind to this message would take out of the model's view, and what it would bring
        back. The outline goes on as if it had been done.
        """
        note = back_to(self._log, message_id)
        before = dict.fromkeys(seen.id for seen in self._log.visible)
        if note is not None:
            self._log.add(
                [Entry(self._log.head + 1, "rewind", None, b"", 0, noted(note), b"")]
            )
        after = dict.fromkeys(seen.id for seen in self._log.visible)
        return [id for id in before if id not in after], [
            id for id in after if id not in before
        ]

    def found(self, id: str) -> StoredMessage:
        """The message with this id."""
        if not self._by_id:
            self._by_id = {seen.id: seen for seen in self._log.natural}
        return self._by_id[id]

    def labels(self, id: str) -> dict[str, Any]:
        return self._log.labels.get(id, {})


_NOTED = ("message", "retract", "compaction", "opened")


def _begins(section: Section) -> int:
    return (
        section.turn.seq
        if section.turn is not None and section.turn.seq
        else section.messages[0].seq
    )
