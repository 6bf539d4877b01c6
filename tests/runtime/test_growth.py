"""How calls grow: with the length of a history they cost at most in proportion to it, whatever the history is made of.

What is counted is work, not time: every function that is entered while the call runs, Python's own included. A history
four times as long may cost a little more than four times as much, and a quadratic path sixteen times.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Session, Store

SHORT = 150
TIMES = 4
LEEWAY = 1.6

Builder = Callable[[Store, Session, int], None]
Call = Callable[[Store, Session], Any]


def said(session: Session, n: int) -> list[str]:
    return [session.append(f"message {index}") for index in range(n)]


def labelled(store: Store, session: Session, n: int) -> None:
    """Many labels, each with a name of its own, on few messages."""
    ids = said(session, 20)
    for index in range(n):
        session.label(ids[index % 20], **{f"name {index}": index})


def hidden(store: Store, session: Session, n: int) -> None:
    for id in said(session, n):
        session.label(id, visible_to_model=False)


def rewound(store: Store, session: Session, n: int) -> None:
    ids = said(session, n)
    for id in ids[:: n // 20]:
        session.rewind(id)
    session.rewind(ids[-1])


def rewound_often(store: Store, session: Session, n: int) -> None:
    ids = said(session, 20)
    for index in range(n):
        session.rewind(ids[index % 20])


def one_call_id(store: Store, session: Session, n: int) -> None:
    """A provider that calls every call by the same name (FAULTS E4)."""
    with session.turn("Count.") as turn:
        for index in range(n):
            turn.add(calling("call_0"))
            turn.add({"role": "tool", "tool_call_id": "call_0", "content": f"{index}"})


def calls_without_end(store: Store, session: Session, n: int) -> None:
    with session.turn("Count.") as turn:
        for index in range(n):
            turn.add(calling(f"call_{index}"))


def calls_in_one_message(store: Store, session: Session, n: int) -> None:
    with session.turn("Count.") as turn:
        turn.add(calling(*["call_0"] * n))
        for index in range(n):
            turn.add({"role": "tool", "tool_call_id": "call_0", "content": f"{index}"})


def waiting_calls(store: Store, session: Session, n: int) -> None:
    with session.turn("Ask.") as turn:
        for index in range(n):
            turn.call("pay", {"amount": index}, needs_approval=True)


def decided_calls(store: Store, session: Session, n: int) -> None:
    with session.turn("Ask.") as turn:
        ids = [turn.call("pay", {"amount": index}, needs_approval=True) for index in range(n)]
    for id in ids:
        session.decide(id, True, by="ann")


def turns(store: Store, session: Session, n: int) -> None:
    for index in range(n):
        with session.turn(f"question {index}") as turn:
            turn.say(f"answer {index}")


def retracted(store: Store, session: Session, n: int) -> None:
    for _ in range(n):
        with session.turn("Again.") as turn:
            turn.say("one")
            turn.retract()
            turn.say("two")


def accepted(store: Store, session: Session, n: int) -> None:
    """All that waited was taken by one turn, at the very end."""
    for index in range(n):
        store.accept(session.key, f"message {index}")
    with session.turn("All of it.") as turn:
        turn.say("answer")


def given_back(store: Store, session: Session, n: int) -> None:
    """A turn took all that waited, used nothing of it, and gave it back."""
    for index in range(n):
        store.accept(session.key, f"message {index}")
    session.turn().interrupt("no time")


def reshaped(store: Store, session: Session, n: int) -> None:
    """A list whose order is not that of the log: as many ranges as messages."""
    messages = [{"role": ("user", "assistant")[index % 2], "content": f"message {index}"} for index in range(n)]
    session.record(messages)
    session.record([*messages[::2], *messages[1::2]])


def compacted(store: Store, session: Session, n: int) -> None:
    for index in range(n):
        with session.turn(f"question {index}") as turn:
            turn.say(f"answer {index}")
        if index % 5 == 4:
            session.compact("what was said", keep_turns=1)


def instructed(store: Store, session: Session, n: int) -> None:
    for index in range(n):
        session.instructions(f"version {index}")


def forked(store: Store, session: Session, n: int) -> None:
    """A fork of a fork of a fork; the key leads to the last one."""
    session.append("the first words")
    session.end("forked")
    for index in range(n):
        session = session.fork(key=session.key)
        session.append(f"message {index}")
        if index < n - 1:
            session.end("forked")


HISTORIES: tuple[Builder, ...] = (
    labelled, hidden, rewound, rewound_often, one_call_id, calls_without_end, calls_in_one_message, waiting_calls,
    decided_calls, turns, retracted, accepted, given_back, reshaped, compacted, instructed, forked,
)  # fmt: skip


def calling(*ids: str) -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": "count", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


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
    "record": lambda store, session: session.record([*session.context(), {"role": "user", "content": "new"}]),
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
        with holdfast.open(path, durability="process") as store:  # a fresh handle: nothing is known yet
            session = store.session("key")
            found[name] = work(partial(call, store, session))
    return found


@pytest.mark.parametrize("build", HISTORIES, ids=lambda build: build.__name__)
def test_no_call_grows_faster_than_the_history(tmp_path: Path, build: Builder) -> None:
    counted(tmp_path / "first.db", build, 20)  # what is done once in a process is done before counting
    short = counted(tmp_path / "short.db", build, SHORT)
    long = counted(tmp_path / "long.db", build, SHORT * TIMES)
    most = {name: (short[name] + 500) * TIMES * LEEWAY for name in CALLS}
    assert {name: (short[name], long[name]) for name in CALLS if long[name] > most[name]} == {}
