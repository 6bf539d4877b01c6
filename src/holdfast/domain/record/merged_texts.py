"""Merged texts: the messages that a caller has joined to one text, found again in it.

`Seams` takes a text apart that is nothing but known messages, one after the other. `MissingTexts` finds the
messages that are missing between two matched places in a text that may say more than those.
"""

from collections.abc import Sequence

from holdfast.domain.record.atoms import GLUE, Atom, Base, Match, settle
from holdfast.domain.record.fingerprint import Fingerprint


class Seams:
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
        if not said.plain or (
            least > 1 and (GLUE not in text or (role, text) in self.starts)
        ):
            return []
        for end in _paragraphs(text)[1][:-1]:
            if (role, end) in self.sizes:
                for start in self.starts.get((role, text[:end]), ())[:8]:
                    if parts := _follow(text, self.texts[role], start=start, glue=GLUE):
                        return parts
        return [text] if least == 1 and (role, text) in self.starts else []


class MissingTexts:
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
                run = range(
                    start,
                    start + len(_follow(text, self.lines, start=start, glue="\n")),
                )
                if run and all(self._is_missing(self.places[index]) for index in run):
                    for index in run:
                        self.base.atoms[self.places[index]].taken = True
                    settle(claim, self.places[start], self.base)
                    return True
            end = text.find("\n", end + 1)
        return False

    def _part(self, claim: Match, index: int) -> Match:
        text = self.lines[index]
        return settle(
            Match(claim.at, claim.print._replace(text=text), text),
            self.places[index],
            self.base,
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
