"""Following: the log and then live, chunks included, each once (I-15).

    log       1 ─ 2 ─ 3 ────────────────── 4 (the message, whole) ─ …
    journal             ├ "Hel" ┤├ "lo" ┤
    events    1   2   3   "Hel"    "lo"    4, text ""

A follower knows the last entry it has seen and, for each message still being spoken, how many
characters of it (in UTF-16 units: an emoji may come in two halves). A chunk gives those beyond; the
finished message gives what is still missing of it. So it does not matter whether a message was
followed as chunks, met when it was finished, or half and half over a reconnection: joined by
message id, the texts are the message, once. Each pass reads entries before journal rows, and leaves
rows of a turn whose start it has not seen yet for the next pass, so events come in an order that
makes sense. The journal still holds rows of turns that are over: a turn begins after the one before
it has ended, with all that it said in the log.

A follower listens all the while, also while it reads, so nothing that an engine tells is missed.
Chunks that this process stores come with the news (`hear`); all else is read. What engines are not
told of (`Engine.look_s`) is found by looking.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.domain import cursor as cursors
from holdfast.domain.chunk import Delta, beyond, shown, units, unpack
from holdfast.domain.cursor import Cursor
from holdfast.domain.entry import Entry, note_of
from holdfast.engine.protocol import JournalRow
from holdfast.runtime.live.damage import readable
from holdfast.runtime.live.message import parts_of, text_of
from holdfast.runtime.live.session_log import SessionLog

PAGE = 500


class Event(msgspec.Struct, frozen=True):
    """Something that happened in a session that is followed. `kind` is "entry", with the entry in
    `entry`, or "chunk", a piece of a message that is still being spoken. `text` are the words that
    it adds to message `message_id`: joined by message id, the texts give each message once.
    `cursor` is a string to resume from, right after this event.
    """

    cursor: str
    kind: Literal["entry", "chunk"]
    entry: Entry | None = None
    message_id: str | None = None
    text: str = ""


class Follower:
    """A reader's place in a session."""

    page_rows = PAGE
    """So many entries, or rows of the journal, are read at once."""

    def __init__(self, session: SessionLog, after: str | None) -> None:
        self._session = session
        start = Cursor(session.id, 0)
        if after is not None:
            start = cursors.read(
                after, session_id=session.id, head=session.state().head
            )
        self._seq = start.seq
        # seen before the reconnection; the journal tells it again
        self._promised = dict(start.open)
        self._seen: dict[str, int] = {}
        self._finished: set[bytes] = set()
        # Cursors hold no journal position: rows may be gone when a reader comes back.
        self._position = 0
        self.over = False
        self.is_running = False
        """Whether a turn has begun and was not told to have ended."""
        self.is_told = False
        """Whether its last step was told what is new, and did not look."""
        self.settle_at = 0.0
        """When whoever drives it looks whether the owner of the running turn is gone."""
        self.behind = True
        """Whether the last step has left something for the next one."""
        self._turn = self._latest_turn(start.seq)

    def _latest_turn(self, seq: int) -> int:
        """The last turn that had begun at `seq`; what it had finished by then is noted on the way
        back to its start.
        """
        has_ended = False
        while seq:
            after = max(0, seq - PAGE)
            for entry in reversed(self._session.page(after, seq - after, bodies=False)):
                if entry.kind == "turn":
                    self.is_running = not has_ended
                    return entry.turn or 0
                has_ended = has_ended or entry.kind == "end"
                if entry.kind == "message":
                    self._finished.add(entry.id)
                self.over = self.over or closes(entry, self._session)
            seq = after
        return 0

    def step(self) -> list[Event]:
        """What has happened since the last step; nothing when there is no news."""
        events: list[Event] = []
        engine, id = self._session.engine, self._session.id
        self.behind, self.is_told = True, False
        limit = self.page_rows
        for entry in self._session.page(self._seq, limit):
            events.append(self._entry(entry))
        # More entries may follow, and they come before what the journal holds.
        if len(events) == limit:
            return events
        while True:
            rows = engine.journal(id, after=self._position, limit=limit)
            for row in rows:
                if row.turn > self._turn:
                    return events  # its start was not told yet
                self._position = row.position
                event = self._chunk(row)
                if event is not None:
                    events.append(event)
            # A whole page may be of turns that are over. No events would mean no news,
            # and the follower would wait though there are rows to read.
            if events or len(rows) < limit:
                self.behind = len(rows) == limit
                return events

    def hear(self, rows: Iterable[JournalRow]) -> list[Event]:
        """The same for one that is not behind and is told what is new: rows of the journal."""
        events = []
        self.is_told = True
        for row in rows:
            if row.turn > self._turn:
                self.behind = True  # its start was not told yet
                break
            # What it has read by itself is told late.
            if row.position > self._position:
                self._position = row.position
                event = self._chunk(row)
                if event is not None:
                    events.append(event)
        return events

    def _entry(self, entry: Entry) -> Event:
        self._seq = entry.seq
        if entry.kind == "turn":
            # A turn begins when the one before it has ended: all that was spoken earlier is told.
            self._turn = entry.turn or 0
            self._finished.clear()
        if entry.kind in ("turn", "end"):
            self.is_running = entry.kind == "turn"
        if closes(entry, self._session):
            self.over = True
        if entry.kind != "message":
            return Event(self._cursor(), "entry", entry)
        name = entry.id.hex()
        # What was seen before a reconnection may be gone from the journal: the cursor
        # has counted it.
        known = max(self._seen.pop(name, 0), self._promised.pop(name, 0))
        self._finished.add(entry.id)
        entry, text = _said(entry)
        return Event(self._cursor(), "entry", entry, name, beyond(text, known))

    def _chunk(self, row: JournalRow) -> Event | None:
        if row.turn < self._turn or row.message in self._finished:
            return None
        return self._words(row.message.hex(), shown(deltas_of(row)))

    def _words(self, name: str, text: str) -> Event | None:
        """What a reader has not seen yet of a message that says this next."""
        before = self._seen.get(name, 0)
        self._seen[name] = before + units(text)
        text = beyond(text, self._promised.get(name, 0) - before)
        # A promise is kept until it is passed: a cursor given out before that must not
        # fall behind the one it was resumed from.
        if not text:
            return None
        self._promised.pop(name, None)
        return Event(self._cursor(), "chunk", None, name, text)

    def _cursor(self) -> str:
        # Most often one message is being spoken, and nothing was promised.
        if not self._promised and len(self._seen) < 2:
            return cursors.write(Cursor(self._session.id, self._seq, self._seen))
        seen = dict(self._promised)
        for name, count in self._seen.items():
            seen[name] = max(count, seen.get(name, 0))
        # In order: two followers at one place have the same cursor.
        return cursors.write(
            Cursor(self._session.id, self._seq, dict(sorted(seen.items())))
        )


def closes(entry: Entry, session: SessionLog) -> bool:
    """Whether nothing follows this entry: the session was ended, or erased. A fork may share the
    closing of its parent, which is not its own.
    """
    return entry.kind in ("closed", "erased") and entry.seq > session.origin


def _said(entry: Entry) -> tuple[Entry, str]:
    """A message's entry and its words; a placeholder and what that says where it can't be read
    (I-25).
    """
    entry = readable(entry)
    return entry, text_of(parts_of(note_of("message", entry.note), entry.body))


def deltas_of(row: JournalRow) -> list[Delta]:
    """What a journal row holds; nothing when it can't be read, and the message itself tells it
    (I-25).
    """
    try:
        return unpack(row.body)
    except Exception:
        return []
