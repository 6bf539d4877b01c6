"""Matching: which stored message does each place of a caller's list show?

What `reconcile` has left after the common prefix is matched here. Known messages are *atoms*,
presented payloads are *claims* (a merged text makes several). Passes run from certain to likely;
each takes atoms away from the next. No pass lays two beside each other that have ids of their own,
and different ones (`Base.may_show`): those are two messages, whatever they say.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, partial
from typing import Any

from holdfast.domain.message import Payload, Payloads
from holdfast.domain.record.alignment import align
from holdfast.domain.record.atoms import GLUE, Atom, Base, Match, is_made, settle
from holdfast.domain.record.edits import is_edit, is_shortened
from holdfast.domain.record.fingerprint import (
    Fingerprint,
    Stamps,
    fingerprint,
    is_same,
    pieces_of,
    stamp_of,
    stamps_in,
)
from holdfast.domain.record.grouping import Refs
from holdfast.domain.record.merged_texts import Joined, MissingTexts, Seams

EDITED_AHEAD = 8
"""Among so many messages that are left between two matched places, the one that was edited is
looked for.
"""

ByStamp = Callable[[str], Refs | None]
"""The messages out of view whose payload has this id of its own."""
IsCalled = Callable[[str], bool]
"""Whether the list makes a call with this id before all that is matched here."""
Claims = Sequence[Match]


def match(
    body: Payloads, base: Base, *, by_stamp: ByStamp, is_called: IsCalled
) -> list[Match]:
    """The claims of all presented payloads, in order; those whose `refs` stay None say something
    new.
    """
    claims = _claim(body, base, by_stamp)
    _mark_strays(claims, base, is_called)
    # First what has no id: what has one may be any of the rest that has none.
    for stamped in (False, True):
        _align(claims, base, stamped=stamped)
    for stamped in (False, True):
        _match_moved(claims, base, stamped=stamped)
    _match_calls(claims, base)
    _doubt_the_tail(claims, base)
    _match_answers(claims, base)
    _match_strays(claims, base)
    for claim in claims:
        # Not before the answers: a real result may have come for it since.
        if claim.made and claim.refs is None:
            claim.refs = ()
    # Last what is only likely, for what nothing better has claimed.
    claims = _match_merged(claims, base)
    _match_edited(claims, base)
    return claims


def _claim(body: Payloads, base: Base, by_stamp: ByStamp) -> list[Match]:
    """Each payload's claims, with those already matched that are certain: the same object, the same
    stamp.
    """
    claims: list[Match] = []
    # Read only when something is joined: most lists have nothing like that in them.
    joined = cache(partial(Joined, body, base))
    named = _NamedByStamp(base, by_stamp, joined)
    waiting: list[tuple[int, Fingerprint]] = []
    for at, payload in enumerate(body):
        said = fingerprint(payload)
        if is_made(said):
            claims.append(Match(at, said, made=True))
            continue
        certain = _same_object(at, payload, said, base)
        if not certain and (stamp := stamp_of(payload)):
            certain = named.claim(at, said, stamp)
        claims += certain
        if not certain:
            waiting.append((at, said))
    # Only now: what is spent could be named by its object or its stamp.
    if base.spent:
        for atom in base.atoms:
            atom.taken |= not base.spent.isdisjoint(atom.refs)
    claims += _claim_parts(body, base, waiting, joined)
    return sorted(claims, key=lambda claim: claim.at)


def _claim_parts(
    body: Payloads,
    base: Base,
    waiting: Iterable[tuple[int, Fingerprint]],
    joined: Callable[[], Joined],
) -> list[Match]:
    """The claims of what nothing is certain of, with the known parts that it is made of."""
    claims: list[Match] = []
    texts_of_results = cache(partial(_texts_of_results, base))
    seams = Seams(base.atoms)
    known = {atom.print for atom in base.atoms}
    of_no_id: Seams | None = None
    for at, said in waiting:
        stamps = stamps_in(body[at])
        line = seams
        if stamps:
            of_no_id = line = of_no_id or Seams(_without_id(base))
        parts = _parts(at, said, line.cut(said), stamps=stamps)
        if said.calls and said not in known:
            parts = joined().with_calls(at, said, stamps)
        elif said.answers and said not in known:
            parts = _pieces(at, body[at], line, texts_of_results())
        claims += parts or [Match(at, said, stamps=stamps)]
    return claims


def _texts_of_results(base: Base) -> dict[Refs, str]:
    """What the known results say, by the calls that they answer."""
    return {
        atom.print.answers: atom.print.text
        for atom in base.atoms
        if atom.print.answers and atom.is_left
    }


def _pieces(
    at: int, payload: Payload, line: Seams, results: dict[Refs, str]
) -> list[Match]:
    """Results and words that a context has put into one payload, each as what it is; nothing if
    there is more in it than is known, unless that stands beside what repair had shown.
    """
    claims: list[Match] = []
    is_known, made = True, False
    stamps = stamps_in(payload)
    for piece in pieces_of(payload):
        said = fingerprint(piece)
        if said.answers:
            claim = Match(at, said, said.text, made=is_made(said), piece=piece)
            claims.append(claim)
            made |= claim.made
            is_known &= claim.made or results.get(said.answers) == said.text
            continue
        texts = line.cut(said, least=1)
        is_known &= bool(texts)
        claims += _parts(at, said, texts, stamps=stamps) or [
            Match(at, said, stamps=stamps, piece=piece)
        ]
    return claims if is_known or made else []


def _without_id(base: Base) -> list[Atom]:
    """What has no id of its own: nothing else can be in a text that has one, and an unknown one."""
    return [atom for place, atom in enumerate(base.atoms) if not base.stamps_at(place)]


def _parts(
    at: int, said: Fingerprint, texts: Sequence[str], *, stamps: Stamps = ()
) -> list[Match]:
    return [Match(at, said._replace(text=text), text, stamps=stamps) for text in texts]


class _NamedByStamp:
    """The messages that payloads name by an id of their own."""

    def __init__(
        self, base: Base, by_stamp: ByStamp, joined: Callable[[], Joined]
    ) -> None:
        self._base = base
        self._joined = joined
        self._by_stamp = by_stamp

    def claim(self, at: int, said: Fingerprint, stamp: str) -> list[Match]:
        """The payload at this place as the one message that has its id, and those that were joined
        to it; nothing if there is none, or its role is another.
        """
        if stamp in self._places:
            place = self._places[stamp]
        else:
            refs = self._by_stamp(stamp)
            if not refs:
                return []
            # What was taken out of a merged payload is known without its id.
            place = self._places_by_refs.get(refs)
            if place is None:
                return [Match(at, said, refs=refs, certain=True)]
        if place is None:
            return []
        atom = self._base.atoms[place]
        if atom.taken or atom.print.role != said.role:
            return []
        # It says just that: as nearly all do that have an id.
        if said != atom.print:
            joined = self._joined().after_named(at, said, place)
            if joined:
                return joined
        return [settle(Match(at, said, certain=True), place, self._base)]

    # All read only when a payload has an id: most have none.
    @cached_property
    def _places(self) -> dict[str, int | None]:
        """Places of atoms by their payload's own id; None where several have it."""
        places: dict[str, int | None] = {}
        for place, atom in enumerate(self._base.atoms):
            if atom.refs and (stamp := stamp_of(atom.payload)):
                # Two messages with one stamp: it names neither.
                places[stamp] = None if stamp in places else place
        return places

    @cached_property
    def _places_by_refs(self) -> dict[Refs, int]:
        return {atom.refs: place for place, atom in enumerate(self._base.atoms)}


