"""Portions: sessions that are read together, one question for all of them, without more in memory
than a page or so.

How many entries a session has is known before any of them is read, so a portion ends before it
grows too large (I-24).
"""

from collections.abc import Iterable, Iterator

from holdfast.engine.protocol import SessionState


def portions(
    states: Iterable[SessionState], *, entries_max: int
) -> Iterator[list[SessionState]]:
    """The same sessions in lists, each with no more entries of its own than this; a longer session
    stands alone.
    """
    some: list[SessionState] = []
    entries = 0
    for state in states:
        own = state.head - state.origin
        if some and entries + own > entries_max:
            yield some
            some, entries = [], 0
        some.append(state)
        entries += own
    if some:
        yield some
