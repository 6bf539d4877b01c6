"""Reads what the three views of a session are made from, and makes a page of them.

Payloads are read for the page alone, and for what the model is sent: a long history is looked
through without them (I-24).
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.domain.entry import Entry, note_of
from holdfast.domain.ids import turn_id
from holdfast.domain.log.explain import Outline
from holdfast.domain.log.fold import Log
from holdfast.domain.message import USUAL_FORMAT, Usage
from holdfast.domain.repair import StoredMessage
from holdfast.engine.protocol import JournalRow, OwedReply
from holdfast.runtime.live.message import Message
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.turns.message_stream import rebuild
from holdfast.server.page.page_sections import ViewedSection, chosen, sections_of
from holdfast.server.page.sent_list import SentList
from holdfast.server.page.three_views import ThreeViews, ViewRow

AT_ONCE = 200
"""How many entries are read at once for their payloads."""
PROVIDERS = ("openai.chat", "openai.responses", "anthropic")
"""The formats of providers: what a model is sent is in one of these, as a rule."""


class ShownSection(msgspec.Struct, frozen=True):
    """A turn, what stands outside of one, or what waits in the inbox, with its rows. `begins` is the
    seq that pages are asked for by; `turn` is the id of the turn, `end` null while it runs.
    """

    begins: int
    kind: str
    turn: str | None
    number: int | None
    started_at: int | None
    ended_at: int | None
    end: str | None
    reason: str | None
    error: str | None
    usage: Usage
    rows: list[ViewRow]


class ViewsPage(msgspec.Struct, frozen=True):
    """Some sections of a session in three views, in order. `lead` is what is sent before all of them,
    `tail` what is sent after; `earlier` is the `before` of the page before it, `later` the `after`
    of the next; null where there is none. `sent` counts the payloads of the context.
    """

    format: str
    head: int
    sent: int
    lead: list[ViewRow]
    sections: list[ShownSection]
    tail: list[ViewRow]
    earlier: int | None
    later: int | None


class WantedPage(msgspec.Struct, frozen=True):
    """Which sections, and for which format; without one, for that of the model's last message."""

    format: str | None
    before: int | None
    after: int | None
    limit: int


class SessionViews:
    """The views of one session, by a log of its own. What was worked out of the log is kept until
    the log grows, or is read anew because something of it was erased (I-21).
    """

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self._kept: _WorkedOut | None = None

    def page(
        self,
        wanted: WantedPage,
        rows: list[JournalRow],
        debts: Sequence[OwedReply] = (),
    ) -> ViewsPage:
        """A page of them. `rows`: the journal of the running turn; `debts`: the replies that the
        session owes.
        """
        return self.log.reading(lambda: self._page(wanted, rows, debts))

    def _page(
        self, wanted: WantedPage, rows: list[JournalRow], debts: Sequence[OwedReply]
    ) -> ViewsPage:
        owed: dict[int | None, list[str]] = {}
        for debt in debts:
            owed.setdefault(debt.turn, []).append(debt.reply_to)
        made = self._worked_out(wanted.format)
        page = chosen(
            made.sections, before=wanted.before, after=wanted.after, limit=wanted.limit
        )
        views = made.views
        messages = made.reading.messages(page.sections)
        told = []
        for section in page.sections:
            found: list[ViewRow] = []
            for seen in section.messages:
                whom = owed.get(seen.turn, ())
                found += views.of_message(seen, messages, whom)
            if section.turn is not None and section.turn.number == made.running:
                found += map(views.of_spoken, made.spoken(rows))
            told.append(_shown(section, self.log.id, found))
        return ViewsPage(
            format=made.format,
            head=made.head,
            sent=len(made.sent.payloads),
            lead=views.lead() if page.earlier is None else [],
            sections=told,
            tail=views.tail() if page.later is None else [],
            earlier=page.earlier,
            later=page.later,
        )

    def _worked_out(self, format: str | None) -> "_WorkedOut":
        with self.log.lock:
            log = self.log.log()
            format = format or _usual_format(log)
            kept = self._kept
            if kept is None or not kept.is_of(log, format):
                kept = self._kept = _WorkedOut(self.log, log, format)
            return kept


def _usual_format(log: Log) -> str:
    """The format of the model's last message, if a provider takes it."""
    for seen in reversed(log.visible):
        if seen.note.role == "assistant" and seen.note.format in PROVIDERS:
            return seen.note.format
    return USUAL_FORMAT


