"""The transcript, page by page, without folding the history: memory is bounded by the page (I-24).

An entry says most of what a message is. What was said about it later is looked for where it can be:
labels are few and have an index; who took a message from the inbox stands a little further on in
the log.
"""

from typing import Any

from holdfast.domain.entry import Entry, note_of, opened_of
from holdfast.domain.message import MessageNote
from holdfast.domain.repair import StoredMessage
from holdfast.errors import NotFound
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog

TELLING = 500
"""How many entries of a transcript are read at once."""
_FURTHER = 200
_NEAR = 64
"""An id is looked for among the entries of its time and so many before them."""


class Takers:
    """Which turns took messages from the inbox and kept them: what a turn gave back, another one
    took. However many pages are asked about, in order, the log is read ahead once.
    """

    def __init__(self, session: SessionLog) -> None:
        self._session = session
        self._read_to = 0
        self._turn_of: dict[str, int | None] = {}
        self._taken_by: dict[int | None, set[str]] = {}
        # Their turns have ended with them: no other turn takes them.
        self._settled: set[str] = set()
        # What waits after the last entry read, and what waited where a fork parted.
        self._waiting: set[str] = set()
        self._theirs: set[str] = set()
        self._last: str | None = None

    def is_theirs(self, id: str) -> bool:
        """Whether this message waited when a fork parted from here: it is answered in the other
        session, unless they parted just at it.
        """
        return id in self._theirs

    def of(self, page: list[Entry], accepted: set[str]) -> dict[str, int | None]:
        """The turns of these messages, which were accepted in this page."""
        unsettled = accepted - self._settled
        before = page[0].seq - 1
        if unsettled and self._read_to < before:
            # What was read so far is about messages of earlier pages.
            self._turn_of.clear()
            self._taken_by.clear()
            self._settled.clear()
            self._waiting.clear()
            self._last = None
            self._read_to = before
        if unsettled and self._read_to == before:
            self._read(page)
        while not unsettled <= self._settled:
            ahead = self._session.page(self._read_to, _FURTHER, bodies=False)
            if not ahead:
                break
            self._read(ahead)
        found = {}
        for id in accepted:
            self._settled.discard(id)
            if id in self._turn_of:
                found[id] = self._turn_of.pop(id)
        return found

    def _read_end(self, entry: Entry) -> None:
        for id in note_of("end", entry.note).returns:
            self._turn_of.pop(id, None)
            self._waiting.add(id)
        for id in self._taken_by.pop(entry.turn, ()):
            if self._turn_of.get(id) == entry.turn:
                self._settled.add(id)

    def _read(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.kind == "message":
                # Nearly none has waited: told by its bytes, without a decoder.
                if b'"inbox"' in entry.note and note_of("message", entry.note).inbox:
                    self._waiting.add(entry.id.hex())
            elif entry.kind in ("turn", "take"):
                for id in note_of(entry.kind, entry.note).takes:
                    self._waiting.discard(id)
                    self._turn_of[id] = entry.turn
                    self._taken_by.setdefault(entry.turn, set()).add(id)
                    # A turn of another session took it: it never comes back here.
                    if entry.turn is None:
                        self._settled.add(id)
            elif entry.kind == "end":
                self._read_end(entry)
            elif entry.kind == "closed":
                self._waiting.difference_update(note_of("closed", entry.note).moved)
            elif entry.kind == "opened":
                opened = opened_of(entry)
                if opened.parent is not None:
                    self._part(opened.at or self._last)
            self._last = entry.id.hex()
        self._read_to = entries[-1].seq

    def _part(self, at: str | None) -> None:
        """A session that shares this past begins here. What waits is answered in the other; only
        where they part at a message that waits, that stands here, and what waits before it.
        """
        if at not in self._waiting:
            self._theirs |= self._waiting
        self._settled |= self._waiting
        self._waiting.clear()


class Transcript:
    """The messages of a session, page by page, in order."""

    def __init__(self, session: SessionLog) -> None:
        self.session = session
        self._takers = Takers(session)

    def page(
        self, *, after: int = 0, limit: int = TELLING
    ) -> tuple[list[Message], int]:
        """A page, and the seq to go on after; the same seq again at the end."""
        session = self.session
        page = session.page(after, limit)
        if not page:
            return [], after
        said = _said(page)
        accepted = {entry.id.hex() for entry, note in said if note.inbox}
        waiting: set[str] = set()
        # The inbox after the page: whatever has left it by then, the log already tells of.
        if accepted:
            waiting = {each.message.hex() for each in session.engine.inbox(session.id)}
        takers = self._takers
        turns = takers.of(page, accepted - waiting)
        labels = session.labels()
        found = []
        for entry, note in said:
            id = entry.id.hex()
            elsewhere = takers.is_theirs(id)
            found.append(
                _message(
                    session, entry, note, turns, waiting, labels, elsewhere=elsewhere
                )
            )
        return found, page[-1].seq


def _said(page: list[Entry]) -> list[tuple[Entry, MessageNote]]:
    """The messages among these entries, with their notes."""
    return [
        (entry, note_of("message", entry.note))
        for entry in page
        if entry.kind == "message"
    ]


def opening(session: SessionLog, page: list[Entry]) -> list[Message]:
    """The messages among these first entries of a session, with the labels they had got by then."""
    labels: dict[str, dict[str, Any]] = {}
    for entry in page:
        if entry.kind == "label":
            note = note_of("label", entry.note)
            labels.setdefault(note.message, {}).update(note.labels)
    return [
        _message(session, entry, note, {}, set(), labels) for entry, note in _said(page)
    ]


def find(session: SessionLog, id: str) -> Entry | None:
    """The message with this id, without its payload.

    An id begins with the time at which it was minted, and messages mostly lie in the order of these
    times: the message is looked for where its time is, and only if it is not there, in the whole
    log.
    """
    minted_at = minted_ms(id)
    after = begun_before(session, minted_at)
    found = None
    is_near = True
    # Thousands may have been minted in one millisecond: as far as its time goes.
    while is_near and found is None:
        page = session.page(after, 4 * _NEAR, bodies=False)
        found = _with_id(page, id)
        is_near = bool(page) and minted_ms(page[-1].id.hex()) <= minted_at
        after = page[-1].seq if page else after
    after = 0
    while found is None and (page := session.page(after, bodies=False)):
        after = page[-1].seq
        found = _with_id(page, id)
    return found


def no_message(id: str) -> NotFound:
    """The error for an id that no message of the session has."""
    hint = "take the id from Session.transcript()"
    return NotFound(what="message", name=id, hint=hint)


def _with_id(page: list[Entry], id: str) -> Entry | None:
    for entry in page:
        if entry.kind == "message" and entry.id.hex() == id:
            return entry
    return None


def minted_ms(id: str) -> int:
    """The milliseconds at which an id was minted; 0 for one that was not minted here."""
    try:
        return int.from_bytes(bytes.fromhex(id)[:6], "big")
    except ValueError:
        return 0


def begun_before(session: SessionLog, minted_at: int) -> int:
    """A seq before which, by their ids, lie only entries that were made before this time."""
    low, high = 0, session.state().head
    while high - low > _NEAR:
        middle = (low + high) // 2
        entry = session.page(middle - 1, 1, bodies=False)
        # By the id and not by `at`: entries of one commit have one `at`.
        if entry and minted_ms(entry[0].id.hex()) < minted_at:
            low = middle
        else:
            high = middle
    return max(0, low - _NEAR)


def _message(
    session: SessionLog,
    entry: Entry,
    note: MessageNote,
    takers: dict[str, int | None],
    waiting: set[str],
    labels: dict[str, dict[str, Any]],
    *,
    elsewhere: bool = False,
) -> Message:
    id = entry.id.hex()
    turn = entry.turn if entry.turn is not None else takers.get(id)
    seen = StoredMessage(id, entry.seq, turn, note, entry.body, False, (), entry.at)
    known = None if note.erased else labels.get(id)
    return Message(
        seen,
        turn=session.turn_name(turn),
        pending=note.inbox and id in waiting,
        elsewhere=elsewhere,
        labels=known,
    )
