"""A session's story: its log, read once and arranged for people.

Turns in the order in which they started, each with its messages; what a message calls stands with what was answered;
and for each message whether the model still sees it and, if not, why. A pure reading of entries: `show` and the
Markdown export are two ways to print it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

import holdfast
from holdfast.domain.entry import Entry, note_of, noted
from holdfast.domain.fold import Log
from holdfast.domain.ids import turn_id
from holdfast.domain.line import back_to
from holdfast.domain.repair import Seen
from holdfast.domain.turn import ToolCall, TurnRecord, tool_calls
from holdfast.runtime.message import Message

AT_ONCE = 1000
"""How many messages are read at once to be printed."""


class Scene(msgspec.Struct):
    """What stands together: a turn, or one message or summary outside a turn."""

    turn: TurnRecord | None
    messages: list[Seen]


class Story:
    """What a session's entries tell."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._log = Log()
        self.retracted: dict[str, str] = {}
        self.covers: dict[str, tuple[tuple[int, int], ...]] = {}
        self.parent: tuple[str, int] | None = None
        self.previous: str | None = None
        self.erased = 0
        self._by_id: dict[str, Seen] = {}
        self._log.add(map(self._noted, entries))
        self.calls = self._calls()
        self._shown = {seen.id for seen in self._log.order}
        self._gone = self._log.gone

    def _noted(self, entry: Entry) -> Entry:
        """Takes note of an entry on its way into the fold. Payloads are read again for what is printed: a long history
        is folded without them (I-24).
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
        for call in tool_calls(self._log.standing, running=self._log.running, asks=self._log.asks):
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
    def pending(self) -> list[Seen]:
        """What waits in the inbox."""
        waiting = self._log.waiting
        return [seen for seen in self._log.messages if seen.id in waiting]

    @property
    def scenes(self) -> list[Scene]:
        """All that happened, in order."""
        found: list[Scene] = []
        told = set()
        for seen in self._log.standing:
            turn = self._log.turns.get(seen.turn) if seen.turn is not None else None
            if turn is None or turn.number not in told:
                found.append(Scene(turn, []))
            if turn is not None:
                told.add(turn.number)
            found[-1].messages.append(seen)
        empty = [Scene(turn, []) for turn in self._log.turns.values() if turn.number not in told]
        return sorted([*found, *empty], key=_begins) if empty else found

    def answered(self) -> set[str]:
        """Ids of messages that are told with the call they answer, and not once more by themselves."""
        return {call.outcome for calls in self.calls.values() for call in calls if call.outcome is not None}

    def view(self, seen: Seen) -> str:
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
        """What a rewind to this message would take out of the model's view, and what it would bring back. The story
        goes on as if it had been done.
        """
        note = back_to(self._log, message_id)
        before = dict.fromkeys(seen.id for seen in self._log.order)
        if note is not None:
            self._log.add([Entry(self._log.head + 1, "rewind", None, b"", 0, noted(note), b"")])
        after = dict.fromkeys(seen.id for seen in self._log.order)
        return [id for id in before if id not in after], [id for id in after if id not in before]

    def found(self, id: str) -> Seen:
        """The message with this id."""
        if not self._by_id:
            self._by_id = {seen.id: seen for seen in self._log.standing}
        return self._by_id[id]

    def labels(self, id: str) -> dict[str, Any]:
        return self._log.labels.get(id, {})


_NOTED = ("message", "retract", "compaction", "opened")


def _begins(scene: Scene) -> int:
    return scene.turn.seq if scene.turn is not None and scene.turn.seq else scene.messages[0].seq


def read(session: holdfast.Session) -> Story:
    """The story of this session."""
    return Story(session.entries())


Told = dict[str, Message]
"""Messages with their payloads, by id."""


def told(session: holdfast.Session, wanted: Iterable[Seen]) -> Told:
    """These messages with their payloads."""
    seqs = {seen.seq: seen for seen in wanted}
    found: Told = {}
    if seqs:
        for entry in session.entries(after=min(seqs) - 1):
            if entry.seq in seqs:
                found[entry.id.hex()] = message_of(session, entry, turn=seqs[entry.seq].turn)
            if len(found) == len(seqs):
                break
    return found


def tellings(session: holdfast.Session, story: Story, scenes: Iterable[Scene]) -> Iterator[tuple[Scene, Told]]:
    """Each scene with its messages and the outcomes of its calls, read some at a time (I-24)."""
    waiting: list[Scene] = []
    count = 0
    for scene in scenes:
        waiting.append(scene)
        count += len(scene.messages)
        if count >= AT_ONCE:
            yield from _read_all(session, story, waiting)
            waiting, count = [], 0
    yield from _read_all(session, story, waiting)


def _read_all(session: holdfast.Session, story: Story, scenes: list[Scene]) -> Iterator[tuple[Scene, Told]]:
    wanted = {seen.id: seen for scene in scenes for seen in scene.messages}
    outcomes = [call.outcome for id in wanted for call in story.calls.get(id, ()) if call.outcome is not None]
    far = [story.found(id) for id in outcomes if id not in wanted]
    messages = told(session, wanted.values())
    for seen in far:  # an outcome that came late, in another turn
        messages |= told(session, [seen])
    yield from ((scene, messages) for scene in scenes)


def message_of(session: holdfast.Session, entry: Entry, *, turn: int | None) -> Message:
    """An entry as the message that it holds; a summary is one, too."""
    note: Any = note_of("message", entry.note if entry.kind == "message" else b"")
    seen = Seen(entry.id.hex(), entry.seq, turn, note, entry.body, False, (), entry.at)
    return Message(seen, turn=turn_id(session.id, turn) if turn is not None else None)
