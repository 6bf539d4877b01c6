"""Closing a store that does not answer: it does not take for ever, and what could not be stored is told."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast.engine.postgres.background import worker
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.runtime.plans import deadline
from holdfast.runtime.turns.recovery import TurnClaim
from holdfast.runtime.turns.running_turn import RunningTurn
from locked_stores import held
from thorough import few_cases


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


def test_a_turn_that_has_just_been_started_ends_as_its_store_is_closed(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was being started when the closing looked, and runs when it is ended: nobody has dropped
    it.
    """
    asked, let_go, closed = (threading.Event() for _ in range(3))
    begin, release = RunningTurn.begin, TurnClaim.release

    def begin_late(turn: RunningTurn, number: int) -> None:
        asked.set()
        assert let_go.wait(60)
        begin(turn, number)

    def release_late(claim: TurnClaim) -> None:
        let_go.set()
        while not claim.number:
            time.sleep(0.001)
        release(claim)

    monkeypatch.setattr(RunningTurn, "begin", begin_late)
    monkeypatch.setattr(TurnClaim, "release", release_late)
    store = holdfast.open(where)
    told: list[str] = []

    def work() -> None:
        try:
            with store.turn("k", "hello") as turn:
                assert closed.wait(60)
                turn.say("too late")
        except HoldfastError as error:
            told.append(str(error))

    working = threading.Thread(target=work)
    working.start()
    assert asked.wait(60)
    store.close()
    closed.set()
    working.join(60)
    assert ["the store was closed" in each for each in told] == [True]
    with holdfast.open(where) as again:
        (turn,) = again.session("k").turns()
        assert (turn.end, turn.reason) == ("interrupted", "the store was closed")


# What is asked of a store that was closed
# -----------------------------------------------------------------------------------------------

QUESTIONS: list[tuple[str, Callable[[Any], Any]]] = [
    ("__enter__", lambda store: store.__enter__()),
    ("backup", lambda store: store.backup("/nowhere/at/all")),
    ("check", lambda store: store.check()),
    ("for_tenant", lambda store: store.for_tenant("another")),
    ("info", lambda store: store.info()),
    ("search", lambda store: store.search("x")),
    ("session", lambda store: store.session("k")),
    ("sessions", lambda store: store.sessions()),
]


@few_cases(every=3)
@pytest.mark.parametrize(("name", "ask"), QUESTIONS, ids=[name for name, _ in QUESTIONS])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_store_answers_nothing(
    where: str, name: str, ask: Callable[[Any], Any], read_only: bool
) -> None:
    holdfast.open(where).close()
    store = holdfast.open(where, read_only=read_only)
    derived = store.for_tenant("t")
    store.close()
    for each in (store, derived):
        with pytest.raises(StoreUnavailable, match="was closed|its server makes copies"):
            ask(each)


def test_a_closed_store_answers_nothing_to_a_thread_that_has_not_asked_before(where: str) -> None:
    store = holdfast.open(where)
    store.close()
    told: list[BaseException] = []

    def ask() -> None:
        with pytest.raises(StoreUnavailable, match="was closed") as error:
            store.sessions()
        told.append(error.value)

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(60)
    assert told


def test_a_closed_store_answers_nothing_on_an_event_loop_either(where: str) -> None:
    async def scene() -> None:
        store = await holdfast.open_async(where)
        await store.close()
        for ask in (store.info, store.check, store.__aenter__, store.sessions):
            with pytest.raises(StoreUnavailable, match="was closed"):
                await ask()
        with pytest.raises(StoreUnavailable, match="was closed"):
            store.for_tenant("another")

    asyncio.run(scene())
