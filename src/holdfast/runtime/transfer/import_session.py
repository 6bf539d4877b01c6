"""Landing: one story laid into one session, line by line, what is there already left as it is.

Lines become messages under names derived from their origins, so a story that lands again adds what
is new in it and nothing else (I-12), wherever the last landing stopped. Labels become entries of
their own (I-13), a summary a compaction (I-11). Times are those of the story; no line is looked at
twice, and no more than a page of them is held.
"""

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.entry import Closed, Draft, Entry, Labelled, Shape, note_of, noted
from holdfast.domain.log.compaction import covering
from holdfast.domain.log.fold import Log
from holdfast.domain.message import MessageNote, Spoken, freeze
from holdfast.domain.origin import entry_name
from holdfast.domain.repair import StoredMessage
from holdfast.engine.protocol import Opening, Refused, Write
from holdfast.errors import Conflict, Damaged, InvalidMessage
from holdfast.importers.foreign_session import ForeignMessage, ForeignSession, Summary
from holdfast.importers.values import JsonObject
from holdfast.runtime.changes.compact import HEADING
from holdfast.runtime.live.message import parts_of, shown_text_of
from holdfast.runtime.live.session_log import SessionLog, speak

PAGE_LINES, PAGE_BYTES = 500, 4 << 20
NAMED = ("message", "compaction", "closed")


class ImportedSession(msgspec.Struct):
    """What a landing added to its session; `opaque` lines no format could read, and they are kept
    hidden.
    """

    messages: int = 0
    labels: int = 0
    summaries: int = 0
    opaque: int = 0


