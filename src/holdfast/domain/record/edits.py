"""Edits: is this payload, at the place of a known message, that message in another wording?

An agent strips the images from its list, shortens an answer, masks a number, and saves the list as
JSON: when it is read again, neither the object nor the exact words say which message that was. Its
place does: the same role between the same neighbours, and most of its text or parts (I-12). After
the last known message nothing follows that could hold the place, and an answer that was given again
may share most of its words with the first: there, only what was taken away from a message counts as
an edit, never other words.
"""

from collections import Counter

from holdfast.domain.record.fingerprint import Fingerprint

LEAST = 12
"""So many characters two texts have to begin with alike before one is taken for a shortened version
of the other.
"""
_ELISIONS = ("…", "...", "[truncated]", "(truncated)", "[...]")


def is_edit(known: Fingerprint, said: Fingerprint) -> bool:
    """Whether `said` is `known` with most of its text or parts left, between the same
    neighbours.
    """
    if not _comparable(known, said):
        return False
    if not known.text:
        # what had no words has a word in its place, or lost some of its parts
        return bool(known.other)
    return (
        is_shortened(known, said)
        or _begins_with(said.text, known.text)
        or _shares_most(known.text, said.text)
    )


def is_shortened(known: Fingerprint, said: Fingerprint) -> bool:
    """Whether `said` is `known` with something left out at its end, or without some of
    its parts.
    """
    if not _comparable(known, said) or Counter(said.other) - Counter(known.other):
        return False
    return said.text == known.text or _begins_with(
        known.text, _without_elision(said.text)
    )


def _comparable(known: Fingerprint, said: Fingerprint) -> bool:
    """Calls and answers are known by their ids, not by their words."""
    return known.role == said.role and not (
        known.calls or known.answers or said.calls or said.answers
    )


def _begins_with(text: str, beginning: str) -> bool:
    return len(beginning) >= LEAST and text.startswith(beginning)


def _without_elision(text: str) -> str:
    text = text.rstrip()
    for mark in _ELISIONS:
        if text.endswith(mark):
            return text.removesuffix(mark).rstrip()
    return text


def _shares_most(one: str, other: str) -> bool:
    words, others = Counter(one.split()), Counter(other.split())
    shared = (words & others).total()
    # One word in common says nothing; and most has to be left on both sides.
    return shared >= 2 and 2 * shared > max(words.total(), others.total())
