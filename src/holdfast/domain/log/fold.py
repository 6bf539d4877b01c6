"""The fold: from entries to what a session is (I-9).

A `Log` takes entries in order and knows at every moment the messages, the turns and their ends, and
the instructions. Every process that folds the same entries gets the same. It has its messages in
six orders:

    order      has                                                 without               used by
    natural    all messages that are in a turn or outside one      inbox                 shapes, rewind
    history    natural, each summary before what it kept           inbox                 record
    arranged   natural, as the last shape or summary orders it     what a shape dropped  rewind
    in_view    arranged, edits applied                             what a rewind took    laws
    visible    in_view                                             what labels or        contexts
                                                                   retractions hide
    by_seq     natural and inbox, by seq                           summaries             transcript

In the natural order, turns stand as they started, a message outside a turn where it was said; late
messages stand in their own turn. A message in the inbox stands nowhere until a turn takes it.
`visible` only grows at its end while `revision` stays the same, so what was computed from its
beginning can be kept.

Three things lie on top of each other: how the messages are arranged (a shape, a summary in front),
what of that is gone (a rewind), what is hidden (a label, a retraction). Each has entries of its
own, and none undoes another.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from msgspec.structs import replace

from holdfast.domain.entry import (
    Asked,
    CallStarted,
    Closed,
    Compacted,
    Decided,
    Edit,
    Entry,
    Labelled,
    Opened,
    Retracted,
    Rewound,
    Shape,
    Taken,
    TurnEnded,
    TurnStarted,
    note_of,
)
from holdfast.domain.log.asked_calls import AskedCalls
from holdfast.domain.log.natural import NaturalOrder, Unit
from holdfast.domain.log.rewind import away
from holdfast.domain.log.view import Places, leaving_out, put_after, shaped, without
from holdfast.domain.message import MessageNote, freeze, thaw
from holdfast.domain.repair import Order, StoredMessage, seqs_of
from holdfast.domain.turn import FORKED, Ask, TurnRecord

_SUMMARY = MessageNote(origin="summary")


class Log:
    """A session as its entries tell it."""

    def __init__(self) -> None:
        self.head = 0
        self.revision = 0
        self.turns: dict[int, TurnRecord] = {}
        self.running: int | None = None
        self.instructions: str | None = None
        self.instructions_seq = 0
        self.since = 1
        # Two reasons to fold anew. Another shape may take back the first, but what a turn said
        # before `since` is never read later.
        self._shows_lost = False
        self._goes_on_lost = False
        self.closed: str | None = None
        self.hidden: set[str] = set()
        self.retracted: set[str] = set()
        self.labels: dict[str, dict[str, object]] = {}
        self.shape: Shape | None = None
        # The seqs of what was placed after the shape: said since, or accepted before and taken since.
        self._placed_since: list[int] = []
        self.rewinds: list[tuple[int, Rewound]] = []
        self.covered: dict[str, str] = {}
        # where a load begins since the last compaction
        self.loads_since = 1
        self._summary = 0
        self._fronts: dict[int, int] = {}
        self.aside: tuple[int, ...] = ()
        self.asks = AskedCalls()
        self.edits: dict[int, tuple[MessageNote, bytes]] = {}
        self._units: list[Unit] = []
        self._natural = NaturalOrder()
        self._unit_of_turn: dict[int, Order] = {}
        self._inbox: dict[str, StoredMessage] = {}
        # said here, answered in the session that this one was forked from
        self.elsewhere: set[str] = set()
        self._visible: Order = []
        self._stale = False

    @property
    def visible(self) -> Order:
        """The messages the model should see, in order. Not to be changed by the reader."""
        if self._stale:
            self.revision += 1  # first: an interrupt may come between any two steps
            self._visible = self._arrange()
            self._stale = False
        return self._visible

    @property
    def lost(self) -> bool:
        """Messages from before `since` are shown again, or their turn goes on: this log has to be
        folded anew, from the first entry.
        """
        return self._shows_lost or self._goes_on_lost

    @property
    def natural(self) -> Order:
        """All messages that stand somewhere, shown or not, in the natural order."""
        return self._natural.of(self._units).copy()

    def about_call(self, call_id: str) -> Order:
        """The messages that make or answer a call of this id, in the natural order."""
        return self._natural.about(self._units, call_id)

    @property
    def places(self) -> Places:
        """Where each seq stands in the natural order."""
        return self._natural.places(self._units)

    @property
    def history(self) -> Order:
        """All messages that stand somewhere, each summary in front of what was kept by it."""
        natural = self.natural
        present = set(seqs_of(natural))
        before: dict[int, Order] = {}
        rest: Order = []
        for seen in natural:
            first_kept = self._fronts.get(seen.seq)
            # One whose first kept message is not here (a load began later) stands where it is.
            if first_kept is not None and first_kept in present:
                before.setdefault(first_kept, []).append(seen)
            else:
                rest.append(seen)
        history: Order = []
        for seen in rest:
            history += [*before.get(seen.seq, ()), seen]
        return history

    @property
    def by_seq(self) -> Order:
        """All messages, those in the inbox too, by seq."""
        # Nobody has said a summary.
        said = [seen for seen in self.natural if seen.note.origin != "summary"]
        return sorted([*said, *self._inbox.values()], key=lambda message: message.seq)

    @property
    def waiting(self) -> set[str]:
        """Ids of the messages in the inbox."""
        return set(self._inbox)

    @property
    def inbox(self) -> Order:
        """The messages in the inbox, by seq."""
        return sorted(self._inbox.values(), key=lambda message: message.seq)

    def turn_record(self, number: int | None) -> TurnRecord | None:
        """What is known of this turn; None too for the number of a message outside a turn."""
        if number is None:
            return None
        return self.turns.get(number)

    def of_turn(self, number: int) -> Order:
        """The messages of a turn, those it took included."""
        return list(self._unit_of_turn.get(number, ()))

    def has_all_of(self, number: int) -> bool:
        """Whether all of a turn was read. Of one that began before the first entry that was read,
        the end may be here, and what it said is not.
        """
        turn = self.turns.get(number)
        return turn is not None and turn.seq > 0

    def begin(self, base: Compacted, instructions: str | None) -> None:
        """Begins with a compaction instead of the first entry: what it covers is not looked at."""
        self.head = base.since - 1
        self.since = base.since
        self.instructions = instructions
        self.instructions_seq = base.instructions

    def add(self, entries: Iterable[Entry]) -> None:
        """Folds entries that follow what was folded."""
        # A long history comes this way: notes repeat endlessly and are looked up, and what most
        # entries need is done here, without another call.
        notes: dict[bytes, MessageNote] = {}
        for entry in entries:
            self.head = entry.seq
            if entry.kind != "message":
                handler = _HANDLERS.get(entry.kind)
                if handler is None:
                    self._add_other(entry)
                else:
                    handler(self, entry, note_of(entry.kind, entry.note))
                continue
            note = notes.get(entry.note)
            if note is None:
                note = notes[entry.note] = note_of("message", entry.note)
            if note.erased:
                continue
            id, turn, body = entry.id.hex(), entry.turn, entry.body
            seen = StoredMessage(id, entry.seq, turn, note, body, False, (), entry.at)
            if note.inbox:
                self._inbox[seen.id] = seen
            elif turn is None and not self._stale:
                self._units.append(seen)
                self._visible.append(seen)
                if self.shape is not None:
                    self._placed_since.append(seen.seq)
            else:
                self._place(seen)

    def _add_other(self, entry: Entry) -> None:
        if entry.kind == "instructions":
            self._instructed(entry)
        elif entry.kind == "post":
            self._posted(entry)
        elif entry.kind == "erased":
            self._erased(entry)

    def _place(self, seen: StoredMessage) -> None:
        if self.shape is not None:
            self._placed_since.append(seen.seq)
        turn = seen.turn
        if turn is None:
            self._units.append(seen)
            unit: Unit = seen
        else:
            unit = self._of_turn(turn)
            unit.append(seen)
            if unit is not self._units[-1]:
                self._natural = NaturalOrder()
            if turn in self.turns and seen.note.role != "user":
                # It has used what it took, and gives nothing back (I-4).
                self.turns[turn].spoke = True
        if (
            unit is self._units[-1]
            and not self._stale
            and seen.id not in self.hidden
            and not self._may_be_gone(seen)
        ):
            self._visible.append(seen)
        else:
            self._stale = True

    def _may_be_gone(self, seen: StoredMessage) -> bool:
        # Only what began before the last rewind can have been taken away by it.
        return bool(self.rewinds) and self.born(seen) < self.rewinds[-1][0]

    def born(self, seen: StoredMessage) -> int:
        """The seq at which a message's turn began; its own, outside a turn."""
        turn = self.turn_record(seen.turn)
        return seen.seq if turn is None else turn.seq

    def _of_turn(self, number: int) -> Order:
        unit = self._unit_of_turn.get(number)
        if unit is None:
            self._goes_on_lost |= self.since > 1 and not self.has_all_of(number)
            unit = self._unit_of_turn[number] = []
            self._units.append(unit)
        return unit

    def _arrange(self) -> Order:
        in_view = self.in_view
        if not self.hidden:
            return in_view
        return [message for message in in_view if message.id not in self.hidden]

    @property
    def arranged(self) -> Order:
        """The messages as the last shape or summary arranges them; those too that are gone or
        hidden, for they may be brought back.
        """
        if self.shape is None:
            return self.natural
        natural = self._natural.of(self._units)
        order = shaped(natural, self.shape, self._placed_since, places=self.places)
        if not self.aside:
            return order
        # In the order in which they were set aside, which need not be the natural one.
        stands = dict(zip(seqs_of(natural), natural, strict=True))
        aside = [stands[seq] for seq in self.aside if seq in stands]
        return put_after(order, self._summary, aside)

    @property
    def gone(self) -> set[int]:
        """Seqs of the messages that the view has gone back from."""
        # The last rewind says all: it takes up what still counts of earlier ones.
        return self.gone_after(-1) if self.rewinds else set()

    def gone_after(self, place: int) -> set[int]:
        """What was gone after the rewind at this place; of what has come since, what would be."""
        made, note = self.rewinds[place]
        return away(note, self.natural, made=made, born=self.born)

    @property
    def in_view(self) -> Order:
        """The messages of the view in order, those too that a label or a retraction hides: it may
        be lifted.
        """
        order = leaving_out(self.arranged, self.gone)
        if self.edits:
            order = [self.worded(message) for message in order]
        return self._awaited(order) if self.asks else order

    def summary_of(self, id: str, shown: Collection[str]) -> str | None:
        """The summary among those shown that stands for this message."""
        # A summary may itself be covered by a later one.
        while id in self.covered:
            id = self.covered[id]
            if id in shown:
                return id
        return None

    def away_since(self) -> dict[str, int]:
        """The messages that are gone, by id, each with the seq of the rewind that took it away."""
        since: dict[int, int] = {}
        for place, (made, _) in enumerate(self.rewinds):
            # What a rewind brings back is not in its own set, so a later one takes it anew.
            since = {seq: since.get(seq, made) for seq in self.gone_after(place)}
        return {seen.id: since[seen.seq] for seen in self.natural if seen.seq in since}

    def asks_of(self, call_id: str) -> list[Ask]:
        """What was asked about this id, oldest first, but for what the view has gone back from."""
        return self._not_gone(self.asks.about(call_id))

    def approved(self) -> list[Ask]:
        """What was approved and has not been started, in the order asked for; not what the view has
        gone back from.
        """
        return self._not_gone([ask for ask in self.asks.values() if ask.may_start])

    def _not_gone(self, asks: list[Ask]) -> list[Ask]:
        # Most calls are asked about by nobody: then nothing is worked out about rewinds.
        if not asks or not self.rewinds:
            return asks
        gone = self.gone
        ids = {seen.id for seen in self.natural if seen.seq in gone}
        return [ask for ask in asks if ask.message not in ids]

    def since_turn(self, number: int) -> Order:
        """The messages of a turn and all that stands after it: what may answer its calls."""
        unit = self._unit_of_turn.get(number)
        found: Order = []
        # From the end: a turn that somebody asks for is nearly always one of the last.
        for other in reversed(self._units):
            found[:0] = other if isinstance(other, list) else [other]
            if other is unit:
                return found
        return []

    def _awaited(self, messages: Order) -> Order:
        """Marks the calls that wait, or that the running turn has started with an approval from
        before it: neither is shown as interrupted (FAULTS E7).
        """
        marks = self.asks.marks(self.running)
        return [
            replace(message, **marks[message.id]) if message.id in marks else message
            for message in messages
        ]

    def worded(self, message: StoredMessage) -> StoredMessage:
        """The message as the view words it."""
        if message.seq not in self.edits:
            return message
        note, body = self.edits[message.seq]
        return replace(message, note=note, body=body)

    # One handler for each kind that is not a message.

    def _turn_started(self, entry: Entry, note: TurnStarted) -> None:
        number = entry.turn or 0
        self.turns[number] = TurnRecord(
            number, entry.at, note.reply_to, takes=list(note.takes), seq=entry.seq
        )
        self.running = number
        # Its place is where it started, though it may say its first word after later ones.
        self._of_turn(number)
        self._take(number, note.takes)

    def _taken(self, entry: Entry, note: Taken) -> None:
        if entry.turn is None:
            for id in note.takes:
                self._inbox.pop(id, None)
            return
        number = entry.turn
        # it began before the first entry that was read
        if number not in self.turns:
            self._goes_on_lost = True
            return
        self.turns[number].takes.extend(note.takes)
        self._take(number, note.takes)

    def _take(self, number: int, ids: Iterable[str]) -> None:
        for id in ids:
            waiting = self._inbox.pop(id, None)
            if waiting is not None:
                self._place(replace(waiting, turn=number))

    def _asked(self, entry: Entry, note: Asked) -> None:
        self.asks.add(note)
        self._stale = True

    def _decided(self, entry: Entry, note: Decided) -> None:
        if self.asks.decide(note):
            self._stale = True

    def _call_started(self, entry: Entry, note: CallStarted) -> None:
        if self.asks.start(note, entry.turn):
            self._stale = True

    def _turn_ended(self, entry: Entry, note: TurnEnded) -> None:
        number = entry.turn or 0
        turn = self.turns.setdefault(number, TurnRecord(number))
        if turn.end is not None:
            return
        turn.end = note.end
        turn.reason = note.reason
        turn.error = note.error
        turn.ended_at = entry.at
        if self.running == number:
            self.running = None
        # A call that it had started with an approval is shown as running no more.
        if self.asks.are_used_in(number):
            self._stale = True
        if note.returns:
            self._give_back(number, note.returns)

    def _give_back(self, number: int, ids: Collection[str]) -> None:
        """Messages that a turn had taken, and has not used, wait in the inbox again."""
        returned = set(ids)
        given = {}
        unit = self._unit_of_turn.get(number, [])
        for message in unit:
            if message.id in returned:
                given[message.id] = message
        if not given:
            return
        if self.shape is not None:
            # While they still stand in the natural order: a range must not fall with its end.
            seqs = set(seqs_of(given.values()))
            self.shape = without(self.natural, self.shape, seqs)
        unit[:] = [message for message in unit if message.id not in given]
        self._natural = NaturalOrder()
        self._stale = True
        for id in ids:
            if id in given:
                self._inbox[id] = replace(given[id], turn=None)

    def _opened(self, entry: Entry, note: Opened) -> None:
        """A session that shares the past of another begins here: what was under way there is not
        under way here.

        What waits there is answered there. Only if they part at a message that still waited then,
        it stands here, and what waited before it.
        """
        if note.at in self._inbox or note.parent_seq in seqs_of(self._inbox.values()):
            for seen in self._inbox.values():
                self._place(seen)
        else:
            self.elsewhere.update(self._inbox)
        self._inbox.clear()
        for ask in self.asks.values():
            # The approval is used there or not at all: here it is asked about again.
            if ask.may_start:
                ask.approved = None
            self._stale = True
        for turn in self.turns.values():
            if turn.end is None:
                turn.end, turn.reason = FORKED
                turn.ended_at = entry.at
        self.running = None
        self.closed = None

    def _instructed(self, entry: Entry) -> None:
        self.instructions = thaw(entry.body) if entry.body else None
        self.instructions_seq = entry.seq

    def _compacted(self, entry: Entry, note: Compacted) -> None:
        summary = entry.id.hex()
        for seen in self._natural.named(self._units, note.covers):
            self.covered[seen.id] = summary
        # A summary without a body was erased: it stands nowhere.
        if entry.body:
            self._units.append(
                StoredMessage(
                    summary, entry.seq, None, _SUMMARY, entry.body, False, (), entry.at
                )
            )
        # The note has all edits of what is shown, so a load can begin with it.
        self.edits.clear()
        self._edit(note.edits)
        self._summary = entry.seq
        self.aside = note.aside
        self.loads_since = note.since
        if note.ranges:
            self._fronts[entry.seq] = note.ranges[0][0]
        self._show(Shape(((entry.seq, entry.seq), *note.ranges)))

    def _shaped(self, entry: Entry, note: Shape) -> None:
        for seq in note.restored:
            self.edits.pop(seq, None)
        self._edit(note.edits)
        self._show(note)

    def _edit(self, edits: dict[int, Edit]) -> None:
        for seq, edit in edits.items():
            self.edits[seq] = (edit.note, freeze(edit.payload))

    def _show(self, shape: Shape) -> None:
        self.shape = shape
        self._placed_since = []
        self._shows_lost = any(first < self.since for first, _ in shape.ranges)
        self._stale = True

    def _rewound(self, entry: Entry, note: Rewound) -> None:
        self.rewinds.append((entry.seq, note))
        if note.ranges:
            self._show(Shape(note.ranges))
        self._stale = True

    def _labelled(self, entry: Entry, note: Labelled) -> None:
        self.labels.setdefault(note.message, {}).update(note.labels)
        if "visible_to_model" not in note.labels:
            return
        self._stale = True
        if not note.labels["visible_to_model"]:
            self.hidden.add(note.message)
            return
        self.hidden.discard(note.message)
        # A summary set it aside while it was hidden. Now it follows the summary, and was not read.
        self._shows_lost |= note.seq < self.since and note.seq in self.aside

    def _retracted(self, entry: Entry, note: Retracted) -> None:
        self.hidden.update(note.messages)
        self.retracted.update(note.messages)
        self._stale = True

    def _posted(self, entry: Entry) -> None:
        turn = self.turn_record(entry.turn)
        note = note_of("post", entry.note)
        if turn is not None and note.end == "sent":
            turn.sent_seq = entry.seq
            turn.heard = note.heard

    def _closed(self, entry: Entry, note: Closed) -> None:
        # Closed once more, it says only where what still waited has gone.
        if self.closed is None:
            self.closed = note.reason
        for id in note.moved:
            self._inbox.pop(id, None)

    def _erased(self, entry: Entry) -> None:
        """All words are gone, from here too."""
        revision = self.revision
        vars(self).update(vars(Log()))
        self.head = entry.seq
        # It goes on counting: what was computed from the old order must not be taken for the new.
        self.revision = revision
        self.closed = "erased"
        self._stale = True


_HANDLERS: dict[str, Callable[[Log, Entry, Any], None]] = {
    "turn": Log._turn_started,
    "take": Log._taken,
    "call": Log._call_started,
    "ask": Log._asked,
    "decision": Log._decided,
    "end": Log._turn_ended,
    "view": Log._shaped,
    "rewind": Log._rewound,
    "label": Log._labelled,
    "retract": Log._retracted,
    "compaction": Log._compacted,
    "opened": Log._opened,
    "closed": Log._closed,
}
"""By kind. Those that `_add_other` names besides have no note, or one that is seldom read."""
