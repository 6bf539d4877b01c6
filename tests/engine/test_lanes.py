"""Lanes by themselves: which writer does what, and when, without a database under them."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.domain.entry import Draft
from holdfast.engine.postgres.writer_pool import Apply, WriterPool
from holdfast.engine.protocol import Commit, Write, Written
from holdfast.engine.writer import Writer
from holdfast.errors import StoreUnavailable
from holdfast.testing.conformance.builders import PATIENCE_S

SESSIONS = [f"session {number}" for number in range(64)]


class Recording:
    """Lanes that note what they do, in which order; the first does nothing until it is let."""

    def __init__(self, count: int, *, spread_at: int) -> None:
        self.done: list[tuple[int, str, int]] = []
        self.first = threading.Event()
        self.lanes = WriterPool(
            "nowhere", [self._apply(lane) for lane in range(count)], _writer, spread_at=spread_at
        )

    def _apply(self, lane: int) -> Apply:
        def apply(commits: Sequence[Commit]) -> list[Any]:
            if lane == 0:
                assert self.first.wait(PATIENCE_S)
            self.done += [
                (lane, write.session, write.drafts[0].at) for commit in commits for write in commit
            ]
            return [Written() for _ in commits]

        return apply

    def submit(self, session: str, number: int) -> Any:
        return self.lanes.submit((Write(session, (Draft("message", None, b"", number),)),))


def _writer(lane: int, apply: Apply) -> Writer:
    return Writer(
        f"lane {lane}",
        apply=apply,
        wake=lambda commits, answers: None,
        tidy=lambda: None,
        finish=lambda: None,
    )


def test_one_lane_does_what_few_ask_for() -> None:
    world = Recording(4, spread_at=1000)
    tickets = [world.submit(session, 0) for session in SESSIONS]
    world.first.set()
    for ticket in tickets:
        ticket.result(PATIENCE_S)
    world.lanes.close()
    assert {lane for lane, _, _ in world.done} == {0}


def test_when_many_wait_all_lanes_work_and_a_session_keeps_its_order() -> None:
    """Its first commits wait in the lane that all began with, the next are already in its own."""
    world = Recording(4, spread_at=1000)
    for number in range(100):
        for session in SESSIONS:
            world.submit(session, number)
    world.first.set()
    world.lanes.close()
    assert len({lane for lane, _, _ in world.done}) > 1
    for session in SESSIONS:
        assert [number for _, name, number in world.done if name == session] == list(range(100))


def test_what_comes_behind_the_closing_is_refused_and_nobody_waits_for_it() -> None:
    world = Recording(2, spread_at=1)
    world.first.set()
    world.lanes.close()
    for session in SESSIONS:
        with pytest.raises(StoreUnavailable, match="closed"):
            world.submit(session, 0)
    assert world.done == []
