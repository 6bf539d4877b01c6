"""Atoms: what is known, message by message, so that a caller's list can be matched to it.

A known message is an *atom*; a merged payload is taken apart where its seams are known. `layers`
lays all atoms in one order.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from functools import cached_property

import msgspec

from holdfast.domain.message import Payload, Payloads
from holdfast.domain.record.fingerprint import (
    Fingerprint,
    Stamps,
    fingerprint,
    pieces_of,
    stamps_in,
    worded,
)
from holdfast.domain.record.grouping import Refs
from holdfast.domain.repair import MADE

Wording = Callable[[str], Payload | None]
"""How the view words a message, by id; None when that isn't known."""
StampsOf = Callable[[str], Stamps]
"""The ids that a message's payloads have of their own, by its id."""

GLUE = "\n\n"
"""What a context puts between two messages of one role when it joins them."""


class Atom(msgspec.Struct):
    """One known message; several where a merged payload has seams nobody knows, none where repair
    made it.
    """

    refs: Refs
    payload: Payload
    print: Fingerprint
    taken: bool = False

    @property
    def is_left(self) -> bool:
        """Whether it is a message, and nothing in the list has turned out to show it yet."""
        return bool(self.refs) and not self.taken


Atoms = Sequence[Atom]


class Match(msgspec.Struct):
    """A presented payload, or a stretch of its text, and the message it turned out to show.

    `at` is the place in the presented list, `text` the stretch (None: the whole payload), `place`
    the atom's place, `believed` the wording it was matched by. `certain`: by object or stamp, not
    by what it says. `made`: it is what repair shows in the place of a result. `stamps`: the
    payload's own ids, unless what was joined to a known message is meant. `piece`: what it is a
    claim of, where results and words of one payload are looked at one by one. `stray`: a result that
    does not stand behind its call.
    """

    at: int
    print: Fingerprint
    text: str | None = None
    refs: Refs | None = None
    believed: Payload | None = None
    place: int | None = None
    certain: bool = False
    made: bool = False
    stamps: Stamps = ()
    piece: Payload | None = None
    stray: bool = False


Presented = tuple[Payload, list[int]]
"""What an object of the caller's said, and the places of the atoms that it showed."""


class Base(msgspec.Struct):
    """The known messages in one order. `objects`: the caller's objects and the places of the atoms
    they showed. `alias`: another wording of an atom to the one it is aligned by. `spent`: messages
    that only their object or their stamp can name. `stamps_of`: the ids a message is known to have
    of its own, whatever it is remembered by.
    """

    atoms: list[Atom]
    objects: dict[int, list[Presented]]
    alias: dict[Fingerprint, Fingerprint]
    spent: Set[str]
    stamps_of: StampsOf
    stamps: dict[int, Stamps] = {}

    def stamps_at(self, place: int) -> Stamps:
        """The ids that the message at this place has of its own: nothing with others is it."""
        # Read only when something with an id may be this one: most payloads have none.
        if place not in self.stamps:
            atom = self.atoms[place]
            found = _apart_from(atom.refs, stamps_in(atom.payload))
            for ref in () if found else atom.refs:
                found += _apart_from(atom.refs, self.stamps_of(ref))
            self.stamps[place] = found
        return self.stamps[place]

    def may_show(self, claim: Match, place: int) -> bool:
        """Whether the ids allow it: two messages with different ids are two, whatever they say."""
        if not claim.stamps:
            return True
        stamps = self.stamps_at(place)
        return not stamps or not set(stamps).isdisjoint(claim.stamps)


def _apart_from(refs: Refs, stamps: Stamps) -> Stamps:
    """These ids without our own, which some formats show: no caller gave them."""
    return tuple(stamp for stamp in stamps if stamp not in refs)


def settle(claim: Match, place: int, base: Base) -> Match:
    atom = base.atoms[place]
    atom.taken = True
    claim.refs = atom.refs
    claim.believed = atom.payload
    claim.place = place
    return claim


class KnownSeams:
    """Takes merged payloads apart, where the view's wordings or the paragraphs tell the seams."""

    def __init__(self, wording: Wording, said: Payloads) -> None:
        self._wording = wording
        self._said = said

    # Read only when it is asked for: most lists have nothing merged in them.
    @cached_property
    def _said_exactly(self) -> set[Fingerprint]:
        return set(map(fingerprint, self._said))

    def take_apart(self, payload: Payload, refs: Refs) -> list[Atom]:
        """A merged payload as its messages, if its seams are known: by their own wordings, or as
        each is one paragraph. One with more than words in it is taken apart only if the caller
        doesn't show it as it is.
        """
        whole = fingerprint(payload)
        if not refs and is_made(whole):
            return []
        one = [Atom(refs, payload, whole)]
        if len(refs) < 2:
            return one
        parts = self.single(refs)
        # Thoughts say nothing beside words and calls, and are a message where they stand by themselves.
        thoughts = [atom.print for atom in parts if atom.print.other]
        if thoughts and not self._said_exactly.isdisjoint(thoughts):
            return parts
        if whole.plain:
            return self._by_texts(payload, whole, refs, parts) or one
        if whole in self._said_exactly:
            return one
        return [atom for atom in parts if atom.payload] or one

    def _by_texts(
        self, payload: Payload, whole: Fingerprint, refs: Refs, parts: Sequence[Atom]
    ) -> list[Atom]:
        texts = [atom.print.text for atom in parts]
        if GLUE.join(texts) != whole.text:
            texts = whole.text.split(GLUE)
        if len(texts) != len(refs) or not all(texts):
            return []
        # What a context shows among the words of another role, as Anthropic's has it of a system message
        # in the middle, the caller may have by itself.
        apart = {atom.refs: atom for atom in parts if atom.print.role != whole.role}
        atoms = []
        for ref, text in zip(refs, texts, strict=True):
            atom = apart.get((ref,))
            if atom is None or atom.print not in self._said_exactly:
                print = whole._replace(text=text)
                atom = Atom((ref,), worded(payload, text), print)
            atoms.append(atom)
        return atoms

    def single(self, refs: Iterable[str]) -> list[Atom]:
        """These messages in their own wordings; nothing if one of those is not known."""
        atoms = []
        for ref in refs:
            part = self._wording(ref)
            if part is None:
                return []
            atoms.append(Atom((ref,), part, fingerprint(part)))
        return atoms


def is_made(said: Fingerprint) -> bool:
    """Whether this is nothing but what repair shows in the place of results."""
    if not said.answers or said.calls or said.other:
        return False
    texts = said.text.split(GLUE)
    return len(texts) == len(said.answers) and MADE.issuperset(texts)


def without_made(payload: Payload) -> Payload:
    """The payload without what repair has shown in it in the place of results; itself if that is
    nothing, or all.
    """
    if not isinstance(payload, dict):
        return payload
    pieces = pieces_of(payload)
    said = [piece for piece in pieces if not is_made(fingerprint(piece))]
    if not said or len(said) == len(pieces):
        return payload
    key = "parts" if "parts" in payload else "content"
    return {**payload, key: [block for piece in said for block in piece[key]]}
