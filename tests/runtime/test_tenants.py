"""Many tenants on one engine: `Store.for_tenant` (I-19)."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.errors import BadArgument, NotFound, StoreUnavailable
from holdfast.testing.oracle import judge


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "file":
        return tmp_path / "agent.db"
    databases: Callable[..., str] = request.getfixturevalue("databases")
    return databases()


def test_a_tenant_sees_its_own_sessions_and_no_others(place: Any):
    with holdfast.open(place, tenant="a") as a:
        b = a.for_tenant("b")
        assert (a.tenant, b.tenant) == ("a", "b")
        a.session("k").append("of a")
        b.session("k").append("of b")
        assert [message.text for message in b.session("k").transcript()] == ["of b"]
        assert [listed.tenant for listed in b.sessions()] == ["b"]
        with pytest.raises(NotFound):
            b.get(a.session("k").id)
        assert b.for_tenant("a").session("k").id == a.session("k").id
        assert [hit.session_id for hit in b.search("of")] == [b.session("k").id]


def test_closing_a_derived_store_ends_its_turns_and_leaves_the_others(place: Any):
    with holdfast.open(place) as store:
        with store.for_tenant("b") as derived, store.for_tenant("b") as same:
            turn = derived.turn("k", "one")
            kept = same.turn("other", "two")
            derived.close()
            ended = [entry.kind for entry in same.session("k").entries()]
            assert ended[-1] == "end"
            kept.say("still here")
            kept.__exit__(None, None, None)
            with pytest.raises(StoreUnavailable, match="closed"):
                derived.session("k")
            derived.close()
            del turn
        store.session("k").append("the engine is open")
        assert judge(store) == []


def test_closing_the_store_that_was_opened_closes_all(place: Any):
    store = holdfast.open(place)
    derived = store.for_tenant("b")
    turn = derived.turn("k", "left running")
    turn.say("a word")
    store.close()
    del turn
    with pytest.raises(StoreUnavailable, match="closed"):
        derived.session("k")
    with holdfast.open(place, tenant="b") as again:
        assert [entry.kind for entry in again.session("k").entries()][-1] == "end"


@pytest.mark.parametrize("name", ["", None, 5, "\ud800"])
def test_a_tenant_has_a_name(tmp_path: Path, name: Any):
    with holdfast.open(tmp_path / "agent.db") as store:
        with pytest.raises(BadArgument):
            store.for_tenant(name)


def test_asyncio_has_it_too(place: Any):
    async def use() -> list[str]:
        async with holdfast.open_async(place) as store:
            derived = store.for_tenant("b")
            assert (await store.for_tenant("b")).tenant == derived.tenant == "b"
            async with derived:
                session = await derived.session("k")
                async with session.turn("hello") as turn:
                    await turn.say("hi")
            await (await store.session("k")).append("of the other")
            again = store.for_tenant("b")
            return [message.text async for message in (await again.session("k")).transcript()]

    assert asyncio.run(use()) == ["hello", "hi"]


@pytest.mark.slow
def test_many_tenants_need_no_more_connections_or_threads(database: str):
    with holdfast.open(database) as store:
        store.session("k").append("hello")
        before = threading.active_count()
        for number in range(200):
            derived = store.for_tenant(f"tenant {number}")
            with derived.turn("k", "hello") as turn:
                turn.say("hi")
        assert threading.active_count() <= before + 2
        with psycopg.connect(database) as connection:
            query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            [[connections]] = connection.execute(query).fetchall()
        assert connections <= 10
