"""A store that a server has is the same store: `holdfast.open("http://…", token=…)`."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.domain.entry import Draft
from holdfast.domain.reset_policy import scope_of
from holdfast.engine.protocol import Chunk, Laid, Opening, Refused, Start, Write, Written
from holdfast.engine.remote.calls import Tries, Unanswered
from holdfast.errors import (
    BadArgument,
    InvalidMessage,
    NotFound,
    ReadOnlyStore,
    SchemaMismatch,
    StoreUnavailable,
    TurnInterrupted,
)
from holdfast.runtime.open_store import OpenStore, open_at
from holdfast.runtime.store import Store
from holdfast.testing.conformance.builders import mint, named
from holdfast.testing.faults.scripted_workload import ScriptedWorkload
from holdfast.testing.oracle import judge
from remote_server import (
    EDITOR,
    OPERATOR,
    OTHER,
    READER,
    TOKEN,
    KilledServer,
    RemoteServers,
)

LIMIT_S = 30.0


@pytest.fixture(scope="module")
def servers() -> Iterator[RemoteServers]:
    with RemoteServers() as made:
        yield made


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[OpenStore]:
    work = open_at(tmp_path / "agent.db", tenant="red", durability="process")
    yield work
    work.close()


@pytest.fixture
def url(servers: RemoteServers, behind: OpenStore) -> str:
    return servers.add(behind)


@pytest.fixture
def store(url: str) -> Iterator[holdfast.Store]:
    with holdfast.open(url, token=TOKEN) as opened:
        yield opened


def test_everything_a_store_does_is_done_over_http(url: str, behind: OpenStore) -> None:
    life = ScriptedWorkload(large_bytes=100_000)
    life.live(url, token=TOKEN)
    assert life.troubles == []
    with holdfast.open(url, token=TOKEN) as store:
        assert store.tenant == "red"
        assert judge(store, life.acknowledged) == []
    assert judge(Store(behind), life.acknowledged) == []


def test_the_async_store_is_the_same(tmp_path: Path) -> None:
    # In a process of its own: a client and a server of one process share their threads.
    async def scene(url: str) -> list[str]:
        async with holdfast.open_async(url, token=TOKEN) as store:
            async with store.turn("k", "Hello.") as turn:
                said = [text async for text in turn.deliver(["Good ", "day."])]
            session = await store.session("k")
            assert [each.text async for each in session.transcript()] == ["Hello.", "Good day."]
            return said

    with KilledServer(tmp_path / "agent.db") as server:
        assert asyncio.run(scene(server.url)) == ["Good ", "day."]


def test_a_follower_hears_what_another_client_says(url: str, store: holdfast.Store) -> None:
    """News come by themselves: neither client looks, for as long as the test waits."""
    store._work.engine.look_s = 1000.0
    session = store.session("k")
    heard: list[str] = []
    done = threading.Event()

    def follow() -> None:
        for event in session.follow():
            if event.text:
                heard.append(event.text)
            if "".join(heard).endswith("end."):
                done.set()
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    with holdfast.open(url, token=EDITOR) as other, other.turn("k", "Go on.") as turn:
        list(turn.deliver(["This ", "is ", "the ", "end."]))
    assert done.wait(LIMIT_S)
    follower.join(LIMIT_S)
    assert "".join(heard).endswith("This is the end.")


def test_whoever_waits_for_a_turn_is_woken_by_its_end(url: str, store: holdfast.Store) -> None:
    begun = threading.Event()
    order: list[str] = []

    def wait() -> None:
        with holdfast.open(url, token=TOKEN) as other:
            begun.set()
            with other.turn("k", "second") as turn:
                order.append("second")
                turn.say("two")

    with store.turn("k", "first") as turn:
        waiter = threading.Thread(target=wait)
        waiter.start()
        begun.wait(LIMIT_S)
        while not store.session("k").pending():
            threading.Event().wait(0.01)
        order.append("first")
        turn.say("one")
    waiter.join(LIMIT_S)
    assert order == ["first", "second"]


def test_a_client_that_vanished_is_known_by_its_lease(url: str, store: holdfast.Store) -> None:
    """I-26: nobody can prove that a process on another machine is dead."""
    turn = store.turn("k", "Hello.", lease_s=0.3)
    list(turn.deliver(["Half an "]))
    session = store.session("k").id
    engine = store._work.engine
    # Its process is gone: nothing renews the lease, and nobody ends the turn.
    store._work.keeper.drop(turn._work)
    while (engine.state(session).lease_left_s or 0) > 0:
        threading.Event().wait(0.02)
    with holdfast.open(url, token=TOKEN) as other:
        with other.turn("k", "Are you there?", on_busy="wait") as next_turn:
            next_turn.say("Yes.")
        [first, *_] = other.session("k").turns()
        assert first.end == "abandoned"


# Tenants and scopes


def test_another_tenants_session_is_not_there(url: str, store: holdfast.Store) -> None:
    session = store.session("k")
    session.append("A secret.", event_id="e1")
    message = session.append("Another one.")
    with holdfast.open(url, token=OTHER) as other:
        assert other.tenant == "blue"
        assert other.sessions().items == []
        assert other.search("secret") == []
        with pytest.raises(NotFound):
            other.get(session.id)
        engine = other._work.engine
        assert engine.state(session.id) is None
        assert engine.entries(session.id) == engine.labels(session.id) == []
        assert engine.inbox(session.id) == engine.journal(session.id) == []
        assert engine.debts(session.id) == []
        assert engine.beginnings([session.id], limit=9) == engine.weigh([session.id]) == {}
        assert engine.current("red", "k") is None
        assert engine.find("red", "") == engine.sessions("red") == []
        assert engine.under("red", "") == engine.kept("red", before=(1 << 60, ""), limit=9) == []
        assert engine.forks("red", [session.id]) == engine.running("red") == []
        assert engine.pending("red") == engine.outbox("red") == []
        scope = scope_of("red", key="k", session=session.id)
        assert engine.accepted(scope, "e1") is None
        assert store._work.engine.accepted(scope, "e1") is not None
        draft = Draft("message", None, mint(), 5, b"", b'{"role":"user","content":"x"}')
        for write in (
            Write(session.id, drafts=(draft,)),
            Write(session.id, close=True, ended_too=True),
            Write(session.id, seize=True, fence=0),
        ):
            [outcome] = engine.commit([(write,)])
            assert isinstance(outcome, Refused)
            assert outcome.why == "missing"
        # Not by opening it first, nor as a fork, nor in the other's name, nor by its events.
        again = Write(session.id, drafts=(draft,), open=Opening("blue", None, 1))
        first, second = engine.commit([(again,), (Write(session.id, drafts=(draft,)),)])
        assert (first.why, second.why) == ("bound", "missing")
        opening = Opening("blue", None, 1, head=2, parent=session.id)
        for write, error in (
            (Write(named(5), drafts=(draft,), open=opening), InvalidMessage),
            (Write(named(5), drafts=(draft,), open=Opening("red", None, 1)), StoreUnavailable),
        ):
            with pytest.raises(error):
                engine.commit([(write,)])
        own = other.session("mine")
        with pytest.raises(InvalidMessage):
            engine.commit([(Write(own.id, drafts=(draft,), event=(scope, "e2")),)])
        with pytest.raises(StoreUnavailable):
            other.info()
    assert [each.text for each in session.transcript()] == ["A secret.", "Another one."]
    assert message in {each.id for each in session.transcript()}


def test_a_scope_is_what_a_client_may_do(url: str, store: holdfast.Store) -> None:
    session = store.session("k")
    session.append("Hello.")
    with holdfast.open(url, token=READER) as reader:
        assert [each.text for each in reader.session("k").transcript()] == ["Hello."]
        with pytest.raises(ReadOnlyStore):
            reader.session("k").append("No.")
        # The server says so, too.
        reader._work.engine._engine.read_only = False
        with pytest.raises(StoreUnavailable, match="does not allow"):
            reader._work.engine._engine.commit([(Write(session.id),)])
    with holdfast.open(url, token=EDITOR) as editor:
        editor.session("k").append("Yes.")
        with pytest.raises(StoreUnavailable, match="can't be used"):
            editor.erase(session.id)
    assert len(list(session.transcript())) == 2
    assert store.erase(session.id).done


def test_an_erasure_that_is_not_allowed_changes_nothing(url: str, store: holdfast.Store) -> None:
    """Whoever may not erase ends nobody's turn by trying."""
    session = store.session("k")
    with holdfast.open(url, token=EDITOR) as editor, session.turn("Hello.") as turn:
        turn.say("One.")
        before = list(session.entries())
        with pytest.raises(StoreUnavailable, match="does not allow to erase"):
            editor.erase(session.id)
        with pytest.raises(StoreUnavailable):
            editor.retain(days=1, preview=False)
        assert list(session.entries()) == before
        turn.say("Two.")
    assert [each.text for each in session.transcript()] == ["Hello.", "One.", "Two."]
    with session.turn("Again.") as turn:
        assert store.erase(session.id).done
        with pytest.raises(TurnInterrupted):
            turn.say("Three.")
    assert {each.text for each in session.transcript()} == {""}


