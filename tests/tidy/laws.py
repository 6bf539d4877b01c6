"""The invariants: all there, and each cited where it is proved."""

import re
from collections.abc import Mapping, Set
from pathlib import Path

from tidy.tree import modules

NUMBERS = [f"I-{number}" for number in range(1, 28)]

# A proof is a test, a check of the doctor, a law of the conformance suite or an oracle of the
# torture.
PROOFS = ("tests", "torture", "src/holdfast/doctor", "src/holdfast/testing")


def all_stated(invariants: Mapping[str, str]) -> list[str]:
    """I-1 to I-27 are there in order, a sentence each."""
    whole = list(invariants) == NUMBERS
    found = (
        []
        if whole
        else [
            f"domain/invariants.py does not hold {NUMBERS[0]} to {NUMBERS[-1]} in order; mend it."
        ]
    )
    return found + [
        f"{number} is not a sentence; write it from a capital letter to a full stop."
        for number, text in invariants.items()
        if not re.fullmatch(r"[A-Z].*\.\)?", text)
    ]


def all_cited(root: Path, *, not_yet: Set[str]) -> list[str]:
    """Every invariant is cited by a proof, but those that are still to come; and that list only
    shrinks.
    """
    cited = cited_in(root)
    found = [
        f"{number} is cited by no test and no check of the doctor; cite it in the docstring of "
        "the test that proves it."
        for number in NUMBERS
        if number not in cited and number not in not_yet
    ]
    return found + [
        f"{number} is proved now, in {cited[number]}; take it out of NOT_YET in tests/test_tidy.py."
        for number in NUMBERS
        if number in not_yet and number in cited
    ]


def cited_in(root: Path) -> dict[str, str]:
    """Each number that is cited, and a file that does."""
    cited: dict[str, str] = {}
    for module in modules(root, *PROOFS):
        if not module.shown.startswith(("tests/tidy/", "tests/test_tidy")):
            for number in re.findall(r"\bI-\d+\b", module.text):
                cited.setdefault(number, module.shown)
    return cited
