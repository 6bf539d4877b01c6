"""Matching: which stored message does each place of a caller's list show?

The second half of `reconcile`, whose docstring tells the whole story: what is left after the common
prefix is matched here. Known messages are *atoms* (a merged payload is taken apart where its seams
are known), presented payloads are *claims* (a merged text makes several). Passes run from certain
to likely; each takes atoms away from the next.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from holdfast.domain.message import Payload
from holdfast.domain.record.alignment import align
from holdfast.domain.record.edits import is_edit, is_shortened
from holdfast.domain.record.fingerprint import Fingerprint, fingerprint, is_same, stamp_of, worded
from holdfast.domain.repair import MADE

Wording = Callable[[str], Payload | None]
"""How the view words a message, by id; None when that isn't known."""

EDITED_AHEAD = 8
"""Among so many messages that are left between two matched places, the one that was edited is
looked for.
"""
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
        atom for payload, refs in shown for atom in _take_apart(payload, refs, wording, is_said)
    ]
    own, fused = _put_together(own, view)
    atoms, alias = _merge(own, [atom for atom in view if not used.intersection(atom.refs)])
    at = {id(atom): index for index, atom in enumerate(atoms)}
    at |= {part: at[id(atom)] for part, atom in fused.items()}
    objects: dict[int, list[tuple[Payload, list[int]]]] = {}
    for held, payload, parts in owned:
        if held is not None and parts:
            objects.setdefault(id(held), []).append((payload, [at[id(part)] for part in parts]))
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
        (index for index, atom in enumerate(own) if shown.intersection(atom.refs)), len(own)
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


def _put_together(own: list[Atom], view: Sequence[Atom]) -> tuple[list[Atom], dict[int, Atom]]:
    """Messages that a handle remembers apart and the caller now shows as the view does: words and
    calls in one.
    """
    places = {atom.refs: index for index, atom in enumerate(own)}
    fused: dict[int, Atom] = {}
    out: list[Atom | None] = list(own)
    for atom in view:
        first = places.get(atom.refs[:1]) if len(atom.refs) > 1 and not atom.print.plain else None
        parts = own[first : first + len(atom.refs)] if first is not None else []
        if parts and tuple(ref for part in parts for ref in part.refs) == atom.refs:
            fused |= {id(part): atom for part in parts}
            out[first : first + len(parts)] = [atom, *[None] * (len(parts) - 1)]  # type: ignore[operator]
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
    if len(prints) == len(refs) and whole.text == GLUE.join(part.text for part in prints):
        texts = [part.text for part in prints]
    else:
        texts = whole.text.split(GLUE)
    if len(texts) != len(refs) or not all(texts):
        return [Atom(refs, payload, whole)]
    return [
        Atom((ref,), worded(payload, text), whole._replace(text=text))
        for ref, text in zip(refs, texts, strict=True)
    ]


def match(
    body: Sequence[Payload], base: Base, *, by_stamp: Callable[[str], tuple[str, ...] | None]
) -> list[Match]:
    """The claims of all presented payloads, in order; those whose `refs` stay None say something
    new.
    """
    claims = _claim(body, base, by_stamp)
    _align(claims, base)
    _match_moved(claims, base)
    _match_calls(claims, base)
    _doubt_the_tail(claims, base)
    _match_answers(claims, base)
    for claim in claims:
        if claim.made and claim.refs is None:
            claim.refs = ()
    claims = _match_merged(claims, base)
    _match_edited(claims, base)
    return claims


def _claim(
    body: Sequence[Payload], base: Base, by_stamp: Callable[[str], tuple[str, ...] | None]
) -> list[Match]:
    """Each payload's claims, with those already matched that are certain: the same object, the same
    stamp.
    """
    claims: list[Match] = []
    stamps = _stamps(base)
    waiting: list[tuple[int, Payload, Fingerprint]] = []
    for at, payload in enumerate(body):
        said = fingerprint(payload)
        if is_made(said):
            claims.append(Match(at, said, made=True))
            continue
        entries = base.objects.get(id(payload))
        if entries and (found := _same_object(at, payload, said, entries, base)):
            claims += found
            continue
        stamp = stamp_of(payload)
        place = stamps.get(stamp) if stamp else None
        if (
            place is not None
            and not base.atoms[place].taken
            and base.atoms[place].print.role == said.role
        ):
            claims.append(_settle(Match(at, said, certain=True), place, base))
        elif stamp and stamp not in stamps and (refs := by_stamp(stamp)):
            claims.append(Match(at, said, refs=refs, certain=True))
        else:
            waiting.append((at, payload, said))
    for atom in base.atoms if base.spent else ():
        atom.taken |= any(ref in base.spent for ref in atom.refs)
    seams = _Seams(base.atoms)
    for at, _, said in waiting:
        claims += [Match(at, said._replace(text=text), text) for text in seams.cut(said)] or [
            Match(at, said)
        ]
    return sorted(claims, key=lambda claim: claim.at)