def test_what_could_not_be_read_again_is_refused(store: holdfast.Store) -> None:
    """I-25: what a client sends is looked at as if a stranger had written it."""
    session = store.session("k")
    engine = store._work.engine
    bad = [
        Draft("message", None, mint(), 5, b"{", b'{"role":"user","content":"x"}'),
        Draft("message", None, mint(), 5, b"", b"\xff"),
        Draft("message", None, b"short", 5, b"", b'{"role":"user","content":"x"}'),
        Draft("nonsense", None, mint(), 5),
        Draft("view", None, mint(), 5, b'{"ranges":[[1,99]]}'),
        Draft("end", 1 << 60, mint(), 5, b"{}"),
    ]
    writes = [Write(session.id, drafts=(draft,)) for draft in bad]
    writes.append(Write(session.id, start=Start("me", float("nan")), drafts=bad[:0]))
    writes.append(Write(session.id, chunk=Chunk(mint(), 0, b"\xff"), fence=1))
    writes.append(Write(session.id, fence=1 << 62))
    writes.append(Write("0" * 32, open=Opening("red", "other", 1)))
    twice = Draft("message", None, mint(), 5, b"", b'{"role":"user","content":"x"}')
    writes.append(Write(session.id, drafts=(twice, twice)))
    for write in writes:
        with pytest.raises(InvalidMessage):
            engine.commit([(write,)])
    with pytest.raises(InvalidMessage, match="same id"):
        engine.commit([(Write(session.id, drafts=(twice,)),) * 2])
    with pytest.raises(StoreUnavailable):
        engine.commit([(Write(session.id, lay=Laid(1, 1)),)])
    assert len(session._log.engine.entries(session.id)) == 1


