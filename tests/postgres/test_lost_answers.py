"""Answers that are lost on the way: between COMMIT and its answer, and at every other place of the
protocol (I-2, I-3).

A whole life is lived through a proxy that loses one message. Whoever waited for it can't know
whether the commit was done; it is asked again with the same identity, and all that callers were
told is there exactly once.
"""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

import holdfast
from deaf_proxy import DeafProxy, Fits, answers, any_answer, asks
from holdfast.testing.faults.scripted_workload import ScriptedWorkload
from holdfast.testing.oracle import judge
from loading import loading
from thorough import EXPLORE


def proxied(dsn: str) -> DeafProxy:
    parts = conninfo_to_dict(dsn)
    return DeafProxy(int(parts["port"]), host=str(parts["host"]))


class Steady(ScriptedWorkload):
    """A life that is never told of a lost answer, not when it opens a store either."""

    def manage(self, step: Callable[[], Any]) -> Any:
        return step()


def live(place: str, fits: Fits, nth: int) -> bool:
    """Lives a life and loses the nth message that fits, then holds the store to what was told;
    whether there was an nth one.
    """
    with holdfast.open(place):
        pass  # its tables are made without losses
    with proxied(place) as proxy:
        loss = proxy.lose(fits, nth=nth)
        life = Steady()
        life.live(proxy.through(place))
    with holdfast.open(place) as store:
        assert judge(store, life.acknowledged) == [], f"message {nth}"
    return loss.struck


@pytest.mark.slow
@pytest.mark.parametrize(
    "fits, step",
    [
        pytest.param(any_answer, 53, id="any answer"),
        pytest.param(answers("COMMIT"), 11, id="an answer to COMMIT"),
        pytest.param(asks("COMMIT"), 9, id="a COMMIT"),
        pytest.param(asks("WITH"), 14, id="a statement that is a whole transaction"),
    ],
)
def test_a_message_that_is_lost_anywhere_loses_nothing_and_doubles_nothing(
    databases: Callable[..., str], fits: Fits, step: int
):
    """At every place with HOLDFAST_EXPLORE, at every so many in an ordinary run."""
    places = itertools.takewhile(
        lambda nth: live(databases(schema=True), fits, nth),
        itertools.count(1, 1 if EXPLORE else step),
    )
    assert len(list(places)) > 2, "the life is long enough to be worth it"


def test_a_server_that_goes_silent_after_a_commit_is_left(database: str):
    """The commit was done and its answer swallowed; the connection stays up and says nothing, until
    it is cut.
    """
    with proxied(database) as proxy, holdfast.open(proxy.through(database)) as store:
        session = store.session("k")
        with session.turn("question") as turn:
            silence = proxy.deafen(any_answer)
            cutter = threading.Thread(target=lambda: (silence.wait(), proxy.cut()))
            cutter.start()
            assert list(turn.deliver(iter(["one", "two"]))) == ["one", "two"]
            cutter.join()
        assert [message.text for message in session.transcript()] == ["question", "onetwo"]
        assert judge(store) == []


@pytest.mark.slow
def test_a_load_whose_answers_are_lost_over_and_over_loses_nothing_and_doubles_nothing(
    database: str,
):
    """Each loss is in the middle of something else that eight sessions in two processes do."""
    with proxied(database) as proxy, loading(proxy.through(database), sessions=8) as loads:
        loads.go_on()
        for _ in range(25 if EXPLORE else 10):
            proxy.lose(any_answer, nth=15).wait()
        loads.go_on()
    with holdfast.open(database) as store:
        assert loads.wrong(store) == []
