"""Closing a store that does not answer: it does not take for ever, and what could not be stored is told."""

import asyncio

import pytest

import holdfast
from holdfast.engine.postgres.background import worker
from holdfast.errors import StoreUnavailable
from holdfast.runtime.plans import deadline
from locked_stores import held


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "CLOSE_S", 0.5)
    monkeypatch.setattr(worker, "CLOSE_S", 0.5)


@pytest.mark.parametrize("many", [1, 3])
def test_a_turn_whose_end_is_not_stored_is_told(where: str, hasty: None, many: int) -> None:
    store = holdfast.open(where)
    turns = [store.session(f"k{number}").turn("hello") for number in range(many)]
    for turn in turns:
        turn.say("shown")
    with held(where), pytest.raises(StoreUnavailable, match="could not be stored") as told:
        store.close()
    assert ("3 turns" in str(told.value)) == (many == 3)
    with holdfast.open(where) as again:
        assert [m.text for m in again.session("k0").transcript()] == ["hello", "shown"]


def test_it_is_told_on_an_event_loop_too(where: str, hasty: None) -> None:
    async def scene() -> None:
        store = await holdfast.open_async(where)
        turn = await (await store.session("k")).turn("hello")
        await turn.say("shown")
        with held(where), pytest.raises(StoreUnavailable, match="could not be stored"):
            await store.close()

    asyncio.run(scene())


def test_a_turn_that_was_overtaken_is_nobodys_trouble(where: str) -> None:
    with holdfast.open(where) as store:
        turn = store.session("k").turn("hello")
        with holdfast.open(where) as other:
            other.session("k").stop()
        assert turn.id
