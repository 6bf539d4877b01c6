"""A stream: one message while it is being spoken, from its first chunk to its entry in the log.

The message's id is minted before its first chunk. Chunks are read into deltas and stored as journal
rows; when the stream ends, the message is one entry, whole if the stream said its end and partial
if not. A message rebuilt from the journal after a crash is folded by the same code (I-5, I-6).

Shown words outlive whatever a provider sends. A chunk that its format can't read is kept in the
journal as it came, and the stream goes on; one that can be no chunk at all is refused where a
stream begins with it. A message that can't be put together, or only with other words than were
shown, is stored as its text was shown, marked partial, in the neutral format, with all that the
journal holds of it in a part of type `unread`.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.domain.arguments import kind_of
from holdfast.domain.chunk import (
    Delta,
    characters,
    joined,
    owned,
    pack,
    raw,
    shown,
    sound,
    squeeze,
    unpack,
)
from holdfast.domain.entry import Draft, note_of, noted
from holdfast.domain.message import MessageNote, Spoken, freeze
from holdfast.engine.protocol import Chunk, JournalRow, Ticket
from holdfast.errors import InvalidMessage, TurnInterrupted
from holdfast.formats import registry
from holdfast.formats.format import Assembly
from holdfast.formats.text import TextAssembly
from holdfast.runtime.live.message import parts_of, shown_text_of

UNREAD = "unread"
# After every place that a format gives out.
_REST = 1 << 62
_NO_CHUNK = (str, bytes, bytearray, int, float)


class UnreadableStream(Exception):
    """What came of this stream makes no message of its format."""


class Stream:
    """One message being spoken, and how far its entry has come.

    `draft`, `submitted` and `ticket` are filled in this order, so that storing it can be cut off
    anywhere and taken up again: one that is `submitted` without a ticket may or may not be in the
    log.
    """

    def __init__(self, id: bytes, *, format: str, into: str) -> None:
        self.id = id
        self.format, self._into = format, into
        self._assembly = _assembly(format, into)
        self._rows = self._shown = 0
        # What was handed on, in pieces: the message has to say exactly this.
        self._handed_on: list[str] = []
        self.texts: list[str] = []
        """What each chunk that was taken last says; none if it was taken back before that."""
        self.unread = False
        """Whether something of it could not be read."""
        self.in_doubt = False
        """Whether the store could not say if its last chunk was stored. What was stored is what
        counts then, not what was read here.
        """
        self.closed = False
        """Whether its reader is done with it."""
        self.taken_back = False
        """Whether its turn took it back while it was being spoken."""
        self.shut = False
        """Whether its message is being made: nothing more can be in it."""
        self.tie: Callable[[], Any] | None = None
        """A weak reference to its reader."""
        self.let_go: Callable[[], None] = _nothing
        """Closes its source, without waiting for that; called when its reader is gone."""
        self.lock = threading.RLock()
        """Held while a chunk is taken and submitted, and while the stream is shut: a chunk is in
        the message, or it is refused.
        """
        self.draft: Draft | None = None
        self.submitted = False
        self.ticket: Ticket | None = None
        self.stored_with: tuple[Draft, ...] = ()
        """The drafts of the write that its own was last submitted in."""

    @property
    def shown(self) -> int:
        """How many characters of it were to be shown so far."""
        return self._shown

    @property
    def is_left(self) -> bool:
        """Whether nobody will say more of it."""
        return self.closed or (self.tie is not None and self.tie() is None)

    def goes_on(self, turn: str) -> bool:
        """Whether more can be said of it; not if it was taken back. Raises if its message was made
        without that, which is shown to nobody.
        """
        if self.shut and not self.taken_back:
            raise TurnInterrupted(turn_id=turn, reason="it is ending")
        return not self.taken_back

    def take(self, chunks: Iterable[Any]) -> tuple[Chunk | None, str]:
        """Provider chunks as the journal row to store next and the text to hand on once it is
        stored.
        """
        deltas, ends = self._read(chunks)
        if not deltas:
            self.texts = [""] * len(ends)
            return None, ""
        try:
            self._assembly.fold(deltas)
            deltas += self._rest(deltas)
            text, body = shown(deltas), self._pack(deltas)
        # What it says is shown and stored all the same; a provider may send anything.
        except Exception:
            self.unread = True
            deltas = sound(deltas)
            text, body = shown(deltas), self._pack(deltas)
        row = Chunk(self.id, self._rows, body)
        self._rows += 1
        self.texts = [text] if len(ends) == 1 else _texts(deltas, ends)
        self._hand_on(text)
        return row, text

    def _hand_on(self, text: str) -> None:
        if text:
            self._handed_on.append(text)
            self._shown += characters(text)

    def _rest(self, deltas: list[Delta]) -> list[Delta]:
        """What a message says in its final form after all that was shown of it. Where the two
        differ before that, there is no rest: the message will be stored as it was shown.
        """
        if not any(kind == "done" and value for kind, _, value in deltas):
            return []
        spoken = self._assembly.message()
        if spoken is None:
            return []
        before = joined("".join(self._handed_on) + shown(deltas))
        said = shown_text_of(parts_of(spoken.note, spoken.body))
        if len(said) == len(before) or not said.startswith(before):
            return []
        rest: list[Delta] = [("text", _REST, said[len(before) :])]
        self._assembly.fold(rest)
        return rest

    def _read(self, chunks: Iterable[Any]) -> tuple[list[Delta], list[int]]:
        """The deltas of these chunks, and how many there are after each of them."""
        take = self._assembly.take
        deltas: list[Delta] = []
        ends: list[int] = []
        for chunk in chunks:
            # Before anything of it is shown, what is no chunk tells that the caller means another
            # format; later on it is kept like all that can't be read.
            if not self._rows and not deltas:
                self.check(chunk)
            try:
                self.check(chunk)
                deltas += owned(take(chunk))
            except Exception as error:
                if self.format == "text" and isinstance(error, InvalidMessage):
                    # these are no words: the caller has named the wrong format, and it says so
                    raise
                self.unread = True
                deltas.append(("raw", 0, _kept(chunk)))
            ends.append(len(deltas))
        return deltas, ends

    def check(self, chunk: Any) -> None:
        """Refuses what can be no chunk of a provider, whatever format it speaks: the caller means
        another format. Most formats read nothing in it, and its words would be lost.
        """
        if self.format == "text":
            return
        # By its type: what an object says of its class may raise, and is kept as it came.
        if chunk is None or issubclass(type(chunk), _NO_CHUNK):
            problem = (
                f"a chunk of {self.format} is a dict or an object of its SDK, not "
                f'{kind_of(chunk)}; for plain text the format is "text"'
            )
            raise InvalidMessage(problem=problem, place="chunk")

    def _pack(self, deltas: list[Delta]) -> bytes:
        # The first row names the formats, so that any process can rebuild the message.
        return pack(
            deltas if self._rows else [("open", 0, [self.format, self._into]), *deltas]
        )

    def fold(self, deltas: Sequence[Delta]) -> None:
        """Adds deltas that were read back from the journal."""
        self._assembly.fold(deltas)
        self._hand_on(shown(deltas))
        self.unread = self.unread or any(delta[0] == "raw" for delta in deltas)

    def finish(self) -> None:
        """The source has ended. For plain text that is its end; most other formats must have said
        theirs.
        """
        if self._assembly.ends_with_source:
            self._assembly.fold([("done", 0, None)])

    @property
    def complete(self) -> bool:
        return self._assembly.complete and not self.unread and not self.in_doubt

    def message(self) -> Spoken | None:
        """The message, marked partial unless it is complete. Any exception tells that it can't be
        put together, or only with other words than were shown; `as_shown` makes one then.
        """
        if self.unread:
            raise UnreadableStream
        spoken = self._assembly.message()
        said = ""
        # Of plain text, what was shown is all there is.
        if spoken is not None and self.format != "text":
            # What is written can be read back (I-25).
            note_of("message", noted(spoken.note))
            said = shown_text_of(parts_of(spoken.note, spoken.body))
        if self.format != "text" and said != joined("".join(self._handed_on)):
            raise UnreadableStream
        if (
            spoken is not None
            and not self._assembly.complete
            and not spoken.note.partial
        ):
            spoken = Spoken(
                replace(spoken.note, partial=True, plain=False), spoken.body
            )
        return spoken


def _texts(deltas: list[Delta], ends: list[int]) -> list[str]:
    """What each chunk says. What is said at the end of all of them goes with the last one."""
    found = []
    start = 0
    for end in [*ends[:-1], len(deltas)]:
        found.append(shown(deltas[start:end]))
        start = end
    return found


def rebuild(
    rows: Sequence[JournalRow], *, known: set[bytes]
) -> list[tuple[bytes, Spoken]]:
    """The partial messages in these journal rows, those of `known` messages left out: what was
    stored of them is all that anybody can have seen.
    """
    streams: dict[bytes, list[JournalRow]] = {}
    for row in rows:
        if row.message not in known:
            streams.setdefault(row.message, []).append(row)
    out = []
    for id, own in streams.items():
        spoken = rebuilt(own)
        if spoken is not None:
            out.append((id, spoken))
    return out


def rebuilt(rows: Sequence[JournalRow]) -> Spoken | None:
    """The partial message of one stream's rows: put together by its format, or as it was shown."""
    spoken = _put_together(rows)
    if spoken is None:
        return None
    # Complete or not: its entry was never written, so nobody was told that it had ended.
    return Spoken(replace(spoken.note, partial=True, plain=False), spoken.body)


