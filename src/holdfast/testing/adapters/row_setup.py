"""Where a row is played: a provider, an empty folder, and players in processes of their own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from holdfast.testing.adapters.playing import Task
from holdfast.testing.adapters.process import PlayerProcess
from holdfast.testing.adapters.provider import (
    JudgedRequest,
    ScriptedAnswer,
    ScriptedProvider,
    serve,
)


class NoRequest(Exception):
    """Nothing reached the provider: a player could not even ask."""


@dataclass(frozen=True)
class PlayedBy:
    """Who plays: a player, by its name or path, the interpreter of the environment in which its
    framework lives, and the store that it is to use. `abilities` are the functions that it has.
    """

    player: str
    python: str
    on: str
    where: str | None = None
    abilities: frozenset[str] = frozenset({"ask", "clear", "compact", "spoil"})


def prompt(number: int) -> str:
    """A prompt whose mark is its own."""
    return f"ask-{number:02d}: how are the rows?"


def pieces(number: int, count: int = 4) -> tuple[str, ...]:
    """An answer in pieces, each with a mark of its own."""
    return tuple(f"w{number:02d}.{index:02d} " for index in range(count))


def marks(number: int, count: int = 4) -> list[str]:
    """What a whole turn leaves in the requests that follow it."""
    said = [piece.strip() for piece in pieces(number, count)]
    return [f"ask-{number:02d}", *said]


@dataclass
class RowSetup:
    """One row's own world."""

    by: PlayedBy
    folder: Path
    provider: ScriptedProvider
    session: str = "orchard"
    running: list[PlayerProcess] = field(default_factory=list)

    @property
    def task(self) -> Task:
        where = self.by.where or str(self.folder / "holdfast.db")
        return Task(
            on=self.by.on,
            folder=str(self.folder),
            where=where,
            session=self.session,
            url=self.provider.url,
            ledger=-1,
        )

    def start(self, *numbers: int, **more: Any) -> PlayerProcess:
        """A process that asks these prompts one after the other."""
        prompts = tuple(prompt(number) for number in numbers)
        task = replace(self.task, prompts=prompts, **more)

        def told(ledger: int) -> Task:
            return replace(task, ledger=ledger)

        process = PlayerProcess(self.by.python, self.by.player, told)
        self.running.append(process)
        return process

    def scripted(self, *numbers: int, **more: Any) -> None:
        """Has each of these prompts answered with pieces of its own."""
        for number in numbers:
            answer = ScriptedAnswer(pieces(number), **more)
            self.provider.answer(f"ask-{number:02d}", answer)

    def turns(self, *numbers: int, **more: Any) -> PlayerProcess:
        """Plays whole turns, in one process, to their end."""
        self.scripted(*numbers)
        process = self.start(*numbers, **more)
        process.end()
        return process

    def next_request(self, number: int) -> JudgedRequest:
        """What a fresh process sends when it is asked once more."""
        process = self.turns(number)
        mark = f"ask-{number:02d}"
        for asked in self.provider.asked:
            if mark in asked.words:
                return asked
        raise NoRequest(process.errors().splitlines()[-1:])

    def close(self) -> None:
        self.provider.go_on.set()
        for process in self.running:
            process.close()


@contextmanager
def set_up(by: PlayedBy) -> Iterator[RowSetup]:
    """A row set up for the time of a `with` block; what runs at its end is killed."""
    with TemporaryDirectory(prefix="holdfast-row-") as folder, serve() as provider:
        # Of its own, too, where all rows are played in one database.
        session = f"orchard-{Path(folder).name}"
        made = RowSetup(by, Path(folder), provider, session=session)
        try:
            yield made
        finally:
            made.close()


def shown_of(process: PlayerProcess, expected: Sequence[str]) -> list[str]:
    """Which of these pieces a user has seen: frameworks may join pieces, or split them."""
    text = "".join(process.shown)
    return [piece for piece in expected if piece.strip() in text]
