"""Healing a session of our own: the log as it would be had nothing been lost, with tombstones where
something was.

Everything that can be read keeps its seq, so all that refers to it still does. What the store keeps
beside the log (inbox, outbox, events, where a load begins) is worked out from the log again.
"""

from collections.abc import Iterator
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from holdfast.doctor.finding import Change
from holdfast.doctor.holdfast.records import SessionRecord
from holdfast.domain.accepted_events import AcceptedEvent, EventsOfLog
from holdfast.domain.chunk import shown, unpack
from holdfast.domain.entry import (
    Closed,
    Draft,
    Entry,
    Opened,
    TurnEnded,
    TurnStarted,
    note_of,
    noted,
)
from holdfast.domain.inbox import Inbox
from holdfast.domain.message import MessageNote, freeze
from holdfast.domain.origin import entry_name
from holdfast.engine.protocol import Laid, OwedReply, Waiting

# How much of what was there before a report shows.
SHORT = 200


class Healthy(msgspec.Struct):
    """A session that can be laid down: its log, how it stands, and what was changed to
    make it so.
    """

    entries: list[Entry]
    origin: int
    laid: Laid
    changes: list[Change]


def healed(
    record: SessionRecord, *, ended: bool | None = None, rooted: bool = False
) -> Healthy:
    """The session, healed. `ended` ends it though it had not; `rooted` makes it one of its own
    though it was a fork.
    """
    # In this order: entries get their places before turns are looked for among them, and the
    # session's end is its last entry.
    work = _Healing(record)
    if rooted:
        work.root()
    work.fill()
    work.settle_turns()
    if ended or record.state.ended:
        work.end()
    return work.result()


