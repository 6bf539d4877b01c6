"""A server that stands still: a store is closed all the same."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

import holdfast
from holdfast.engine.postgres.background import worker
from holdfast.errors import StoreUnavailable
from holdfast.runtime.plans import deadline
from servers import LIMIT_S, Server, within
from shelter import Shelter


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    for process in within(server.data):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.thaw()


@pytest.fixture
def server() -> Iterator[Server]:
    with Shelter() as shelter:
        started = Server(shelter.folder / "single")
        started.create()
        started.start()
        yield started


@pytest.mark.slow
def test_closing_does_not_wait_for_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With threads that are just reading and telling, whose answers nobody needs any more, and with a
    turn, whose end is missing.
    """
    monkeypatch.setattr(deadline, "CLOSE_S", 0.5)
    monkeypatch.setattr(worker, "CLOSE_S", 0.5)
    stores = [holdfast.open(server.dsn()) for _ in range(2)]
    for store in stores:
        assert store.search("nothing") == []  # from now on its words are indexed
    told: list[BaseException] = []

    def close(store: holdfast.Store) -> None:
        try:
            store.close()
        except StoreUnavailable as error:
            told.append(error)

    turn = stores[0].session("k").turn("hello")
    turn.say("shown")
    stopped, asking, answered = threading.Event(), threading.Event(), threading.Event()
    notifier = stores[1]._work.engine._notifier
    send = notifier._send

    def tells_a_frozen_server(hint: str) -> object:
        stopped.wait(LIMIT_S)
        asking.set()
        try:
            return send(hint)
        finally:
            answered.set()

    notifier._send = tells_a_frozen_server
    stores[1].session("other").append("a word to be indexed")
    with frozen(server):
        stopped.set()
        assert asking.wait(LIMIT_S)
        for store in stores:
            closing = threading.Thread(target=close, args=[store], daemon=True)
            closing.start()
            closing.join(LIMIT_S)
            assert not closing.is_alive()
        assert not answered.is_set()
    assert len(told) == 1 and "could not be stored" in str(told[0])
    with holdfast.open(server.dsn()) as again:
        assert [m.text for m in again.session("k").transcript()] == ["hello", "shown"]
