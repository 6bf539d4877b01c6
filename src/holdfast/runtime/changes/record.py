"""Recording a caller's own list: what is new goes into the transcript, the list's shape becomes the
view (I-12).

A list has the last word on how messages are arranged, not on what was done to the view by name.
What a rewind took away stays away, what a label hides stays hidden, and what a summary covers is
shown as that summary, though the list may be older than all of these and still have it (I-11,
I-13).

The commit is guarded by the head it was computed from: if anybody has written meanwhile, it is
computed again.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.domain.arguments import kind_of
from holdfast.domain.entry import Draft, Edit, Shape
from holdfast.domain.log.fold import Log
from holdfast.domain.log.view import ranges
from holdfast.domain.message import MessageNote, all_flat, check, freeze, is_flat, thaw, too_deep
from holdfast.domain.record.fingerprint import snapshot
from holdfast.domain.record.grouping import gather, gather_shown
from holdfast.domain.record.matching import Echo
from holdfast.domain.record.reconcile import Reconciled, Remembered, Shown, reconcile, remember
from holdfast.domain.repair import CONTINUE, StoredMessage
from holdfast.engine.protocol import Refused, Write
from holdfast.errors import InvalidMessage
from holdfast.formats import registry
from holdfast.runtime.live.session_log import PAGE, SessionLog, speak
from holdfast.runtime.plans.plan import Plan, read

_NO_NOTE = MessageNote()


class Recorded(msgspec.Struct, frozen=True):
    """What a recording stored: `new` are the ids of the messages that were new, `head` is the seq
    of the last entry now.
    """

    new: tuple[str, ...]
    head: int


class Memory:
    """What one handle presented last, by format: the messages after so many `leading` instructions,
    and up to which seq the log went then.
    """

    def __init__(self) -> None:
        self.anchors: dict[str, list[Remembered]] = {}
        self.leading: dict[str, int] = {}
        self.heads: dict[str, int] = {}

    def same_in(self, payloads: list[Any], format: str) -> "_Same":
        """Where this list is equal to all that was presented last; nowhere, if something there
        differs.
        """
        held, first = self.anchors.get(format, []), self.leading.get(format, 0)
        stop, snapshots = first + len(held), [entry.snapshot for entry in held]
        same = payloads[first:stop]
        try:
            # Dicts only: anything else is still to be made one, and its class may have an idea of
            # its own of equality.
            if set(map(type, same)) == {dict} and same == snapshots:
                return _Same(held, snapshots, first, stop)
        except (
            Exception
        ):  # a stranger's value that can't be compared: looked at for itself, it is refused
            pass
        return _Same([], [], 0, 0)


class _Same(NamedTuple):
    """The places in a list, from `first` to `stop`, that are equal to the `snapshots` of all that
    is `held`.
    """

    held: list[Remembered]
    snapshots: list[Any]
    first: int
    stop: int


def record(
    room: SessionLog, memory: Memory, messages: Sequence[Any], *, format: str
) -> Plan[Recorded]:
    """Stores what is new in this list and keeps its shape; see `Session.record`."""
    payloads = list(messages)
    # What is equal to a snapshot is plain, as that is, and somebody has said it: only the rest is
    # looked at.
    same = memory.same_in(payloads, format)
    before = _said(payloads[: same.first], 0, format)
    after = _said(payloads[same.stop :], same.stop, format)
    payloads = [*before, *payloads[same.first : same.stop], *after]
    try:
        # Before anything waits: the list is the caller's, and may change.
        first = room.reading(partial(_Attempt, room, memory, payloads, format, same))
    except RecursionError:
        raise too_deep("messages") from None
    return _commit(room, memory, payloads, format, first)


def _said(messages: list[Any], index: int, format: str) -> list[Any]:
    """What these messages, the first of them at this index of the caller's list, say as
    plain data.
    """
    # A dict of strings can be stored as it is, and most messages are one.
    payloads = messages
    if not all_flat(messages):
        payloads = [
            message if is_flat(message) else _plain(message, at)
            for at, message in enumerate(messages, index)
        ]
    continuation = registry.get(format).say("user", CONTINUE)
    if continuation in payloads:
        # nobody has said it
        payloads = [payload for payload in payloads if payload != continuation]
    return payloads


def _plain(message: Any, index: int) -> Any:
    payload = registry.plain(message)
    if type(payload) not in (dict, list):
        raise InvalidMessage(
            problem=f"{kind_of(payload)} is not a message", place=f"messages[{index}]"
        )
    check(payload, f"messages[{index}]")
    return payload


def _commit(
    room: SessionLog, memory: Memory, payloads: list[Any], format: str, first: "_Attempt"
) -> Plan[Recorded]:
    attempt = first
    while True:
        if attempt.drafts:
            outcome = yield from room.commit(
                Write(room.id, drafts=attempt.drafts, head=attempt.head, unbase=attempt.shows_past)
            )
            if isinstance(outcome, Refused):
                if outcome.why == "ended":
                    raise (yield from read(room.ended))
                again = partial(_Attempt, room, memory, first.frozen(), format)
                attempt = yield from read(partial(room.reading, again))
                continue
        memory.anchors[format] = (
            attempt.anchors if attempt is first else _rebound(attempt.anchors, payloads)
        )
        memory.leading[format] = len(attempt.leading)
        memory.heads[format] = attempt.head + len(attempt.drafts)
        room.contexts.forget_given(format)
        return Recorded(attempt.new, memory.heads[format])


class _Attempt:
    """What recording this list means for the log as it is now. `shows_past`: it shows what a load
    would not read.
    """

    def __init__(
        self,
        room: SessionLog,
        memory: Memory,
        payloads: list[Any],
        format: str,
        same: _Same | None = None,
    ) -> None:
        self._room, self._format, self._payloads = room, format, payloads
        self._log = log = room.log()
        self.shows_past = False
        with room.lock:
            self.head = log.head
            shown = gather_shown(room.contexts.shown(log, registry.get(format)))
            self._payloads = gathered = self._gathered(memory, shown, same)
            found = self._found(memory, shown, same if len(gathered) == len(payloads) else None)
            messages = tuple(
                room.message(speak(payload, format), turn=None) for payload in found.new
            )
            self.new = tuple(draft.id.hex() for draft in messages)
            order, self.anchors = found.settle(self.new)
            self.leading = [
                snapshot(payload) for payload in gathered[: len(gathered) - len(self.anchors)]
            ]
            changed = found.instructions is not None and found.instructions != log.instructions
            prompt = (
                (room.draft("instructions", body=freeze(found.instructions)),) if changed else ()
            )
            view = self._view(found, order, shown, first=log.head + 1 + len(prompt))
        self.drafts: tuple[Draft, ...] = (*prompt, *messages, *view)

    def _gathered(self, memory: Memory, shown: list[Shown], same: _Same | None) -> list[Any]:
        """The caller's list, with the items of one stored message as one payload."""
        held = memory.anchors.get(self._format, [])
        if (
            same
            and same.held is held
            and same.snapshots == [payload for payload, _ in shown[: len(held)]]
        ):
            # Nothing remembered is a list then: only what the view shows besides is looked at.
            held, shown = [], shown[len(held) :]
        groups = [payload for payload, _ in shown if type(payload) is list]
        groups += [anchor.snapshot for anchor in held if type(anchor.snapshot) is list]
        return gather(self._payloads, groups)

    def frozen(self) -> list[Any]:
        """The list as it was when this was asked."""
        return [*self.leading, *(anchor.snapshot for anchor in self.anchors)]

    def _found(self, memory: Memory, shown: list[Shown], same: _Same | None) -> Reconciled:
        """The list beside what the handle remembers and the view shows; and, when that leaves a
        puzzle, beside all that was ever said.
        """
        log, room, heard = self._log, self._room, memory.heads.get(self._format, 0)
        remembered = memory.anchors.get(self._format, [])
        given = gather_shown(room.contexts.given(log, self._format))
        away = log.away_since() if log.rewinds and log.rewinds[-1][0] > heard else {}
        gone = {id for id, at in away.items() if at > heard}
        spent = {id for id in gone if away[id] <= max(room.learned, room.went_back)}
        # Whoever recorded these, has only looked since, and presents all of them again has not cut
        # them off.
        cut = {id for id in spent if away[id] > room.went_back}
        kept = {ref for entry in remembered for ref in entry.refs if ref in cut} if cut else set()
        if given:
            remembered = remember(remembered, handed=given, as_is=False)
        equal_from = same.first if same and same.held is remembered else None
        facts: dict[str, Any] = {"shown": shown, "known": _ViewWordings(log), "gone": gone}
        facts["together"] = partial(
            _were_together, {seen.id: seen.seq for seen in log.standing} if gone else {}, away
        )
        if len(kept) > 1:
            found = reconcile(
                self._payloads,
                remembered=remembered,
                spent=spent - kept,
                equal_from=equal_from,
                **facts,
            )
            if kept.issubset(found.order):
                return found
        found = reconcile(
            self._payloads, remembered=remembered, spent=spent, equal_from=equal_from, **facts
        )
        untold = gone - spent
        if found.puzzles and (log.since > 1 or len(log.standing) > len(log.order)):
            past = self._past(untold, found.new)
        elif found.new and (untold or log.head > max(heard, room.learned)):
            known = {id for _, ids in shown for id in ids}.union(
                *(entry.refs for entry in remembered)
            )
            past = self._unheard(known, untold, since=max(heard, room.learned))
        else:
            return found
        past = [(payload, refs) for payload, refs in past if refs[0] not in spent]
        return reconcile(
            self._payloads,
            remembered=remember(remembered, handed=past, as_is=False),
            spent=spent,
            **facts,
        )

    def _unheard(self, known: set[str], untold: set[str], *, since: int) -> list[Shown]:
        """What the handle was never told of, between what it knows: said after the seq `since` and
        no longer shown, or taken away without its knowledge.
        """
        log = self._log
        more = untold | {seen.id for seen in log.standing if seen.seq > since} - known
        told = (
            [log.worded(seen) for seen in log.told if seen.id in more or seen.id in known]
            if more
            else []
        )
        return [(thaw(seen.body), (seen.id,)) for seen in told]

    def _past(self, untold: set[str], unknown: list[Any]) -> list[Shown]:
        """All that was ever said and may be in the list, which seems older than the view."""
        is_told, log, history = Echo(self._payloads, unknown), self._log, self._room.history()
        payloads = dict(self._read(is_told, up_to=log.since)) if history is not log else {}
        here = {seen.seq: thaw(log.worded(seen).body) for seen in log.standing}
        always = {seen.seq for seen in log.standing if seen.id in untold}
        payloads |= {
            seq: payload for seq, payload in here.items() if seq in always or is_told(payload)
        }
        return [(payloads[seen.seq], (seen.id,)) for seen in history.told if seen.seq in payloads]

    def _read(self, is_told: Echo, *, up_to: int) -> Iterator[tuple[int, Any]]:
        """What was said before this seq and may be in the list, by seq; read page by page
        (I-24).
        """
        after = 0
        while after < up_to - 1 and (page := self._room.page(after, min(PAGE, up_to - 1 - after))):
            for entry in page:
                if (
                    entry.kind in ("message", "compaction")
                    and entry.body
                    and is_told(payload := thaw(entry.body))
                ):
                    yield entry.seq, payload
            after = page[-1].seq

    def _view(
        self, found: Reconciled, order: list[str], shown: list[Shown], *, first: int
    ) -> tuple[Draft, ...]:
        """The view entry that makes the context equal the caller's list, if its shape is not the
        natural one.
        """
        log = self._log
        now = [seen.id for seen in log.arranged]
        if not found.edits and not log.rewinds and order == [*now, *self.new]:
            return ()  # most lists, most of the time
        visible = {id for _, ids in shown for id in ids}
        order, whole = self._allowed(order, now)
        present = set(order)
        edits = {id: payload for id, payload in found.edits.items() if id in present}
        if not edits and order == [id for id in now if id in visible] + list(self.new):
            return ()
        kept = _with_unseen(order, now, visible)
        if not edits and kept == [*now, *self.new]:
            return ()
        seqs = {seen.id: seen.seq for seen in whole.standing}
        self.shows_past = any(seqs[id] < log.loads_since for id in kept if id in seqs)
        seqs |= {id: first + index for index, id in enumerate(self.new)}
        everything = [
            *whole.standing,
            *(StoredMessage(id, seqs[id], None, _NO_NOTE, b"") for id in self.new),
        ]
        worded, restored = _edits(log, edits, seqs, self._format)
        return (
            self._room.draft(
                "view", Shape(ranges(everything, [seqs[id] for id in kept]), worded, restored)
            ),
        )

    def _allowed(self, order: list[str], now: list[str]) -> tuple[list[str], Log]:
        """The caller's order as far as a list has a say in it, and a log that knows all of its
        messages.
        """
        here = {*now, *self.new}
        is_known = here.issuperset(order)
        log = self._log if is_known else self._room.history()
        gone = log.gone
        if is_known and not gone:
            return order, log
        away = {seen.id for seen in log.standing if seen.seq in gone}
        known = here.union(seen.id for seen in log.standing)
        out: dict[str, None] = {}
        for id in order:
            shown = id if id in here else log.summary_of(id, here) or id
            if shown in known and shown not in away:
                out[shown] = None
        return list(out), log


