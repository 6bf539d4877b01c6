"""What happens in a session, one thing at a time: what every stream is made from.

    open     a message is about to be spoken; its id comes before its first words
    chunk    some of its words, or of what else it is made of
    entry    an entry of the log, with those words of a message that no chunk has brought
    gap      entries that should be there and are not: the log is damaged

Each has the cursor that a reader resumes from right after it, and the journal's position: by the
two together, followers of one session find out that they are at the same place.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.domain import cursor as cursors
from holdfast.domain.chunk import Delta, shown
from holdfast.domain.cursor import Cursor
from holdfast.domain.entry import Entry
from holdfast.engine.protocol import JournalRow
from holdfast.errors import CursorExpired
from holdfast.runtime.live.follow import Event, Follower, deltas_of
from holdfast.runtime.live.session_log import SessionLog

NOW = "now"
"""The cursor of whoever wants nothing of the past."""
Place = tuple[int, str]
"""A position in the journal, and a cursor."""


class Occurrence(msgspec.Struct, eq=False):
    """One thing that happened. `frame` keeps how it is written, once it was."""

    kind: Literal["open", "chunk", "entry", "gap"]
    cursor: str
    position: int
    entry: Entry | None = None
    turn: int | None = None
    message_id: str | None = None
    text: str = ""
    deltas: tuple[Delta, ...] = ()
    first: int = 0
    last: int = 0
    frame: bytes | None = None

    @property
    def place(self) -> Place:
        """Where a follower stands that has just met this."""
        return self.position, self.cursor

    @property
    def weight(self) -> int:
        """About how many bytes it keeps."""
        body = 0 if self.entry is None else len(self.entry.body)
        return 500 + body + 4 * len(self.text)


class OccurrenceFollower(Follower):
    """A follower that tells of more than words: that a message begins, that entries are missing,
    and the deltas of each chunk. Deltas of rows up to the position `heard` were told before.
    """

    # Many readers may be behind at once, and each has its page.
    page_rows = 100

    def __init__(
        self, session: SessionLog, after: str | None, *, heard: int = 0
    ) -> None:
        super().__init__(session, after)
        self._heard = heard
        self._found: list[Occurrence] = []
        self._last: Occurrence | None = None

    @property
    def session(self) -> SessionLog:
        """What it follows."""
        return self._session

    @property
    def cursor(self) -> str:
        """Where it is: what a reader comes back with."""
        return self._cursor()

    @property
    def place(self) -> Place:
        last = self._last
        # Most often it has just met a chunk, and stands there.
        if last is not None and last.kind == "chunk":
            if last.position == self._position:
                return last.place
        return self._position, self._cursor()

    def occurrences(self) -> list[Occurrence]:
        """What has happened since the last call; nothing when there is no news."""
        self.step()
        return self._taken()

    def heard(self, rows: Iterable[JournalRow]) -> list[Occurrence]:
        """The same for one that is not behind and is told what is new."""
        self.hear(rows)
        return self._taken()

    def _taken(self) -> list[Occurrence]:
        found, self._found = self._found, []
        return found

    def _entry(self, entry: Entry) -> Event:
        missing = self._seq + 1
        if entry.seq > missing:
            self._seq = entry.seq - 1
            self._note(
                Occurrence(
                    "gap",
                    self._cursor(),
                    self._position,
                    first=missing,
                    last=entry.seq - 1,
                )
            )
        event = super()._entry(entry)
        if entry.kind == "turn":
            # A message that was begun and of which nothing was ever said leaves nothing behind.
            for counts in (self._seen, self._promised):
                for name in [each for each, count in counts.items() if not count]:
                    del counts[name]
        self._note(
            Occurrence(
                "entry",
                event.cursor,
                self._position,
                entry=event.entry,
                turn=entry.turn,
                message_id=event.message_id,
                text=event.text,
            )
        )
        return event

    def _chunk(self, row: JournalRow) -> Event | None:
        if row.turn < self._turn or row.message in self._finished:
            return None
        name = row.message.hex()
        if name not in self._seen and name not in self._promised:
            self._seen[name] = 0
            self._note(
                Occurrence(
                    "open",
                    self._cursor(),
                    row.position,
                    turn=row.turn,
                    message_id=name,
                )
            )
        found = deltas_of(row)
        event = self._words(name, shown(found))
        deltas = tuple(found) if row.position > self._heard else ()
        if event is not None or deltas:
            self._note(
                Occurrence(
                    "chunk",
                    self._cursor() if event is None else event.cursor,
                    row.position,
                    turn=row.turn,
                    message_id=name,
                    text="" if event is None else event.text,
                    deltas=deltas,
                )
            )
        return event

    def _note(self, occurrence: Occurrence) -> None:
        self._found.append(occurrence)
        self._last = occurrence


def from_seq(session: SessionLog, seq: int) -> OccurrenceFollower:
    """A follower of what comes after this entry."""
    return OccurrenceFollower(session, cursors.write(Cursor(session.id, seq)))


def resumed(
    session: SessionLog, after: str | None
) -> tuple[OccurrenceFollower, str | None]:
    """A follower from this cursor on. If that can't be served, one from the first entry on, and
    why.
    """
    if after == NOW:
        return from_seq(session, session.state().head), None
    try:
        return OccurrenceFollower(session, after), None
    except CursorExpired as error:
        return OccurrenceFollower(session, None), error.problem