def is_made(said: Fingerprint) -> bool:
    """Whether this is nothing but what repair shows in the place of results."""
    if not said.answers or said.calls or said.other:
        return False
    return MADE.issuperset(said.text.split(GLUE)) and len(said.text.split(GLUE)) == len(
        said.answers
    )


def _stamps(base: Base) -> dict[str, int | None]:
    stamps: dict[str, int | None] = {}
    for place, atom in enumerate(base.atoms):
        if atom.refs and (stamp := stamp_of(atom.payload)):
            stamps[stamp] = None if stamp in stamps else place
    return stamps


def _same_object(
    at: int,
    payload: Payload,
    said: Fingerprint,
    entries: list[tuple[Payload, list[int]]],
    base: Base,
) -> list[Match]:
    """The object a handle has seen before: unchanged, grown by a merge, or reworded. Nothing if its
    role is another.
    """
    before, places = entries.pop(0)
    was = fingerprint(before)
    if was.role != said.role or any(base.atoms[place].taken for place in places):
        return []
    refs = tuple(ref for place in places for ref in base.atoms[place].refs)
    for place in places:
        base.atoms[place].taken = True
    first = Match(at, said, refs=refs, believed=before, place=places[0], certain=True)
    if (
        was.plain
        and said.plain
        and said.text.startswith(was.text + GLUE)
        and not is_same(before, payload)
    ):
        first.print, first.text = was, was.text
        rest = said.text[len(was.text + GLUE) :]
        more = _Seams(base.atoms).cut(said._replace(text=rest), least=1) or [rest]
        return [first, *(Match(at, said._replace(text=text), text) for text in more)]
    return [first]


