"""One foreign session stored in one session, line by line, what is there already left as it is.

Lines become messages under names derived from their origins, so a session that is imported again
adds what is new in it and nothing else (I-12), wherever the last import stopped. Labels become
entries of their own (I-13), a summary a compaction (I-11). Times are those of the foreign session;
no line is looked at twice, and no more than a page of them is held.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.entry import Closed, Draft, Entry, Labelled, Shape, note_of, noted
from holdfast.domain.log.compaction import covering
from holdfast.domain.log.fold import Log
from holdfast.domain.message import USUAL_FORMAT, MessageNote, Role, Spoken, freeze
from holdfast.domain.origin import entry_name
from holdfast.domain.repair import StoredMessage
from holdfast.engine.protocol import Engine, Opening, Refused, Write
from holdfast.errors import Conflict, Damaged, InvalidMessage
from holdfast.importers.foreign_session import ForeignMessage, ForeignSession, Summary
from holdfast.importers.values import JsonObject
from holdfast.runtime.changes.compact import HEADING
from holdfast.runtime.live.message import parts_of, shown_text_of
from holdfast.runtime.live.session_log import SessionLog, speak

PAGE_LINES = 500
PAGE_BYTES = 4 << 20
# Entries whose ids are derived from what they were: one that is there is not added again.
NAMED = ("message", "compaction", "closed")
_ABOUT = ("kind", "id", "title", "key", "ended", "parent", "lineage", "facts")


class ImportedSession(msgspec.Struct):
    """What was added to a session; `opaque` lines no format could read, and they are kept
    hidden.
    """

    messages: int = 0
    labels: int = 0
    summaries: int = 0
    opaque: int = 0


class SessionImport:
    """A foreign session on its way into a session of this store. With an `opening`, that is new:
    `opened` is its first entry, and `before` is what has to happen in the same transaction.
    """

    def __init__(
        self,
        log: SessionLog,
        foreign: ForeignSession,
        *,
        opening: Opening | None = None,
        opened: Draft | None = None,
        before: tuple[Write, ...] = (),
    ):
        self._log = log
        self._foreign = foreign
        self._opening = opening
        self._before = before
        self._drafts: list[Draft] = [opened] if opened is not None else []
        self._bytes = 0
        self._at = foreign.opened_at or 0
        self._known: dict[bytes, int] = {}
        self._origins: dict[str, bytes] = {}
        self._head = log.origin if opening is None else opening.head
        self.imported = ImportedSession()
        if opening is None:
            self._look()

    def _look(self) -> None:
        """What is there already, by name."""
        log = self._log
        for entry in entries_after(log.engine, log.id, log.origin, bodies=False):
            self._head = entry.seq
            if entry.kind in NAMED:
                self._known[entry.id] = entry.seq
            origin = _origin_of(entry)
            if origin is not None:
                self._origins[origin] = entry.id

    @property
    def _last(self) -> int:
        """The seq of the last entry, those on their way included."""
        return self._head + len(self._drafts)

    def land(self) -> ImportedSession:
        """All of it. Raises `Conflict` when somebody wrote to the session meanwhile: then it has to
        be begun anew.
        """
        foreign = self._foreign
        if foreign.instructions is not None:
            self._instruct(foreign.instructions)
        about: JsonObject = {"story": _about(foreign)}
        for line in foreign.lines:
            if line.at is not None:
                self._at = line.at
            if isinstance(line, Summary):
                self._summarise(line)
            else:
                self._say(line, about)
                about = {}
            if len(self._drafts) >= PAGE_LINES or self._bytes >= PAGE_BYTES:
                self._flush()
        # A session without a key, or with the one that its key means now, can be gone on with.
        if (
            foreign.key is not None
            and not foreign.current
            and foreign.ended is not None
        ):
            self._close(foreign.ended)
        self._flush()
        return self.imported

    def _say(self, line: ForeignMessage, about: JsonObject) -> None:
        # By its origin first: its time may have been told otherwise then, and the name holds the
        # time.
        known = self._origins.get(self._origin(line.origin))
        id = known or self._name(line.origin)
        labels = {**line.labels, **about}
        if id in self._known:
            labels = self._changed(id, labels)
        else:
            spoken, is_readable = _spoken(line, self._foreign.kind)
            # It is kept for readers; a model can't be shown what no format understands.
            if not is_readable:
                labels["visible_to_model"] = False
                self.imported.opaque += 1
            self._add("message", id, noted(spoken.note), spoken.body)
            self._known[id] = self._last
            self.imported.messages += 1
        if labels:
            note = Labelled(id.hex(), labels, self._known[id])
            name = label_name(self._log.id, note.message, self._last + 1, self._at)
            self._add("label", name, noted(note))
            self.imported.labels += 1

    def _changed(self, id: bytes, labels: JsonObject) -> JsonObject:
        """Those of these labels that a message does not have yet."""
        here = self._log.labels().get(id.hex(), {})
        # The program went back to this branch.
        if here.get("left") is True and "left" not in labels:
            labels = {"left": False, "visible_to_model": True, **labels}
        return {
            name: value for name, value in labels.items() if here.get(name) != value
        }

    def _summarise(self, summary: Summary) -> None:
        id = self._name(summary.origin)
        text = summary.text.strip()
        if id in self._known or not text:
            return
        # What it stands for has to be in the log before that can be asked for.
        self._flush()
        log = self._log.log()
        kept = set(map(self._origin, summary.keeps))
        with self._log.lock:
            covered = []
            for seen in log.visible:
                if self._came_over(seen) and seen.note.origin not in kept:
                    covered.append(seen.id)
            note = covering(log, covered) if covered else None
        if note is None:
            # It stands for nothing that is here: then it is words like others.
            payload = {"role": "user", "content": summary.text}
            line = ForeignMessage(
                summary.origin, summary.place, "user", payload, USUAL_FORMAT
            )
            self._say(line, {})
            return
        if not summary.is_shown:
            text = HEADING + text
        body = speak(text, USUAL_FORMAT, origin="summary").body
        self._add("compaction", id, noted(note), body)
        self._known[id] = self._last
        if summary.shows:
            self._show(summary, log)
        self.imported.summaries += 1
        self._flush(base=True)
        # A fresh log loads from the new summary on: the next one costs what came since, not the
        # whole history.
        self._log = self._log.other(self._log.state())

    def _show(self, summary: Summary, log: Log) -> None:
        """The order in which the model sees a summary and what it keeps, where that is not the
        summary first.
        """
        with self._log.lock:
            seqs = {seen.note.origin: seen.seq for seen in log.natural}
        seqs[self._origin(summary.origin)] = self._last
        shown = []
        for origin in summary.shows:
            seq = seqs.get(self._origin(origin))
            if seq is not None:
                shown.append((seq, seq))
        name = view_name(self._log.id, self._last + 1, self._at)
        self._add("view", name, noted(Shape(tuple(shown))))

    def _came_over(self, seen: StoredMessage) -> bool:
        """Whether a message is of the store that the session comes from, or of the past that this
        one shares.
        """
        return seen.seq <= self._log.origin or bytes.fromhex(seen.id) in self._known

    def _instruct(self, text: str) -> None:
        # A new session has no log that could be asked.
        known = self._log.log().instructions if self._opening is None else None
        if known != text:
            id = self._name(f"instructions {text} after {self._head}")
            self._add("instructions", id, b"", freeze(text))

    def _close(self, reason: str) -> None:
        if self._foreign.ended_at is not None:
            self._at = self._foreign.ended_at
        id = self._name("closed")
        if id in self._known:
            return
        if self._opening is not None or not self._log.state().ended:
            # The end is a commit of its own: none of those before it may close the session.
            self._flush()
            self._add("closed", id, noted(Closed(reason)))
            self._flush(close=True)

    def _name(self, what: str) -> bytes:
        return entry_name(self._log.id, what, self._at)

    def _origin(self, origin: str) -> str:
        return _origin(self._foreign.kind, origin)

    def _add(self, kind: str, id: bytes, note: bytes, body: bytes = b"") -> None:
        self._drafts.append(Draft(kind, None, id, self._at, note, body))
        self._bytes += len(body)

    def _flush(self, **effects: Any) -> None:
        if not self._drafts:
            return
        write = Write(
            self._log.id,
            tuple(self._drafts),
            # A session that is opened has no head to be guarded by: its id must be free.
            head=None if self._opening is not None else self._head,
            open=self._opening,
            ended_too=True,
            **effects,
        )
        [outcome] = self._log.engine.commit([(*self._before, write)])
        if isinstance(outcome, Refused):
            raise Conflict(
                session_id=self._log.id,
                problem="somebody else wrote to it meanwhile; try again",
            )
        self._head = self._last
        self._drafts = []
        self._bytes = 0
        self._opening = None
        self._before = ()


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
        role: Role = "assistant" if line.role == "assistant" else "user"
        note = MessageNote(role=role, format="holdfast", plain=False)
        body = freeze(
            {"role": role, "parts": [], "found": line.payload, "format": line.format}
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


def agrees(log: SessionLog, foreign: ForeignSession) -> bool:
    """Whether a foreign session tells the same as this one, as far as both go: no message of it has
    other words here, or another time. If one does, they are two conversations that happen to be
    called alike.
    """
    here: dict[str, tuple[int, bytes]] = {}
    for entry in entries_after(log.engine, log.id, log.origin):
        origin = _origin_of(entry)
        if origin is not None:
            here[origin] = entry.at, _digest(_text_of(entry))
    if not here:
        return True
    for line in foreign.lines:
        known = here.get(_origin(foreign.kind, line.origin))
        if isinstance(line, Summary) or known is None:
            continue
        # Many stores tell no times; one that does must tell the same.
        if line.at not in (None, known[0]) or _digest(said_in(line)[1]) != known[1]:
            return False
    return True


def entries_after(
    engine: Engine, session: str, after: int, *, bodies: bool = True
) -> Iterator[Entry]:
    """A session's own entries after a seq; a page of them is held."""
    while page := engine.entries(session, after=after, bodies=bodies):
        yield from page
        after = page[-1].seq


