"""A load: sessions that write and stream without end, and tell every act after the store has taken
it.

    python -m loads WHERE NAME SESSIONS threads|tasks

is run as a process of its own (see `loading`). Each of its sessions has a key and a writer: a
thread, or a task of the asyncio face. A writer asks, streams an answer, notes something beside the
turn, and begins again. Words are never said twice, so that a doubled one shows. A line is an act as
JSON, in the words of `testing.oracle.Acknowledged`, with the key behind its name:

    try KEY TEXT                   these words are about to be said
    said KEY - - TEXT              they are stored, in whatever session the key means
    shown KEY TURN - TEXT          a piece of an answer was handed on
    ended KEY TURN END             the turn was left, and this is its end
    trouble KEY CODE SENTENCE      the store could not, and said so

Only an operator's error, or having been overtaken, is trouble: the writer then brings the same
event again, until the store takes it or says that it has it. Anything else is a broken law and ends
the process. A line `mark` on standard input is answered with `mark`: whatever is told after that
happened after it was asked. Any other line, or its end, asks all writers to stop after the turn
they are in.
"""

import asyncio
import itertools
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import holdfast
from holdfast.errors import AlreadyAccepted, OperatorNeeded, Overtaken

PIECES = 6
PACE_S = 0.01
"""A model speaks slowly: most of the time a turn is in the middle of its answer, and trouble finds
it there.
"""

stopping = threading.Event()


def tell(*act: str | None) -> None:
    # One write, shorter than a pipe's atomic size: threads don't mix their lines, and a kill leaves
    # no half one.
    os.write(1, json.dumps(act).encode() + b"\n")


class Words:
    """What one writer says, each text once."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._numbers = itertools.count(1)

    def question(self) -> str:
        return self._try(f"question {self.key} {next(self._numbers)}")

    def note(self) -> str:
        return self._try(f"note {self.key} {next(self._numbers)}")

    def answer(self, question: str) -> Iterator[str]:
        for piece in range(PIECES):
            stopping.wait(PACE_S)
            yield f"<{question} {piece}>"

    async def aanswer(self, question: str) -> AsyncIterator[str]:
        for piece in range(PIECES):
            await asyncio.sleep(PACE_S)
            yield f"<{question} {piece}>"

    def _try(self, text: str) -> str:
        tell("try", self.key, text)
        return text


def trouble(key: str, error: holdfast.HoldfastError) -> None:
    tell("trouble", key, error.code, str(error))


def write(store: holdfast.Store, key: str) -> None:
    """A writer on a thread."""
    words = Words(key)
    while not stopping.is_set():
        question = words.question()
        insist(key, question, partial(answer, store, words))
        note = words.note()
        insist(key, note, partial(add_note, store, words))


def insist(key: str, text: str, act: Callable[[str], None]) -> None:
    """Does it until the store has taken the text that it brings."""
    while True:
        try:
            return act(text)
        except AlreadyAccepted:
            return tell("said", key, None, None, text)
        except (OperatorNeeded, Overtaken) as error:
            trouble(key, error)


def answer(store: holdfast.Store, words: Words, question: str) -> None:
    with store.turn(words.key, question, event_id=question) as turn:
        tell("said", words.key, None, None, question)
        for text in turn.deliver(words.answer(question)):
            tell("shown", words.key, turn.id, None, text)
    tell("ended", words.key, turn.id, "completed")


def add_note(store: holdfast.Store, words: Words, note: str) -> None:
    store.session(words.key).append(note, event_id=note)
    tell("said", words.key, None, None, note)


# The same with the asyncio face.


async def awrite(store: holdfast.AsyncStore, key: str) -> None:
    """A writer that is a task."""
    words = Words(key)
    while not stopping.is_set():
        question = words.question()
        await ainsist(key, question, partial(aanswer, store, words))
        note = words.note()
        await ainsist(key, note, partial(aadd_note, store, words))


async def ainsist(key: str, text: str, act: Callable[[str], Any]) -> None:
    while True:
        try:
            return await act(text)
        except AlreadyAccepted:
            return tell("said", key, None, None, text)
        except (OperatorNeeded, Overtaken) as error:
            trouble(key, error)


async def aanswer(store: holdfast.AsyncStore, words: Words, question: str) -> None:
    async with store.turn(words.key, question, event_id=question) as turn:
        tell("said", words.key, None, None, question)
        async for text in turn.deliver(words.aanswer(question)):
            tell("shown", words.key, turn.id, None, text)
    tell("ended", words.key, turn.id, "completed")


async def aadd_note(store: holdfast.AsyncStore, words: Words, note: str) -> None:
    session = await store.session(words.key)
    await session.append(note, event_id=note)
    tell("said", words.key, None, None, note)


def watch_input() -> None:
    while sys.stdin.readline().strip() == "mark":
        tell("mark", "")
    stopping.set()


def run_threads(where: str, keys: list[str]) -> None:
    broken: list[BaseException] = []

    def work(store: holdfast.Store, key: str) -> None:
        try:
            write(store, key)
        except BaseException as error:
            broken.append(error)
            stopping.set()

    with holdfast.open(where) as store:
        threads = [threading.Thread(target=work, args=(store, key)) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if broken:
        raise broken[0]


async def run_tasks(where: str, keys: list[str]) -> None:
    async with holdfast.open_async(where) as store:
        await asyncio.gather(*(awrite(store, key) for key in keys))


def main(where: str, name: str, sessions: str, face: str) -> None:
    keys = [f"{name}{number}" for number in range(int(sessions))]
    threading.Thread(target=watch_input, daemon=True).start()
    if face == "threads":
        run_threads(where, keys)
    else:
        asyncio.run(run_tasks(where, keys))


if __name__ == "__main__":
    main(*sys.argv[1:])
