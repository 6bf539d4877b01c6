"""Merged texts: the messages that a caller has joined to one text, found again in it.

`Seams` takes a text apart that is nothing but known messages, one after the other. `MissingTexts` finds the
messages that are missing between two matched places in a text that may say more than those.
`Joined` finds those that stand in one payload with calls, or after the message that a payload names
by its id: a context that joins messages gives the whole the id of the first.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

from holdfast.domain.message import Payloads
from holdfast.domain.record.atoms import GLUE, Atom, Atoms, Base, Match, settle
from holdfast.domain.record.fingerprint import (
    Fingerprint,
    Stamps,
    fingerprint,
    same_calls,
    stamps_in,
)
from holdfast.domain.record.grouping import Refs

STARTS_MAX = 8
"""So many equal texts are tried as the first of a merged one: in a log of thousands of "yes" each
would otherwise be.
"""


class Seams:
    """Finds the texts that were joined to one, if all of them are known and follow each other."""

    def __init__(self, atoms: Atoms) -> None:
        self.texts: dict[str, list[str]] = {}
        self.starts: dict[tuple[str, str], list[int]] = {}
        self.sizes: set[tuple[str, int]] = set()
        for atom in atoms:
            if _is_missing(atom):
                role, text, *_ = atom.print
                line = self.texts.setdefault(role, [])
                self.starts.setdefault((role, text), []).append(len(line))
                self.sizes.add((role, len(text)))
                line.append(text)

    def cut(self, said: Fingerprint, *, least: int = 2) -> list[str]:
        """The parts of a plain text, at least this many; nothing if it isn't made of known ones or
        is one itself.
        """
        if not said.plain:
            return []
        role, text, *_ = said
        is_one = (role, text) in self.starts
        if least > 1 and (is_one or GLUE not in text):
            return []
        for end in _paragraphs(text)[1][:-1]:
            # A long text is sliced only where a known one of that length could end.
            if (role, end) in self.sizes:
                starts = self.starts.get((role, text[:end]), ())
                run = _run(text, self.texts[role], starts, glue=GLUE)
                if run:
                    return self.texts[role][run.start : run.stop]
        return [text] if is_one else []


class MissingTexts:
    """The words of one role that are missing between two matched places."""

    def __init__(self, base: Base, places: Iterable[int], role: str) -> None:
        self.base = base
        self.places: list[int] = []
        self.lines: list[str] = []
        self.at: dict[str, list[int]] = {}
        self.longest = 0
        for place in places:
            print = base.atoms[place].print
            if print.role == role and _is_missing(base.atoms[place]):
                self.at.setdefault(print.text, []).append(len(self.lines))
                self.places.append(place)
                self.lines.append(print.text)
                self.longest = max(self.longest, print.text.count(GLUE) + 1)

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
                out.append(_part(claim, text[starts[done] : ends[at - 1]]))
            part = _part(claim, self.lines[known])
            out.append(settle(part, self.places[known], self.base))
            at = done = at + self.lines[known].count(GLUE) + 1
        if not out:
            return [claim]
        if done < len(starts):
            out.append(_part(claim, text[starts[done] :]))
        return out

    def _known_from(self, text: str, start: int, ends: Sequence[int]) -> int | None:
        """A missing message that is said just here, up to the end of one of these paragraphs."""
        for end in ends:
            left = self.at.get(text[start:end], [])
            # Another text of the list has shown it meanwhile.
            while left and not self._is_left(left[0]):
                left.pop(0)
            if left:
                return left.pop(0)
        return None

    def _cut_lines(self, claim: Match) -> bool:
        """Whether it is missing messages joined by one line break: then the first is reworded to
        all of them.
        """
        text = claim.print.text
        end = text.find("\n")
        while end >= 0:
            for start in self.at.get(text[:end], ())[:STARTS_MAX]:
                run = _run(text, self.lines, [start], glue="\n")
                if run and all(map(self._is_left, run)):
                    for index in run:
                        # All of them are in this text, though only the first carries
                        # its words.
                        self.base.atoms[self.places[index]].taken = True
                    settle(claim, self.places[start], self.base)
                    return True
            end = text.find("\n", end + 1)
        return False

    def _is_left(self, index: int) -> bool:
        return _is_missing(self.base.atoms[self.places[index]])


class Joined:
    """The messages that stand in one payload, one after the other: words, or words and calls."""

    def __init__(self, body: Payloads, base: Base) -> None:
        self._base = base
        self._stamps = {stamp for payload in body for stamp in stamps_in(payload)}
        # What the list shows by itself as often as it is known is in no other payload.
        self._spare = Counter(atom.print for atom in base.atoms if atom.is_left)
        self._spare.subtract(map(fingerprint, body))

    def after_named(self, at: int, said: Fingerprint, named: int) -> list[Match]:
        """A payload that says what the message at the place `named` says, and then what others say
        that come after it, as all of these and what it says besides; nothing if it doesn't.
        """
        places, rest = self._run(said, named)
        if len(places) < 2:
            return []
        if said.plain:
            parts = [self._part(at, said, place) for place in places]
            return parts if is_empty(rest) else [*parts, Match(at, rest, rest.text)]
        return [self._whole(at, said, places)] if is_empty(rest) else []

    def with_calls(self, at: int, said: Fingerprint, stamps: Stamps) -> list[Match]:
        """A payload with calls that is nothing but several known messages, as all of these; nothing
        if it isn't.
        """
        for start in self._starts(said)[:STARTS_MAX]:
            places, rest = self._run(said, start)
            claim = Match(at, said, stamps=stamps)
            may_be = all(self._base.may_show(claim, place) for place in places)
            if len(places) > 1 and is_empty(rest) and may_be:
                return [self._whole(at, said, places)]
        return []

    def _starts(self, said: Fingerprint) -> list[int]:
        """The places of messages that a payload may begin with."""
        first = said.calls[0][:2]
        starts = [*self._by_beginning.get((said.role, "", first), ())]
        for end in _paragraphs(said.text)[1]:
            for call in (None, first):
                starts += self._by_beginning.get((said.role, said.text[:end], call), ())
        return sorted(starts)

    @cached_property
    def _by_beginning(self) -> dict[tuple[str, str, tuple[str, str] | None], list[int]]:
        """Places by role, text, and the id and the name of the first call."""
        places: dict[tuple[str, str, tuple[str, str] | None], list[int]] = {}
        for place, atom in enumerate(self._base.atoms):
            role, text, calls, *_ = atom.print
            first = calls[0][:2] if calls else None
            places.setdefault((role, text, first), []).append(place)
        return places

    def _run(self, said: Fingerprint, start: int) -> tuple[list[int], Fingerprint]:
        """The places of the messages that the payload is made of, from this one on, and what it
        says besides.
        """
        atoms = self._base.atoms
        rest = after(atoms[start].print, said)
        if rest is None or atoms[start].taken:
            return [], said
        places = [start]
        for place in range(start + 1, len(atoms)):
            if is_empty(rest):
                break
            left = after(atoms[place].print, rest)
            if left is not None and self._may_be_joined(place):
                places.append(place)
                rest = left
        return places, rest

    def _may_be_joined(self, place: int) -> bool:
        atom = self._base.atoms[place]
        if not atom.is_left or self._spare[atom.print] < 1:
            return False
        return self._stamps.isdisjoint(self._base.stamps_at(place))

    def _part(self, at: int, said: Fingerprint, place: int) -> Match:
        text = self._base.atoms[place].print.text
        part = Match(at, said._replace(text=text), text, certain=True)
        return settle(part, place, self._base)

    def _whole(self, at: int, said: Fingerprint, places: Sequence[int]) -> Match:
        refs: Refs = ()
        for place in places:
            refs += self._base.atoms[place].refs
            self._base.atoms[place].taken = True
        return Match(at, said, refs=refs, place=places[0], certain=True)


def after(beginning: Fingerprint, said: Fingerprint) -> Fingerprint | None:
    """What is said after this beginning; None if it doesn't begin so."""
    if beginning.role != said.role or is_empty(beginning):
        return None
    text = said.text
    if beginning.text:
        end = len(beginning.text)
        goes_on = text.startswith(GLUE, end)
        if not text.startswith(beginning.text) or not (goes_on or end == len(text)):
            return None
        text = text[end + len(GLUE) :]
    if not same_calls(beginning.calls, said.calls[: len(beginning.calls)]):
        return None
    for part, whole in zip(beginning[3:], said[3:], strict=True):
        if whole[: len(part)] != part:
            return None
    return Fingerprint(
        said.role,
        text,
        said.calls[len(beginning.calls) :],
        said.answers[len(beginning.answers) :],
        said.other[len(beginning.other) :],
    )