def test_a_commit_does_nothing_twice(store: holdfast.Store) -> None:
    """All its writes are judged by what was there before it: of two that do the same thing, neither
    sees the other.
    """
    session, engine = store.session("k"), store._work.engine
    scope = scope_of("red", key="k", session=session.id)
    event, key = (scope, "update-7"), Opening("red", "other", 1)

    def said(**more: Any) -> Write:
        body = b'{"role":"user","content":"x"}'
        return Write(session.id, drafts=(Draft("message", None, mint(), 5, b"", body),), **more)

    def opened(id: str, opening: Opening) -> Write:
        return Write(id, open=opening, drafts=(Draft("open", None, mint(), 5, b"{}"),))

    taken, chunk = mint(), Chunk(mint(), 0, b'[["text",0,"x"]]')
    pairs = [
        [said(event=event), said(event=event)],
        [said(start=Start("me", 5.0)), said(start=Start("me", 5.0))],
        [said(takes=(taken,)), said(takes=(taken,))],
        [said(takes=(taken, taken))],
        [Write(session.id, fence=1, chunk=chunk)] * 2,
        [opened("0" * 32, key), opened("1" * 32, key)],
        [opened("0" * 32, key), opened("0" * 32, Opening("red", "another", 1))],
    ]
    for writes in pairs:
        with pytest.raises(InvalidMessage, match="twice"):
            engine.commit([tuple(writes)])
    assert len(engine.entries(session.id)) == 1
    # What the store's own programs do: two messages, each with its own id.
    several = said(event=event), said(event=(scope, "update-8"))
    assert isinstance(engine.commit([several])[0], Written)


# Opening and closing


