"""Fail-over: the primary is killed or restarted under load, and every promise that was made still
holds.

Sessions write and stream from two processes. What each was told is compared with the store
afterwards: every acknowledged entry is there once (I-3), what was handed on is a prefix of what is
stored (I-5), no turn has two ends (I-6). Writers that were cut off go on by themselves, or say that
they could not.
"""

import threading

import pytest

import holdfast
from clusters import Cluster
from holdfast.errors import StoreUnavailable
from holdfast.runtime.store import open_store
from loading import loading
from looking import Hasty
from thorough import SWEEP, few_cases

LIMIT_S = 60
SESSIONS = 16 if SWEEP else 4


def assert_nothing_is_wrong(dsn, loads):
    with holdfast.open(dsn) as store:
        assert loads.wrong(store) == []


@pytest.mark.slow
def test_a_killed_primary_takes_nothing_with_it_that_was_acknowledged(
    cluster: Cluster, replicated: str
):
    """I-1 to I-6: twice, and the second time the first one's successor is killed."""
    with loading(replicated, sessions=SESSIONS) as loads:
        for _ in range(2):
            loads.go_on(turns=2)
            dead = cluster.kill()
            assert cluster.promote() is not dead
            loads.go_on()
            cluster.rejoin(dead)
    assert {code for code, _ in loads.troubles} <= {"store_unavailable", "turn_interrupted"}
    assert_nothing_is_wrong(replicated, loads)


@pytest.mark.slow
@few_cases(every=2)
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_is_restarted_under_load_takes_nothing_with_it(
    cluster: Cluster, replicated: str, mode: str
):
    with loading(replicated, sessions=SESSIONS) as loads:
        for _ in range(2 if SWEEP else 1):
            loads.go_on()
            cluster.restart(mode)
        loads.go_on()
    assert_nothing_is_wrong(replicated, loads)


@pytest.mark.slow
def test_a_follower_sees_each_chunk_once_over_a_fail_over(cluster: Cluster, replicated: str):
    """I-15: it goes on by itself, or from its last cursor when the store could not."""
    with holdfast.open(replicated) as store, holdfast.open(replicated) as other:
        session = store.session("k")
        heard: dict[str, str] = {}
        seen, ended = threading.Event(), threading.Event()

        def follow() -> None:
            reader, cursor = other.get(session.id), None
            while not ended.is_set():
                try:
                    for event in reader.follow(after=cursor):
                        cursor = event.cursor
                        if event.message_id is not None:
                            heard[event.message_id] = heard.get(event.message_id, "") + (
                                event.text or ""
                            )
                            if event.text == "one":
                                seen.set()
                        if event.kind == "entry" and event.entry.kind == "end":
                            return ended.set()
                except StoreUnavailable:
                    continue

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        with session.turn("go") as turn:
            pieces = turn.deliver(iter(["one", "two"]))
            next(pieces)
            assert seen.wait(LIMIT_S)
            cluster.kill()
            cluster.promote()
            assert list(pieces) == ["two"]
        follower.join(LIMIT_S)
        assert ended.is_set()
        assert list(heard.values()) == ["go", "onetwo"]


@pytest.mark.slow
def test_a_writer_says_so_when_no_server_comes_back(cluster: Cluster, replicated: str):
    """I-3: it does not wait for ever, does not claim success, and goes on when there is a server
    again.
    """
    with open_store(replicated, world=Hasty()) as store:
        session = store.session("k")
        session.append("before")
        cluster.kill()
        with pytest.raises(StoreUnavailable):
            session.append("meanwhile", event_id="e")
        cluster.promote()
        session.append("meanwhile", event_id="e")
        assert [message.text for message in session.transcript()] == ["before", "meanwhile"]
