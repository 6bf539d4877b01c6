"""What a task has written, and how it comes into the same commit as the step that follows.

LangGraph hands over what a task has written, and a moment later the step that applies it. It waits
for neither before it goes on, and for both at the end of the run. So the writes wait a moment for
their step, and the two cost one sync:

    put_writes ── waits ──┐
    put ──────────────────┴── one commit ── both are answered

Nobody is answered before that commit. Writes for which no step comes in time, since other tasks
still run or the run stops here, are stored by themselves, and so they are if the step is refused.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.adapters.langchain_payloads import Typed
from holdfast.adapters.langgraph.thread import Prepared, TaskWrites, Thread
from holdfast.adapters.langgraph.values import Encoder
from holdfast.adapters.langgraph.words import Keeping, Words
from holdfast.runtime.plans.plan import Listen, Plan

LOOK_S = 0.05
LOOKS_MAX = 20
STEP_FOLLOWS_S = 0.002
"""So long writes wait for a step that may follow: LangGraph makes it within half a millisecond."""
TAKEN_BYTES_MAX = 1 << 20
"""Larger writes are stored by themselves: the step is not to wait for them."""


class TakenAlong(NamedTuple):
    """Writes that are stored with a step, and what is said in them for the first time."""

    writes: list[TaskWrites]
    prepared: list[Prepared]
    words: Words

    @classmethod
    def nothing(cls) -> "TakenAlong":
        return cls([], [], Words())


def stored_with_a_step(thread: Thread, writes: TaskWrites) -> Plan[bool]:
    """Waits for the step that follows; whether it has stored these writes."""
    looks, has_lingered = 0, False
    with thread.lock:
        thread.waiting.append(writes)
    try:
        while True:
            writes.told.clear()
            with thread.lock:
                if writes.is_stored or writes not in thread.waiting:
                    return writes.is_stored
                is_known = writes.place in thread.history.steps
            if writes.is_taken or not is_known:
                if looks == LOOKS_MAX and not writes.is_taken:
                    return False
                looks += 1
                yield Listen(writes, LOOK_S)
            elif has_lingered:
                return False
            else:
                has_lingered = True
                yield Listen(writes, STEP_FOLLOWS_S)
    finally:
        with thread.lock:
            if writes in thread.waiting:
                thread.waiting.remove(writes)


def take_along(
    thread: Thread, dumps: Callable[[Any], Typed], taken: TakenAlong
) -> None:
    """Takes the writes that wait for a step, to be stored with one that comes now. Called under the
    thread's lock; `release` has to follow.
    """
    for writes in thread.waiting:
        if writes.is_taken or writes.place not in thread.history.steps:
            continue
        keeping = Keeping(thread.words, dumps, thread.new_id, taken.words)
        try:
            prepared = Prepared.of(writes_record(writes, dumps, keeping), keeping.new)
        except Exception:  # whatever a value raises: its own caller is told
            continue
        if _size(prepared) > TAKEN_BYTES_MAX:
            continue
        writes.is_taken = True
        taken.writes.append(writes)
        taken.prepared.append(prepared)
        taken.words.add_all(prepared.new)


def release(thread: Thread, taken: TakenAlong, *, is_stored: bool) -> None:
    """Tells the callers of these writes what became of the commit."""
    with thread.lock:
        for writes in taken.writes:
            writes.is_stored = is_stored
            if writes in thread.waiting:
                thread.waiting.remove(writes)
    for writes in taken.writes:
        writes.tell()


def tell_of_step(thread: Thread, place: tuple[str, str]) -> None:
    """Tells those who wait for this step that it is there."""
    with thread.lock:
        waiting = [each for each in thread.waiting if each.place == place]
    for each in waiting:
        each.tell()


def writes_record(
    writes: TaskWrites, dumps: Callable[[Any], Typed], keeping: Keeping
) -> dict[str, Any]:
    """The record of what a task has written."""
    ns, step = writes.place
    record: dict[str, Any] = {"kind": "writes", "at": step, "task": writes.task_id}
    if ns:
        record["ns"] = ns
    if writes.task_path:
        record["path"] = writes.task_path
    encoder = Encoder(dumps, keeping.keep)
    encoded = []
    for channel, value in writes.values:
        keeping.begin(channel)
        encoded.append([channel, encoder.encode(value)])
    record["writes"] = encoded
    return record


def _size(prepared: Prepared) -> int:
    return len(prepared.body) + sum(len(new.spoken.body) for new in prepared.new)
