"""What a framework's next request tells about the turn before it.

Prompts and pieces of answers are marked with words that stand nowhere else. So a request says by
itself what was kept, what stands in it twice, and what stands in the wrong place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.testing.adapters.provider import JudgedRequest


@dataclass(frozen=True)
class Outcome:
    """What one run of a row came to.

    `shown` are the characters that a user saw in the turn with the fault, `stored` those of them
    that the model is told in the next request; both are words where a row counts something else.
    `next_valid` is whether the provider took that request, None where none came. `wrong` has a
    sentence for each thing that was not as it should be; `played` is False where the player can't
    play the row.
    """

    shown: str = "-"
    stored: str = "-"
    next_valid: bool | None = None
    wrong: tuple[str, ...] = ()
    played: bool = True

    @property
    def right(self) -> bool:
        return self.played and not self.wrong


def verdict(
    asked: JudgedRequest,
    *,
    expected: Sequence[str],
    shown: Sequence[str] = (),
    forbidden: Sequence[str] = (),
) -> Outcome:
    """Holds a request against what must stand in it, in this order and once each, and what must
    not. `shown` are the pieces, among those expected, that a user saw of the faulty turn.
    """
    words = asked.words
    seen = sum(len(piece) for piece in shown)
    kept = sum(len(piece) for piece in shown if piece.strip() in words)
    wrong = list(asked.problems)
    wrong += misfits(words, expected)
    for mark in forbidden:
        if mark.strip() in words:
            wrong.append(f"{mark.strip()!r} is there and should not be")
    stored = str(kept) if shown else "-"
    return Outcome(str(seen), stored, not asked.problems, tuple(wrong))


def misfits(words: str, expected: Sequence[str]) -> list[str]:
    """What is lost, doubled or misplaced of these marks."""
    wrong, last = [], -1
    for mark in expected:
        mark = mark.strip()
        found = words.count(mark)
        if not found:
            wrong.append(f"{mark!r} is lost")
            continue
        if found > 1:
            wrong.append(f"{mark!r} is there {found} times")
        place = words.find(mark)
        if place < last:
            wrong.append(f"{mark!r} is misplaced")
        last = max(place, last)
    return wrong
