"""Reconcile: what is new in a list that the caller keeps, changes and records again? (I-12, FAULTS
B1-B7)

    reconcile(presented, *, shown, remembered=(), layers=(), known={}, stored={}, gone=(), spent=()) -> Reconciled
    Reconciled.settle(ids) -> order, remembered          once the new messages have ids

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
messages before repair, in view or not: a mapping, asked only where payloads differ; `stored` is how
those were said that came in the format of the list. None of them may share objects with what callers
were given.

A stamp decides before all else: a payload whose own id is known is that message, and one whose own
id differs from a message's is another, whatever both say. A context that joins messages gives the
whole the id of the first, so what is known and follows that one in its payload is not a wording of
it. Only what has no id, on either side, is known by its object, its calls, its words or its place.

What a rewind has taken away (`gone`) is not brought back by a list that still has it, nor is it
taken for what somebody says again. Such a message is known by its object or its stamp. By its words
alone it is known in the list of a caller that was not told of the rewind; in that of one that was
(`spent`), the same words are said again. The list itself tells more: one with an object of what is
gone is from before; one with objects of the rest, but none of that, was cut. And if all that a list
has of it is a question at its very end, though it had been answered, that is asked again.

A message that the list has as several neighbours is one payload here, a list: `split_messages` and
`grouping` have gathered it before.

The passes after the walk live in `matching`, over the `atoms` that `layers` lays out; `fingerprint` reads
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
* Results and words that a caller puts into one payload (anthropic) are one message: an edit of the known one, unless
  all of it is known, or it has something in it that repair made: then each is looked at by itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache, partial
from itertools import chain, groupby, repeat
from operator import is_
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.domain.message import Payload, Payloads
from holdfast.domain.record.atoms import (
    GLUE,
    Match,
    is_made,
    without_made,
)
from holdfast.domain.record.fingerprint import (
    fingerprint,
    is_same,
    snapshot,
    stamp_of,
    worded,
)
from holdfast.domain.record.grouping import Refs, Shown, View
from holdfast.domain.record.layers import Layer, Layers, build_base
from holdfast.domain.record.matching import match
from holdfast.domain.record.memory import Held, Remembered, snapshots_of
from holdfast.domain.record.split_messages import is_split
from holdfast.domain.record.wordings import Wordings

Ref = str | int
"""The id of a known message, or an index into `Reconciled.new`."""
Matched = tuple[Payload, tuple[Ref, ...]]
Ids = Set[str]

_NOTHING: Mapping[str, Payload] = MappingProxyType({})
_NOT_SHOWN: Shown = ({}, ())
_NONE: Ids = frozenset()


class Reconciled(msgspec.Struct):
    """What a presented list says.

    `order` is the caller's list: known ids and indexes into `new`. `new` is to be stored, in this
    order. `edits` are known messages in another wording than the view's; of several that became one
    payload, the first carries it and the others are not in `order`. `anchors` are the payloads at
    the front of the list, instructions left aside, that are as remembered, and `settled` says how
    many of `order` they are; `matched` are all other payloads, with what they turned out to show.
    """

    instructions: str | None
    order: list[Ref]
    new: list[Payload]
    edits: dict[str, Payload]
    anchors: list[Remembered]
    settled: int = 0
    matched: list[Matched] = []

    @property
    def puzzles(self) -> bool:
        """Whether something new stands before something known, or nothing is known: the list may be
        older than the view.
        """
        count = len(self.new)
        if count == 0:
            return False
        return count == len(self.order) or str in map(type, self.order[-count:])

    def settle(self, ids: Sequence[str]) -> tuple[list[str], list[Remembered]]:
        """The order and what the handle remembers, once the new messages have these ids."""
        # What was walked over has ids already, and is nearly all of a long list.
        order: list[Any] = self.order[: self.settled]
        remembered = self.anchors.copy()
        for payload, refs in self.matched:
            known = [ref if isinstance(ref, str) else ids[ref] for ref in refs]
            order += known
            remembered.append(Remembered(payload, snapshot(payload), tuple(known)))
        return order, remembered


def reconcile(
    presented: Payloads,
    *,
    shown: View,
    remembered: Held = (),
    layers: Layers = (),
    known: Mapping[str, Payload] = _NOTHING,
    stored: Mapping[str, Payload] = _NOTHING,
    gone: Ids = _NONE,
    spent: Ids = _NONE,
    together: Callable[[str, str], bool] = lambda one, other: True,
    equal_from: int | None = None,
) -> Reconciled:
    """Matches a presented list to what is stored. `shown` and `remembered` are without
    instructions; `layers` are what the handle knows besides what it remembers. `together` tells of
    two messages that are gone whether a view ever had both. `equal_from`: the place from which on
    the list is known to be equal to all the snapshots that are remembered.

    Every payload ends up in `order` as known ids, as something new, or both; only what repair made
    (shown without ids) and is presented unchanged leaves no trace. Presenting the same list again
    gives the same order, and nothing new.
    """
    instructions, body = split_instructions(presented)
    result = Reconciled(instructions, [], [], {}, [])
    wordings = Wordings(shown, known, stored)
    held, besides = remembered, shown
    if not remembered:
        # A handle that remembers nothing knows what the view shows, and nothing besides.
        held, besides = [Remembered(None, payload, refs) for payload, refs in shown], ()
    known_lists = _all_of(held, layers) if gone else held
    spent = _spent(body, known_lists, gone, spent) if gone else _NONE
    walked = 0
    if remembered and equal_from == len(presented) - len(body):
        walked = _stride(result, body, held, shown, spent)
    walked = walked or _walk(result, body, held, wordings, spent)
    matching = partial(
        _match, body=body, held=held, layers=layers, wordings=wordings, shown=besides
    )
    matching(result, spent=spent, walked=walked)
    # It is asked again: then the words that are gone must not be taken for it.
    if gone and not spent and _repeats(result, known_lists, gone, together):
        result = Reconciled(instructions, [], [], {}, [])
        walked = _walk(result, body, held, wordings, gone)
        matching(result, spent=gone, walked=walked)
    return result


def _all_of(held: Held, layers: Layers) -> Held:
    """What is remembered, and what the layers have besides: before it, or after."""
    entries = [*held]
    for layer in layers:
        refs = {ref for entry in entries for ref in entry.refs}
        more = [entry for entry in layer.held if not refs.issuperset(entry.refs)]
        entries = [*more, *entries] if layer.is_older else [*entries, *more]
    return entries


def _match(
    result: Reconciled,
    body: Payloads,
    held: Held,
    layers: Layers,
    wordings: Wordings,
    *,
    shown: View,
    spent: Ids,
    walked: int,
) -> None:
    """Adds to the result what stands after all that was walked over. `shown`: what may be known
    besides.
    """
    left = held[walked:]
    if walked < min(len(body), len(shown)) and _begins_with_the_view(body, held, shown):
        left = _take_the_view(result, body, held, shown)
        before = held[: len(held) - len(left)]
        layers = [Layer(layer.held, is_older=True) for layer in layers]
        walked = len(shown)
        strays = _stray_answers(body[walked:], body)
        if strays:
            layers.append(Layer(_about(strays, before), is_older=True))
    result.settled = len(result.order)
    rest = body[walked:]
    if not rest:
        return
    # ids: nothing new was met so far
    used: set[Any] = set(result.order)
    base = build_base(
        left,
        layers=layers,
        shown=_besides(shown, used),
        used=used,
        wording=wordings.single,
        stamps_of=wordings.stamps,
        said=rest,
        spent=spent,
    )
    # Read only for a result that does not stand behind its call.
    called = cache(partial(_calls_in, body[:walked]))
    claims = match(
        rest,
        base,
        by_stamp=wordings.stamped(used),
        is_called=lambda id: id in called(),
    )
    _add(result, rest, claims, wordings)


def _calls_in(payloads: Payloads) -> set[str]:
    return {id for payload in payloads for id, _, _ in fingerprint(payload).calls}


def _stray_answers(some: Payloads, presented: Payloads) -> set[str]:
    """The ids that results among these answer, and that no call in the list has."""
    wanted = {id for payload in some for id in fingerprint(payload).answers}
    # Nearly always the call stands just before.
    for payload in reversed(presented if wanted else ()):
        wanted.difference_update(_calls_in([payload]))
        if not wanted:
            break
    return wanted


def _about(ids: Ids, held: Held) -> Held:
    """The calls with these ids among what is remembered, and their results."""
    found = []
    for entry in held:
        said = fingerprint(entry.snapshot)
        if not ids.isdisjoint([*said.answers, *_calls_in([entry.snapshot])]):
            found.append(entry)
    return found


def _begins_with_the_view(body: Payloads, held: Held, shown: View) -> bool:
    """Whether the list begins with all that the view shows, as it shows it: then it was loaded,
    whatever the handle remembers of earlier shapes. The caller's own objects may say otherwise.
    """
    if len(body) < len(shown):
        return False
    owned = {id(entry.object): entry.refs for entry in held if entry.object is not None}
    for payload, (words, refs) in zip(body, shown, strict=False):
        if payload != words or owned.get(id(payload), refs) != refs:
            return False
    return True


def _take_the_view(result: Reconciled, body: Payloads, held: Held, shown: View) -> Held:
    """The beginning of the list is what the view shows; returns what the handle remembers after all
    of that.
    """
    result.edits.clear()
    result.order.clear()
    result.anchors.clear()
    for payload, (_, refs) in zip(body, shown, strict=False):
        result.order += refs
        result.anchors.append(Remembered(payload, snapshot(payload), refs))
    visible = set(result.order)
    last = len(held)
    while last and visible.isdisjoint(held[last - 1].refs):
        last -= 1
    return held[last:]


def _spent(body: Payloads, held: Held, gone: Ids, spent: Ids) -> Ids:
    """What is gone and can't be known by its words in this list: the objects in the list have the
    last word.
    """
    stamps: set[str | None] = set()
    owned: dict[int, bool] = {}
    cut: set[str] = set()
    for entry in held:
        is_gone = not gone.isdisjoint(entry.refs)
        if is_gone:
            stamps.add(stamp_of(entry.snapshot))
        if entry.object is not None:
            owned[id(entry.object)] = is_gone
            if is_gone:
                cut.update(entry.refs)
    stamps.discard(None)
    shows = {owned[id(payload)] for payload in body if id(payload) in owned}
    # With an object, or a stamp, of what is gone the list is from before the rewind.
    if True in shows or not stamps.isdisjoint(map(stamp_of, body)):
        return _NONE
    if False not in shows:
        return spent
    # With objects of the rest, and none of that, it was cut.
    return cut.union(spent).intersection(gone)


def _repeats(
    result: Reconciled, held: Held, gone: Ids, together: Callable[[str, str], bool]
) -> bool:
    """Whether all that the list has of what is gone is a question, the first message of it, at the
    end of the list and without the answer that had followed it: nobody would have cut just that. A
    list that ends with an answer is a whole one. What was said on another line, after the question
    had been taken away, never followed it.
    """
    places: list[Matched] = [_NOT_SHOWN]
    places += [(entry.snapshot, entry.refs) for entry in result.anchors]
    places += result.matched
    *before, (payload, refs) = places
    last = [ref for ref in refs if isinstance(ref, str) and ref in gone]
    if not last or any(not gone.isdisjoint(other) for _, other in before):
        return False
    said = fingerprint(payload)
    if said.role != "user" or said.answers:
        return False
    line = []
    for entry in held:
        if any(ref in gone and together(ref, last[0]) for ref in entry.refs):
            line.append(entry.refs)
    return len(line) > 1 and not set(line[0]).isdisjoint(last)


def split_instructions(presented: Payloads) -> tuple[str | None, Payloads]:
    """The instructions that a list begins with, if it does, and the rest of it."""
    texts = []
    for payload in presented:
        said = payload.get("role") if isinstance(payload, dict) else None
        if said not in ("system", "developer"):
            break
        mark = fingerprint(payload)
        # Words in a shape that is not known here stay where they are: a message.
        if mark.other and not mark.text:
            break
        texts.append(mark.text)
    if not texts:
        return None, presented
    return GLUE.join(filter(None, texts)), presented[len(texts) :]


def _stride(
    result: Reconciled, body: Payloads, held: Held, view: View, spent: Ids
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
    snapshots = snapshots_of(held)
    words = [payload for payload, _ in view[:count]]
    ids = [refs for _, refs in view[:count]]
    if snapshots != words or [entry.refs for entry in held] != ids:
        return 0
    same = body[:count]
    objects = [entry.object for entry in held]
    kept = 0
    if all(map(is_, same, objects)):
        kept = count
        # What holds the view's own payload already stays as it is.
        while kept and snapshots[kept - 1] is not words[kept - 1]:
            kept -= 1
    # A copy is known by its words. They may be those of what is spent; and an object of
    # the last list in another place says more than they do.
    elif spent or not set(map(id, objects)).isdisjoint(map(id, same)):
        return 0
    result.anchors += held[:kept]
    result.anchors += map(Remembered, same[kept:], words[kept:], ids[kept:])
    result.order += chain.from_iterable(ids)
    return count


def _walk(
    result: Reconciled, body: Payloads, held: Held, wordings: Wordings, spent: Ids
) -> int:
    """Takes what is remembered, from the front, as long as the list says the same; returns how far
    it came.

    A payload that isn't the remembered object must not be another's either: after a dropped head,
    the second "yes" stands where the first one stood.
    """
    order, anchors = result.order, result.anchors
    objects: set[int] = set()
    view = chain(wordings.view, repeat(_NOT_SHOWN))
    for payload, entry, (words, ids) in zip(body, held, view, strict=False):
        refs = entry.refs
        # Repair made it, and shows something else there now: a result may have come since.
        if not refs and (ids or words != payload):
            break
        if payload is not entry.object:
            objects = objects or {id(other.object) for other in held}
            if id(payload) in objects or not spent.isdisjoint(refs):
                break
        if payload is not entry.object or payload != entry.snapshot:
            renewed = _renewed(entry, payload)
            if renewed is None:
                break
            entry = renewed
        if ids != refs or words != payload:
            refs = _word(result, payload, refs, wordings)
            entry = Remembered(payload, entry.snapshot, refs)
        anchors.append(entry)
        order += refs
    return len(anchors)


def _renewed(entry: Remembered, payload: Payload) -> Remembered | None:
    """What is remembered, bound to this object; None if the object says something else."""
    # A copy of the list: what it said then is what it says now.
    if payload == entry.snapshot:
        return Remembered(payload, entry.snapshot, entry.refs)
    if is_same(payload, entry.snapshot):
        return Remembered(payload, snapshot(payload), entry.refs)
    return None


def _word(
    result: Reconciled,
    payload: Payload,
    refs: Refs,
    wordings: Wordings,
    believed: Payload | None = None,
) -> Refs:
    """Notes an edit where the view words these messages otherwise; returns those that stay in the
    order.
    """
    if not refs:
        return refs
    # What is said in several pieces says the same: no format has a wording for that.
    if is_split(payload):
        return refs[:1] if wordings.call_twice(refs) else refs
    said = without_made(payload)
    if said is not payload and wordings.are_said_beside_made(refs, payload, said):
        return refs
    if not wordings.differ(refs, said, believed=believed):
        return refs
    # What repair had shown before a result came is no wording of it.
    if is_made(fingerprint(said)):
        return refs
    result.edits[refs[0]] = said
    return refs[:1]


def _besides(shown: View, used: set[str]) -> View:
    """What the view shows after the last message already matched; what stands before it only a
    stamp can name.
    """
    last = len(shown)
    while last and used.isdisjoint(shown[last - 1][1]):
        last -= 1
    # A merged payload of which only some was matched is still to be looked at.
    if last and not used.issuperset(shown[last - 1][1]):
        last -= 1
    return shown[last:]


def _add(
    result: Reconciled, body: Payloads, claims: Sequence[Match], wordings: Wordings
) -> None:
    for at, group in groupby(claims, key=lambda claim: claim.at):
        payload = body[at]
        refs = _add_payload(result, payload, list(group), wordings)
        result.order += refs
        # Its snapshot is taken when it has ids: what is compared again needs none.
        result.matched.append((payload, refs))


def _add_payload(
    result: Reconciled, payload: Payload, group: list[Match], wordings: Wordings
) -> tuple[Ref, ...]:
    """A payload as what it shows. A merged one shows the known parts, and each unknown stretch
    between them is one new message.
    """
    known = [claim for claim in group if claim.refs is not None]
    if not known:
        # Pieces of a message that is another's after all.
        if isinstance(payload, list) and is_split(payload):
            return tuple(_add_new(result, piece) for piece in payload)
        return (_add_new(result, payload),)
    if len(group) == 1:
        first = group[0]
        return _word(result, payload, first.refs or (), wordings, first.believed)
    refs: list[Ref] = []
    for is_new, claims in groupby(group, key=lambda claim: claim.refs is None):
        if is_new:
            refs += _add_parts(result, payload, claims)
            continue
        for claim in claims:
            refs += _add_part(result, payload, claim, wordings)
    return tuple(refs)


def _add_parts(
    result: Reconciled, payload: Payload, claims: Iterable[Match]
) -> list[Ref]:
    """Adds what is new between the known parts of a payload: words as one message, any other piece
    as it is.
    """
    refs: list[Ref] = []
    for is_piece, some in groupby(claims, key=lambda claim: claim.piece is not None):
        if is_piece:
            refs += [_add_new(result, claim.piece or {}) for claim in some]
        else:
            text = GLUE.join(claim.text or "" for claim in some)
            refs.append(_add_new(result, worded(payload, text)))
    return refs


def _add_part(
    result: Reconciled, payload: Payload, claim: Match, wordings: Wordings
) -> Refs:
    refs = claim.refs or ()
    if wordings.read(refs, believed=claim.believed) in (None, claim.print.text):
        return refs
    part = claim.piece or worded(payload, claim.print.text)
    return _word(result, part, refs, wordings, claim.believed)


def _add_new(result: Reconciled, payload: Payload) -> int:
    result.new.append(payload)
    return len(result.new) - 1
