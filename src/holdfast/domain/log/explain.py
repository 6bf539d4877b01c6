"""Why the model does not see a message, what a rewind would take, and how a session reads from
start to end.

An `Outline` is a session's log, read once: turns in the order in which they started, each with its
messages; calls beside what answered them; and for each message whether the model sees it and, if
not, why. Commands, exports and pages show it in their own ways.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.entry import Entry, Ranges, note_of, noted
from holdfast.domain.log.fold import Log
from holdfast.domain.log.path import back_to
from holdfast.domain.repair import Order, StoredMessage, ids_of
from holdfast.domain.turn import ToolCall, TurnRecord, tool_calls


class Section(msgspec.Struct):
    """What stands together: a turn, or one message or summary outside a turn."""

    turn: TurnRecord | None
    messages: Order

    @property
    def begins(self) -> int:
        """The seq of its first entry. Of a turn that was not read from its start, that is a
        message's.
        """
        if self.turn is not None and self.turn.seq:
            return self.turn.seq
        return self.messages[0].seq


class Outline:
    """What a session's entries come to, for somebody who wants to understand it. `log` has them
    without payloads.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.log = Log()
        self.retracted: dict[str, str] = {}
        self.covers: dict[str, Ranges] = {}
        self.parent: tuple[str, int] | None = None
        self.previous: str | None = None
        self.erased = 0
        self._by_id: dict[str, StoredMessage] = {}
        self.log.add(map(self._noted, entries))
        self.calls: dict[str, list[ToolCall]] = {}
        log = self.log
        self._shown = set(ids_of(log.visible))
        self._gone = log.gone
        for call in tool_calls(
            log.natural, running=log.running, asks=log.asks, gone=self._gone
        ):
            self.calls.setdefault(call.message, []).append(call)

    def _noted(self, entry: Entry) -> Entry:
        """Takes note of an entry on its way into the fold. Payloads are read again for what is
        printed: a long history is folded without them (I-24).
        """
        note: Any = note_of(entry.kind, entry.note) if entry.kind in _NOTED else None
        if entry.kind == "message":
            self.erased += note.erased
            return replace(entry, body=b"")
        if entry.kind == "retract":
            self.retracted.update(dict.fromkeys(note.messages, note.reason or ""))
        elif entry.kind == "compaction":
            self.covers[entry.id.hex()] = note.covers
        elif entry.kind == "opened":
            self.previous = note.previous
            if note.parent is not None:
                self.parent = (note.parent, note.parent_seq or 0)
        return entry

    @property
    def sections(self) -> list[Section]:
        """All that happened, in order."""
        found: list[Section] = []
        silent = dict(self.log.turns)
        for seen in self.log.natural:
            turn = self.log.turn_record(seen.turn)
            if turn is None or turn.number in silent:
                found.append(Section(turn, []))
            if turn is not None:
                silent.pop(turn.number, None)
            # All of a turn stand next to each other in the natural order.
            found[-1].messages.append(seen)
        # One of which nothing but its end is there has no place, and nothing to show.
        found += [Section(turn, []) for turn in silent.values() if turn.seq]
        return sorted(found, key=lambda section: section.begins)

    def answered(self) -> set[str]:
        """Ids of messages that are told with the call they answer, and not once more by
        themselves.
        """
        ids: set[str] = set()
        for calls in self.calls.values():
            ids.update(call.outcome for call in calls if call.outcome is not None)
        return ids

    def view(self, seen: StoredMessage) -> str:
        """Whether the model sees this message: "shown", or why not."""
        log = self.log
        if seen.id in self._shown:
            return "shown"
        if seen.id in log.waiting:
            return "waiting"
        if log.summary_of(seen.id, self._shown) is not None:
            return "summarised"
        # A rewind comes before a label: what is hidden and gone would not be shown without either.
        if seen.seq in self._gone:
            return "rewound"
        if seen.id in log.hidden:
            return "retracted" if seen.id in self.retracted else "hidden"
        return "left out"

    def covered(self, summary_id: str) -> tuple[str, ...]:
        """The ids of the messages that this summary was made for."""
        return tuple(id for id, by in self.log.covered.items() if by == summary_id)

    def rewound(self, message_id: str) -> tuple[list[str], list[str]]:
        """What a rewind to this message would take out of the model's view, and what it would bring
        back. The outline goes on as if it had been done.
        """
        note = back_to(self.log, message_id)
        before = ids_of(self.log.visible)
        if note is not None:
            seq = self.log.head + 1
            self.log.add([Entry(seq, "rewind", None, b"", 0, noted(note), b"")])
        after = ids_of(self.log.visible)
        return _only_in(before, after), _only_in(after, before)

    def found(self, id: str) -> StoredMessage:
        """The message with this id."""
        if not self._by_id:
            # Most outlines are printed in order, and ask for none.
            self._by_id = {seen.id: seen for seen in self.log.natural}
        return self._by_id[id]


_NOTED = ("message", "retract", "compaction", "opened")


def _only_in(ids: list[str], others: list[str]) -> list[str]:
    known = set(others)
    return [id for id in ids if id not in known]
