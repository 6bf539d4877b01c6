"""Following what another process writes to the same file: all who follow are told, and whoever waits
asks nothing (I-15). Nobody here finds anything by looking for itself: `look_s` is far longer than a
test waits.
"""

import asyncio
import contextlib
import os
import platform
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
import procs
from holdfast import Event
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.engine.sqlite.reads import SqliteReads
from holdfast.errors import StoreUnavailable
from questions import Questions

LIMIT_S = 60.0

SPEAKER = """
    import holdfast
    with holdfast.open(sys.argv[1], durability="process") as store:
        say("ready")
        while (key := hear()):
            session = store.session(key)
            session.append("an entry of its own")
            with session.turn("question") as turn:
                for piece in turn.deliver(["one ", "two ", "three"]):
                    say("said", piece)
                    if piece == "two ":
                        hear()
            session.end("done")
            say("over", key)
"""


@pytest.fixture(autouse=True)
def never_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SqliteEngine.look_s >= 10, "each follower looks by itself all the time"
    monkeypatch.setattr(SqliteReads, "look_s", 1000.0)


@pytest.fixture
def store(path: Path) -> Iterator[holdfast.Store]:
    with holdfast.open(path, durability="process") as opened:
        yield opened


class Reader:
    """A follower on a thread of its own."""

    def __init__(self, session: holdfast.Session, until: str = "closed") -> None:
        self.session, self.until = session, until
        self.events: list[Event] = []
        self.caught_up, self.chunk, self.over = (threading.Event() for _ in range(3))
        self.error: BaseException | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for event in self.session.follow():
                self.events.append(event)
                self.caught_up.set()
                if event.kind == "chunk" and "two" in event.text:
                    self.chunk.set()
                if event.entry is not None and event.entry.kind == self.until:
                    break
        except holdfast.errors.HoldfastError as error:
            self.error = error
        finally:
            self.over.set()

    def assert_each_once(self) -> None:
        assert self.over.wait(LIMIT_S)
        assert [event.entry.seq for event in self.events if event.entry is not None] == [
            entry.seq for entry in self.session.entries()
        ]
        texts: dict[str, str] = {}
        for event in self.events:
            if event.message_id is not None:
                texts[event.message_id] = texts.get(event.message_id, "") + event.text
        assert texts == {message.id: message.text for message in self.session.transcript()}


@pytest.mark.slow
def test_words_of_another_process_reach_all_who_follow(path: Path, store: holdfast.Store) -> None:
    readers = [Reader(store.session(f"k{number}")) for number in range(5)]
    readers += [Reader(store.session("k0")) for _ in range(3)]
    for reader in readers:
        assert reader.caught_up.wait(LIMIT_S)
    with procs.child(SPEAKER, path) as other:
        other.wait_for("ready")
        for number in range(5):
            other.tell(f"k{number}")
            for reader in readers:
                if reader.session.key == f"k{number}":
                    assert reader.chunk.wait(LIMIT_S), "it was not told while it was being spoken"
            other.tell("go on")
            other.wait_for("over")
    for reader in readers:
        reader.assert_each_once()


@pytest.mark.slow
def test_words_of_another_process_reach_all_who_follow_on_an_event_loop(path: Path) -> None:
    async def follow(session: Any, ready: asyncio.Event, heard: asyncio.Event) -> list[str]:
        kinds = []
        async for event in session.follow():
            ready.set()
            kinds.append(event.kind if event.entry is None else event.entry.kind)
            if event.kind == "chunk" and "two" in event.text:
                heard.set()
        return kinds

    async def scene(other: procs.Child) -> list[list[str]]:
        async with holdfast.open_async(path, durability="process") as store:
            session = await store.session("k")
            signals = [(asyncio.Event(), asyncio.Event()) for _ in range(10)]
            tasks = [asyncio.create_task(follow(session, *each)) for each in signals]
            async with asyncio.timeout(LIMIT_S):
                for ready, _ in signals:
                    await ready.wait()
                other.tell("k")
                for _, heard in signals:
                    await heard.wait()
                other.tell("go on")
                return await asyncio.gather(*tasks)

    with procs.child(SPEAKER, path) as other:
        other.wait_for("ready")
        for kinds in asyncio.run(scene(other)):
            assert kinds[-1] == "closed" and kinds.count("end") == 1 and "chunk" in kinds


