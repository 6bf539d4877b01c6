"""Matching: which stored message does each place of a caller's list show?

What `reconcile` has left after the common prefix is matched here. Known messages are *atoms*,
presented payloads are *claims* (a merged text makes several). Passes run from certain to likely;
each takes atoms away from the next.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.domain.message import Payload
from holdfast.domain.record.alignment import align
from holdfast.domain.record.atoms import GLUE, Atom, Base, Match, is_made, settle
from holdfast.domain.record.edits import is_edit, is_shortened
from holdfast.domain.record.fingerprint import (
    Fingerprint,
    fingerprint,
    is_same,
    stamp_of,
)
from holdfast.domain.record.merged_texts import MissingTexts, Seams

EDITED_AHEAD = 8
"""Among so many messages that are left between two matched places, the one that was edited is
looked for.
"""


def match(
    body: Sequence[Payload],
    base: Base,
    *,
    by_stamp: Callable[[str], tuple[str, ...] | None],
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
    body: Sequence[Payload],
    base: Base,
    by_stamp: Callable[[str], tuple[str, ...] | None],
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
            claims.append(settle(Match(at, said, certain=True), place, base))
        elif stamp and stamp not in stamps and (refs := by_stamp(stamp)):
            claims.append(Match(at, said, refs=refs, certain=True))
        else:
            waiting.append((at, payload, said))
    for atom in base.atoms if base.spent else ():
        atom.taken |= any(ref in base.spent for ref in atom.refs)
    seams = Seams(base.atoms)
    for at, _, said in waiting:
        claims += [
            Match(at, said._replace(text=text), text) for text in seams.cut(said)
        ] or [Match(at, said)]
    return sorted(claims, key=lambda claim: claim.at)


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
        more = Seams(base.atoms).cut(said._replace(text=rest), least=1) or [rest]
        return [first, *(Match(at, said._replace(text=text), text) for text in more)]
    return [first]


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
                claim.print
                if claim.print in primary
                else base.alias.get(claim.print, claim.print)
            )
        else:
            said.append(-1 if claim.place is None else claim.place)
    for claim, place in zip(claims, align(known, said), strict=True):
        if place is not None and claim.refs is None:
            settle(claim, place, base)


def _match_moved(claims: Sequence[Match], base: Base) -> None:
    """Known messages that changed their place: what says the same, in order."""
    left: dict[Fingerprint, list[int]] = {}
    for place in range(len(base.atoms) - 1, -1, -1):
        if not base.atoms[place].taken:
            left.setdefault(base.atoms[place].print, []).append(place)
    last = max(
        (index for index, claim in enumerate(claims) if claim.refs is not None),
        default=-1,
    )
    for index, claim in enumerate(claims):
        if (
            claim.refs is None
            and (index < last or claim.print.calls)
            and left.get(claim.print)
        ):
            settle(claim, left[claim.print].pop(), base)


def _match_calls(claims: Sequence[Match], base: Base) -> None:
    """The same calls under the same ids are the same message reworded; at the tail only with the
    same arguments.
    """
    left: dict[Any, list[int]] = {}
    for place, atom in enumerate(base.atoms):
        if atom.print.calls and atom.refs and not atom.taken:
            left.setdefault(_call_ids(atom.print), []).append(place)
    last = max(
        (index for index, claim in enumerate(claims) if claim.place is not None),
        default=-1,
    )
    reach = max(
        (claim.place for claim in claims if claim.place is not None), default=-1
    )
    for index, claim in enumerate(claims):
        places = (
            left.get(_call_ids(claim.print), ())
            if claim.refs is None and claim.print.calls
            else ()
        )
        if len(places) == 1 and not base.atoms[places[0]].taken:
            atom = base.atoms[places[0]]
            if (
                index < last
                or places[0] > reach
                or atom.print.calls == claim.print.calls
            ):
                settle(claim, places[0], base)


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
        spoken.update(
            (id, claim.place if claim.refs else None) for id, _, _ in claim.print.calls
        )
        if claim.refs is None and claim.print.answers:
            asker = spoken.get(claim.print.answers[0], -1)
            places = (
                given.get((asker, claim.print.answers), []) if asker is not None else []
            )
            if len(places) == 1:
                settle(claim, places.pop(), base)


def _match_merged(claims: Sequence[Match], base: Base) -> list[Match]:
    """Texts still unmatched with paragraphs in them that are missing just there: the known parts,
    the rest as new.
    """
    matched = [
        (index, claim.place)
        for index, claim in enumerate(claims)
        if claim.place is not None
    ]
    indexes = [index for index, _ in matched]
    gaps: dict[tuple[int, int, str], MissingTexts] = {}
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
            gaps[where] = MissingTexts(base, range(reach + 1, end), claim.print.role)
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
            _match_stretch(
                claims[start:index], base, range(before + 1, claim.place), is_edit
            )
        before, start = claim.place, index + 1
    # At the end the next message known and the next one said may be the same, but nothing after
    # them says so.
    rest = [
        place
        for place in range(before + 1, len(base.atoms))
        if _is_left(base.atoms[place])
    ]
    if start < len(claims) and rest:
        _match_stretch(
            claims[start : start + 1], base, range(rest[0], rest[0] + 1), is_shortened
        )


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
                settle(claim, place, base)
                next_one += ahead + 1
                break


def _is_left(atom: Atom) -> bool:
    return bool(atom.refs) and not atom.taken