def test_read_only_writes_nothing(url: str, store: holdfast.Store) -> None:
    store.session("k").append("Hello.")
    with holdfast.open(url, token=TOKEN, read_only=True) as reader:
        assert reader.session("k").context()[-1]["content"] == "Hello."
        with pytest.raises(ReadOnlyStore):
            reader.session("other")


def test_the_token_says_whose_store_it_is(url: str) -> None:
    with holdfast.open(url, token=TOKEN, tenant="red") as store:
        assert store.tenant == "red"
    with pytest.raises(StoreUnavailable, match="another tenant"):
        holdfast.open(url, token=TOKEN, tenant="blue")
    with holdfast.open(url, token=OPERATOR, tenant="green") as store:
        store.session("k").append("Hello.")
        assert store.info().sessions == 1
        assert store.check() == []


def test_a_token_is_told_to_nobody(url: str, tmp_path: Path) -> None:
    for wrong in ("hf_wrong", "hf_wrong\r\nx: y", "hf_wr ong", "hf_\u00e9", ""):
        with pytest.raises((StoreUnavailable, BadArgument)) as told:
            holdfast.open(url, token=wrong)
        assert not wrong or wrong not in str(told.value) + repr(told.value.fields)
    with pytest.raises(StoreUnavailable, match="token"):
        holdfast.open(url)
    with pytest.raises(BadArgument) as told:
        holdfast.open(tmp_path / "x.db", token=TOKEN)
    assert TOKEN not in str(told.value)
    with holdfast.open(url, token=TOKEN) as store:
        engine = store._work.engine._engine
        for thing in (store, store.session("k"), engine, engine._calls, engine._writer):
            assert TOKEN not in repr(thing)
    assert TOKEN not in repr(holdfast.open_async(url, token=TOKEN))
    for address in ("http://", "http://u:secret@h/", "http://h:99999", "http://h/?token=secret"):
        with pytest.raises(StoreUnavailable) as told:
            holdfast.open(address, token=TOKEN)
        assert "secret@" not in str(told.value)


def test_a_server_of_another_protocol_is_not_used(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.remote.calls.PROTOCOL", 2)
    with pytest.raises(SchemaMismatch) as told:
        holdfast.open(url, token=TOKEN)
    assert (told.value.found, told.value.known) == (1, 2)


def test_where_nobody_answers_is_said_soon(
    servers: RemoteServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.remote.engine.OPENING_S", 0.1)
    for url in ("http://127.0.0.1:9/", f"http://127.0.0.1:{servers.port}/s1/nowhere"):
        with pytest.raises(StoreUnavailable):
            holdfast.open(url, token=TOKEN)


def test_a_message_that_is_too_large_for_the_server_is_refused_at_once(
    store: holdfast.Store,
) -> None:
    session = store.session("k")
    with pytest.raises(InvalidMessage, match="larger than the server takes"):
        session.append("x" * (17 << 20))
    session.append("Short.")
    assert [each.text for each in session.transcript()] == ["Short."]


def test_a_server_that_was_given_up_is_asked_less_often_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever cleans up after an outage would wait as long again for each thing that is left to do."""
    monkeypatch.setattr("holdfast.engine.remote.calls.PATIENCE_S", 1.0)
    monkeypatch.setattr("holdfast.engine.remote.calls.OPENING_S", 0.0)
    pauses: list[int] = []

    def asked() -> int:
        """How often a question is asked again that nobody answers."""
        pauses.clear()
        with pytest.raises(StoreUnavailable):
            store.get("0" * 32)
        return len(pauses)

    def paused(tries: Tries, error: Unanswered | None = None) -> bool:
        pauses.append(1)
        return pause(tries, error)

    pause = Tries.pause
    monkeypatch.setattr(Tries, "pause", paused)
    with KilledServer(tmp_path / "s.db") as server:
        with holdfast.open(server.url, token=TOKEN) as store:
            server.kill()
            assert asked() > 2 and asked() == 1
            server.start()
            assert list(store.sessions()) == []
            server.kill()
            assert asked() > 2
            server.start()


def test_a_forked_child_opens_the_store_again(store: holdfast.Store) -> None:
    session = store.session("k")
    session.append("Hello.")
    child = os.fork()
    if child == 0:
        try:
            session.append("No.")
        except StoreUnavailable as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.append("Still here.")
    assert len(list(session.transcript())) == 2
