"""How calls grow: with the length of a history they cost at most in proportion to it, whatever the
history is made of.

What is counted is work, not time: every function that is entered while the call runs, Python's own
included. A history four times as long may cost a little more than four times as much, and a
quadratic path sixteen times.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Session, Store
from holdfast.testing.histories import HISTORIES, Builder
from thorough import SWEEP

SHORT = 100 if SWEEP else 50
TIMES = 4
LEEWAY = 1.6

Call = Callable[[Store, Session], Any]


CALLS: dict[str, Call] = {
    "context openai.chat": lambda store, session: session.context(),
    "context openai.responses": lambda store, session: session.context("openai.responses"),
    "context anthropic": lambda store, session: session.context("anthropic"),
    "context holdfast": lambda store, session: session.context("holdfast"),
    "transcript": lambda store, session: list(session.transcript()),
    "entries": lambda store, session: list(session.entries()),
    "info": lambda store, session: session.info(),
    "turns": lambda store, session: session.turns(),
    "calls": lambda store, session: session.calls(),
    "pending": lambda store, session: session.pending(),
    "instructions": lambda store, session: session.instructions(),
    "sessions": lambda store, session: store.sessions(),
    "search": lambda store, session: store.search("message"),
    "record": lambda store, session: session.record(
        [*session.context(), {"role": "user", "content": "new"}]
    ),
    "compact": lambda store, session: session.compact("what was said"),
    "check": lambda store, session: store.check(),
}


def work(call: Callable[[], Any]) -> int:
    """How many functions are entered on this thread until the call returns."""
    count = 0

    def enter(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def counted(path: Path, build: Builder, n: int) -> dict[str, int]:
    with holdfast.open(path, durability="process") as store:
        build(store, store.session("key"), n)
    found = {}
    for name, call in CALLS.items():
        # a fresh handle: nothing is known yet
        with holdfast.open(path, durability="process") as store:
            session = store.session("key")
            found[name] = work(partial(call, store, session))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("build", HISTORIES, ids=lambda build: build.__name__)
def test_no_call_grows_faster_than_the_history(tmp_path: Path, build: Builder) -> None:
    # what is done once in a process is done before counting
    counted(tmp_path / "first.db", build, 20)
    short = counted(tmp_path / "short.db", build, SHORT)
    long = counted(tmp_path / "long.db", build, SHORT * TIMES)
    most = {name: (short[name] + 500) * TIMES * LEEWAY for name in CALLS}
    assert {name: (short[name], long[name]) for name in CALLS if long[name] > most[name]} == {}


def test_a_decision_costs_the_same_among_many_calls(tmp_path: Path) -> None:
    costs = []
    for size in (SHORT, SHORT * TIMES):
        with holdfast.open(str(tmp_path / f"{size}.db"), durability="process") as store:
            session = store.session("key")
            with session.turn("Ask.") as turn:
                calls = [
                    turn.call("pay", {"amount": index}, needs_approval=True)
                    for index in range(size)
                ]
            session.decide(calls[0], True, by="ann")
            # one in some hundred also draws random bytes for the ids of the next ones
            costs.append(
                min(work(partial(session.decide, call, True, by="ann")) for call in calls[-3:])
            )
    assert costs[1] < LEEWAY * costs[0]


def steps(call: Callable[[], Any]) -> int:
    """How many steps of Python's own code are taken on this thread until the call returns."""
    count = 0

    def step(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return step

    sys.settrace(step)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


def test_a_compaction_costs_the_same_after_many(tmp_path: Path) -> None:
    """What is summed up is not looked at again, nor is the context that shows the rest."""
    costs: list[list[int]] = []
    for size in (SHORT, SHORT * TIMES * TIMES):
        with holdfast.open(str(tmp_path / f"{size}.db"), durability="process") as store:
            session = store.session("key")
            session.append_all([f"message {index}" for index in range(size)])
            some = []
            for index in range(12):
                with session.turn(f"question {index}") as turn:
                    turn.say(f"answer {index}")
                compacting = steps(partial(session.compact, "what was said", keep_turns=1))
                some.append(compacting + steps(session.context))
            # Whatever is done once was done before.
            costs.append(some[-5:])
    assert min(costs[1]) < LEEWAY * min(costs[0])
