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

from collections.abc import Collection, Iterable, Sequence

import msgspec

from holdfast.domain.entry import Compacted, Entry, Rewound, Shape, note_of
from holdfast.domain.log.rewind import away
from holdfast.domain.log.view import in_ranges, put_after, shaped, without
from holdfast.domain.message import MessageNote, freeze, thaw
from holdfast.domain.repair import StoredMessage
from holdfast.domain.turn import FORKED, Ask, TurnRecord

Unit = list[StoredMessage] | StoredMessage
"""What stands together: the messages of a turn, or one message outside a turn."""


_SUMMARY = MessageNote(origin="summary")


class _Natural:
    """The natural order, written out as far as somebody asked: going on costs what is new, not the
    history again.

    It holds while messages are added to the last unit only; after any other change to the units it
    is begun anew.
    """

    def __init__(self) -> None:
        self._order: list[StoredMessage] = []
        self._place: dict[int, int] = {}
        self._units = 0
        self._of_last = 0

    def of(self, units: list[Unit]) -> list[StoredMessage]:
        """The messages of all these units, in order. Not to be changed by the reader."""
        if self._units and isinstance(last := units[self._units - 1], list):
            self._order += last[self._of_last :]
            self._of_last = len(last)
        for unit in units[self._units :]:
            if isinstance(unit, list):
                self._order += unit
                self._of_last = len(unit)
            else:
                self._order.append(unit)
        self._units = len(units)
        return self._order

    def named(
        self, units: list[Unit], ranges: Sequence[tuple[int, int]]
    ) -> list[StoredMessage]:
        """The messages in these ranges over the natural order."""
        order = self.of(units)
        for index in range(len(self._place), len(order)):
            self._place[order[index].seq] = index
        return in_ranges(order, self._place, ranges)


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
        self._shows_lost = self._goes_on_lost = False
        self.closed: str | None = None
        self.hidden: set[str] = set()
        self.retracted: set[str] = set()
        self.labels: dict[str, dict[str, object]] = {}
        self.shape: Shape | None = None
        self.shape_seq = 0
        self._joined: set[int] = set()  # accepted before the shape, taken after it
        self.rewinds: list[tuple[int, Rewound]] = []
        self.covered: dict[str, str] = {}
        self.loads_since = 1  # where a load begins since the last compaction
        self._summary = 0
        self._fronts: dict[int, int] = {}
        self.aside: tuple[int, ...] = ()
        self.asks: dict[tuple[str, int], Ask] = {}
        self._started_asks: set[int | None] = (
            set()
        )  # the turns that have used an approval
        self.edits: dict[int, tuple[MessageNote, bytes]] = {}
        self._units: list[Unit] = []
        self._natural = _Natural()
        self._unit_of_turn: dict[int, list[StoredMessage]] = {}
        self._inbox: dict[str, StoredMessage] = {}
        self._taken_by: dict[str, int] = {}
        self.elsewhere: set[str] = set()  # told here, answered in another session
        self._visible: list[StoredMessage] = []
        self._stale = False

    @property
    def visible(self) -> list[StoredMessage]:
        """The messages the model should see, in order. Not to be changed by the reader."""
        if self._stale:
            self._visible = self._arrange()
            self._stale = False
            self.revision += 1
        return self._visible

    @property
    def lost(self) -> bool:
        """Messages from before `since` are shown again, or their turn goes on: this log has to be
        folded anew, from the first entry.
        """
        return self._shows_lost or self._goes_on_lost

    @property
    def natural(self) -> list[StoredMessage]:
        """All messages that stand somewhere, shown or not, in the natural order."""
        return self._natural.of(self._units).copy()

    @property
    def history(self) -> list[StoredMessage]:
        """All messages that stand somewhere, and each summary in front of what was kept when it was
        made.
        """
        natural = self.natural
        present = {seen.seq for seen in natural}
        # A summary whose first kept message is not here (a load began later) stands where it is.
        front = {seq: first for seq, first in self._fronts.items() if first in present}
        before: dict[int, list[StoredMessage]] = {}
        for seen in natural:
            if seen.seq in front:
                before.setdefault(front[seen.seq], []).append(seen)
        history: list[StoredMessage] = []
        for seen in natural:
            if seen.seq not in front:
                history += before.get(seen.seq, ())
                history.append(seen)
        return history

    @property
    def by_seq(self) -> list[StoredMessage]:
        """All messages, those in the inbox too, by seq."""
        said = [seen for seen in self.natural if seen.note.origin != "summary"]
        return sorted([*said, *self._inbox.values()], key=lambda message: message.seq)

    @property
    def waiting(self) -> set[str]:
        """Ids of the messages in the inbox."""
        return set(self._inbox)

    def turn_of(self, id: str) -> int | None:
        """The turn that took this message from the inbox, if one did."""
        return self._taken_by.get(id)

    def of_turn(self, number: int) -> list[StoredMessage]:
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
        self.head, self.since = base.since - 1, base.since
        self.instructions, self.instructions_seq = instructions, base.instructions

    def add(self, entries: Iterable[Entry]) -> None:
        """Folds entries that follow what was folded. A long history comes this way, so what is
        short here counts.
        """
        notes: dict[bytes, MessageNote] = {}  # they repeat endlessly
        for entry in entries:
            self.head = entry.seq
            if entry.kind != "message":
                handler = _HANDLERS.get(entry.kind)
                if handler is not None:
                    handler(self, entry)
                continue
            note = notes.get(entry.note)
            if note is None:
                note = notes[entry.note] = note_of("message", entry.note)
            if note.erased:
                continue
            seen = StoredMessage(
                entry.id.hex(),
                entry.seq,
                entry.turn,
                note,
                entry.body,
                False,
                (),
                entry.at,
            )
            if note.inbox:
                self._inbox[seen.id] = seen
            elif entry.turn is None and not self._stale:
                self._units.append(seen)
                self._visible.append(seen)
            else:
                self._place(seen)

    def _place(self, seen: StoredMessage) -> None:
        turn = seen.turn
        if turn is None:
            self._units.append(seen)
            unit: Unit = seen
        else:
            unit = self._of_turn(turn)
            unit.append(seen)
            if unit is not self._units[-1]:
                self._natural = _Natural()
            if turn in self.turns and seen.note.role != "user":
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
        return bool(self.rewinds) and self.born(seen) < self.rewinds[-1][0]

    def born(self, seen: StoredMessage) -> int:
        """The seq at which a message's turn began; its own, outside a turn."""
        turn = self.turns.get(seen.turn) if seen.turn is not None else None
        return turn.seq if turn is not None else seen.seq

    def _of_turn(self, number: int) -> list[StoredMessage]:
        unit = self._unit_of_turn.get(number)
        if unit is None:
            self._goes_on_lost |= self.since > 1 and not self.has_all_of(number)
            unit = self._unit_of_turn[number] = []
            self._units.append(unit)
        return unit

    def _arrange(self) -> list[StoredMessage]:
        in_view = self.in_view
        if not self.hidden:
            return in_view
        return [message for message in in_view if message.id not in self.hidden]

    @property
    def arranged(self) -> list[StoredMessage]:
        """The messages as the last shape or summary arranges them; those too that are gone or
        hidden, for they may be brought back.
        """
        natural = self.natural
        if self.shape is None:
            return natural
        order = shaped(natural, self.shape, after=self.shape_seq, joined=self._joined)
        if not self.aside:
            return order
        stands = {message.seq: message for message in natural}
        return put_after(
            order, self._summary, [stands[seq] for seq in self.aside if seq in stands]
        )

    @property
    def gone(self) -> set[int]:
        """Seqs of the messages that the view has gone back from."""
        return self.gone_after(-1) if self.rewinds else set()

    def gone_after(self, place: int) -> set[int]:
        """What was gone after the rewind at this place; of what has come since, what would be."""
        made, note = self.rewinds[place]
        return away(note, self.natural, made=made, born=self.born)

    @property
    def in_view(self) -> list[StoredMessage]:
        """The messages of the view in order, those too that a label or a retraction hides: it may
        be lifted.
        """
        order, gone = self.arranged, self.gone
        if gone:
            order = [message for message in order if message.seq not in gone]
        if self.edits:
            order = [self.worded(message) for message in order]
        return self._awaited(order) if self.asks else order

    def summary_of(self, id: str, shown: Collection[str]) -> str | None:
        """The summary among those shown that stands for this message."""
        while id in self.covered:
            id = self.covered[id]
            if id in shown:
                return id
        return None

    def away_since(self) -> dict[str, int]:
        """The messages that are gone, by id, each with the seq of the rewind that took it away."""
        since: dict[int, int] = {}
        for place, (made, _) in enumerate(self.rewinds):
            since = {seq: since.get(seq, made) for seq in self.gone_after(place)}
        return {seen.id: since[seen.seq] for seen in self.natural if seen.seq in since}

    def asks_of(self, call_id: str) -> list[Ask]:
        """What was asked about this id, oldest first, but for what the view has gone back from."""
        asked = [ask for ask in self.asks.values() if ask.call_id == call_id]
        return (
            [ask for ask in asked if ask.message not in self._gone_ids()]
            if asked
            else []
        )

    def approved(self) -> list[Ask]:
        """What was approved and has not been started, in the order asked for; not what the view has
        gone back from.
        """
        asked = [ask for ask in self.asks.values() if ask.may_start]
        return (
            [ask for ask in asked if ask.message not in self._gone_ids()]
            if asked
            else []
        )

    def _gone_ids(self) -> set[str]:
        gone = self.gone
        return {seen.id for seen in self.natural if seen.seq in gone} if gone else set()

    def since_turn(self, number: int) -> list[StoredMessage]:
        """The messages of a turn and all that stands after it: what may answer its calls."""
        unit = self._unit_of_turn.get(number)
        found: list[StoredMessage] = []
        for other in reversed(self._units):
            found[:0] = other if isinstance(other, list) else [other]
            if other is unit:
                return found
        return []

    def _awaited(self, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Marks the calls that wait, or that the running turn has started with an approval from
        before it: neither is shown as interrupted (FAULTS E7).
        """
        marks: dict[str, dict[str, tuple[str, ...]]] = {}
        for ask in self.asks.values():
            if ask.is_open or (
                ask.started_in is not None and ask.started_in == self.running
            ):
                mark = "waiting" if ask.is_open else "started"
                mine = marks.setdefault(ask.message, {})
                mine[mark] = (*mine.get(mark, ()), ask.call_id)
        return [
            msgspec.structs.replace(message, **marks[message.id])
            if message.id in marks
            else message
            for message in messages
        ]

    def worded(self, message: StoredMessage) -> StoredMessage:
        """The message as the view words it."""
        if message.seq not in self.edits:
            return message
        note, body = self.edits[message.seq]
        return msgspec.structs.replace(message, note=note, body=body)

    # One handler for each kind that is not a message.

    def _turn_started(self, entry: Entry) -> None:
        note = note_of("turn", entry.note)
        number = entry.turn or 0
        self.turns[number] = TurnRecord(
            number, entry.at, note.reply_to, takes=list(note.takes), seq=entry.seq
        )
        self.running = number
        self._of_turn(number)
        self._take(number, note.takes)

    def _taken(self, entry: Entry) -> None:
        note = note_of("take", entry.note)
        number = entry.turn or 0
        if number not in self.turns:  # it began before the first entry that was read
            self._goes_on_lost = True
            return
        self.turns[number].takes.extend(note.takes)
        self._take(number, note.takes)

    def _take(self, number: int, ids: Iterable[str]) -> None:
        for id in ids:
            waiting = self._inbox.pop(id, None)
            if waiting is not None:
                self._taken_by[id] = number
                self._joined.add(waiting.seq)
                self._place(msgspec.structs.replace(waiting, turn=number))

    def _asked(self, entry: Entry) -> None:
        note = note_of("ask", entry.note)
        self.asks[note.message, note.index] = Ask(
            note.call_id, note.message, note.index, note.digest
        )
        self._stale = True

    def _decided(self, entry: Entry) -> None:
        note = note_of("decision", entry.note)
        ask = self.asks.get((note.message, note.index))
        if ask is not None and ask.approved is None:
            ask.approved = note.approved
            self._stale = True

    def _call_started(self, entry: Entry) -> None:
        note = note_of("call", entry.note)
        ask = self.asks.get((note.message, note.index))
        if ask is not None:
            ask.started_in = entry.turn
            self._started_asks.add(entry.turn)
            self._stale = True

    def _turn_ended(self, entry: Entry) -> None:
        note = note_of("end", entry.note)
        turn = self.turns.setdefault(entry.turn or 0, TurnRecord(entry.turn or 0))
        if turn.end is not None:
            return
        turn.end = note.end
        turn.reason = note.reason
        turn.error = note.error
        turn.ended_at = entry.at
        if self.running == turn.number:
            self.running = None
        self._stale |= turn.number in self._started_asks
        unit = self._unit_of_turn.get(turn.number, [])
        if self.shape is not None and note.returns:
            back = {message.seq for message in unit if message.id in note.returns}
            self.shape = without(self.natural, self.shape, back)
        returned = set(note.returns)
        given = {message.id: message for message in unit if message.id in returned}
        if not given:
            return
        unit[:] = [message for message in unit if message.id not in given]
        self._natural = _Natural()
        self._stale = True
        for id in note.returns:
            if id in given:
                self._taken_by.pop(id, None)
                self._inbox[id] = msgspec.structs.replace(given[id], turn=None)

    def _opened(self, entry: Entry) -> None:
        """A session that shares the past of another begins here: what was under way there is not
        under way here.

        What waits there is answered there. Only if they part at a message that still waited then,
        it stands here, and what waited before it.
        """
        parted = note_of("opened", entry.note).parent_seq
        if any(seen.seq == parted for seen in self._inbox.values()):
            for seen in self._inbox.values():
                self._joined.add(seen.seq)
                self._place(seen)
        else:
            self.elsewhere.update(self._inbox)
        for ask in self.asks.values():
            if ask.may_start:
                ask.approved = (
                    None  # it is used there or not at all: here it is asked about again
                )
        for turn in self.turns.values():
            if turn.end is None:
                (turn.end, turn.reason), turn.ended_at = FORKED, entry.at
        self.running = self.closed = None
        self._stale |= bool(self.asks)
        self._inbox.clear()

    def _instructed(self, entry: Entry) -> None:
        self.instructions = thaw(entry.body) if entry.body else None
        self.instructions_seq = entry.seq

    def _compacted(self, entry: Entry) -> None:
        note = note_of("compaction", entry.note)
        summary = entry.id.hex()
        for seen in self._natural.named(self._units, note.covers):
            self.covered[seen.id] = summary
        if entry.body:  # else it was erased
            self._units.append(
                StoredMessage(
                    summary, entry.seq, None, _SUMMARY, entry.body, False, (), entry.at
                )
            )
        self.edits = {
            seq: (edit.note, freeze(edit.payload)) for seq, edit in note.edits.items()
        }
        self._summary, self.aside, self.loads_since = entry.seq, note.aside, note.since
        if note.ranges:
            self._fronts[entry.seq] = note.ranges[0][0]
        self._show(Shape(((entry.seq, entry.seq), *note.ranges)), entry.seq)

    def _shaped(self, entry: Entry) -> None:
        note = note_of("view", entry.note)
        for seq in note.restored:
            self.edits.pop(seq, None)
        self.edits.update(
            {seq: (edit.note, freeze(edit.payload)) for seq, edit in note.edits.items()}
        )
        self._show(note, entry.seq)

    def _show(self, shape: Shape, seq: int) -> None:
        self.shape, self.shape_seq, self._joined = shape, seq, set()
        self._shows_lost = any(first < self.since for first, _ in shape.ranges)
        self._stale = True

    def _rewound(self, entry: Entry) -> None:
        note = note_of("rewind", entry.note)
        self.rewinds.append((entry.seq, note))
        if note.ranges:
            self._show(Shape(note.ranges), entry.seq)
        self._stale = True

    def _labelled(self, entry: Entry) -> None:
        note = note_of("label", entry.note)
        self.labels.setdefault(note.message, {}).update(note.labels)
        if "visible_to_model" in note.labels:
            if note.labels["visible_to_model"]:
                self.hidden.discard(note.message)
            else:
                self.hidden.add(note.message)
            self._shows_lost |= (
                note.seq < self.since
                and note.seq in self.aside
                and note.message not in self.hidden
            )
            self._stale = True

    def _retracted(self, entry: Entry) -> None:
        messages = note_of("retract", entry.note).messages
        self.hidden.update(messages)
        self.retracted.update(messages)
        self._stale = True

    def _posted(self, entry: Entry) -> None:
        turn = self.turns.get(entry.turn) if entry.turn is not None else None
        if turn is not None and note_of("post", entry.note).end == "sent":
            turn.sent_seq = entry.seq

    def _closed(self, entry: Entry) -> None:
        note = note_of("closed", entry.note)
        if (
            self.closed is None
        ):  # closed once more, it says only where what still waited has gone
            self.closed = note.reason
        for id in note.moved:
            self._inbox.pop(id, None)

    def _erased(self, entry: Entry) -> None:
        """All words are gone, from here too."""
        revision = self.revision
        vars(self).update(vars(Log()))
        self.head, self.revision, self.closed, self._stale = (
            entry.seq,
            revision,
            "erased",
            True,
        )


_HANDLERS = {
    "turn": Log._turn_started,
    "take": Log._taken,
    "call": Log._call_started,
    "ask": Log._asked,
    "decision": Log._decided,
    "end": Log._turn_ended,
    "instructions": Log._instructed,
    "view": Log._shaped,
    "rewind": Log._rewound,
    "label": Log._labelled,
    "retract": Log._retracted,
    "post": Log._posted,
    "compaction": Log._compacted,
    "opened": Log._opened,
    "closed": Log._closed,
    "erased": Log._erased,
}