def _same_object(
    at: int, payload: Payload, said: Fingerprint, base: Base
) -> list[Match]:
    """The object a handle has seen before: unchanged, grown by a merge, or reworded. Nothing if its
    role is another, or its id.
    """
    presented = base.objects.get(id(payload))
    if not presented:
        return []
    # An object that stood twice in a list showed two messages, in this order.
    before, places = presented.pop(0)
    was = fingerprint(before)
    atoms = [base.atoms[place] for place in places]
    if was.role != said.role or any(atom.taken for atom in atoms):
        return []
    ids_were, ids_are = stamps_in(before), stamps_in(payload)
    if ids_were and ids_are and set(ids_were).isdisjoint(ids_are):
        return []
    refs: Refs = ()
    for atom in atoms:
        refs += atom.refs
        atom.taken = True
    first = Match(at, said, refs=refs, believed=before, place=places[0], certain=True)
    start = was.text + GLUE
    has_grown = was.plain and said.plain and said.text.startswith(start)
    if not has_grown or is_same(before, payload):
        return [first]
    # It goes on after a blank line: that message, and others that were joined to it.
    first.print = was
    first.text = was.text
    rest = said.text[len(start) :]
    texts = Seams(base.atoms).cut(said._replace(text=rest), least=1) or [rest]
    return [first, *_parts(at, said, texts)]


def _mark_strays(claims: Claims, base: Base, is_called: IsCalled) -> None:
    """Finds the results that do not stand behind their calls, since the list was reordered or has the
    call no more. Their places say nothing of what stands beside them.
    """
    if not any(atom.print.answers and atom.is_left for atom in base.atoms):
        return
    called: set[str] = set()
    for claim in claims:
        called.update(id for id, _, _ in claim.print.calls)
        if claim.print.answers and claim.refs is None and not claim.made:
            id = claim.print.answers[0]
            claim.stray = id not in called and not is_called(id)