@pytest.mark.parametrize("count", [1, 30])
def test_whoever_follows_and_hears_nothing_asks_nothing(
    store: holdfast.Store, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = Questions(monkeypatch)
    readers = [Reader(store.session(f"k{number}")) for number in range(count)]
    for reader in readers:
        assert reader.caught_up.wait(LIMIT_S)
    questions.after_looks(10)
    questions.of_others()
    questions.after_looks(30)
    assert questions.of_others() == []
    for reader in readers:
        reader.session.end("done")
        reader.assert_each_once()


def test_whoever_follows_on_an_event_loop_and_hears_nothing_asks_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = Questions(monkeypatch)

    async def scene() -> None:
        async with holdfast.open_async(path, durability="process") as store:

            async def follow(session: Any, ready: asyncio.Event) -> None:
                async for _ in session.follow():
                    ready.set()

            tasks = []
            for number in range(20):
                session, ready = await store.session(f"k{number}"), asyncio.Event()
                tasks.append(asyncio.create_task(follow(session, ready)))
                await ready.wait()
            await asyncio.to_thread(questions.after_looks, 10)
            questions.of_others()
            await asyncio.to_thread(questions.after_looks, 30)
            assert questions.of_others() == []
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scene())


@pytest.mark.slow
def test_a_turn_whose_process_is_killed_while_it_speaks_is_told_to_its_end(
    path: Path, store: holdfast.Store
) -> None:
    reader = Reader(store.session("k"), until="end")
    assert reader.caught_up.wait(LIMIT_S)
    with procs.child(SPEAKER, path) as other:
        other.wait_for("ready")
        other.tell("k")
        assert reader.chunk.wait(LIMIT_S)
        other.kill()
    reader.assert_each_once()
    last = list(reader.session.transcript())[-1]
    assert (last.text, last.state) == ("one two ", "partial")


def test_a_store_that_is_only_read_is_followed(path: Path, store: holdfast.Store) -> None:
    session = store.session("k")
    with holdfast.open(path, read_only=True) as looking:
        reader = Reader(looking.get(session.id))
        assert reader.caught_up.wait(LIMIT_S)
        for number in range(3):
            heard = len(reader.events)
            session.append(f"{number}")
            until(lambda heard=heard: len(reader.events) > heard)
        session.end("done")
        reader.assert_each_once()


def until(holds: Any) -> None:
    """Waits until this is so, a good while at most."""
    for _ in range(int(LIMIT_S / 0.01)):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come about")


@pytest.mark.parametrize("read_only", [False, True])
def test_a_follower_that_waits_is_told_when_its_store_is_closed(
    path: Path, store: holdfast.Store, read_only: bool
) -> None:
    session = store.session("k")
    with holdfast.open(path, read_only=read_only) as opened:
        reader = Reader(opened.get(session.id))
        assert reader.caught_up.wait(LIMIT_S)
    assert reader.over.wait(LIMIT_S)
    assert isinstance(reader.error, StoreUnavailable)


def test_a_follower_that_waits_is_told_when_its_file_is_gone(
    path: Path, store: holdfast.Store, tmp_path: Path
) -> None:
    reader = Reader(store.session("k"))
    assert reader.caught_up.wait(LIMIT_S)
    os.rename(path, tmp_path / "away")
    try:
        assert reader.over.wait(LIMIT_S)
        assert isinstance(reader.error, StoreUnavailable)
    finally:
        os.rename(tmp_path / "away", path)


INTERRUPTED = """
    import holdfast, os, signal, threading
    from holdfast.engine.sqlite.reads import SqliteReads

    SqliteReads.look_s = 1000.0
    with holdfast.open(sys.argv[1], durability="process") as store:
        session = store.session("k")
        try:
            for event in session.follow():
                say("waits")
        except KeyboardInterrupt:
            say("interrupted")
"""


@pytest.mark.slow
@pytest.mark.parametrize("which", ["process", "another thread"])
def test_whoever_follows_can_be_interrupted(path: Path, which: str) -> None:
    """Also if the signal is given to another thread than the one that waits."""
    with procs.child(INTERRUPTED, path) as other:
        other.wait_for("waits")
        number = other.pid
        if which == "another thread":
            tasks = sorted(map(int, os.listdir(f"/proc/{number}/task")))
            number = tasks[-1]
        signal_thread(other.pid, number)
        other.wait_for("interrupted")


def signal_thread(process: int, thread: int) -> None:
    if process == thread:
        os.kill(process, signal.SIGINT)
        return
    import ctypes

    tgkill = {"x86_64": 234, "aarch64": 131}[platform.machine()]
    with contextlib.suppress(OSError):
        ctypes.CDLL(None, use_errno=True).syscall(tgkill, process, thread, signal.SIGINT)
