"""`If-Match`: of several who know the same head one succeeds, also where nothing is left to be done
for the others.

Each story is told without chance: the other one is done after the head was looked at, and before the
write is decided.
"""

import asyncio

import pytest

import holdfast
from holdfast.errors import AlreadyAccepted
from holdfast.server.head_guard import guarded
from holdfast.server.problems import WireProblem

LIST = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]


async def record(session):
    return await session.record(LIST)


async def end(session):
    await session.end("done")


async def compact(session):
    return await session.compact("What was said.", keep_turns=0)


async def begun(store):
    session = await store.session("k")
    await session.append("Something to begin with.")
    return session


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.db"


@pytest.mark.parametrize("write", [record, end, compact])
def test_what_another_has_done_meanwhile_is_not_a_success_of_its_own(path, write):
    async def story():
        async with holdfast.open_async(path) as store:
            session = await begun(store)
            head = await session.head()
            with pytest.raises(WireProblem) as told:
                async with guarded(session, head) as own:
                    await write(await store.get(session.id))
                    now = await session.head()
                    await write(own)
            assert (told.value.code, told.value.fields["head"]) == ("stale", now)
            assert [entry.seq for entry in told.value.fields["missed"]][-1] == now > head
            assert await session.head() == now

    asyncio.run(story())


@pytest.mark.parametrize("write", [record, end, compact])
def test_nothing_to_do_is_a_success_while_the_head_is_the_one_that_is_known(path, write):
    async def story():
        async with holdfast.open_async(path) as store:
            session = await begun(store)
            await write(session)
            head = await session.head()
            async with guarded(session, head) as own:
                await write(own)
            assert await session.head() == head

    asyncio.run(story())


def test_what_was_accepted_before_is_told_as_such(path):
    """A request that comes twice at once is one: the second is not told that it came too late."""

    async def story():
        async with holdfast.open_async(path) as store:
            session = await store.session("k")
            head = await session.head()
            async with guarded(session, head) as own:
                await session.append("Hello.", event_id="e")
                with pytest.raises(AlreadyAccepted):
                    await own.append("Hello.", event_id="e")

    asyncio.run(story())