def _waits(claim: Match, *, stamped: bool) -> bool:
    """Whether nothing was found for this claim yet, and it has an id of its own, or has none."""
    return claim.refs is None and not claim.stray and bool(claim.stamps) is stamped


class _Sameness:
    """By what a claim and an atom are told to say the same: keys that are equal then.

    What has no id may be any message. What has one is a message with that id, if there is any, or
    one without an id.
    """

    def __init__(self, claims: Claims, base: Base, *, stamped: bool) -> None:
        self._base = base
        self._primary = {atom.print for atom in base.atoms}
        self._stamped = stamped
        self._owners: dict[str, Stamps] = {}
        if stamped:
            said = {self._print(claim) for claim in claims if claim.stamps}
            for place, atom in enumerate(base.atoms):
                if atom.print in said:
                    stamps = base.stamps_at(place)
                    self._owners.update(dict.fromkeys(stamps, stamps))
            self._said = said

    def _print(self, claim: Match) -> Fingerprint:
        if claim.print in self._primary:
            return claim.print
        return self._base.alias.get(claim.print, claim.print)

    def of_claim(self, claim: Match) -> Any:
        print = self._print(claim)
        for stamp in claim.stamps:
            if stamp in self._owners:
                return print, self._owners[stamp]
        return print

    def of_atom(self, place: int) -> Any:
        print = self._base.atoms[place].print
        if self._stamped and print in self._said:
            stamps = self._base.stamps_at(place)
            return (print, stamps) if stamps else print
        return print


def _align(claims: Claims, base: Base, *, stamped: bool) -> None:
    """Lays what is said beside what is known; what is matched holds its place in both."""
    if not any(_waits(claim, stamped=stamped) for claim in claims):
        return
    key = _Sameness(claims, base, stamped=stamped)
    # Taken atoms say nothing that could be matched, but those that were matched hold the
    # order.
    held = {claim.place for claim in claims if claim.place is not None}
    known: list[Any] = []
    for place, atom in enumerate(base.atoms):
        if place in held:
            known.append(place)
        else:
            known.append(None if atom.taken else key.of_atom(place))
    said: list[Any] = []
    for claim in claims:
        if _waits(claim, stamped=stamped):
            said.append(key.of_claim(claim))
        else:
            # A place, which nothing but itself equals; -1 lies beside nothing.
            said.append(-1 if claim.place is None else claim.place)
    for claim, beside in zip(claims, align(known, said), strict=True):
        if beside is not None and claim.refs is None:
            settle(claim, beside, base)


def _match_moved(claims: Claims, base: Base, *, stamped: bool) -> None:
    """Known messages that changed their place: what says the same, in order."""
    if not any(_waits(claim, stamped=stamped) for claim in claims):
        return
    key = _Sameness(claims, base, stamped=stamped)
    left: dict[Any, list[int]] = {}
    for place in reversed(range(len(base.atoms))):
        if not base.atoms[place].taken:
            left.setdefault(key.of_atom(place), []).append(place)
    known = [index for index, claim in enumerate(claims) if claim.refs is not None]
    last = known[-1] if known else -1
    for index, claim in enumerate(claims):
        if not _waits(claim, stamped=stamped):
            continue
        places = left.get(key.of_claim(claim))
        # What follows all that is known says it anew, unless it makes calls: those have ids.
        if places and (index < last or claim.print.calls):
            settle(claim, places.pop(), base)


def _matched(claims: Claims) -> list[tuple[int, int]]:
    """Which claims have a place among the atoms: index and place, in the order of the list."""
    return [
        (index, claim.place)
        for index, claim in enumerate(claims)
        if claim.place is not None
    ]


def _match_calls(claims: Claims, base: Base) -> None:
    """The same calls under the same ids are the same message reworded; at the tail only with the
    same arguments.
    """
    left: dict[Any, list[int]] = {}
    for place, atom in enumerate(base.atoms):
        if atom.print.calls and atom.is_left:
            left.setdefault(_call_ids(atom.print), []).append(place)
    matched = [(-1, -1), *_matched(claims)]
    last = matched[-1][0]
    reach = max(place for _, place in matched)
    for index, claim in enumerate(claims):
        if claim.refs is not None or not claim.print.calls:
            continue
        places = left.get(_call_ids(claim.print), ())
        # Which of several it is nobody can say.
        if len(places) != 1 or base.atoms[places[0]].taken:
            continue
        if not base.may_show(claim, places[0]):
            continue
        is_tail = index >= last and places[0] <= reach
        if not is_tail or base.atoms[places[0]].print.calls == claim.print.calls:
            settle(claim, places[0], base)


def _call_ids(print: Fingerprint) -> tuple[Any, ...]:
    return (print.role, *((id, name) for id, name, _ in print.calls if id))


