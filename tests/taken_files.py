"""A process that has no file left to open."""

import os


def take_all(but: int = 0) -> list[int]:
    """Opens files until no more can be opened, and closes so many of them again; those that stay
    open.
    """
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(but):
        os.close(taken.pop())
    return taken
