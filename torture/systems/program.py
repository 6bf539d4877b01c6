"""What the programs here have in common: a home and a place to work, a model that answers, and what
they send next.
"""

from pathlib import Path
from typing import Any

from torture.systems.judging import NEXT
from torture.systems.scripted import Scripted


class Program:
    """A program with a home of its own, in a folder that goes when it goes. `files` is where it
    keeps its sessions, `format` is what it speaks with its model.
    """

    files: Path
    format: str

    def __init__(self, folder: Path, model: Scripted) -> None:
        self.folder, self.home, self.work = folder, folder / "home", folder / "work"
        self._model = model
        self.home.mkdir()
        self.work.mkdir()

    def say(self, prompt: str, *, session: str) -> Any:
        """One turn."""
        raise NotImplementedError

    def asked_next(self, session: str) -> list[dict[str, Any]]:
        """The requests that it sends when this session is spoken to once more."""
        self._model.go_on.set()
        self._model.requests.clear()
        self.say(NEXT, session=session)
        return [body for _, body in self._model.requests]

    def halfway(self) -> bool:
        """Whether the model is in the middle of an answer."""
        return self._model.halfway.is_set()

    def go_on(self) -> None:
        """Lets the model finish its answer."""
        self._model.go_on.set()
