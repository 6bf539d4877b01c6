"""Atoms: what is known, laid in one order, so that a caller's list can be matched to it.

A known message is an *atom*; a merged payload is taken apart where its seams are known. Atoms are
laid in the order in which the handle remembers them, and what the view shows besides stands between
them, after its neighbour.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from holdfast.domain.message import Payload
from holdfast.domain.record.fingerprint import Fingerprint, fingerprint, worded
from holdfast.domain.repair import MADE

Wording = Callable[[str], Payload | None]
"""How the view words a message, by id; None when that isn't known."""

GLUE = "\n\n"
"""What a context puts between two messages of one role when it joins them."""


class Atom(msgspec.Struct):
    """One known message; several where a merged payload has seams nobody knows, none where repair
    made it.
    """

    refs: tuple[str, ...]
    payload: Payload
    print: Fingerprint
    taken: bool = False


class Match(msgspec.Struct):
    """A presented payload, or a stretch of its text, and the message it turned out to show.

    `at` is the place in the presented list, `text` the stretch (None: the whole payload), `place`
    the atom's place, `believed` the wording it was matched by. `certain`: by object or stamp, not
    by what it says. `made`: it is what repair shows in the place of a result.
    """

    at: int
    print: Fingerprint
    text: str | None = None
    refs: tuple[str, ...] | None = None
    believed: Payload | None = None
    place: int | None = None
    certain: bool = False
    made: bool = False


class Base(msgspec.Struct):
    """The known messages in one order. `objects`: the caller's objects and the places of the atoms
    they showed. `alias`: another wording of an atom to the one it is aligned by. `spent`: messages
    that only their object or their stamp can name.
    """

    atoms: list[Atom]
    objects: dict[int, list[tuple[Payload, list[int]]]]
    alias: dict[Fingerprint, Fingerprint]
    spent: Collection[str] = ()


def settle(claim: Match, place: int, base: Base) -> Match:
    atom = base.atoms[place]
    atom.taken = True
    claim.refs, claim.believed, claim.place = atom.refs, atom.payload, place
    return claim


def lay_base(
    remembered: Iterable[tuple[object, Payload, tuple[str, ...]]],
    *,
    shown: Iterable[tuple[Payload, tuple[str, ...]]],
    used: set[str],
    wording: Wording,
    said: Sequence[Payload],
    spent: Collection[str] = (),
) -> Base:
    """What a handle remembers, and between it, after its neighbour, what the view shows besides."""
    is_said = _SaidExactly(said)
    owned = [
        (held, payload, _take_apart(payload, refs, wording, is_said))
        for held, payload, refs in remembered
    ]
    own = [atom for _, _, parts in owned for atom in parts]
    view = [
        atom
        for payload, refs in shown
        for atom in _take_apart(payload, refs, wording, is_said)
    ]
    own, fused = _put_together(own, view)
    atoms, alias = _merge(
        own, [atom for atom in view if not used.intersection(atom.refs)]
    )
    at = {id(atom): index for index, atom in enumerate(atoms)}
    at |= {part: at[id(atom)] for part, atom in fused.items()}
    objects: dict[int, list[tuple[Payload, list[int]]]] = {}
    for held, payload, parts in owned:
        if held is not None and parts:
            objects.setdefault(id(held), []).append(
                (payload, [at[id(part)] for part in parts])
            )
    return Base(atoms, objects, alias, spent)


