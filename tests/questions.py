"""Who asks a file what, and how often: by the connections that read it.

questions = Questions(monkeypatch)
questions.after_looks(30)      # waits until the poller has looked so often since
questions.of_others()          # what everybody else has asked
"""

import threading
from typing import Any

import pytest

from holdfast.engine.sqlite.readers import SqliteReaders

LIMIT_S = 60.0
POLLER = "holdfast-poller"


class Questions:
    """What is asked from now on, by all stores of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._changed = threading.Condition()
        self._looks = 0
        self._asked: list[str] = []
        self._looked_for: list[str] = []
        read = SqliteReaders.read

        def asking(readers: SqliteReaders, name: str, values: Any) -> Any:
            with self._changed:
                if threading.current_thread().name == POLLER:
                    self._looks += name == "last_rows"
                    self._looked_for.append(name)
                else:
                    self._asked.append(name)
                self._changed.notify_all()
            return read(readers, name, values)

        monkeypatch.setattr(SqliteReaders, "read", asking)

    def after_looks(self, count: int) -> None:
        """When this returns, the poller has looked so often since it was called."""
        with self._changed:
            wanted = self._looks + count
            assert self._changed.wait_for(lambda: self._looks >= wanted, LIMIT_S), "nobody looks"

    def of_others(self) -> list[str]:
        """What was asked since this was last called, but for the poller."""
        with self._changed:
            asked, self._asked = self._asked, []
            return asked

    def of_pollers(self) -> list[str]:
        """What pollers have asked since this was last called."""
        with self._changed:
            asked, self._looked_for = self._looked_for, []
            return asked


def pollers() -> list[threading.Thread]:
    """The pollers of this process."""
    # One whose start a test has interrupted may be in the list for ever, and never begins.
    return [each for each in threading.enumerate() if each.name == POLLER and each.is_alive()]


def until_no_poller() -> None:
    """Waits until the last one has ended."""
    for thread in pollers():
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "a poller goes on though nobody watches"
