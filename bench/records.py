"""`record()` of a 1 000-message list with one new message, on a warm handle: the agent's own list,
and copies of it.
"""

import copy
import time
from typing import Any

import holdfast
from bench import shim
from bench.figure import Figure, Run, interleaved, median
from bench.sample import message

MESSAGES = 1000


def measure(run: Run) -> list[Figure]:
    with shim.scratch() as folder, holdfast.open(folder + "/holdfast.db") as store:
        kept, copied = _Agent(store.session("kept")), _Agent(store.session("copied"))
        append = store.session("append")
        found = interleaved(
            run.repeats * 4,
            {
                "kept": kept.step,
                "copied": lambda: copied.step(copied=True),
                "append": lambda: _took(append.append, message(0)),
            },
        )
    ms = {name: median(took) * 1e3 for name, took in found.items()}
    by = f"a plain append {ms['append']:.2f} ms"
    return [
        run.figure("record() of 1 000 + 1, the same list", ms["kept"], "ms", at_most=3, by=by),
        run.figure(
            "record() of 1 000 + 1, a deep copy of it", ms["copied"], "ms", at_most=3, by=by
        ),
    ]


class _Agent:
    """One that keeps its own list."""

    def __init__(self, session: holdfast.Session) -> None:
        self._session = session
        self._messages = [message(number) for number in range(MESSAGES)]
        session.record(self._messages)

    def step(self, *, copied: bool = False) -> float:
        self._messages.append(message(len(self._messages)))
        if copied:
            self._messages = copy.deepcopy(self._messages)
        return _took(self._session.record, self._messages)


def _took(work: Any, argument: Any) -> float:
    began = time.perf_counter()
    work(argument)
    return time.perf_counter() - began
