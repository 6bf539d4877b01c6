"""Which databases Holdfast opens or closes at this moment, in any thread: their files are open then,
and no store or connection that could be asked has them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

_numbers = count(1)
_handled: dict[int, str] = {}
_last = [0]


@contextmanager
def handling(path: str) -> Iterator[None]:
    """Around what opens a database or closes it."""
    number = _last[0] = next(_numbers)
    _handled[number] = path
    try:
        yield
    finally:
        _handled.pop(number, None)


def is_handled(path: str) -> bool:
    """Whether any thread is at it."""
    return path in list(_handled.values())


def handled_so_far() -> int:
    """Another number whenever something was begun since."""
    return _last[0]
