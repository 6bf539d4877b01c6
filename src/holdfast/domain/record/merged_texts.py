"""Merged texts: the messages that a caller has joined to one text, found again in it.

`Seams` takes a text apart that is nothing but known messages, one after the other. `MissingTexts` finds the
messages that are missing between two matched places in a text that may say more than those.
"""

from collections.abc import Iterable, Sequence

from holdfast.domain.record.atoms import GLUE, Atom, Atoms, Base, Match, settle
from holdfast.domain.record.fingerprint import Fingerprint

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