class SessionImport:
    """A story on its way into a session. `before` is what has to happen in the transaction that
    opens it.
    """

    def __init__(
        self,
        room: SessionLog,
        story: ForeignSession,
        *,
        opened: Draft,
        opening: Opening | None,
        before: tuple[Write, ...],
    ):
        self._room, self._story = room, story
        self._opening, self._before = opening, before
        self._drafts: list[Draft] = [opened] if opening is not None else []
        self._bytes = 0
        self._at = story.opened_at or 0
        self._known: dict[bytes, int] = {}
        self._origins: dict[str, bytes] = {}
        self._head = opening.head if opening is not None else self._look()
        self.landed = ImportedSession()

    def _look(self) -> int:
        """What is there already, by name."""
        head = self._room.origin
        while page := self._room.engine.entries(
            self._room.id, after=head, bodies=False
        ):
            self._known.update(
                (entry.id, entry.seq) for entry in page if entry.kind in NAMED
            )
            self._origins.update(
                (origin, entry.id)
                for entry in page
                if (origin := _origin_of(entry)) is not None
            )
            head = page[-1].seq
        return head

    def land(self) -> ImportedSession:
        """All of it. Raises `Conflict` when somebody wrote to the session meanwhile: then land
        anew.
        """
        if self._story.instructions is not None:
            self._instruct(self._story.instructions)
        about: JsonObject = {"story": _about(self._story)}
        for line in self._story.lines:
            self._at = self._at if line.at is None else line.at
            if isinstance(line, Summary):
                self._summarise(line)
            else:
                self._say(line, about)
                about = {}
            if len(self._drafts) >= PAGE_LINES or self._bytes >= PAGE_BYTES:
                self._flush()
        if (
            self._story.key is not None
            and not self._story.current
            and self._story.ended is not None
        ):
            self._close(self._story.ended)
        self._flush()
        return self.landed

    def _say(self, line: ForeignMessage, about: JsonObject) -> None:
        id = self._origins.get(_origin(self._story.kind, line.origin)) or entry_name(
            self._room.id, line.origin, self._at
        )
        labels = {**line.labels, **about}
        if id in self._known:
            here = self._room.labels().get(id.hex(), {})
            # the program went back to this branch
            if here.get("left") is True and "left" not in labels:
                labels = {"left": False, "visible_to_model": True, **labels}
            labels = {
                name: value for name, value in labels.items() if here.get(name) != value
            }
        else:
            spoken, readable = _spoken(line, self._story.kind)
            if not readable:
                labels["visible_to_model"] = False
                self.landed.opaque += 1
            self._add(
                Draft("message", None, id, self._at, noted(spoken.note), spoken.body)
            )
            self._known[id] = self._head + len(self._drafts)
            self.landed.messages += 1
        if labels:
            self._label(id, labels)

    def _label(self, id: bytes, labels: JsonObject) -> None:
        note = Labelled(id.hex(), labels, self._known[id])
        name = label_name(
            self._room.id, note.message, self._head + len(self._drafts) + 1, self._at
        )
        self._add(Draft("label", None, name, self._at, noted(note)))
        self.landed.labels += 1

    def _summarise(self, summary: Summary) -> None:
        id = entry_name(self._room.id, summary.origin, self._at)
        if id in self._known or not summary.text.strip():
            return
        self._flush()
        log = self._room.log()
        kept = {_origin(self._story.kind, origin) for origin in summary.keeps}
        with self._room.lock:
            covered = [
                seen.id
                for seen in log.visible
                if self._came_over(seen) and seen.note.origin not in kept
            ]
            note = covering(log, covered) if covered else None
        if (
            note is None
        ):  # it stands for nothing that is here: then it is words like others
            line = ForeignMessage(
                summary.origin,
                summary.place,
                "user",
                {"role": "user", "content": summary.text},
                "openai.chat",
            )
            self._say(line, {})
            return
        text = (
            summary.text.strip() if summary.is_shown else HEADING + summary.text.strip()
        )
        body = speak(text, "openai.chat", origin="summary").body
        self._drafts.append(Draft("compaction", None, id, self._at, noted(note), body))
        self._known[id] = self._head + 1
        if summary.shows:
            self._show(summary, log)
        self.landed.summaries += 1
        self._flush(base=True)
        # A fresh room loads from the new summary on: the next one costs what came since, not the
        # whole history.
        self._room = self._room.other(self._room.state())

    def _show(self, summary: Summary, log: Log) -> None:
        """The order in which the model sees a summary and what it keeps, where that is not the
        summary first.
        """
        with self._room.lock:
            seqs = {
                seen.note.origin: seen.seq
                for seen in log.natural
                if seen.note.origin is not None
            }
        seqs[_origin(self._story.kind, summary.origin)] = self._head + 1
        shown = [
            seqs.get(_origin(self._story.kind, origin)) for origin in summary.shows
        ]
        shape = Shape(tuple((seq, seq) for seq in shown if seq is not None))
        name = view_name(self._room.id, self._head + 2, self._at)
        self._drafts.append(Draft("view", None, name, self._at, noted(shape)))

    def _came_over(self, seen: StoredMessage) -> bool:
        """Whether a message is of the store that the story comes from, or of the past that this
        session shares.
        """
        return seen.seq <= self._room.origin or bytes.fromhex(seen.id) in self._known

    def _instruct(self, text: str) -> None:
        known = self._room.log().instructions if self._opening is None else None
        if known != text:
            id = self._name(f"instructions {text}")
            self._add(Draft("instructions", None, id, self._at, b"", freeze(text)))

    def _close(self, reason: str) -> None:
        self._at = self._at if self._story.ended_at is None else self._story.ended_at
        id = entry_name(self._room.id, "closed", self._at)
        if id not in self._known and (
            self._opening is not None or not self._room.state().ended
        ):
            self._flush()
            self._drafts.append(
                Draft("closed", None, id, self._at, noted(Closed(reason)))
            )
            self._flush(close=True)

    def _name(self, what: str) -> bytes:
        return entry_name(self._room.id, f"{what} after {self._head}", self._at)

    def _add(self, draft: Draft) -> None:
        self._drafts.append(draft)
        self._bytes += len(draft.body)

    def _flush(self, **effects: Any) -> None:
        if not self._drafts:
            return
        head = None if self._opening is not None else self._head
        write = Write(
            self._room.id,
            tuple(self._drafts),
            head=head,
            open=self._opening,
            ended_too=True,
            **effects,
        )
        [outcome] = self._room.engine.commit([(*self._before, write)])
        if isinstance(outcome, Refused):
            raise Conflict(
                session_id=self._room.id,
                problem="somebody else wrote to it meanwhile; try again",
            )
        self._head += len(self._drafts)
        self._drafts, self._bytes, self._opening, self._before = [], 0, None, ()