def _doubt_the_tail(claims: Claims, base: Base) -> None:
    """What stands after the newest known message and only *says* the same as an older one is new:
    keep both.
    """
    newest = len(claims)
    reach = -1
    for index, place in _matched(claims):
        # A result follows its call wherever that stands, so its place says nothing.
        if place > reach and not claims[index].print.answers:
            newest = index
            reach = place
    # What has an id of its own, or a call's, is known by that and not by its words.
    for claim in claims[newest + 1 :]:
        by_ids = claim.print.calls or claim.print.answers
        if claim.place is not None and not claim.certain and not by_ids:
            base.atoms[claim.place].taken = False
            claim.refs = claim.believed = claim.place = None


def _match_answers(claims: Claims, base: Base) -> None:
    """A result follows its call: the one known answer to a call is what the caller shows as its
    answer, reworded, or came after repair had shown that there is none. Of several calls at once:
    in whatever order they are answered.
    """
    given: dict[tuple[int, Refs], list[int]] = {}
    asked: dict[str, int] = {}
    for place, atom in enumerate(base.atoms):
        for id, _, _ in atom.print.calls:
            asked[id] = place
        answers = _answered(atom.print)
        if answers and atom.is_left:
            given.setdefault((asked.get(answers[0], -1), answers), []).append(place)
    spoken: dict[str, int | None] = {}
    for claim in claims:
        for id, _, _ in claim.print.calls:
            spoken[id] = claim.place if claim.refs else None
        answers = _answered(claim.print)
        if claim.refs is not None or not answers:
            continue
        asker = spoken.get(answers[0], -1)
        # None: the call is new itself, so no known result answers it.
        if asker is None:
            continue
        places = given.get((asker, answers), [])
        if len(places) == 1 and base.may_show(claim, places[0]):
            settle(claim, places.pop(), base)


def _answered(said: Fingerprint) -> tuple[str, ...]:
    """The calls that it answers. Tools that run at once are done in any order, and a context has
    their results in the order of the calls.
    """
    return tuple(sorted(said.answers))


def _match_strays(claims: Claims, base: Base) -> None:
    """A result that does not stand behind its call is the known answer to a call with this id that
    says the same.
    """
    left: dict[Fingerprint, list[int]] = {}
    for place, atom in enumerate(base.atoms):
        if atom.print.answers and atom.is_left:
            left.setdefault(atom.print, []).append(place)
    for claim in claims:
        places = left.get(claim.print, [])
        if not claim.stray or claim.refs is not None or not places:
            continue
        if base.may_show(claim, places[0]):
            settle(claim, places.pop(0), base)


def _match_merged(claims: Claims, base: Base) -> list[Match]:
    """Texts still unmatched with paragraphs in them that are missing just there: the known parts,
    the rest as new.
    """
    matched = [(-1, -1), *_matched(claims), (len(claims), len(base.atoms))]
    indexes = [index for index, _ in matched]
    gaps: dict[tuple[int, str, bool], MissingTexts] = {}
    result: list[Match] = []
    for index, claim in enumerate(claims):
        if not _may_be_merged(claim):
            result.append(claim)
            continue
        after = bisect_right(indexes, index)
        where = (after, claim.print.role, bool(claim.stamps))
        if where not in gaps:
            places: Iterable[int] = range(matched[after - 1][1] + 1, matched[after][1])
            if claim.stamps:
                places = [place for place in places if not base.stamps_at(place)]
            gaps[where] = MissingTexts(base, places, claim.print.role)
        result += gaps[where].cut(claim)
    return result


def _may_be_merged(claim: Match) -> bool:
    if claim.refs is not None or claim.text is not None:
        return False
    return claim.print.plain and "\n" in claim.print.text


def _match_edited(claims: Claims, base: Base) -> None:
    """What is left between two matched places, on both sides, in order: a message there may have
    been edited.
    """
    before = -1
    start = 0
    for index, place in _matched(claims):
        between = range(before + 1, place)
        _match_stretch(claims[start:index], base, between, is_edit)
        before = place
        start = index + 1
    # At the end the next message known and the next one said may be the same, but nothing after
    # them says so.
    for place in range(before + 1, len(base.atoms)):
        if base.atoms[place].is_left:
            next_one = range(place, place + 1)
            _match_stretch(claims[start : start + 1], base, next_one, is_shortened)
            return


def _match_stretch(
    claims: Claims,
    base: Base,
    places: range,
    fits: Callable[[Fingerprint, Fingerprint], bool],
) -> None:
    left = [place for place in places if base.atoms[place].is_left]
    for claim in claims:
        if claim.refs is not None or claim.text is not None:
            continue
        for ahead, place in enumerate(left[:EDITED_AHEAD]):
            if base.may_show(claim, place) and fits(
                base.atoms[place].print, claim.print
            ):
                settle(claim, place, base)
                # Edits keep their order: the next one is looked for after this.
                del left[: ahead + 1]
                break