def _were_together(said: dict[str, int], away: dict[str, int], one: str, other: str) -> bool:
    """Whether a view ever had both of these messages: neither was said after the other had been
    taken away.
    """
    return said[one] < away[other] and said[other] < away[one]


def _rebound(anchors: list[Remembered], payloads: list[Any]) -> list[Remembered]:
    """A later attempt saw copies; what is remembered are the caller's own objects, where it has one
    for each.
    """
    own = payloads[len(payloads) - len(anchors) :]
    if any(isinstance(anchor.snapshot, list) for anchor in anchors):
        return anchors
    return [replace(anchor, object=payload) for anchor, payload in zip(anchors, own, strict=True)]


class _ViewWordings(dict[str, Any]):
    """How the view words single messages, looked up only when asked."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    @cached_property
    def _bodies(self) -> dict[str, bytes]:
        return {seen.id: self._log.worded(seen).body for seen in self._log.standing}

    def __missing__(self, id: str) -> Any:
        return thaw(self._bodies[id])

    def get(self, id: str, default: Any = None) -> Any:
        return self[id] if id in self._bodies else default

    def __contains__(self, id: object) -> bool:
        return id in self._bodies

    def __iter__(self) -> Any:
        return iter(self._bodies)

    def items(self) -> Any:
        return [(id, self[id]) for id in self._bodies]


def _with_unseen(order: list[str], now: list[str], visible: set[str]) -> list[str]:
    """The caller's order, with what its list can't have (hidden, gone, a stray, a blank) left
    beside the neighbour it had; between two messages that the list has dropped, it is dropped with
    them.
    """
    # before the first message and after the last one there is always a place
    present = {None, *order}
    before: dict[str | None, list[str]] = {}
    after: dict[str | None, list[str]] = {}
    previous = last = None
    unseen: list[str] = []
    for id in [*now, None]:
        if id is not None and id not in visible and id not in present:
            unseen.append(id)
            continue
        if unseen and previous in present:
            after[previous] = unseen
        elif unseen and id is not None and id in present:
            before[id] = unseen
        elif unseen and id is None:
            after.setdefault(last, []).extend(unseen)
        previous, last, unseen = id, id if id in present else last, []
    out = after.get(None, [])
    for id in order:
        out += [*before.get(id, ()), id, *after.get(id, ())]
    return out


def _edits(
    log: Log, found: dict[str, Any], seqs: dict[str, int], format: str
) -> tuple[dict[int, Edit], tuple[int, ...]]:
    bodies = {seen.id: seen.body for seen in log.standing}
    edits, restored = {}, []
    for id, payload in found.items():
        if id in bodies and thaw(bodies[id]) == payload:
            restored.append(seqs[id])
        else:
            spoken = speak(payload, format)
            edits[seqs[id]] = Edit(spoken.note, thaw(spoken.body))
    return edits, tuple(restored)