def _merge(
    own: Sequence[Atom], view: Sequence[Atom]
) -> tuple[list[Atom], dict[Fingerprint, Fingerprint]]:
    places = {ref: index for index, atom in enumerate(own) for ref in atom.refs}
    alias: dict[Fingerprint, Fingerprint] = {}
    besides: dict[int, list[Atom]] = {}
    moved: set[int] = set()
    cursor = -1
    for atom in view:
        place = places.get(atom.refs[0]) if atom.refs else None
        if place is None:
            besides.setdefault(cursor, []).append(atom)
            continue
        if atom.print != own[place].print and len(atom.refs) == len(own[place].refs):
            alias[atom.print] = own[place].print
        # the view moved it: its turn gave it back, and another took it
        if place < cursor and place not in moved:
            moved.add(place)
            besides.setdefault(cursor, []).append(own[place])
        cursor = max(cursor, place)
    # What the view shows before anything remembered stands right before that, not in front of what
    # is no longer shown.
    shown = {ref for atom in view for ref in atom.refs}
    first = next(
        (index for index, atom in enumerate(own) if shown.intersection(atom.refs)),
        len(own),
    )
    # What it shows after something remembered stands after what is no longer shown there, too: a
    # list grows at its end.
    atoms: list[Atom] = []
    due: list[Atom] = []
    for index, atom in enumerate(own):
        if shown.intersection(atom.refs):
            atoms += due
            due = []
        atoms += besides.get(-1, ()) if index == first else ()
        atoms += [] if index in moved else [atom]
        due += besides.get(index, ())
    return [*atoms, *due, *(besides.get(-1, []) if first == len(own) else [])], alias


class _SaidExactly:
    """Whether the caller's list has a payload that says exactly this; read only when it
    is asked.
    """

    def __init__(self, said: Sequence[Payload]) -> None:
        self._said = said
        self._prints: set[Fingerprint] | None = None

    def __call__(self, print: Fingerprint) -> bool:
        if self._prints is None:
            self._prints = {fingerprint(payload) for payload in self._said}
        return print in self._prints


def _put_together(
    own: list[Atom], view: Sequence[Atom]
) -> tuple[list[Atom], dict[int, Atom]]:
    """Messages that a handle remembers apart and the caller now shows as the view does: words and
    calls in one.
    """
    places = {atom.refs: index for index, atom in enumerate(own)}
    fused: dict[int, Atom] = {}
    out: list[Atom | None] = list(own)
    for atom in view:
        if len(atom.refs) < 2 or atom.print.plain:
            continue
        first = places.get(atom.refs[:1])
        if first is None:
            continue
        parts = own[first : first + len(atom.refs)]
        if parts and tuple(ref for part in parts for ref in part.refs) == atom.refs:
            fused |= {id(part): atom for part in parts}
            out[first : first + len(parts)] = [atom, *[None] * (len(parts) - 1)]
    return [atom for atom in out if atom is not None], fused


def _take_apart(
    payload: Payload, refs: tuple[str, ...], wording: Wording, is_said: "_SaidExactly"
) -> list[Atom]:
    """A merged payload as its messages, if its seams are known: by their own wordings, or as each
    is one paragraph. One with more than words in it is taken apart only if the caller doesn't show
    it as it is.
    """
    whole = fingerprint(payload)
    if not refs and is_made(whole):
        return []
    if len(refs) < 2 or (not whole.plain and is_said(whole)):
        return [Atom(refs, payload, whole)]
    single = [wording(ref) for ref in refs]
    prints = [fingerprint(part) for part in single if part is not None]
    if not whole.plain:
        known = len(prints) == len(refs)
        parts = [
            Atom((ref,), part, fingerprint(part))
            for ref, part in zip(refs, single, strict=True)
            if part
        ]
        return parts if known else [Atom(refs, payload, whole)]
    if len(prints) == len(refs) and whole.text == GLUE.join(
        part.text for part in prints
    ):
        texts = [part.text for part in prints]
    else:
        texts = whole.text.split(GLUE)
    if len(texts) != len(refs) or not all(texts):
        return [Atom(refs, payload, whole)]
    return [
        Atom((ref,), worded(payload, text), whole._replace(text=text))
        for ref, text in zip(refs, texts, strict=True)
    ]


def is_made(said: Fingerprint) -> bool:
    """Whether this is nothing but what repair shows in the place of results."""
    if not said.answers or said.calls or said.other:
        return False
    return MADE.issuperset(said.text.split(GLUE)) and len(said.text.split(GLUE)) == len(
        said.answers
    )