class _Seams:
    """Finds the texts that were joined to one, if all of them are known and follow each other."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.texts: dict[str, list[str]] = {}
        self.starts: dict[tuple[str, str], list[int]] = {}
        self.sizes: set[tuple[str, int]] = set()
        for atom in atoms:
            role, text = atom.print.role, atom.print.text
            if atom.refs and atom.print.plain and not atom.taken:
                line = self.texts.setdefault(role, [])
                self.starts.setdefault((role, text), []).append(len(line))
                self.sizes.add((role, len(text)))
                line.append(text)

    def cut(self, said: Fingerprint, *, least: int = 2) -> list[str]:
        """The parts of a plain text, at least this many; nothing if it isn't made of known ones or
        is one itself.
        """
        text, role = said.text, said.role
        if not said.plain or (least > 1 and (GLUE not in text or (role, text) in self.starts)):
            return []
        for end in _paragraphs(text)[1][:-1]:
            if (role, end) in self.sizes:
                for start in self.starts.get((role, text[:end]), ())[:8]:
                    if parts := _follow(text, self.texts[role], start=start, glue=GLUE):
                        return parts
        return [text] if least == 1 and (role, text) in self.starts else []


def _settle(claim: Match, place: int, base: Base) -> Match:
    atom = base.atoms[place]
    atom.taken = True
    claim.refs, claim.believed, claim.place = atom.refs, atom.payload, place
    return claim


def _align(claims: Sequence[Match], base: Base) -> None:
    """Lays what is said beside what is known; certain matches hold their places in both."""
    certain = {claim.place for claim in claims if claim.place is not None}
    primary = {atom.print for atom in base.atoms}
    known: list[Any] = [
        place if place in certain else (None if atom.taken else atom.print)
        for place, atom in enumerate(base.atoms)
    ]
    said: list[Any] = []
    for claim in claims:
        if claim.refs is None:
            said.append(
                claim.print if claim.print in primary else base.alias.get(claim.print, claim.print)
            )
        else:
            said.append(-1 if claim.place is None else claim.place)
    for claim, place in zip(claims, align(known, said), strict=True):
        if place is not None and claim.refs is None:
            _settle(claim, place, base)


def _match_moved(claims: Sequence[Match], base: Base) -> None:
    """Known messages that changed their place: what says the same, in order."""
    left: dict[Fingerprint, list[int]] = {}
    for place in range(len(base.atoms) - 1, -1, -1):
        if not base.atoms[place].taken:
            left.setdefault(base.atoms[place].print, []).append(place)
    last = max((index for index, claim in enumerate(claims) if claim.refs is not None), default=-1)
    for index, claim in enumerate(claims):
        if claim.refs is None and (index < last or claim.print.calls) and left.get(claim.print):
            _settle(claim, left[claim.print].pop(), base)


def _match_calls(claims: Sequence[Match], base: Base) -> None:
    """The same calls under the same ids are the same message reworded; at the tail only with the
    same arguments.
    """
    left: dict[Any, list[int]] = {}
    for place, atom in enumerate(base.atoms):
        if atom.print.calls and atom.refs and not atom.taken:
            left.setdefault(_call_ids(atom.print), []).append(place)
    last = max((index for index, claim in enumerate(claims) if claim.place is not None), default=-1)
    reach = max((claim.place for claim in claims if claim.place is not None), default=-1)
    for index, claim in enumerate(claims):
        places = (
            left.get(_call_ids(claim.print), ()) if claim.refs is None and claim.print.calls else ()
        )
        if len(places) == 1 and not base.atoms[places[0]].taken:
            atom = base.atoms[places[0]]
            if index < last or places[0] > reach or atom.print.calls == claim.print.calls:
                _settle(claim, places[0], base)


def _call_ids(print: Fingerprint) -> tuple[Any, ...]:
    return (print.role, *((id, name) for id, name, _ in print.calls if id))


def _doubt_the_tail(claims: Sequence[Match], base: Base) -> None:
    """What stands after the newest known message and only *says* the same as an older one is new:
    keep both.
    """
    newest = max(
        (
            index
            for index, claim in enumerate(claims)
            if claim.place is not None and not claim.print.answers
        ),
        key=lambda index: claims[index].place or 0,
        default=len(claims),
    )
    for claim in claims[newest + 1 :]:
        if claim.place is not None and not (
            claim.certain or claim.print.calls or claim.print.answers
        ):
            base.atoms[claim.place].taken = False
            claim.refs = claim.believed = claim.place = None


def _match_answers(claims: Sequence[Match], base: Base) -> None:
    """A result follows its call: the one known answer to a call is what the caller shows as its
    answer, reworded, or came after repair had shown that there is none.
    """
    given: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    asked: dict[str, int] = {}
    for place, atom in enumerate(base.atoms):
        asked.update((id, place) for id, _, _ in atom.print.calls)
        if atom.print.answers and atom.refs and not atom.taken:
            owner = asked.get(atom.print.answers[0], -1)
            given.setdefault((owner, atom.print.answers), []).append(place)
    spoken: dict[str, int | None] = {}
    for claim in claims:
        spoken.update((id, claim.place if claim.refs else None) for id, _, _ in claim.print.calls)
        if claim.refs is None and claim.print.answers:
            asker = spoken.get(claim.print.answers[0], -1)
            places = given.get((asker, claim.print.answers), []) if asker is not None else []
            if len(places) == 1:
                _settle(claim, places.pop(), base)


def _match_merged(claims: Sequence[Match], base: Base) -> list[Match]:
    """Texts still unmatched with paragraphs in them that are missing just there: the known parts,
    the rest as new.
    """
    matched = [
        (index, claim.place) for index, claim in enumerate(claims) if claim.place is not None
    ]
    indexes = [index for index, _ in matched]
    gaps: dict[tuple[int, int, str], _Gap] = {}
    result: list[Match] = []
    reach = -1
    for index, claim in enumerate(claims):
        if claim.place is not None:
            reach = claim.place
        if (
            claim.refs is not None
            or claim.text is not None
            or not claim.print.plain
            or "\n" not in claim.print.text
        ):
            result.append(claim)
            continue
        after = bisect_right(indexes, index)
        end = matched[after][1] if after < len(matched) else len(base.atoms)
        where = (reach, end, claim.print.role)
        if where not in gaps:
            gaps[where] = _Gap(base, range(reach + 1, end), claim.print.role)
        result += gaps[where].cut(claim)
    return result


def _match_edited(claims: Sequence[Match], base: Base) -> None:
    """What is left between two matched places, on both sides, in order: a message there may have
    been edited.
    """
    before, start = -1, 0
    for index, claim in enumerate(claims):
        if claim.place is None:
            continue
        if before < claim.place and start < index:
            _match_stretch(claims[start:index], base, range(before + 1, claim.place), is_edit)
        before, start = claim.place, index + 1
    # At the end the next message known and the next one said may be the same, but nothing after
    # them says so.
    rest = [place for place in range(before + 1, len(base.atoms)) if _is_left(base.atoms[place])]
    if start < len(claims) and rest:
        _match_stretch(claims[start : start + 1], base, range(rest[0], rest[0] + 1), is_shortened)


def _match_stretch(
    claims: Sequence[Match],
    base: Base,
    places: range,
    fits: Callable[[Fingerprint, Fingerprint], bool],
) -> None:
    left = [place for place in places if _is_left(base.atoms[place])]
    next_one = 0
    for claim in claims:
        if claim.refs is not None or claim.text is not None:
            continue
        for ahead, place in enumerate(left[next_one : next_one + EDITED_AHEAD]):
            if fits(base.atoms[place].print, claim.print):
                _settle(claim, place, base)
                next_one += ahead + 1
                break


def _is_left(atom: Atom) -> bool:
    return bool(atom.refs) and not atom.taken


class _Gap:
    """The words of one role that are missing between two matched places."""

    def __init__(self, base: Base, places: range, role: str) -> None:
        self.base = base
        self.places = [
            place
            for place in places
            if self._is_missing(place) and base.atoms[place].print.role == role
        ]
        self.lines = [base.atoms[place].print.text for place in self.places]
        self.at: dict[str, list[int]] = {}
        for index, line in enumerate(self.lines):
            self.at.setdefault(line, []).append(index)
        self.longest = max((line.count(GLUE) + 1 for line in self.lines), default=0)

    def cut(self, claim: Match) -> list[Match]:
        """The claim as the known messages in it and the words between them; itself if there are
        none.
        """
        if self._cut_lines(claim):
            return [claim]
        text = claim.print.text
        starts, ends = _paragraphs(text)
        out: list[Match] = []
        done = at = 0
        while at < len(starts):
            known = self._known_from(text, starts[at], ends[at : at + self.longest])
            if known is None:
                at += 1
                continue
            if at > done:
                out.append(self._rest(claim, text[starts[done] : ends[at - 1]]))
            out.append(self._part(claim, known))
            at = done = at + self.lines[known].count(GLUE) + 1
        if not out:
            return [claim]
        if done < len(starts):
            out.append(self._rest(claim, text[starts[done] :]))
        return out

    def _known_from(self, text: str, start: int, ends: Sequence[int]) -> int | None:
        """A missing message that is said just here, up to the end of one of these paragraphs."""
        for end in ends:
            left = self.at.get(text[start:end], [])
            while left and not self._is_missing(self.places[left[0]]):
                left.pop(0)
            if left:
                return left.pop(0)
        return None

    def _rest(self, claim: Match, text: str) -> Match:
        return Match(claim.at, claim.print._replace(text=text), text)

    def _cut_lines(self, claim: Match) -> bool:
        """Whether it is missing messages joined by one line break: then the first is reworded to
        all of them.
        """
        text = claim.print.text
        end = text.find("\n")
        while end >= 0:
            for start in self.at.get(text[:end], ())[:8]:
                run = range(start, start + len(_follow(text, self.lines, start=start, glue="\n")))
                if run and all(self._is_missing(self.places[index]) for index in run):
                    for index in run:
                        self.base.atoms[self.places[index]].taken = True
                    _settle(claim, self.places[start], self.base)
                    return True
            end = text.find("\n", end + 1)
        return False

    def _part(self, claim: Match, index: int) -> Match:
        text = self.lines[index]
        return _settle(
            Match(claim.at, claim.print._replace(text=text), text), self.places[index], self.base
        )

    def _is_missing(self, place: int) -> bool:
        atom = self.base.atoms[place]
        return bool(atom.refs) and not atom.taken and atom.print.plain


def _paragraphs(text: str) -> tuple[list[int], list[int]]:
    """Where the paragraphs of a text begin, and where they end."""
    starts, ends = [0], []
    end = text.find(GLUE)
    while end >= 0:
        ends.append(end)
        starts.append(end + len(GLUE))
        end = text.find(GLUE, end + len(GLUE))
    return starts, [*ends, len(text)]


def _follow(text: str, lines: Sequence[str], *, start: int, glue: str) -> list[str]:
    """The lines from `start` on that, joined with `glue`, are exactly this text; nothing if there
    are none.
    """
    at = 0
    for index in range(start, len(lines)):
        if not text.startswith(lines[index], at):
            return []
        at += len(lines[index])
        if at == len(text):
            return list(lines[start : index + 1])
        if not text.startswith(glue, at):
            return []
        at += len(glue)
    return []
