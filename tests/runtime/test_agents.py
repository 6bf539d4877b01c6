"""A cache of agents that can't outlive what they were made for (FAULTS C1, C14)."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import AgentCache, Session, Store
from holdfast.errors import BadArgument, SessionEnded
from worlds import HandWorld

LIMIT_S = 60


class Agent:
    """An agent as they are: it holds its session and a list, and writes both."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages: list[dict[str, Any]] = list(session.context())
        self.closed = 0

    def answer(self, text: str) -> None:
        self.messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": f"re: {text}"},
        ]
        self.session.record(self.messages)

    def close(self) -> None:
        self.closed += 1


class AsyncAgent:
    """The same, with a close that is awaited."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.closed = 0

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with holdfast.open(tmp_path / "agent.db", durability="process") as opened:
        yield opened


def said(session: Session) -> list[str]:
    return [message.text for message in session.transcript()]


def test_hermes_3210_a_cached_agent_does_not_write_to_the_session_its_chat_has_left(
    store: Store,
) -> None:
    """C1: a chat is reset, a cached agent still holds the old session; the next turn must be in the
    new one only.
    """
    cache = AgentCache(Agent)
    first = cache.get(store.session("telegram:dm:42"))
    first.answer("remember this")
    old = store.session("telegram:dm:42")

    new = store.reset("telegram:dm:42")
    second = cache.get(store.session("telegram:dm:42"))
    assert second is not first
    assert second.session.id == new.id
    second.answer("a new beginning")

    with pytest.raises(SessionEnded) as caught:
        first.answer("into the void")
    assert caught.value.current_id == new.id
    assert said(old) == ["remember this", "re: remember this"]
    assert said(new) == ["a new beginning", "re: a new beginning"]
    assert first.closed == 1
    third = cache.get(store.session("telegram:dm:42"))
    assert third is second


def test_an_agent_is_made_once_for_its_session_and_configuration(store: Store) -> None:
    cache = AgentCache(Agent)
    one = cache.get(store.session("k"))
    assert cache.get(store.session("k")) is one
    assert cache.get(store.session("k"), config=("gpt", 0.1)) is not one
    assert cache.get(store.session("k"), config=("gpt", 0.1)) is cache.get(
        store.session("k"), config=("gpt", 0.1)
    )
    assert cache.get(store.session("other")) is not one
    assert cache.get(store.session("k")) is one
    assert one.closed == 0


def test_a_stale_session_gets_no_agent_of_another_epoch(store: Store) -> None:
    cache = AgentCache(Agent)
    stale = store.session("k")
    new = cache.get(store.reset("k"))
    old = cache.get(stale)
    assert old is not new
    assert old.session.id == stale.id
    assert cache.get(store.session("k")) is new


def test_tenants_and_stores_do_not_share_agents(store: Store, tmp_path: Path) -> None:
    """I-19: the same key and epoch, another tenant or another file: another agent."""
    cache = AgentCache(Agent)
    mine = cache.get(store.session("k"))
    with holdfast.open(tmp_path / "agent.db", durability="process", tenant="other") as other:
        assert cache.get(other.session("k")) is not mine
    with holdfast.open(tmp_path / "second.db", durability="process") as second:
        assert cache.get(second.session("k")) is not mine
    assert cache.get(store.session("k")) is mine


def test_what_becomes_of_a_key_in_one_store_closes_no_agent_of_another(
    store: Store, tmp_path: Path
) -> None:
    """I-19: a reset or a drop is that store's affair, and that tenant's."""
    cache = AgentCache(Agent)
    with holdfast.open(tmp_path / "second.db", durability="process") as second:
        agents = [cache.get(each.session("k")) for each in (store, second)]
        agents.append(cache.get(store.for_tenant("other").session("k")))
        cache.get(store.reset("k"))
        assert [each.closed for each in agents] == [1, 0, 0]
        cache.drop(second.session("k"))
        assert [each.closed for each in agents] == [1, 1, 0]
        # The same store, opened again, has the same agents.
        with holdfast.open(tmp_path / "agent.db", durability="process") as again:
            newest = cache.get(again.session("k"))
            assert cache.get(store.session("k")) is newest
            cache.drop(again.session("k"))
            assert newest.closed == 1


def test_the_cache_is_bounded_and_closes_what_leaves_it(store: Store) -> None:
    cache = AgentCache(Agent, size=3)
    agents = [cache.get(store.session(f"k{n}")) for n in range(5)]
    assert len(cache) == 3
    assert [agent.closed for agent in agents] == [1, 1, 0, 0, 0]
    assert cache.get(store.session("k2")) is agents[2]
    cache.get(store.session("k5"))
    assert [agent.closed for agent in agents] == [1, 1, 0, 1, 0], (
        "the least recently used one leaves"
    )


def test_an_agent_that_nobody_used_for_long_is_closed_and_made_anew(store: Store) -> None:
    world = HandWorld()
    cache = AgentCache(Agent, idle_s=60, world=world)
    first = cache.get(store.session("a"))
    world.advance(seconds=59)
    assert cache.get(store.session("a")) is first
    world.advance(seconds=61)
    again = cache.get(store.session("a"))
    assert again is not first
    assert first.closed == 1
    world.advance(seconds=61)
    cache.get(store.session("b"))
    assert again.closed == 1
    assert len(cache) == 1


def test_dropping_a_key_closes_all_its_agents_and_closing_the_cache_closes_all(
    store: Store,
) -> None:
    cache = AgentCache(Agent)
    one, two = cache.get(store.session("k")), cache.get(store.session("k"), config="other")
    three = cache.get(store.session("other"))
    cache.drop(store.session("k"))
    assert (one.closed, two.closed, three.closed) == (1, 1, 0)
    cache.close()
    cache.close()
    assert (one.closed, two.closed, three.closed) == (1, 1, 1)
    assert len(cache) == 0


def test_a_factory_that_raises_leaves_nothing_behind(store: Store) -> None:
    tries: list[str] = []

    def factory(session: Session) -> Agent:
        tries.append(session.id)
        if len(tries) == 1:
            raise RuntimeError("no model today")
        return Agent(session)

    cache = AgentCache(factory)
    with pytest.raises(RuntimeError, match="no model today"):
        cache.get(store.session("k"))
    assert len(cache) == 0
    assert cache.get(store.session("k")).session.id == store.session("k").id


def test_an_agent_without_a_close_just_leaves(store: Store) -> None:
    cache = AgentCache(lambda session: {"for": session.id}, size=1)
    cache.get(store.session("a"))
    cache.get(store.session("b"))
    assert len(cache) == 1


def test_an_agent_whose_close_raises_harms_nobody_else(store: Store) -> None:
    class Sore(Agent):
        def close(self) -> None:
            super().close()
            raise RuntimeError("could not hang up")

    cache = AgentCache(Sore, size=1)
    first = cache.get(store.session("a"))
    second = cache.get(store.session("b"))
    assert (first.closed, second.session.key) == (1, "b")


def test_threads_that_want_the_same_agent_get_the_same_one(store: Store) -> None:
    made: list[Agent] = []
    go = threading.Barrier(8)
    got: list[Agent] = []

    def factory(session: Session) -> Agent:
        made.append(Agent(session))
        return made[-1]

    cache = AgentCache(factory)
    session = store.session("k")

    def want() -> None:
        go.wait(LIMIT_S)
        got.append(cache.get(session))

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert len(made) == 1
    assert got == made * 8


def test_an_agent_being_made_keeps_nobody_else_waiting_and_is_not_handed_out_closed(
    store: Store,
) -> None:
    """A slow factory, and a cache too small for both: whoever asked gets a living agent."""
    started, go_on = threading.Event(), threading.Event()
    got: list[Agent] = []

    def factory(session: Session) -> Agent:
        if session.key == "slow":
            started.set()
            assert go_on.wait(LIMIT_S)
        return Agent(session)

    cache = AgentCache(factory, size=1)
    slow = threading.Thread(target=lambda: got.append(cache.get(store.session("slow"))))
    slow.start()
    assert started.wait(LIMIT_S)
    quick: list[Agent] = []
    other = threading.Thread(target=lambda: quick.append(cache.get(store.session("quick"))))
    other.start()
    other.join(LIMIT_S)
    waited = other.is_alive()
    go_on.set()
    for thread in (slow, other):
        thread.join(LIMIT_S)
    assert not waited
    assert [agent.closed for agent in got] == [0]
    assert [agent.session.key for agent in quick] == ["quick"]
    cache.close()
    assert got[0].closed + quick[0].closed == 2


def test_many_threads_and_resets_never_meet_an_agent_of_another_epoch(store: Store) -> None:
    cache = AgentCache(Agent, size=4)
    wrong: list[str] = []
    done = threading.Event()

    def want() -> None:
        while not done.is_set():
            session = store.session("k")
            agent = cache.get(session)
            if agent.session.id != session.id:
                wrong.append(session.id)

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        store.reset("k")
    done.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert wrong == []
    assert len(cache) <= 4


# asyncio
# -------------------------------------------------------------------------------------------------------------


def test_tasks_that_want_the_same_agent_get_the_same_one(tmp_path: Path) -> None:
    made: list[AsyncAgent] = []

    async def factory(session: Any) -> AsyncAgent:
        await asyncio.sleep(0)
        made.append(AsyncAgent(session))
        return made[-1]

    async def want() -> list[AsyncAgent]:
        async with holdfast.open_async(tmp_path / "agent.db", durability="process") as store:
            cache = AgentCache(factory)
            session = await store.session("k")

            async def one() -> AsyncAgent:
                return await cache.get(session)

            return await asyncio.gather(*(one() for _ in range(50)))

    got = asyncio.run(want())
    assert len(made) == 1
    assert got == made * 50


def test_a_task_cancelled_while_its_agent_is_made_takes_it_from_nobody_else(tmp_path: Path) -> None:
    async def race() -> AsyncAgent:
        go_on = asyncio.Event()
        started = asyncio.Event()

        async def factory(session: Any) -> AsyncAgent:
            started.set()
            await go_on.wait()
            return AsyncAgent(session)

        async with holdfast.open_async(tmp_path / "agent.db", durability="process") as store:
            cache = AgentCache(factory)
            session = await store.session("k")

            async def one() -> AsyncAgent:
                return await cache.get(session)

            first, second = asyncio.create_task(one()), asyncio.create_task(one())
            await started.wait()
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            go_on.set()
            return await asyncio.wait_for(second, LIMIT_S)

    assert isinstance(asyncio.run(race()), AsyncAgent)


def test_an_async_factory_that_raises_leaves_nothing_behind(tmp_path: Path) -> None:
    async def twice() -> AsyncAgent:
        tries: list[int] = []

        async def factory(session: Any) -> AsyncAgent:
            tries.append(1)
            if len(tries) == 1:
                raise RuntimeError("no model today")
            return AsyncAgent(session)

        async with holdfast.open_async(tmp_path / "agent.db", durability="process") as store:
            cache = AgentCache(factory)
            session = await store.session("k")
            with pytest.raises(RuntimeError, match="no model today"):
                await cache.get(session)
            return await cache.get(session)

    assert isinstance(asyncio.run(twice()), AsyncAgent)


def test_an_agent_made_by_an_async_factory_is_closed_when_it_leaves(tmp_path: Path) -> None:
    async def leave() -> AsyncAgent:
        async def factory(session: Any) -> AsyncAgent:
            return AsyncAgent(session)

        async with holdfast.open_async(tmp_path / "agent.db", durability="process") as store:
            cache = AgentCache(factory, size=1)
            first = await cache.get(await store.session("a"))
            await cache.get(await store.session("b"))
            async with asyncio.timeout(LIMIT_S):
                while not first.closed:
                    await asyncio.sleep(0)
            cache.close()
            return first

    assert asyncio.run(leave()).closed == 1


@pytest.mark.parametrize("asked", ["get", "drop", "close"])
def test_a_factory_that_waits_for_its_own_agent_is_told_so(store: Store, asked: str) -> None:
    def factory(session: Session) -> object:
        cache.close() if asked == "close" else getattr(cache, asked)(session)
        return object()

    cache = AgentCache(factory)
    with pytest.raises(BadArgument, match="its agent is not made yet"):
        cache.get(store.session("k"))
