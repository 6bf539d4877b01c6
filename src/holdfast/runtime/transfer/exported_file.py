"""The file of a session that was written out entry by entry (`export --as holdfast`): its header, its
entries, and what they tell together.

A file can say anything, so all of it is vetted before any of it is stored: it is gone through once
from beginning to end, and what can't be read later is refused then, with its place.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.domain.entry import Entry, note_of
from holdfast.domain.log.fold import Log
from holdfast.domain.log.references import References
from holdfast.domain.message import freeze
from holdfast.engine.protocol import OwedReply
from holdfast.errors import Damaged, InvalidMessage, StoreUnavailable
from holdfast.importers.jsonl import RawLine, lines, parsed_line
from holdfast.importers.values import JsonObject
from holdfast.runtime.transfer.compare_logs import Page, paged, with_last
from holdfast.runtime.transfer.vet import (
    vet_debt,
    vet_entry,
    vet_key,
    vet_log,
    vet_session_id,
)

VERSION = 1
PAGE = 500
EXPORT = "export"
"""What is damaged, in the error for a file that can't be what was written out."""
REMEDY = (
    "nothing of it was imported: take another copy of the file, or write it again with "
    "`holdfast export`"
)


class OwedLine(msgspec.Struct):
    """A reply that is owed."""

    id: str
    turn: int
    reply_to: str
    at: int


class SessionLine(msgspec.Struct):
    """How a session stands beside its log."""

    fence: int = 0
    base: int = 0
    outbox: list[OwedLine] = []


class ExportHeader(msgspec.Struct):
    """The first line of a session that was written out. `session` is what
    `Session.info()` tells.
    """

    holdfast: int
    session: JsonObject
    standing: SessionLine = msgspec.field(default_factory=SessionLine)


class EntryLine(msgspec.Struct):
    """An entry as it was written out, its note and body left as bytes."""

    seq: int
    kind: str
    turn: int | None
    id: str
    at: int
    note: msgspec.Raw
    body: msgspec.Raw


class LogFacts(msgspec.Struct):
    """What the entries of a file tell together: up to the seq `origin` they are the past that the
    session shared with its `parent`; whether it was `erased`, or else which entries were `blanked`.
    """

    origin: int = 0
    parent: str | None = None
    erased: bool = False
    blanked: set[int] = msgspec.field(default_factory=set)

    def add(self, page: Page) -> None:
        for entry in page:
            if entry.kind == "opened":
                note = note_of("opened", entry.note)
                # The fork of a fork has one of these for each.
                if note.parent is not None and note.parent_seq == entry.seq - 1:
                    self.origin, self.parent = entry.seq - 1, note.parent
                    # That was its parent, not itself.
                    self.erased = False
            elif entry.kind == "erased":
                self.erased = True
            elif entry.kind == "blanked":
                self.blanked.update(note_of("blanked", entry.note).seqs)

    def may_lack_words(self, seq: int) -> bool:
        """Whether the file tells why an entry has none: it was blanked, or is of its parent, who
        may have been erased.
        """
        return seq in self.blanked or seq <= self.origin


_line = msgspec.json.Decoder(EntryLine)
_SURROGATE = b"\\ud"


def read_header(path: Path) -> ExportHeader:
    """Its first line."""
    first = next(lines(path), None)
    value = None
    problem = "it is empty"
    if first is not None:
        value, problem = parsed_line(first)
    try:
        header = msgspec.convert(value, ExportHeader)
        vet_session_id(header.session.get("id"))
        vet_key(header.session.get("key"))
        # Whether or not they will be owed here: a file is sound or it is not.
        for owed in header.standing.outbox:
            vet_debt(owed_reply(owed, header.session["id"]))
    # A half of a character where a number should be is a UnicodeError to msgspec.
    except (msgspec.MsgspecError, ValueError, TypeError, Damaged) as error:
        why = problem or (error.problem if isinstance(error, Damaged) else error)
        raise damaged(
            f"{path}, line 1", f"this is no session that was written out ({why})"
        ) from None
    if header.holdfast != VERSION:
        problem = f"it was written in version {header.holdfast} of its format"
        raise StoreUnavailable(
            where=str(path), problem=problem, remedy="Update Holdfast"
        )
    return header


def owed_reply(line: OwedLine, session: str) -> OwedReply:
    """The reply that a line tells of; `ValueError` when its id is none."""
    id = bytes.fromhex(line.id)
    return OwedReply(id, session, line.turn, line.reply_to, line.at)


def damaged(where: str, problem: str) -> Damaged:
    """The error for a file of which nothing was imported."""
    return Damaged(what=EXPORT, where=where, problem=problem, remedy=REMEDY)


def vet_file(path: Path) -> LogFacts:
    """Goes through all of it once: what can't be read later is refused now."""
    log, references, facts = Log(), References(), LogFacts()
    ids: set[bytes] = set()
    ended = 0
    for page, is_last in with_last(paged(entries_of(path), PAGE)):
        # An id that comes twice would be taken for a message that is here already.
        ids.update(entry.id for entry in page)
        ended += len(page)
        if len(ids) != ended or page[-1].seq != ended:
            raise damaged(
                str(path),
                f"entries up to {ended} are missing, doubled or out of order (I-1)",
            )
        try:
            vet_log(log, page, is_last=is_last)
        except Damaged as error:
            raise damaged(str(path), f"up to entry {ended}: {error.problem}") from error
        references.add(page, unreadable=())
        facts.add(page)
    if references.missing:
        references.discharge(entries_of(path))
    for seq, problem in references.dangling():
        raise damaged(f"{path}, entry {seq}", problem)
    return facts


def entries_of(path: Path) -> Iterator[Entry]:
    """The entries of a file, each vetted by itself; `Damaged` with the line of one that can't be
    what was written out.
    """
    for line in lines(path):
        if line.number == 1:
            continue
        try:
            # msgspec refuses halves of characters, which JSON of others may hold (FAULTS H7).
            is_odd = _SURROGATE in line.raw.lower()
            read = _slowly(line) if is_odd else _line.decode(line.raw)
            entry = Entry(
                read.seq,
                read.kind,
                read.turn,
                bytes.fromhex(read.id),
                read.at,
                _stored(read.note),
                _stored(read.body),
            )
            vet_entry(entry)
            yield entry
        except Damaged as error:
            raise damaged(f"{path}, line {line.number}", error.problem) from None
        except (
            msgspec.MsgspecError,
            InvalidMessage,
            ValueError,
            KeyError,
            TypeError,
            RecursionError,
        ) as error:
            raise damaged(
                f"{path}, line {line.number}", f"it is no entry ({error})"
            ) from None


def _slowly(line: RawLine) -> EntryLine:
    """A line with halves of characters in it, which are frozen again as they were."""
    value, problem = parsed_line(line)
    if problem:
        raise ValueError(problem)
    for name in ("note", "body"):
        value[name] = msgspec.Raw(freeze(value[name]))
    return EntryLine(*[value[name] for name in EntryLine.__struct_fields__])


def _stored(raw: msgspec.Raw) -> bytes:
    return b"" if bytes(raw) == b"null" else bytes(raw)
