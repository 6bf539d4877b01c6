"""Layers: all that is known, laid in one order, so that a caller's list can be matched to it.

A handle knows a session from several sides: the list that it recorded last, what its last contexts
gave, what was ever said, what the view shows now. Others may have arranged, joined or reworded the
messages from one to the next. So none of them is read into another as payloads: each is taken apart
into its messages, and what one has besides those before it stands between them, after its
neighbour. Nothing that a side knows is lost because another knows some of it otherwise.

    recorded      1   2                   the list was made from this one: its order, its words
    given         1           3   5       besides: 3 and 5, after 1; where it words 1 otherwise, an alias
    view          1           3       6   besides: 6, after 3
    the order     1   2       3   5   6

`chosen` tells which of them a list was made from.
"""

from collections.abc import Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

from holdfast.domain.message import Payload, Payloads
from holdfast.domain.record.alignment import ascending
from holdfast.domain.record.atoms import (
    Atom,
    Atoms,
    Base,
    KnownSeams,
    Presented,
    StampsOf,
    Wording,
)
from holdfast.domain.record.fingerprint import (
    Fingerprint,
    Stamps,
    fingerprint,
    stamps_in,
)
from holdfast.domain.record.grouping import Refs, View
from holdfast.domain.record.memory import Held, Remembered, snapshots_of


class Layer(NamedTuple):
    """What a handle knows besides the list that a list was made from. `is_older`: from before that
    one.
    """

    held: Held
    is_older: bool = False


Layers = Sequence[Layer]


def chosen(
    body: Payloads, presented: Held, given: Sequence[Held]
) -> tuple[Held, list[Layer]]:
    """The one that this list was made from, of the list that a handle recorded last and what it was
    given since, the newest first; and the others.
    """
    lists = [held for held in (*given, presented) if held]
    if not lists:
        return (), []
    first = 0
    if len(lists) > 1:
        source = _source(body, presented, lists)
        first = next(place for place, held in enumerate(lists) if held is source)
    # The newest of them first: it knows best what stands beside what.
    others = [
        Layer(held, is_older=place > first)
        for place, held in enumerate(lists)
        if place != first
    ]
    return lists[first], others


def _source(body: Payloads, presented: Held, lists: Sequence[Held]) -> Held:
    owned = {
        id(entry.object): entry.refs for entry in presented if entry.object is not None
    }
    whole = [held for held in lists if _begins_with(body, held, owned)]
    if whole:
        return max(whole, key=len)
    if any(id(payload) in owned for payload in body):
        return presented
    # It was changed since: whichever has most of it.
    said = [_key(payload) for payload in body]

    def found(held: Held) -> int:
        known = {_key(entry.snapshot) for entry in held}
        return sum(key in known for key in said)

    # If it is as much of the last list as of any other, that is what its caller keeps.
    return max(reversed(lists), key=found)


def _begins_with(body: Payloads, held: Held, owned: Mapping[int, Refs]) -> bool:
    """Whether all that is held is the beginning of the list. The caller's own objects may say
    otherwise.
    """
    if body[: len(held)] != snapshots_of(held):
        return False
    return all(
        owned.get(id(payload), entry.refs) == entry.refs
        for payload, entry in zip(body, held, strict=False)
    )


def _key(payload: Payload) -> tuple[Fingerprint, Stamps]:
    return fingerprint(payload), stamps_in(payload)


