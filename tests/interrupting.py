"""Interrupting a piece of code at its k-th line, for tests that do it at every line.

    point = Interrupt(at=12, by=KeyboardInterrupt)
    with point:
        life()
    point.reached                       # whether there was a twelfth line

Lines are those of the library that the calling thread runs, as it comes by them; the last `at` of
them raises. That is where a signal may come, and more: Python looks for signals at the beginnings
of functions, in loops and after calls. Lines of `with` are left out: one is come by again as the
block is left, where no signal is looked for, and an error there would leave a lock locked. So are
those of `try`, which do nothing: the first of a block is not yet guarded by its `with`. Calls of
generator expressions are left out too: one that is dropped half read is called once more by Python,
to be closed, and no signal is looked for there. Code that runs when an object is dropped is
interrupted as well, and Python swallows what is raised there: `reached` tells whether the interrupt
was raised at all, and the test whether it came out.
"""

import sys
from functools import cache
from linecache import getlines
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import holdfast
from thorough import SWEEP

LIBRARY = str(Path(holdfast.__file__).parent)


class Interrupt:
    """One interrupt, to come at line number `at`. With `at` 0 lines are only counted. Lines of
    these modules count, too. With `only`, those of these folders of the library are counted.
    """

    def __init__(
        self,
        *modules: ModuleType,
        at: int = 0,
        by: type[BaseException] = KeyboardInterrupt,
        only: tuple[str, ...] = ("",),
    ) -> None:
        self.at, self.by = at, by
        library = [f"{LIBRARY}/{folder}" for folder in only]
        self._within = (*library, *(str(module.__file__) for module in modules))
        self.lines = 0
        self.where = ""

    @property
    def reached(self) -> bool:
        return bool(self.where)

    def __enter__(self) -> "Interrupt":
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._within):
            return None
        if frame.f_code.co_name != "<genexpr>":
            self._line(frame)
        return self._trace

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._line(frame)
        return self._trace

    def _line(self, frame: FrameType) -> None:
        if frame.f_lineno in _passed_over(frame.f_code.co_filename):
            return
        self.lines += 1
        if self.lines == self.at:
            self.where = (
                f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
            )
            sys.settrace(None)
            raise self.by


@cache
def _passed_over(filename: str) -> frozenset[int]:
    """The lines of a file that are left out."""
    starts = ("with ", "async with ", "try:")
    return frozenset(
        number
        for number, line in enumerate(getlines(filename), 1)
        if line.lstrip().startswith(starts)
    )


def points(lines: int, *, step: int) -> list[int]:
    """The lines to be tried of so many."""
    return list(range(1, lines + 1, 1 if SWEEP else step))
