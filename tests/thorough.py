"""How much a run looks at: all of it with `HOLDFAST_EXPLORE=1` or `HOLDFAST_SWEEP=1`, and a part in
an ordinary run, always the same one, spread over the whole.
"""

import os
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")

EXPLORE = bool(os.environ.get("HOLDFAST_EXPLORE"))
"""Look at every case, however long it takes."""

SWEEP = os.environ.get("HOLDFAST_SWEEP", "") not in ("", "0")
"""Try every line, every place and every world."""

ENGINE_NAMES = ("postgres", "PostgreSQL")
"""What fixtures call PostgreSQL."""


def examples(most: int) -> int:
    """How many examples of so many Hypothesis looks at."""
    return most if EXPLORE else (most + 2) // 3


def sample(cases: Iterable[T], every: int) -> list[T]:
    """Each so-manieth case from the first in an ordinary run, all of them in a sweep."""
    return list(cases)[:: 1 if SWEEP else every]


def few_on_postgres(reason: str, *, every: int = 4) -> pytest.MarkDecorator:
    """For tests of a law that is kept above the engine. They run on both engines, and the laws of
    an engine have the conformance suite; of a file's cases on PostgreSQL that have this mark an
    ordinary run makes each so-manieth from the first, a sweep all of them. The reason says where
    the law is kept.

        pytestmark = few_on_postgres("which call an id means is decided in `domain`")
    """
    return pytest.mark.few_on_postgres(reason, every=every)


def few_cases(every: int) -> pytest.MarkDecorator:
    """For a test whose cases are neighbours, of which each would fail where the law is broken: an
    ordinary run makes each so-manieth of them from the first, a sweep all.

        @few_cases(every=3)
        @pytest.mark.parametrize("seed", range(12))
    """
    return pytest.mark.few_cases(every=every)


def made(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The cases that a run makes."""
    if SWEEP:
        return list(items)
    seen: Counter[str] = Counter()

    def is_due(mark: pytest.Mark | None, of: str) -> bool:
        if mark is None:
            return True
        seen[of] += 1
        return (seen[of] - 1) % int(mark.kwargs["every"]) == 0

    return [
        item
        for item in items
        if is_due(item.get_closest_marker("few_cases"), item.nodeid.partition("[")[0])
        and (
            not _is_on_postgres(item)
            or is_due(item.get_closest_marker("few_on_postgres"), str(item.path))
        )
    ]


def _is_on_postgres(item: pytest.Item) -> bool:
    given = getattr(item, "callspec", None)
    return given is not None and any(
        value in ENGINE_NAMES for value in given.params.values() if isinstance(value, str)
    )