def build_base(
    remembered: Held,
    *,
    layers: Layers,
    shown: View,
    used: set[str],
    wording: Wording,
    stamps_of: StampsOf,
    said: Payloads,
    spent: Set[str],
) -> Base:
    """What a list is made from, as far as it was not met in it already (`used`), and what each of
    the `layers` and then the view have besides.
    """
    seams = KnownSeams(wording, said)
    parts = [seams.take_apart(entry.snapshot, entry.refs) for entry in remembered]
    own = [atom for atoms in parts for atom in atoms]
    alias: dict[Fingerprint, Fingerprint] = {}
    for layer in layers:
        besides = _Besides(own, used, said, seams).of(layer)
        alias = _aliases(own, besides) | alias
        own = _laid_between(own, besides, is_older=layer.is_older)
    view: list[Atom] = []
    for payload, refs in shown:
        view += seams.take_apart(payload, refs)
    own, fused = _put_together(own, view)
    view = [atom for atom in view if used.isdisjoint(atom.refs)]
    atoms = _merge(own, view, stays=_is_in_order(said, remembered))
    at = {id(atom): index for index, atom in enumerate(atoms)}
    # An object that showed a part shows the whole now.
    at |= {part: at[id(atom)] for part, atom in fused.items()}
    objects: dict[int, list[Presented]] = {}
    for entry, showed in zip(remembered, parts, strict=True):
        if entry.object is not None and showed:
            shows = [at[id(atom)] for atom in showed]
            objects.setdefault(id(entry.object), []).append((entry.snapshot, shows))
    _add_objects(objects, layers, atoms)
    return Base(atoms, objects, alias | _aliases(own, view), spent, stamps_of)


def _add_objects(
    objects: dict[int, list[Presented]], layers: Layers, atoms: list[Atom]
) -> None:
    """Adds the callers' objects that the layers know."""
    places = _places(atoms) if layers else {}
    for entry in chain.from_iterable(layer.held for layer in layers):
        shows = [*dict.fromkeys(places[ref] for ref in entry.refs if ref in places)]
        if entry.object is not None and shows:
            objects.setdefault(id(entry.object), []).append((entry.snapshot, shows))


class _Besides:
    """Takes a layer apart, beside what is known without it. `used`: what was met in the list
    already; `said`: what comes after that in it.
    """

    def __init__(
        self, own: Atoms, used: set[str], said: Payloads, seams: KnownSeams
    ) -> None:
        self._sizes = {ref: len(atom.refs) for atom in own for ref in atom.refs}
        self._used = used
        self._seams = seams
        self._objects = set(map(id, said))
        self._stamps = {stamp for payload in said for stamp in stamps_in(payload)}

    def of(self, layer: Layer) -> list[Atom]:
        """The messages of the layer, also those that are known without it, in its own words. Of
        what stands before something that was met already, and of an older layer of which nothing
        was met, only what more than its words can name: who says the same again after that says it
        anew.
        """
        named: list[Atom] = []
        atoms: list[Atom] = []
        is_met = False
        for entry in layer.held:
            if not self._used.isdisjoint(entry.refs):
                is_met = True
                atoms = [*named]
            apart = self._apart(entry)
            atoms += apart
            if id(entry.object) in self._objects:
                named += apart
            else:
                named += filter(self._is_named, apart)
        if self._used and layer.is_older and not is_met:
            return named
        return atoms

    def _apart(self, entry: Remembered) -> list[Atom]:
        out: list[Atom] = []
        for atom in self._seams.take_apart(entry.snapshot, entry.refs):
            sizes = {self._sizes.get(ref) for ref in atom.refs}
            if sizes in ({None}, {len(atom.refs)}) and self._used.isdisjoint(atom.refs):
                out.append(atom)
                continue
            # Some of it is known otherwise: the rest must not be lost for that.
            for ref in atom.refs:
                if ref not in self._sizes and ref not in self._used:
                    out += self._seams.single([ref])
        return out

    def _is_named(self, atom: Atom) -> bool:
        if atom.print.calls or atom.print.answers:
            return True
        return not self._stamps.isdisjoint(stamps_in(atom.payload))