def _spoken(line: ForeignMessage, kind: str) -> tuple[Spoken, bool]:
    """The line as a message, and whether its format can read it. What none can read is kept whole
    all the same.
    """
    facts: JsonObject = {"origin": _origin(kind, line.origin)}
    if line.usage is not None:
        facts["usage"] = line.usage
    if line.model is not None:
        facts["model"] = line.model
    if line.labels.get("incomplete"):
        facts |= {"partial": True, "plain": False}
    try:
        return speak(line.payload, line.format, **facts), True
    except InvalidMessage:
        note = MessageNote(
            role="assistant" if line.role == "assistant" else "user",
            format="holdfast",
            plain=False,
        )
        body = freeze(
            {
                "role": note.role,
                "parts": [],
                "found": line.payload,
                "format": line.format,
            }
        )
        return Spoken(replace(note, **facts), body), False


def said_in(line: ForeignMessage | Summary) -> list[str]:
    """Who said what in a line: its words alone, for what a program notes beside them changes as it
    goes on.
    """
    if isinstance(line, Summary):
        return ["summary", line.text]
    try:
        spoken, _ = _spoken(line, "")
        return [line.role, shown_text_of(parts_of(spoken.note, spoken.body))]
    except (InvalidMessage, Damaged):
        return [line.role, ""]


def agrees(room: SessionLog, story: ForeignSession) -> bool:
    """Whether a story tells the same as this session, as far as both go: no message of it has other
    words here, or another time. If one does, they are two conversations that happen to be called
    alike.
    """
    here: dict[str, tuple[int, bytes]] = {}
    after = room.origin
    while page := room.engine.entries(room.id, after=after):
        here.update(
            (origin, _gist(entry))
            for entry in page
            if (origin := _origin_of(entry)) is not None
        )
        after = page[-1].seq
    for line in story.lines if here else ():
        known = (
            here.get(_origin(story.kind, line.origin))
            if isinstance(line, ForeignMessage)
            else None
        )
        if known is not None and isinstance(line, ForeignMessage):
            if line.at not in (None, known[0]) or _digest(said_in(line)[1]) != known[1]:
                return False
    return True


def _gist(entry: Entry) -> tuple[int, bytes]:
    """When an entry was said, and a digest of its words."""
    try:
        return entry.at, _digest(
            shown_text_of(parts_of(note_of("message", entry.note), entry.body))
        )
    except (InvalidMessage, Damaged):
        return entry.at, _digest("")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


def view_name(session: str, seq: int, at: int) -> bytes:
    """The id of the view that a landing writes at this seq."""
    return entry_name(session, f"view at {seq}", at)


def label_name(session: str, message: str, seq: int, at: int) -> bytes:
    """The id of the label that a landing writes at this seq."""
    return entry_name(session, f"label {message} at {seq}", at)


def _origin(kind: str, origin: str) -> str:
    return f"{kind}:{origin}"


def _about(story: ForeignSession) -> JsonObject:
    """What is known of the session itself, kept as a label of its first message."""
    names = ("kind", "id", "title", "key", "ended", "parent", "lineage", "facts")
    about = {name: getattr(story, name) for name in names}
    return {name: value for name, value in about.items() if value not in (None, {})}


def origin_seq(room: SessionLog, kind: str, origin: str) -> int | None:
    """The seq of the message that was `origin` in the store it comes from."""
    wanted, after = _origin(kind, origin), 0
    while page := room.page(after, bodies=False):
        for entry in page:
            if _origin_of(entry) == wanted:
                return entry.seq
        after = page[-1].seq
    return None


def _origin_of(entry: Entry) -> str | None:
    """What a message was in the store it comes from; None of all that did not come over."""
    try:
        return (
            note_of("message", entry.note).origin if entry.kind == "message" else None
        )
    except Damaged:
        return None