class _Healing:
    def __init__(self, record: SessionRecord) -> None:
        self._record = record
        self._state = record.state
        self._origin = record.state.origin
        self._past = record.past
        self._entries: list[Entry] = []
        self._changes: list[Change] = []
        self._is_ended = record.state.ended or any(
            entry.kind == "closed" for entry in record.entries
        )

    def root(self) -> None:
        """A past that is not there is tombstones of its own."""
        # The seqs stay: notes name messages by them.
        there = {entry.seq for entry in self._past}
        self._entries = [self._tombstone(seq) for seq in range(1, self._origin + 1)]
        place = f"entries 1 to {self._origin}"
        before = f"{len(there)} of them can be read in the session it shares them with"
        after = "a session of its own, with tombstones in their place"
        self._change("lost-past", place, before, after)
        self._origin = 0
        self._past = []

    def fill(self) -> None:
        """Each entry in its place, or a tombstone; the first one opens the session."""
        by_seq = {entry.seq: entry for entry in self._record.entries}
        ids = {entry.id for entry in self._past}
        messages = set()
        for entry in (*self._past, *by_seq.values()):
            if entry.kind == "message":
                messages.add(entry.id.hex())
        for seq in range(self._state.origin + 1, self._state.head + 1):
            place = f"entry {seq}"
            found = by_seq.get(seq)
            if found is None:
                entry = self._lost(seq)
            elif found.id in ids:
                before = f"the id of another, {found.id.hex()}"
                self._change("doubled-id", place, before, "an id of its own")
                entry = replace(found, id=self._name(place, found.at))
            elif found.kind == "label" and _labelled(found) not in messages:
                before = "a label of no message that is here"
                entry = self._buried("label-of-nothing", found, before)
            else:
                entry = found
            ids.add(entry.id)
            self._entries.append(entry)
        self._open()

    def _open(self) -> None:
        """The first entry opens the session, whatever has become of it."""
        first = self._entries[0]
        # One that was rooted is opened by a tombstone of its own past.
        if first.kind == "opened" and self._origin == self._state.origin:
            return
        note = noted(Opened(self._state.key, self._state.epoch))
        id = first.id
        if first.kind != "opened":
            id = self._name("opened", first.at)
        self._entries[0] = Entry(first.seq, "opened", None, id, first.at, note, b"")

    def _name(self, what: str, at: int) -> bytes:
        # Derived, not drawn: healing the same store again gives the same bytes.
        return entry_name(self._state.id, what, at)

    def _buried(self, rule: str, entry: Entry, before: str) -> Entry:
        """A tombstone in the place of an entry that can be read and must not stand there."""
        self._change(rule, f"entry {entry.seq}", before, "a tombstone")
        return self._tombstone(entry.seq, entry.at)

    def _lost(self, seq: int) -> Entry:
        why = self._record.lost.get(seq, "there is no such entry")
        rule = "gap-in-log" if why == "there is no such entry" else "unreadable-entry"
        self._change(rule, f"entry {seq}", why, "a tombstone")
        return self._tombstone(seq)

    def _tombstone(self, seq: int, at: int | None = None) -> Entry:
        if at is None:
            at = self._entries[-1].at if self._entries else self._state.opened_at
        id = self._name(f"tombstone {seq}", at)
        note = noted(MessageNote(plain=False, erased=True))
        return Entry(seq, "message", None, id, at, note, b"")

    def settle_turns(self) -> None:
        """Each turn that spoke here has started, and has one end; one that was running has what it
        had said.
        """
        # Starts first: an end counts only for a turn that has started.
        self._start_turns()
        started: set[int | None] = set()
        ended: set[int | None] = set()
        for at, entry in enumerate(self._entries):
            seen = {"turn": started, "end": ended}.get(entry.kind)
            if seen is None:
                continue
            is_stray = entry.kind == "end" and entry.turn not in started
            if entry.turn in seen or is_stray:
                what = "start" if entry.kind == "turn" else "end"
                before = f"a {what} of turn {entry.turn} too many"
                self._entries[at] = self._buried("turn-without-one-end", entry, before)
            seen.add(entry.turn)
        for turn in sorted(number for number in started - ended if number is not None):
            place = f"turn {turn}"
            after = "ended as abandoned"
            if turn != self._state.turn:
                self._change("turn-without-one-end", place, "no end", after)
            elif self._state.ended:
                before = "running in an ended session"
                self._change("ended-and-running", place, before, after)
            self._abandon(turn)

    def _start_turns(self) -> None:
        """A turn whose start was lost began at the last place before its words where
        something was.
        """
        known: set[int | None] = {None}
        for entry in (*self._past, *self._entries):
            if entry.kind == "turn":
                known.add(entry.turn)
        spare: int | None = None
        for at, entry in enumerate(self._entries):
            if _is_tombstone(entry):
                spare = at
            if entry.turn in known:
                continue
            if spare is None:
                # Nothing was lost before it: the words stay, and stand outside of all turns.
                self._entries[at] = replace(entry, turn=None)
                continue
            lost = self._entries[spare]
            after = f"started at entry {lost.seq}"
            self._change(
                "turn-without-one-end", f"turn {entry.turn}", "no start", after
            )
            note = noted(self._start(spare, entry.turn))
            self._entries[spare] = replace(
                lost, kind="turn", turn=entry.turn, note=note
            )
            known.add(entry.turn)
            # A tombstone can be the start of one turn only.
            spare = None

    def _start(self, at: int, turn: int | None) -> TurnStarted:
        """A turn takes what waits, and owes what it is said to owe."""
        inbox = Inbox()
        inbox.add([*self._past, *self._entries[:at]])
        reply_to = None
        for debt in self._record.debts:
            if debt.turn == turn:
                reply_to = debt.reply_to
                break
        return TurnStarted(takes=tuple(inbox.waiting), reply_to=reply_to)

    def _abandon(self, turn: int) -> None:
        # A journal outlives its message until it is emptied: what is stored is not said again.
        known = {entry.id for entry in self._entries}
        said: dict[bytes, str] = {}
        for row in self._record.journal:
            if row.turn == turn and row.message not in known:
                more = shown(delta for delta in unpack(row.body) if delta[0] != "open")
                said[row.message] = said.get(row.message, "") + more
        for id, text in said.items():
            if text:
                note = MessageNote(role="assistant", plain=False, partial=True)
                body = freeze({"role": "assistant", "content": text})
                self._add("message", turn, id, noted(note), body)
        # A copy is at rest: nobody will ever write the end of what was running in it.
        reason = "its end was lost"
        if turn == self._state.turn:
            reason = "it was running when the store was copied"
        self._add("end", turn, None, noted(TurnEnded("abandoned", reason=reason)))

    def end(self) -> None:
        """It has ended, or its key means another session now; and an entry says so."""
        if not self._state.ended:
            before = "not ended, and the key has a later session"
            self._change("doubled-keys", f"key {self._state.key!r}", before, "ended")
        if not any(entry.kind in ("closed", "erased") for entry in self._entries):
            self._add("closed", None, None, noted(Closed("replaced")))
        self._is_ended = True

    def _add(
        self,
        kind: str,
        turn: int | None,
        id: bytes | None,
        note: bytes,
        body: bytes = b"",
    ) -> None:
        last = self._entries[-1]
        id = id or self._name(f"{kind} {last.seq + 1}", last.at)
        self._entries.append(Entry(last.seq + 1, kind, turn, id, last.at, note, body))

    def result(self) -> Healthy:
        return Healthy(self._entries, self._origin, self._laid(), self._changes)

    def _laid(self) -> Laid:
        state = self._state
        turns = [entry.turn or 0 for entry in self._of_kind("turn")]
        outbox = self._owed()
        events = tuple(self._events())
        strays = {(event.name, event.seq) for event in self._record.events}
        if strays - {(event.name, event.seq) for event in events}:
            self._note_strays("stray-events", "events of entries that are not there")
        inbox = tuple(self._waiting())
        was = [(each.seq, each.message) for each in self._record.inbox]
        if was != [(each.seq, each.message) for each in inbox]:
            self._note_strays("stray-inbox", "an inbox that its log denies")
        if self._record.misfiled is not None:
            self._change(
                "other-tenants",
                "beside the log",
                self._record.misfiled,
                f"all of it under the tenant {state.tenant!r}",
            )
        base = self._base()
        return Laid(
            # A turn's number is the fence of its time: the next one must be above them all.
            fence=max([state.fence, *turns]),
            # A time that was no number is none: nobody is to take the session for one of long ago.
            active_at=state.active_at or self._entries[-1].at,
            base=base,
            ended=self._is_ended,
            erased=state.erased,
            inbox=inbox,
            outbox=outbox,
            events=events,
        )

    def _owed(self) -> tuple[OwedReply, ...]:
        debts = self._record.debts
        ended = {entry.turn for entry in self._of_kind("end")}
        outbox = tuple(debt for debt in debts if debt.turn in ended)
        if len(outbox) < len(debts):
            self._note_strays("stray-outbox", "replies owed by turns that never were")
        return outbox

    def _base(self) -> int:
        """Where a load begins: a compaction of its own, or else the first entry."""
        base = self._state.base
        if base in {entry.seq for entry in self._of_kind("compaction")}:
            return base
        if base:
            self._note_strays("lost-base", f"a load that begins with entry {base}")
        return 0

    def _of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self._entries if entry.kind == kind]

    def _waiting(self) -> Iterator[Waiting]:
        # Its own entries alone: what waits in the session that it was forked from waits there.
        inbox = Inbox()
        inbox.add(self._entries)
        for id, seq in sorted(inbox.waiting.items(), key=itemgetter(1)):
            yield Waiting(bytes.fromhex(id), None, seq)

    def _events(self) -> Iterator[AcceptedEvent]:
        """The events that the log knows, and those of the store that agree with it."""
        state, named = self._state, set()
        told = EventsOfLog(
            state.tenant, state.id, keys=[state.key], past_of=state.copied_from
        )
        for event in told.add(self._entries):
            if event.name not in named:
                named.add(event.name)
                yield event
        ids = {(entry.seq, entry.id) for entry in self._entries}
        # An event whose entry does not name it is known only here.
        for known in self._record.events:
            if known.name not in named and (known.seq, known.message) in ids:
                yield known

    def _note_strays(self, rule: str, what: str) -> None:
        self._change(rule, "beside the log", what, "worked out from the log again")

    def _change(self, rule: str, place: str, before: str, after: str) -> None:
        self._changes.append(
            Change(f"holdfast/{rule}", self._state.id, place, before[:SHORT], after)
        )


def _is_tombstone(entry: Entry) -> bool:
    if entry.kind != "message" or entry.turn is not None:
        return False
    return bool(note_of("message", entry.note).erased)


def _labelled(entry: Entry) -> str:
    message: str = note_of("label", entry.note).message
    return message


def drafts_of(entries: list[Entry]) -> tuple[Draft, ...]:
    """Entries on their way into a new log."""
    return tuple(
        Draft(each.kind, each.turn, each.id, each.at, each.note, each.body)
        for each in entries
    )
