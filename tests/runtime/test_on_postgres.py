"""The same store in PostgreSQL, or at a server: every act of the public face, on one machine and seen
from another.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import AlreadyAccepted, NotFound, StoreUnavailable, TurnInterrupted
from holdfast.runtime.open_store import open_at
from remote_server import OPERATOR, RemoteServers

LIMIT_S = 60.0


@pytest.fixture
def where(databases: Callable[..., str]) -> str:
    return databases(schema=True)


@pytest.fixture(params=["PostgreSQL", "a server"])
def machine(request: pytest.FixtureRequest, path: Path) -> Iterator[Callable[[], holdfast.Store]]:
    """How a machine opens the store."""
    if request.param == "PostgreSQL":
        yield partial(holdfast.open, request.getfixturevalue("where"))
        return
    servers: RemoteServers = request.getfixturevalue("servers")
    work = open_at(path, tenant="default", durability="process")
    yield partial(holdfast.open, servers.add(work), token=OPERATOR)
    work.close()


@pytest.fixture
def here(machine: Callable[[], holdfast.Store]) -> Iterator[holdfast.Store]:
    with machine() as store:
        yield store


@pytest.fixture
def there(machine: Callable[[], holdfast.Store], here: holdfast.Store) -> Iterator[holdfast.Store]:
    """The same store as another machine has it open."""
    with machine() as store:
        yield store


def said(session: holdfast.Session) -> list[str]:
    return [message.text for message in session.transcript()]


def test_a_turn_is_told_alike_on_both_machines(here: holdfast.Store, there: holdfast.Store) -> None:
    session = here.session("k")
    session.instructions("Be brief.")
    with session.turn("Book a table for two.", reply_to="somebody") as turn:
        assert list(turn.deliver(iter(["At ", "eight", "."]))) == ["At ", "eight", "."]
        call = turn.call("book", {"seats": 2})
        turn.result(call, "booked")
        turn.say("It is booked.")
    other = there.session("k")
    assert other.id == session.id
    assert said(other) == said(session)
    assert other.context() == session.context()
    [owed] = there.outbox()
    assert (owed.text, owed.reply_to) == ("At eight.\n\nIt is booked.", "somebody")
    owed.sent()
    assert here.outbox() == []


def test_the_same_event_on_two_machines_is_one_turn(
    here: holdfast.Store, there: holdfast.Store
) -> None:
    with here.turn("k", "hello", event_id="e1") as turn:
        turn.say("hi")
    with pytest.raises(AlreadyAccepted) as told:
        there.turn("k", "hello", event_id="e1")
    assert told.value.turn_id == turn.id
    assert (
        here.accept("k", "later", event_id="e2").message_id
        == there.accept("k", "later", event_id="e2").message_id
    )
    assert [message.text for message in there.session("k").pending()] == ["later"]


def test_a_reset_on_one_machine_is_seen_by_the_next_turn_on_the_other(
    here: holdfast.Store, there: holdfast.Store
) -> None:
    with there.turn("k", "one") as turn:
        turn.say("1")
    new = here.reset("k")
    with there.turn("k", "two") as turn:
        turn.say("2")
    assert said(new) == ["two", "2"]
    assert there.session("k").epoch == 2


def test_a_turn_is_stopped_from_another_machine(
    here: holdfast.Store, there: holdfast.Store
) -> None:
    running = here.turn("k", "go on for ever")
    running.say("first")
    there.session("k").stop()
    with pytest.raises(TurnInterrupted):
        running.say("second")
    assert said(here.session("k")) == ["go on for ever", "first"]


def test_a_follower_on_one_machine_hears_what_is_spoken_on_the_other(
    here: holdfast.Store, there: holdfast.Store
) -> None:
    session = here.session("k")
    heard: list[str] = []
    first, over = threading.Event(), threading.Event()

    def follow() -> None:
        for event in there.session("k").follow():
            if event.kind == "chunk":
                heard.append(event.text)
                first.set()
        over.set()

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    with session.turn("speak") as turn:
        for text in turn.deliver(iter(["one ", "two ", "three"])):
            if text.startswith("one"):
                assert first.wait(LIMIT_S)
    session.end("done")
    assert over.wait(LIMIT_S)
    assert "one two three".startswith("".join(heard))


def test_lists_are_recorded_compacted_rewound_and_forked(
    here: holdfast.Store, there: holdfast.Store
) -> None:
    session = here.session("k")
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    session.record(history)
    there.session("k").record([*history, {"role": "user", "content": "c"}])
    assert said(session) == ["a", "b", "c"]
    for number in range(6):
        with session.turn(f"question {number}") as turn:
            turn.say(f"answer {number}")
    session.compact("what came before", keep_turns=2)
    assert there.session("k").context() == session.context()
    assert "what came before" in str(session.context()[0])
    last = list(session.transcript())[-2]
    branch = there.session("k").fork(at=last.id, key="branch")
    with branch.turn("elsewhere") as turn:
        turn.say("there")
    session.rewind(last.id)
    assert "answer 5" not in str(session.context())
    assert said(here.session("branch"))[-2:] == ["elsewhere", "there"]


def test_sessions_are_listed_searched_and_erased(
    here: holdfast.Store, there: holdfast.Store
) -> None:
    for number in range(5):
        with here.turn(f"k{number}", f"the {number} of diamonds") as turn:
            turn.say("a card, 一張牌")
    assert [listed.key for listed in there.sessions(limit=2)] == ["k4", "k3"]
    page = there.sessions(limit=3)
    assert [listed.key for listed in there.sessions(after=page.next)] == ["k1", "k0"]
    assert [hit.key for hit in there.search("diamonds 3")] == ["k3"]
    assert [hit.key for hit in there.search('"of diam', limit=2)] == []
    assert len(there.search("diam")) == len(there.search("張")) == 5
    assert [hit.role for hit in there.search("牌", key="k1")] == ["assistant"]
    assert [listed.key for listed in here.sessions(text="4 diamonds")] == ["k4"]
    gone = here.session("k3").id
    assert here.erase(gone, preview=True).messages == 2
    assert here.erase(gone).done
    assert there.search("diamonds 3") == []
    assert [message.text for message in there.get(gone).transcript()] == ["", ""]
    assert there.check() == []
    info = there.info()
    assert (info.sessions, info.tenants) == (5, 1)
    assert info.engine.startswith("SQLite" if "http" in info.where else "PostgreSQL")


def test_large_payloads_come_back_whole_and_count_once(
    here: holdfast.Store, there: holdfast.Store
) -> None:
    picture = "data:image/png;base64," + "QUJD" * 20_000
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]}
    session = here.session("k")
    for _ in range(3):
        session.append(message)
    assert [told.payload for told in there.session("k").transcript()] == [message] * 3
    assert here.erase(session.id, preview=True).blobs == 1


def test_the_asyncio_face_does_the_same(where: str) -> None:
    async def live() -> list[str]:
        async with await holdfast.open_async(where) as store:
            session = await store.session("k")
            async with session.turn("hello") as turn:

                async def pieces():
                    yield "good "
                    yield "day"

                assert [text async for text in turn.deliver(pieces())] == ["good ", "day"]
            return [message.text async for message in session.transcript()]

    assert asyncio.run(live()) == ["hello", "good day"]


def test_tenants_see_only_their_own(where: str) -> None:
    with holdfast.open(where, tenant="red") as red, holdfast.open(where, tenant="blue") as blue:
        session = red.session("k")
        session.append("secret")
        assert blue.session("k").id != session.id
        with pytest.raises(NotFound):
            blue.get(session.id)
        assert blue.search("secret") == []


def test_a_store_says_how_to_get_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import holdfast.engine.postgres as postgres_package

    for name in [
        name for name in sys.modules if name.startswith(("psycopg", "holdfast.engine.postgres"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    # The import that fails puts another package there, which other tests would find.
    monkeypatch.setattr(holdfast.engine, "postgres", postgres_package)
    with pytest.raises(StoreUnavailable) as told:
        holdfast.open("postgresql://somewhere/agents")
    assert "pip install 'holdfast[postgres]'" in told.value.remedy
