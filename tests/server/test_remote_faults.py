"""What is stored through a server is stored once, whatever becomes of the answer or of the server."""

import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import holdfast
from byte_cutter import ByteCutter
from holdfast.domain.entry import Draft
from holdfast.engine.protocol import Chunk, Opening, Start, Write, Written
from holdfast.engine.remote.engine import RemoteEngine
from holdfast.engine.remote.http_connection import RawConnection
from holdfast.runtime.clock import RealWorld
from holdfast.runtime.open_store import open_at
from holdfast.runtime.store import Store
from holdfast.server.remote.doubt import settled
from holdfast.testing.conformance.builders import drafts, mint, named
from holdfast.testing.faults.scripted_workload import ScriptedWorkload
from holdfast.testing.oracle import judge
from remote_server import OPERATOR, TOKEN, KilledServer
from thorough import EXPLORE

ANSWER_BYTES = 370
"""An answer to a commit, headers and all, is not longer."""
STEP = 1 if EXPLORE else 7
KILLS = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KilledServer]:
    with KilledServer(tmp_path / "agent.db") as running:
        yield running


@pytest.mark.slow
def test_an_answer_that_is_cut_at_any_byte_doubles_nothing(server: KilledServer) -> None:
    with ByteCutter(server.port) as cutter:
        engine = RemoteEngine(cutter.url, token=OPERATOR, chance=RealWorld().chance)
        opened = Write(named(1), drafts=drafts(), open=Opening("red", None, 1))
        engine.commit([(opened,)])
        given = []
        for after in range(0, ANSWER_BYTES, STEP):
            draft = drafts()
            cutter.cut_next(b"/engine/commit", after=after)
            [outcome] = engine.commit([(Write(named(1), drafts=draft),)])
            assert isinstance(outcome, Written)
            assert outcome.seq == len(given) + 2
            given.append(draft[0].id)
        assert cutter.cuts == len(given)
        assert [entry.id for entry in engine.entries(named(1), after=1)] == given
        # The same for what is only read: no half of a page is taken for a page.
        whole = engine.entries(named(1))
        for after in range(0, 2000, 10 * STEP):
            cutter.cut_next(b"/engine/entries", after=after)
            assert engine.entries(named(1)) == whole
        engine.close()


def test_an_answer_that_does_not_say_how_long_it_is_counts_as_lost() -> None:
    """Where it ends, it may have been cut."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[1, 2")

        answering = threading.Thread(target=answer)
        answering.start()
        parts = urlsplit(f"http://127.0.0.1:{listener.getsockname()[1]}")
        connection = RawConnection(parts, {}, timeout_s=30)
        assert connection.ask("POST", "/engine/state", b"{}").fate == "lost"
        connection.close()
        answering.join()


@pytest.mark.slow
def test_a_whole_life_goes_on_while_answers_are_lost(server: KilledServer) -> None:
    with ByteCutter(server.port) as cutter:
        cutter.cut_often(b"/engine/", after=(0, 60, 150, 10_000))
        life = ScriptedWorkload()
        life.live(cutter.url, token=TOKEN)
        assert cutter.cuts > 10
        assert life.troubles == []
    with holdfast.open(server.url, token=TOKEN) as store:
        assert judge(store, life.acknowledged) == []


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again_has_lost_and_doubled_nothing(
    server: KilledServer, tmp_path: Path
) -> None:
    said: list[str] = []
    over = threading.Event()

    def talk() -> None:
        with holdfast.open(server.url, token=TOKEN) as store:
            for number in itertools.count():
                if over.is_set():
                    return
                with store.turn("k", f"ask {number}", on_busy="interrupt") as turn:
                    for text in turn.deliver([f"answer {number}", " and", " more"]):
                        said.append(text)

    talker = threading.Thread(target=talk)
    talker.start()
    for _ in range(KILLS):
        before = len(said)
        while len(said) < before + 4:
            assert talker.is_alive()
            over.wait(0.005)
        server.kill()
        server.start()
    over.set()
    talker.join(60)
    assert not talker.is_alive()
    server.kill()
    with Store(open_at(tmp_path / "agent.db", tenant="red")) as store:
        assert judge(store) == []
        texts = [message.text for message in store.session("k").transcript()]
        turns = len(said) // 3
        expected = []
        for number in range(turns):
            expected += [f"ask {number}", f"answer {number} and more"]
        assert texts == expected
    server.start()


@pytest.fixture(params=["sqlite", "postgres"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """The store behind a server, on each engine."""
    place: object = tmp_path / "agent.db"
    if request.param == "postgres":
        place = request.getfixturevalue("databases")(schema=True)
    with Store(open_at(str(place), tenant="red", durability="process")) as store:
        yield store


def test_a_commit_in_doubt_is_found_or_done_and_never_both(local: Store) -> None:
    """What a server does that was started after the first try: the guards settle it."""
    engine = local._work.engine
    opening = (Write(named(1), drafts=drafts(2), open=Opening("red", "k", 1)),)
    [first] = engine.commit([opening])
    assert settled(engine, opening) == first
    start = Draft("turn", 0, mint(), 5)
    started = (Write(named(1), drafts=(start,), idle=True, start=Start("me", 60.0)),)
    assert settled(engine, started) == Written(3, 1)
    assert settled(engine, started) == Written(3, 1)
    spoken = (Write(named(1), fence=1, chunk=Chunk(mint(), 0, b"[]")),)
    done = settled(engine, spoken)
    assert settled(engine, spoken) == done
    assert len(engine.journal(named(1))) == 1
    # One that is refused is refused again.
    refused = (Write(named(1), drafts=drafts(), head=1),)
    assert settled(engine, refused) == settled(engine, refused)
    plain = (Write(named(1), drafts=drafts()),)
    assert settled(engine, plain) == settled(engine, plain) == Written(4)


def test_of_two_tries_at_once_one_is_done(local: Store) -> None:
    """The first try may still be under way, in another server, when the second one looks."""
    engine = local._work.engine
    engine.commit([(Write(named(1), drafts=drafts(), open=Opening("red", None, 1)),)])
    for _ in range(40):
        commit = (Write(named(1), drafts=drafts()),)
        found: list[object] = []
        tries = [
            threading.Thread(target=lambda c=commit, f=found: f.append(settled(engine, c)))
            for _ in range(3)
        ]
        for each in tries:
            each.start()
        for each in tries:
            each.join()
        assert len(set(map(str, found))) == 1
    assert len(engine.entries(named(1))) == 41