class _WorkedOut:
    """What a log comes to, for one format."""

    def __init__(self, session: SessionLog, log: Log, format: str) -> None:
        self._log = log
        self.head, self.running, self.format = log.head, log.running, format
        context = session.contexts.make(log, format)
        # By `list` itself: a context takes copies of its payloads before anybody looks at them.
        payloads = list(list.__iter__(context))
        goes_on = context._continuation is not None
        self.sent = SentList(log, payloads, format, goes_on=goes_on)
        self.reading = _Reading(session, log.head)
        outline, stray = self.reading.outline, self.reading.stray
        self.sections = sections_of(outline, stray)
        self.views = ThreeViews(outline, self.sent, self.sections, self.reading.aside)
        self._said: set[bytes] = set()
        if log.running is not None:
            said = log.of_turn(log.running)
            self._said = {bytes.fromhex(seen.id) for seen in said}

    def is_of(self, log: Log, format: str) -> bool:
        """Whether it is of this very log, as it is now. One that was read anew is another."""
        return (self._log, self.head, self.format) == (log, log.head, format)

    def spoken(self, rows: list[JournalRow]) -> list[Message]:
        """The messages that are still being spoken, as far as they are."""
        own = [row for row in rows if row.turn == self.running]
        found = []
        for id, spoken in rebuild(own, known=self._said):
            seen = StoredMessage(id.hex(), 0, self.running, spoken.note, spoken.body)
            found.append(Message(seen, turn=None))
        return found


class _Reading:
    """A log looked through, up to this entry: its outline, and what stands nowhere in it."""

    def __init__(self, session: SessionLog, upto: int) -> None:
        self._session = session
        self._passed: dict[str, StoredMessage] = {}
        self.outline = Outline(self._entries(upto))
        self.aside: dict[str, str] = {}
        folded = self.outline.log
        known = {seen.id for seen in folded.natural} | folded.waiting
        for seen in self._passed.values():
            if seen.note.erased:
                self.aside[seen.id] = "erased"
            elif seen.id in folded.elsewhere:
                self.aside[seen.id] = "elsewhere"
            elif seen.id not in known:
                self.aside[seen.id] = "moved"

    @property
    def stray(self) -> list[StoredMessage]:
        """The messages that stand nowhere, by seq."""
        return [self._passed[id] for id in self.aside]

    def _entries(self, upto: int) -> Iterator[Entry]:
        after = 0
        while after < upto and (
            page := self._session.page(after, min(2000, upto - after), bodies=False)
        ):
            for entry in page:
                # What waits may go, and what is erased stands nowhere: these are looked for again.
                if entry.kind == "message":
                    note = note_of("message", entry.note)
                    if note.inbox or note.erased:
                        seen = StoredMessage(
                            entry.id.hex(), entry.seq, entry.turn, note, b""
                        )
                        self._passed[seen.id] = replace(seen, at=entry.at)
                yield entry
            after = page[-1].seq

    def messages(self, sections: Iterable[ViewedSection]) -> dict[str, Message]:
        """The messages of these sections with their payloads, and those that answer their calls."""
        wanted = {seen.id: seen for section in sections for seen in section.messages}
        for id in list(wanted):
            for call in self.outline.calls.get(id, ()):
                if call.outcome is not None:
                    wanted[call.outcome] = self.outline.found(call.outcome)
        return self._with_payloads(wanted)

    def _with_payloads(self, wanted: dict[str, StoredMessage]) -> dict[str, Message]:
        found: dict[str, Message] = {}
        left = sorted(wanted.values(), key=lambda seen: seen.seq, reverse=True)
        # In pages that each begin with a message that is wanted: what lies between two
        # that are far apart is not read. The lowest seq is at the end of the list.
        while left:
            first = left[-1].seq
            furthest = min(left[0].seq, first + AT_ONCE - 1)
            page = self._session.page(first - 1, furthest - first + 1)
            read = {entry.seq: entry for entry in page}
            # A page may end early, and one entry at least is there, or none will ever be.
            upto = page[-1].seq if page else furthest
            while left and left[-1].seq <= upto:
                seen = left.pop()
                found[seen.id] = _message(seen, read.get(seen.seq))
        return found


def _message(seen: StoredMessage, entry: Entry | None) -> Message:
    """The message with the payload of its entry."""
    body, note = b"", seen.note
    if entry is not None:
        body = entry.body
        # A placeholder for what can't be read has a note of its own.
        if entry.kind == "message":
            note = note_of("message", entry.note)
    return Message(replace(seen, note=note, body=body), turn=None)


def _shown(section: ViewedSection, session: str, rows: list[ViewRow]) -> ShownSection:
    turn = section.turn
    return ShownSection(
        begins=section.begins,
        kind=section.kind,
        turn=None if turn is None else turn_id(session, turn.number),
        number=None if turn is None else turn.number,
        started_at=None if turn is None else turn.started_at,
        ended_at=None if turn is None else turn.ended_at,
        end=None if turn is None else turn.end,
        reason=None if turn is None else turn.reason,
        error=None if turn is None else turn.error,
        usage=_spent(section.messages),
        rows=rows,
    )


def _spent(messages: Iterable[StoredMessage]) -> Usage:
    total = Usage()
    for seen in messages:
        if (each := seen.note.usage) is not None:
            total = Usage(
                total.input + each.input,
                total.output + each.output,
                total.cached + each.cached,
                total.reasoning + each.reasoning,
            )
    return total