def _text_of(entry: Entry) -> str:
    try:
        return shown_text_of(parts_of(note_of("message", entry.note), entry.body))
    except (InvalidMessage, Damaged):
        return ""


def _digest(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=16).digest()


def view_name(session: str, seq: int, at: int) -> bytes:
    """The id of the view that an import writes at this seq."""
    return entry_name(session, f"view at {seq}", at)


def label_name(session: str, message: str, seq: int, at: int) -> bytes:
    """The id of the label that an import writes at this seq."""
    return entry_name(session, f"label {message} at {seq}", at)


def _origin(kind: str, origin: str) -> str:
    return f"{kind}:{origin}"


def _about(foreign: ForeignSession) -> JsonObject:
    """What is known of the session itself, kept as a label of its first message."""
    about = {}
    for name in _ABOUT:
        value = getattr(foreign, name)
        if value not in (None, {}):
            about[name] = value
    return about


def origin_seq(log: SessionLog, kind: str, origin: str) -> int | None:
    """The seq of the message that was `origin` in the store it comes from."""
    wanted = _origin(kind, origin)
    after = 0
    while page := log.page(after, bodies=False):
        for entry in page:
            if _origin_of(entry) == wanted:
                return entry.seq
        after = page[-1].seq
    return None


def _origin_of(entry: Entry) -> str | None:
    """What a message was in the store it comes from; None of all that did not come over."""
    if entry.kind != "message":
        return None
    try:
        origin: str | None = note_of("message", entry.note).origin
    except Damaged:
        return None
    return origin