def is_empty(said: Fingerprint) -> bool:
    return not any(said[1:])


def holds_more(said: Fingerprint, known: Fingerprint) -> bool:
    """Whether all of a known message is in this, and something besides."""
    # Words stand beside a result under another role than its own.
    if said[1:] == known[1:] or (said.role != known.role and not known.answers):
        return False
    in_lines = f"{GLUE}{known.text}{GLUE}" in f"{GLUE}{said.text}{GLUE}"
    calls = {call[:2] for call in said.calls}
    return (in_lines or not known.text) and calls.issuperset(
        call[:2] for call in known.calls
    )


def _is_missing(atom: Atom) -> bool:
    return atom.is_left and atom.print.plain


def _part(claim: Match, text: str) -> Match:
    print = claim.print._replace(text=text)
    return Match(claim.at, print, text, stamps=claim.stamps)


def _paragraphs(text: str) -> tuple[list[int], list[int]]:
    """Where the paragraphs of a text begin, and where they end."""
    starts, ends = [0], []
    end = text.find(GLUE)
    while end >= 0:
        ends.append(end)
        starts.append(end + len(GLUE))
        end = text.find(GLUE, end + len(GLUE))
    return starts, [*ends, len(text)]


def _run(text: str, lines: Sequence[str], starts: Sequence[int], *, glue: str) -> range:
    """The lines that, joined with `glue`, are exactly this text, from one of these starts on; none
    if there are none.
    """
    for start in starts[:STARTS_MAX]:
        at = 0
        for index in range(start, len(lines)):
            if not text.startswith(lines[index], at):
                break
            at += len(lines[index])
            if at == len(text):
                return range(start, index + 1)
            if not text.startswith(glue, at):
                break
            at += len(glue)
    return range(0)
