"""How much a run looks at: all of it with `HOLDFAST_EXPLORE=1` or `HOLDFAST_SWEEP=1`, and a part in
an ordinary run, always the same one, spread over the whole.
"""

import os

EXPLORE = bool(os.environ.get("HOLDFAST_EXPLORE"))
"""Look at every case, however long it takes."""

SWEEP = os.environ.get("HOLDFAST_SWEEP", "") not in ("", "0")
"""Try every line, every place and every world."""


def examples(most: int) -> int:
    """How many examples of so many Hypothesis looks at."""
    return most if EXPLORE else (most + 1) // 2
