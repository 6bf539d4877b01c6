"""Loads and what they were told, seen from the test that makes trouble for them.

    with loading(dsn, sessions=16) as loads:      # two processes, one with threads, one with tasks
        loads.go_on()                             # returns when every session has ended another turn
        cluster.kill(), cluster.promote()
        loads.go_on()
    with holdfast.open(dsn) as store:
        assert loads.wrong(store) == []           # what they were told is so, once, and every invariant holds

A load that ends by itself, or a session that makes no turn within the limit, fails the test with
the load's own error output. Leaving the block asks the loads to stop and waits for their clean end.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import holdfast
import procs
from holdfast.testing.oracle import Acknowledged, Act, judge

LIMIT_S = 60.0

SCRIPT = """
    import loads
    loads.main(*sys.argv[1:])
"""


class Load:
    """One process of a load, and all it has said so far."""

    def __init__(self, where: str, name: str, *, sessions: int, face: str) -> None:
        self.child = procs.Child(SCRIPT, where, name, sessions, face)
        self.keys = [f"{name}{number}" for number in range(sessions)]
        self.told: list[Act] = []
        self.tried: list[str] = []
        self.troubles: list[tuple[str, str]] = []
        self.turns: Counter[str] = Counter()
        self._marked = False

    def hear(self) -> bool:
        """Takes the next line; whether there was one."""
        line = self.child.line(LIMIT_S)
        if line is None:
            return False
        verb, key, *rest = json.loads(line)
        if verb == "mark":
            self._marked = True
        elif verb == "try":
            self.tried += rest
        elif verb == "trouble":
            self.troubles.append((rest[0], rest[1]))
        else:
            self.told.append((verb, *rest))
        self.turns[key] += verb == "ended"
        return True

    def go_on(self, turns: int, end: float) -> None:
        """Returns when each session has ended so many turns after this moment. What was said before
        it, and lies unread between the processes, does not count.
        """
        self.child.tell("mark")
        self._marked = False
        while not self._marked:
            assert self.hear(), f"the load ended by itself{self.child.errors()}"
        wanted = {key: self.turns[key] + turns for key in self.keys}
        while behind := [key for key, number in wanted.items() if self.turns[key] < number]:
            assert time.monotonic() < end, f"these sessions do not go on: {behind}; {self._last()}"
            assert self.hear(), f"the load ended by itself{self.child.errors()}"

    def finish(self) -> None:
        """Asks it to stop, and waits for its clean end."""
        self.child.tell("stop")
        while self.hear():
            pass
        self.child.end()

    def _last(self) -> str:
        return f"the last troubles were {self.troubles[-3:]}{self.child.errors()}"


class Loads:
    """All processes of a load."""

    def __init__(self, loads: list[Load]) -> None:
        self.each = loads

    def go_on(self, turns: int = 1) -> None:
        """Returns when every session of every process has ended so many more turns."""
        end = time.monotonic() + LIMIT_S
        for load in self.each:
            load.go_on(turns, end)

    def finish(self) -> None:
        for load in self.each:
            load.finish()

    @property
    def told(self) -> list[Act]:
        return [act for load in self.each for act in load.told]

    @property
    def troubles(self) -> list[tuple[str, str]]:
        """Codes and sentences of all that the store could not do, and said so."""
        return [trouble for load in self.each for trouble in load.troubles]

    def wrong(self, store: holdfast.Store) -> list[str]:
        """Everything that was told and is not so, or is there twice; and every invariant that does
        not hold.
        """
        tried = [text for load in self.each for text in load.tried]
        return judge(store, Acknowledged(self.told, tried=tried))


@contextmanager
def loading(where: object, *, sessions: int = 16) -> Iterator[Loads]:
    """Two processes at work for the time of a `with` block, half of the sessions each."""
    started: list[Load] = []
    try:
        for name, face in (("thread", "threads"), ("task", "tasks")):
            started.append(Load(str(where), name, sessions=sessions // 2, face=face))
        loads = Loads(started)
        yield loads
        loads.finish()
    finally:
        for load in started:
            load.child.close()
