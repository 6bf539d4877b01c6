"""Reconcile: what is new in a list that the caller keeps, changes and records again? (I-12, FAULTS
B1-B7)

    reconcile(presented, *, shown, remembered=(), known={}, gone=(), spent=()) -> Reconciled
    Reconciled.settle(ids) -> order, remembered          once the new messages have ids
    remember(remembered, *, handed) -> remembered        after a context was given out

Agents keep their own list of messages. They append to it; they also merge two user messages, drop a
head, drop a tool pair, shorten an output, insert a summary, copy the list, load it elsewhere.
Positions in such a list say nothing (FAULTS B1), and neither do equal texts (B7). So each place of
the list is matched to the stored message it shows, by the best evidence there is, and what no
evidence claims is new. In doubt both are kept: a doubled line in a view can be dropped later, a
lost one can't be found again.

    presented   S   u1  a2  "u3 ⏎⏎ u4"  a5   t6'  u7       S: a leading system message becomes instructions
                │   │   │    │     │    │    │    │
    walk        │   ═   ═    │     │    │    │    │        equal to what the handle remembers, from the front
    certain     │            │     │    ○    │    │        the same object, the same stamp (its own `id`)
    align       │            =     =         │    │        fingerprints, longest common subsequence; a merged
                │   │   │    │     │    │    │    │        text takes part as its known parts
    reword      │   │   │    │     │    │    ≈    │        the same calls, the answer to the same call: an edit
    merge       │   │   │    │     │    │    │    │        begins or ends with what is missing just here
    edit        │   │   │    │     │    │    │    │        most of what is missing between the same neighbours
    order       ▼   1   2    3     4    5    6    0        0: nothing claimed it, so it is `new[0]`

The memory of a handle (`Remembered`) holds the caller's object, so that its address can't be used
again, and a snapshot, as the object itself changes with the caller. An object whose text has grown
by a blank line and more is that message and others; one that changed otherwise is the same message
in another wording. `shown` is what the view shows now and `known` how the view words single
messages before repair, in view or not: a mapping, asked only where payloads differ. None of them
may share objects with what callers were given.

What a rewind has taken away (`gone`) is not brought back by a list that still has it, nor is it
taken for what somebody says again. Such a message is known by its object or its stamp. By its words
alone it is known in the list of a caller that was not told of the rewind; in that of one that was
(`spent`), the same words are said again. The list itself tells more: one with an object of what is
gone is from before; one with objects of the rest, but none of that, was cut. And if all that a list
has of it is a question at its very end, though it had been answered, that is asked again.

The passes after the walk live in `matching`, over what `atoms` lays out; `fingerprint` reads
payloads, `alignment` lays sequences side by side, `merged_texts` takes joined texts apart.

What can't be told, and what is then chosen:

* Without the caller's objects (copied, reloaded), an equal text in its place is the known message. A list cut down to a
  stretch that recurs, or cleared and begun again with the same words, is taken for the old one.
* What follows the newest known message and only says what an older one said is new, unless the object or a stamp says
  otherwise, or it makes the same calls under the same ids.
* An equal text at the place where the view has grown meanwhile is what it grew by: an agent puts into its list what a
  turn has stored for it (FAULTS B2). Two handles that say the same at the same time need stamps.
* Of equal messages, any may be taken for any; their words are the same. Inside a text merged by somebody with an older
  view, one more of them may be kept than was said.
* A message copied *and* reworded is an edit where its neighbours on both sides are known and most of its text or parts
  are left; at the end of the list, where it was only shortened or lost parts; elsewhere it is new, unless a stamp, its
  calls, or the call it answers name it. A copied text that begins or ends with a message missing just there is that
  message and the rest.
* Parts joined by a single line break are recognised only if that is all that happened to them; then the first is
  reworded to the whole, and the others leave the order. A new text joined so to a known object is an edit of it.
* Results and words that a caller puts into one payload (anthropic) are one message: an edit of the known one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, repeat
from operator import is_
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.domain.message import Payload
from holdfast.domain.record.atoms import GLUE, Match, is_made, lay_base
from holdfast.domain.record.fingerprint import (
    fingerprint,
    is_same,
    snapshot,
    stamp_of,
    worded,
)
from holdfast.domain.record.matching import match
from holdfast.domain.record.wordings import Shown, Wordings

Ref = str | int
"""The id of a known message, or an index into `Reconciled.new`."""

_NOTHING: Mapping[str, Payload] = MappingProxyType({})
_NOT_SHOWN: Shown = ({}, ())


class Remembered(msgspec.Struct, frozen=True, gc=False):
    """A payload as the caller presented it: the object, what it said then, and the messages it
    stood for.

    Payloads are JSON data and hold nothing of ours, so there is no cycle to be looked for in
    thousands of these.
    """

    object: Any
    snapshot: Payload
    refs: tuple[str, ...]


class Anchor(msgspec.Struct, frozen=True):
    """The same for a payload that stands for something new, before that has an id."""

    object: Any
    snapshot: Payload
    refs: tuple[Ref, ...]

    def settle(self, ids: Sequence[str]) -> Remembered:
        return Remembered(self.object, self.snapshot, tuple(_settled(self.refs, ids)))


class Reconciled(msgspec.Struct):
    """What a presented list says.

    `order` is the caller's list: known ids and indexes into `new`. `new` is to be stored, in this
    order. `edits` are known messages in another wording than the view's; of several that became one
    payload, the first carries it and the others are not in `order`. `anchors` has an entry for each
    payload that isn't instructions.
    """

    instructions: str | None
    order: list[Ref]
    new: list[Payload]
    edits: dict[str, Payload]
    anchors: list[Remembered | Anchor]
    settled: tuple[int, int] = (0, 0)
    """So many at the front of `order` and of `anchors` have ids already: all that was
    walked over.
    """

    @property
    def puzzles(self) -> bool:
        """Whether something new stands before something known, or nothing is known: the list may be
        older than the view.
        """
        count = len(self.new)
        return count > 0 and (
            count == len(self.order)
            or any(isinstance(ref, str) for ref in self.order[-count:])
        )

    def settle(self, ids: Sequence[str]) -> tuple[list[str], list[Remembered]]:
        """The order and what the handle remembers, once the new messages have these ids."""
        refs, places = self.settled
        order: list[Any] = self.order[:refs]
        anchors: list[Any] = self.anchors[:places]
        order += _settled(self.order[refs:], ids)
        for anchor in self.anchors[places:]:
            anchors.append(
                anchor if isinstance(anchor, Remembered) else anchor.settle(ids)
            )
        return order, anchors


def _settled(refs: Sequence[Ref], ids: Sequence[str]) -> list[str]:
    return [ref if isinstance(ref, str) else ids[ref] for ref in refs]


def reconcile(
    presented: Sequence[Payload],
    *,
    shown: Sequence[Shown],
    remembered: Sequence[Remembered] = (),
    known: Mapping[str, Payload] = _NOTHING,
    gone: Collection[str] = (),
    spent: Collection[str] = (),
    together: Callable[[str, str], bool] = lambda one, other: True,
    equal_from: int | None = None,
) -> Reconciled:
    """Matches a presented list to what is stored. `shown` and `remembered` are without
    instructions; `together` tells of two messages that are gone whether a view ever had both.
    `equal_from`: the place from which on the list is known to be equal to all the snapshots that
    are remembered.

    Every payload ends up in `order` as known ids, as something new, or both; only what repair made
    (shown without ids) and is presented unchanged leaves no trace. Presenting the same list again
    gives the same order, and nothing new.
    """
    instructions, body = _split_instructions(presented)
    result = Reconciled(instructions, [], [], {}, [])
    wordings = Wordings(shown, known)
    held = remembered or [Remembered(None, payload, refs) for payload, refs in shown]
    spent = _spent(body, held, gone, spent) if gone else ()
    is_equal = bool(remembered) and equal_from == len(presented) - len(body)
    walked = _stride(result, body, held, shown, spent) if is_equal else 0
    _match(
        result,
        body,
        held,
        wordings,
        shown=shown if remembered else (),
        spent=spent,
        walked=walked,
    )
    if gone and not spent and _repeats(result, held, gone, together):
        result = Reconciled(instructions, [], [], {}, [])
        _match(
            result, body, held, wordings, shown=shown if remembered else (), spent=gone
        )
    return result


def _match(
    result: Reconciled,
    body: Sequence[Payload],
    held: Sequence[Remembered],
    wordings: Wordings,
    *,
    shown: Sequence[Shown],
    spent: Collection[str],
    walked: int = 0,
) -> None:
    """Fills the result: what is as remembered, from the front, then the rest. `shown`: what may be
    known besides. `walked`: so many are in the result already.
    """
    walked = walked or _walk(result, body, held, wordings, spent)
    left = held[walked:]
    if walked < min(len(body), len(shown)) and _begins_with_the_view(body, held, shown):
        walked, left = len(shown), _take_the_view(result, body, held, shown)
    if walked < len(body):
        result.settled = len(result.order), len(result.anchors)
        used: set[Any] = set(result.order)  # ids: nothing new was met so far
        rest = body[walked:]
        base = lay_base(
            [(entry.object, entry.snapshot, entry.refs) for entry in left],
            shown=_besides(shown, used),
            used=used,
            wording=wordings.single,
            said=rest,
            spent=spent,
        )
        _add(result, rest, match(rest, base, by_stamp=wordings.stamped(used)), wordings)


def _begins_with_the_view(
    body: Sequence[Payload], held: Sequence[Remembered], shown: Sequence[Shown]
) -> bool:
    """Whether the list begins with all that the view shows, as it shows it: then it was loaded,
    whatever the handle remembers of earlier shapes. The caller's own objects may say otherwise.
    """
    if len(body) < len(shown):
        return False
    owned = {id(entry.object): entry.refs for entry in held if entry.object is not None}
    pairs = zip(body, shown, strict=False)
    return all(
        payload == words and owned.get(id(payload), refs) == refs
        for payload, (words, refs) in pairs
    )


def _take_the_view(
    result: Reconciled,
    body: Sequence[Payload],
    held: Sequence[Remembered],
    shown: Sequence[Shown],
) -> Sequence[Remembered]:
    """The beginning of the list is what the view shows; returns what the handle remembers after all
    of that.
    """
    result.edits.clear()
    result.order[:] = [ref for _, refs in shown for ref in refs]
    pairs = zip(body, shown, strict=False)
    result.anchors[:] = [
        Remembered(payload, snapshot(payload), refs) for payload, (_, refs) in pairs
    ]
    visible = set(result.order)
    last = max(
        (place for place, entry in enumerate(held) if visible.intersection(entry.refs)),
        default=-1,
    )
    return held[last + 1 :]


def _spent(
    body: Sequence[Payload],
    held: Sequence[Remembered],
    gone: Collection[str],
    spent: Collection[str],
) -> Collection[str]:
    """What is gone and can't be known by its words in this list: the objects in the list have the
    last word.
    """
    is_gone = [any(ref in gone for ref in entry.refs) for entry in held]
    stamps = {
        stamp_of(entry.snapshot)
        for entry, away in zip(held, is_gone, strict=True)
        if away
    } - {None}
    owned = {
        id(entry.object): away
        for entry, away in zip(held, is_gone, strict=True)
        if entry.object is not None
    }
    shows = {owned[id(payload)] for payload in body if id(payload) in owned}
    if True in shows or any(stamp_of(payload) in stamps for payload in body):
        return ()
    if False not in shows:
        return spent
    cut = [
        entry.refs
        for entry, away in zip(held, is_gone, strict=True)
        if away and entry.object is not None
    ]
    return set(spent).union(*cut).intersection(gone)


def _repeats(
    result: Reconciled,
    held: Sequence[Remembered],
    gone: Collection[str],
    together: Callable[[str, str], bool],
) -> bool:
    """Whether all that the list has of what is gone is a question, the first message of it, at the
    end of the list and without the answer that had followed it: nobody would have cut just that. A
    list that ends with an answer is a whole one. What was said on another line, after the question
    had been taken away, never followed it.
    """
    shows = [any(ref in gone for ref in anchor.refs) for anchor in result.anchors]
    if not any(shows) or shows.index(True) < len(shows) - 1:
        return False
    said = fingerprint(result.anchors[-1].snapshot)
    if said.role != "user" or said.answers:
        return False
    last = [
        ref for ref in result.anchors[-1].refs if isinstance(ref, str) and ref in gone
    ]
    line = [
        entry.refs
        for entry in held
        if any(ref in gone and together(ref, last[0]) for ref in entry.refs)
    ]
    return len(line) > 1 and not set(line[0]).isdisjoint(last)


def remember(
    remembered: Sequence[Remembered], *, handed: Sequence[Shown], as_is: bool = True
) -> list[Remembered]:
    """What a handle remembers after it gave out a context: its own objects, and between them what
    it hadn't seen. `as_is`: the caller got these very objects.

    Without it, a message that was loaded here, and meanwhile hidden by another handle, would be
    taken for a new one.
    """
    own = {ref: entry for entry in remembered for ref in entry.refs}
    after: dict[int, list[Remembered]] = {}
    covered: set[int] = set()
    last: Remembered | None = None
    for payload, refs in handed:
        before = [own[ref] for ref in refs if ref in own]
        if len(before) < len(refs) and all(
            set(entry.refs) <= set(refs) for entry in before
        ):
            after.setdefault(id(before[-1] if before else last), []).append(
                Remembered(payload if as_is else None, snapshot(payload), refs)
            )
            covered.update(id(entry) for entry in before)
        if before:
            last = before[-1]
    # What was handed out before anything remembered stands right before that, not in front of what
    # is no longer shown: that is older than all of it, and must not be taken for something said
    # after it.
    shown_now = {ref for _, refs in handed for ref in refs}
    first = next(
        (entry for entry in remembered if shown_now.intersection(entry.refs)), None
    )
    leading = after.get(id(None), [])
    merged: list[Remembered] = []
    for entry in remembered:
        merged += leading if entry is first else []
        merged += [] if id(entry) in covered else [entry]
        merged += after.get(id(entry), [])
    return merged if first is not None else [*merged, *leading]


def _split_instructions(
    presented: Sequence[Payload],
) -> tuple[str | None, Sequence[Payload]]:
    texts = []
    for payload in presented:
        said = payload.get("role") if isinstance(payload, dict) else None
        if said not in ("system", "developer"):
            break
        texts.append(fingerprint(payload).text)
    return (
        (GLUE.join(text for text in texts if text), presented[len(texts) :])
        if texts
        else (None, presented)
    )


def _stride(
    result: Reconciled,
    body: Sequence[Payload],
    held: Sequence[Remembered],
    view: Sequence[Shown],
    spent: Collection[str],
) -> int:
    """What `_walk` does, in one step, for a list that begins with all that is remembered, where
    that is what the view shows; 0 for others.

    An agent records its list after every message: nearly always it is the last one, or a copy of
    it, and something new. That it is equal to the snapshots was seen before. What is remembered
    from here on is the view's own payload, so the next comparison of snapshots and view is one of
    addresses.
    """
    count = len(held)
    if count > len(view):
        return 0
    snapshots, refs = [entry.snapshot for entry in held], [entry.refs for entry in held]
    words, ids = (
        [payload for payload, _ in view[:count]],
        [ids for _, ids in view[:count]],
    )
    if snapshots != words or refs != ids:
        return 0
    same, objects = body[:count], [entry.object for entry in held]
    kept = 0
    if all(map(is_, same, objects)):
        kept = count
        while kept and snapshots[kept - 1] is not words[kept - 1]:
            kept -= 1
    elif spent or not set(map(id, objects)).isdisjoint(map(id, same)):
        return 0
    result.anchors += held[:kept]
    result.anchors += map(Remembered, same[kept:], words[kept:], ids[kept:])
    result.order += chain.from_iterable(ids)
    return count


def _walk(
    result: Reconciled,
    body: Sequence[Payload],
    held: Sequence[Remembered],
    wordings: Wordings,
    spent: Collection[str],
) -> int:
    """Takes what is remembered, from the front, as long as the list says the same; returns how far
    it came.

    A payload that isn't the remembered object must not be another's either: after a dropped head,
    the second "yes" stands where the first one stood.
    """
    order, anchors = result.order, result.anchors
    objects: set[int] | None = None
    for payload, entry, (words, ids) in zip(
        body, held, chain(wordings.view, repeat(_NOT_SHOWN)), strict=False
    ):
        refs = entry.refs
        if not refs and (ids or words != payload):
            # repair made it, and shows something else there now: a result may have come since
            break
        if payload is not entry.object or payload != entry.snapshot:
            if objects is None:
                objects = {id(other.object) for other in held}
            if payload is not entry.object and (
                id(payload) in objects or spent and any(ref in spent for ref in refs)
            ):
                break
            # a copy of the list: what it said then is what it says now
            if payload == entry.snapshot:
                entry = Remembered(payload, entry.snapshot, refs)
            elif is_same(payload, entry.snapshot):
                entry = Remembered(payload, snapshot(payload), refs)
            else:
                break
        if (ids != refs or words != payload) and (
            kept := _word(result, payload, refs, wordings)
        ) != refs:
            refs = kept
            entry = Remembered(payload, entry.snapshot, refs)
        anchors.append(entry)
        order += refs
    return len(anchors)


def _word(
    result: Reconciled,
    payload: Payload,
    refs: tuple[str, ...],
    wordings: Wordings,
    believed: Payload | None = None,
) -> tuple[str, ...]:
    """Notes an edit where the view words these messages otherwise; returns those that stay in the
    order. What repair had shown before a result came is no wording of it.
    """
    if (
        not refs
        or not wordings.differ(refs, payload, believed=believed)
        or is_made(fingerprint(payload))
    ):
        return refs
    result.edits[refs[0]] = payload
    return refs[:1]


def _besides(shown: Sequence[Shown], used: set[str]) -> list[Shown]:
    """What the view shows after the last message already matched; what stands before it only a
    stamp can name.
    """
    last = len(shown)
    while last and not used.intersection(shown[last - 1][1]):
        last -= 1
    first = last - 1 if last and not used.issuperset(shown[last - 1][1]) else last
    return list(shown[first:])


def _add(
    result: Reconciled,
    body: Sequence[Payload],
    claims: Sequence[Match],
    wordings: Wordings,
) -> None:
    groups: list[list[Match]] = [[] for _ in body]
    for claim in claims:
        groups[claim.at].append(claim)
    for payload, group in zip(body, groups, strict=True):
        if len(group) == 1 or all(claim.refs is None for claim in group):
            refs = _add_whole(result, payload, group[0], wordings)
        else:
            refs = _add_parts(result, payload, group, wordings)
        result.order += refs
        result.anchors.append(Anchor(payload, snapshot(payload), refs))


def _add_whole(
    result: Reconciled, payload: Payload, claim: Match, wordings: Wordings
) -> tuple[Ref, ...]:
    if claim.refs is None:
        result.new.append(payload)
        return (len(result.new) - 1,)
    return _word(result, payload, claim.refs, wordings, claim.believed)


def _add_parts(
    result: Reconciled, payload: Payload, group: Sequence[Match], wordings: Wordings
) -> tuple[Ref, ...]:
    """A merged payload: the known parts, and each unknown stretch between them as one new
    message.
    """
    refs: list[Ref] = []
    stretch: list[str] = []
    for claim in group:
        if claim.refs is None:
            stretch.append(claim.text or "")
            continue
        if stretch:
            refs.append(_add_text(result, payload, stretch))
            stretch = []
        part = worded(payload, claim.text or "")
        same = wordings.read(claim.refs, believed=claim.believed) in (None, claim.text)
        refs += (
            claim.refs
            if same
            else _word(result, part, claim.refs, wordings, claim.believed)
        )
    if stretch:
        refs.append(_add_text(result, payload, stretch))
    return tuple(refs)


def _add_text(result: Reconciled, payload: Payload, stretch: Sequence[str]) -> int:
    result.new.append(worded(payload, GLUE.join(stretch)))
    return len(result.new) - 1