def _put_together(rows: Sequence[JournalRow]) -> Spoken | None:
    try:
        (_, _, (format, into)), *deltas = unpack(rows[0].body)
        stream = Stream(rows[0].message, format=format, into=into)
        for row in rows:
            stream.fold(deltas if row is rows[0] else unpack(row.body))
        return stream.message()
    except Exception:
        return as_shown(rows)


def as_shown(rows: Sequence[JournalRow]) -> Spoken | None:
    """The message of these rows as its text was handed on, with all that they hold beside it; a row
    that can't be read any more takes only itself along.
    """
    deltas: list[Delta] = []
    for row in rows:
        try:
            deltas += unpack(row.body)
        except Exception:
            deltas.append(("raw", 0, repr(row.body)))
    deltas = squeeze(sound(delta for delta in deltas if delta[0] != "open"))
    if not deltas:
        return None
    text = shown(deltas)
    parts: list[Any] = [{"type": "text", "text": text}] if text else []
    payload = {
        "role": "assistant",
        "parts": [*parts, {"type": UNREAD, "chunks": deltas}],
    }
    note = MessageNote(
        role="assistant", format="holdfast", plain=False, partial=True, finish=UNREAD
    )
    return Spoken(note, freeze(payload))


def _kept(chunk: Any) -> Any:
    try:
        return raw(registry.plain(chunk))
    except InvalidMessage:
        return raw(chunk)


def _assembly(format: str, into: str) -> Assembly:
    return (
        TextAssembly(registry.get(into))
        if format == "text"
        else registry.get(format).assembly()
    )


def _nothing() -> None:
    return