def _laid_between(own: Atoms, besides: Atoms, *, is_older: bool) -> list[Atom]:
    """What is known, and what is known besides after its neighbour there. `is_older`: if there is
    none, before all of it.
    """
    places = _places(own)
    after: dict[int, list[Atom]] = {}
    last = -1
    for atom in besides:
        if atom.refs[0] in places:
            last = places[atom.refs[0]]
        else:
            after.setdefault(last, []).append(atom)
    # What stands before all that is known to both stands right before that, not in front of what
    # only the first knows: that is older than all of it, and must not be taken for something said
    # after it.
    shared = {ref for atom in besides for ref in atom.refs}
    leading = after.get(-1, [])
    if is_older and places.keys().isdisjoint(shared):
        return [*leading, *own]
    atoms: list[Atom] = []
    for place, atom in enumerate(own):
        if leading and not shared.isdisjoint(atom.refs):
            atoms += leading
            leading = []
        atoms.append(atom)
        atoms += after.get(place, ())
    return atoms + leading


def _places(atoms: Atoms) -> dict[str, int]:
    return {ref: index for index, atom in enumerate(atoms) for ref in atom.refs}


def _aliases(own: Atoms, view: Atoms) -> dict[Fingerprint, Fingerprint]:
    """The view's wordings of messages that the handle remembers in others."""
    places = _places(own)
    alias: dict[Fingerprint, Fingerprint] = {}
    for atom in view:
        if atom.refs and atom.refs[0] in places:
            mine = own[places[atom.refs[0]]]
            if atom.print != mine.print and len(atom.refs) == len(mine.refs):
                alias[atom.print] = mine.print
    return alias


def _is_in_order(said: Payloads, held: Held) -> bool:
    """Whether what the list has of this stands in it in the same order."""
    places = {_key(entry.snapshot): place for place, entry in enumerate(held)}
    met = [places[key] for key in map(_key, said) if key in places]
    return met == sorted(met)


def _merge(own: Atoms, view: Atoms, *, stays: bool) -> list[Atom]:
    """What the handle remembers, and what only the view shows after its neighbour there. What the
    view has moved, as a turn gave it back and another took it, stands where the view has it, unless
    it `stays`: then the list is in the other order.
    """
    places = _places(own)
    besides: dict[int, list[Atom]] = {}
    order = dict.fromkeys(
        places[ref] for atom in view for ref in atom.refs if ref in places
    )
    still = {place for place, _ in ascending([(place, place) for place in order])}
    moved: set[int] = set()
    cursor = -1
    for atom in view:
        place = places.get(atom.refs[0]) if atom.refs else None
        if place is None:
            besides.setdefault(cursor, []).append(atom)
        elif place in still:
            cursor = max(cursor, place)
        elif not stays and place not in moved:
            moved.add(place)
            besides.setdefault(cursor, []).append(own[place])
    shown = _places(view)
    leading = besides.get(-1, [])
    atoms: list[Atom] = []
    due: list[Atom] = []
    for index, atom in enumerate(own):
        if not shown.keys().isdisjoint(atom.refs):
            # What the view shows after something remembered stands after what is no longer shown
            # there, too: a list grows at its end.
            atoms += due
            # What it shows before anything remembered stands right before that, not in front of
            # what is no longer shown.
            atoms += leading
            due = []
            leading = []
        if index not in moved:
            atoms.append(atom)
        due += besides.get(index, ())
    return [*atoms, *due, *leading]


def _put_together(own: list[Atom], view: Atoms) -> tuple[list[Atom], dict[int, Atom]]:
    """Messages that a handle remembers apart and the caller now shows as the view does: words and
    calls in one.
    """
    places = {atom.refs: index for index, atom in enumerate(own)}
    fused: dict[int, Atom] = {}
    out: list[Atom | None] = list(own)
    for atom in view:
        # Plain texts are taken apart on both sides, and need no putting together.
        if len(atom.refs) < 2 or atom.print.plain:
            continue
        first = places.get(atom.refs[:1])
        if first is None:
            continue
        parts = own[first : first + len(atom.refs)]
        if tuple(ref for part in parts for ref in part.refs) == atom.refs:
            fused |= {id(part): atom for part in parts}
            out[first : first + len(parts)] = [atom, *[None] * (len(parts) - 1)]
    return [atom for atom in out if atom is not None], fused
