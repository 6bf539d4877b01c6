"""What a saver does: it loads and stores the steps of threads. Plans, for threads and for asyncio.

Two runs on one thread: each stores its first step on the one it has loaded. The commit is refused
if another step was stored since; then the step is judged again against the log as it is, and a run
that was overtaken is told so (`Conflict`) before it has answered anybody. A run that was sent to an
older step by its caller makes a branch, as LangGraph has it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory

from holdfast.adapters.langchain_payloads import Typed
from holdfast.adapters.langgraph.history import GraphStep, pending, step_record
from holdfast.adapters.langgraph.task_writes import (
    LOOK_S,
    LOOKS_MAX,
    TakenAlong,
    release,
    stored_with_a_step,
    take_along,
    tell_of_step,
    writes_record,
)
from holdfast.adapters.langgraph.thread import Prepared, TaskWrites, Thread
from holdfast.adapters.langgraph.threads import Threads
from holdfast.adapters.langgraph.values import Decoder, Encoder
from holdfast.adapters.langgraph.words import Keeping
from holdfast.engine.protocol import Refused
from holdfast.errors import Conflict
from holdfast.runtime.plans.plan import Pause, Plan, read, wait_for

Gate = Callable[[Thread], AbstractContextManager[Any]]
"""Lets one caller at a time store something in a thread. It spares them refusals; on an event loop,
where nobody may wait so, there is none.
"""
NOT_MORE = frozenset(
    {"v", "ts", "id", "channel_values", "channel_versions", "versions_seen"}
)


class Address(NamedTuple):
    """What a config names: a thread, a namespace, and a step unless the latest is meant."""

    thread: str
    ns: str
    step: str | None

    def config(self) -> dict[str, Any]:
        """As LangGraph names it."""
        named: dict[str, Any] = {"thread_id": self.thread, "checkpoint_ns": self.ns}
        if self.step is not None:
            named["checkpoint_id"] = self.step
        return {"configurable": named}


class Serde(NamedTuple):
    """How values are written and read that are no JSON."""

    dumps: Callable[[Any], Typed]
    loads: Callable[[Typed], Any]


def load(threads: Threads, address: Address, serde: Serde) -> Plan[Any]:
    """The step that is named, as LangGraph wants it; None when there is none."""
    thread = yield from threads.find(address.thread)
    if thread is None:
        if address.step is None:
            threads.found_empty(address.thread, address.ns)
        return None
    with thread.lock:
        if address.step is None:
            step = thread.history.latest(address.ns)
        else:
            step = thread.history.find(address.ns, address.step)
        if step is not None or address.step is None:
            thread.begin(address.ns, step)
        return None if step is None else told(thread, step, serde)


def told(thread: Thread, step: GraphStep, serde: Serde) -> CheckpointTuple:
    """A step as LangGraph wants it. Called under the thread's lock."""
    decoder = _decoder(thread, serde)
    state = thread.history.state(step)
    record = step.record
    values = {}
    for channel, value in state.values.items():
        values[channel] = decoder.decode(value)
    checkpoint: dict[str, Any] = {
        "v": record["v"],
        "ts": record["ts"],
        "id": step.id,
        "channel_values": values,
        "channel_versions": dict(state.versions),
        "versions_seen": {node: dict(seen) for node, seen in state.seen.items()},
        "updated_channels": None,
        **decoder.decode(record.get("more", {})),
    }
    writes = []
    for write in pending(step):
        writes.append((write.task, write.channel, decoder.decode(write.value)))
    before = None
    if step.parent is not None:
        before = Address(thread.id, step.ns, step.parent).config()
    here: Any = Address(thread.id, step.ns, step.id).config()
    facts: Any = decoder.decode(record.get("meta", {}))
    return CheckpointTuple(here, checkpoint, facts, before, writes)


def _decoder(thread: Thread, serde: Serde) -> Decoder:
    def find(id: str, other: Any) -> Any:
        return thread.words.find(id, other, serde.loads)

    return Decoder(serde.loads, find)


def put(
    threads: Threads,
    address: Address,
    checkpoint: dict[str, Any],
    metadata: dict[str, Any],
    changed: Any,
    serde: Serde,
    gate: Gate,
) -> Plan[None]:
    """Stores a step on the one that the address names."""
    ns, parent = address.ns, address.step
    is_stored = False
    while not is_stored:
        thread = threads.known(address.thread)
        if thread is None:
            if parent is not None and (yield from threads.is_over(address.thread)):
                raise (yield from threads.ended(address.thread))
            thread = yield from threads.open(address.thread)
        if _is_of_a_deleted_thread(thread, ns, parent):
            raise (yield from threads.ended(address.thread))
        with gate(thread):
            is_stored = yield from _put(
                threads, thread, address, checkpoint, metadata, changed, serde
            )


def _put(
    threads: Threads,
    thread: Thread,
    address: Address,
    checkpoint: dict[str, Any],
    metadata: dict[str, Any],
    changed: Any,
    serde: Serde,
) -> Plan[bool]:
    """Stores a step, and what tasks have written just before; False when it is to be decided again."""
    place = address.ns, checkpoint["id"]
    taken = TakenAlong.nothing()
    is_stored = False
    try:
        with thread.lock:
            _refuse_if_overtaken(thread, address.ns, address.step, checkpoint["id"])
            head = thread.history.head
            take_along(thread, serde.dumps, taken)
            keeping = Keeping(thread.words, serde.dumps, thread.new_id, taken.words)
            record = _record_of(
                thread, address, checkpoint, metadata, changed, serde, keeping
            )
            step = Prepared.of(record, keeping.new)
        if keeping.new and threads.turns.get(thread.id) is not None:
            # What was streamed is in the transcript, by the hand of the turn.
            known = len(thread.words)
            yield from read(thread.read_words)
            if len(thread.words) != known:
                return False
        prepared = [*taken.prepared, step]
        is_stored = yield from _store(threads, thread, prepared, head=head)
    finally:
        release(thread, taken, is_stored=is_stored)
    if is_stored:
        with thread.lock:
            thread.marks.mine.add(place)
        tell_of_step(thread, place)
    return is_stored


def _is_of_a_deleted_thread(thread: Thread, ns: str, parent: str | None) -> bool:
    """Whether a run that began before this thread was deleted and made anew comes with a step."""
    if parent is None or thread.steps_log.epoch == 1:
        return False
    with thread.lock:
        return (ns, parent) not in thread.history.steps


def _refuse_if_overtaken(thread: Thread, ns: str, parent: str | None, id: str) -> None:
    latest = thread.history.latest(ns)
    # A step that is stored again overtakes nobody.
    if latest is None or latest.id in (parent, id):
        return
    place, marks = (ns, parent), thread.marks
    if place in marks.chosen:
        return
    was_loaded = place in marks.loaded
    by_another = parent is not None and (ns, latest.id) not in marks.mine
    if was_loaded or (by_another and place in marks.mine):
        problem = (
            f"another run has gone on from step {parent} of thread `{thread.id}`; "
            "run again, from the step that is the latest now"
        )
        raise Conflict(session_id=thread.words_log.id, problem=problem)


def _record_of(
    thread: Thread,
    address: Address,
    checkpoint: dict[str, Any],
    metadata: dict[str, Any],
    changed: Any,
    serde: Serde,
    keeping: Keeping,
) -> dict[str, Any]:
    history = thread.history
    ns, parent = address.ns, address.step
    before = history.state(None if parent is None else history.steps.get((ns, parent)))
    encoder = Encoder(serde.dumps, keeping.keep)
    values = {}
    for channel, value in checkpoint["channel_values"].items():
        version = checkpoint["channel_versions"].get(channel)
        same = channel in before.values and before.versions.get(channel) == version
        # Channels whose version has not moved are as they were at the parent: they are
        # not stored again.
        if channel in changed or not same:
            keeping.begin(channel)
            values[channel] = encoder.encode(value)
    inline = _inline(serde)
    rest = dict(checkpoint)
    for key in checkpoint:
        if key not in NOT_MORE:
            rest[key] = inline.encode(checkpoint[key])
    return step_record(
        history,
        before,
        ns=ns,
        parent=parent,
        checkpoint=rest,
        values=values,
        metadata=inline.encode(metadata),
    )


def _inline(serde: Serde) -> Encoder:
    """Writes values whose messages are no part of the transcript."""
    return Encoder(serde.dumps, lambda message: None)


def _store(
    threads: Threads,
    thread: Thread,
    prepared: list[Prepared],
    *,
    head: int | None,
) -> Plan[bool]:
    """Stores records in one commit; False when they are to be decided again. `head`: the entry up to
    which the log was known when they were decided, if it matters.
    """
    turn = threads.turns.get(thread.id)
    if turn is not None and turn.ended:
        turn = None
    with thread.lock:
        commit = thread.commit(prepared, turn=turn, head=head)
    outcome = yield from wait_for(thread.steps_log.engine.submit(commit))
    if not isinstance(outcome, Refused):
        thread.stored(prepared, outcome.seq)
        return True
    if outcome.why == "superseded" and turn is not None:
        raise (yield from turn.interrupted())
    if outcome.why == "ended":
        ended = yield from threads.ended(thread.id)
        threads.forget(thread.id)
        # Without a parent it is the first step of a new thread, which was not looked
        # for since this one was deleted.
        record = prepared[-1].record
        if record.get("kind") == "step" and record.get("parent", "") is None:
            return False
        raise ended
    yield from read(thread.catch_up)
    return False


def put_writes(
    threads: Threads, thread_id: str, writes: TaskWrites, serde: Serde, gate: Gate
) -> Plan[None]:
    """Stores what a task has written at a step."""
    looks = 0
    # A run in a turn shows what its nodes give as soon as it is stored.
    if threads.turns.get(thread_id) is None:
        thread = yield from _thread_of(threads, thread_id)
        if (yield from stored_with_a_step(thread, writes)):
            return
        looks = LOOKS_MAX
    while True:
        thread = yield from _thread_of(threads, thread_id)
        if threads.turns.get(thread_id) is not None:
            yield from read(thread.read_words)
        with gate(thread):
            nothing = TakenAlong.nothing()
            keeping = Keeping(thread.words, serde.dumps, thread.new_id, nothing.words)
            with thread.lock:
                head = thread.history.head
                is_known = writes.place in thread.history.steps
                # One of a thread of the same name that was deleted may never come:
                # nothing of it is said here.
                is_first = thread.steps_log.epoch == 1
                keeping.adds = is_known or is_first or looks < LOOKS_MAX
                record = writes_record(writes, serde.dumps, keeping)
                prepared = Prepared.of(record, keeping.new)
            new = keeping.new
            is_early = bool(new) and not is_known and looks < LOOKS_MAX
            # A step that is stored at the same time may hold the same message: whichever
            # comes second finds it there.
            if not is_early and (
                yield from _store(
                    threads, thread, [prepared], head=head if new else None
                )
            ):
                return
        if is_early:
            # LangGraph stores a step and what is written at it side by side; what was
            # said before it has to stand before it.
            looks += 1
            yield Pause(thread.steps_log.engine, thread.steps_log.id, LOOK_S)


def _thread_of(threads: Threads, thread_id: str) -> Plan[Thread]:
    """The thread that a task writes in, made if there is none yet."""
    thread = threads.known(thread_id)
    if thread is None:
        if (yield from threads.is_over(thread_id)):
            raise (yield from threads.ended(thread_id))
        thread = yield from threads.open(thread_id)
    return thread


def hide(threads: Threads, thread: Thread, steps: list[GraphStep]) -> Plan[None]:
    """Takes steps out of sight. What stands on them stays whole."""
    if steps:
        places = [[step.ns, step.id] for step in steps]
        record = {"kind": "hide", "steps": places}
        yield from _store(threads, thread, [Prepared.of(record, [])], head=None)


def prune(threads: Threads, thread_ids: Sequence[str], strategy: str) -> Plan[None]:
    """Hides all but the latest step of each namespace, or deletes the threads."""
    for thread_id in thread_ids:
        if strategy == "delete":
            yield from threads.delete(thread_id)
            continue
        thread = yield from threads.find(thread_id)
        if thread is None:
            continue
        with thread.lock:
            kept = [thread.history.latest(ns) for ns in thread.history.namespaces()]
            rest = [step for step in thread.history.newest_first() if step not in kept]
        yield from hide(threads, thread, rest)


def delete_for_runs(threads: Threads, run_ids: Sequence[str]) -> Plan[None]:
    """Hides the steps of these runs, in whichever thread they are."""
    if not run_ids:
        return
    wanted = set(run_ids)
    for thread_id in (yield from read(lambda: list(threads.all()))):
        thread = yield from threads.find(thread_id)
        if thread is None:
            continue
        with thread.lock:
            found = []
            for step in thread.history.newest_first():
                if step.record.get("meta", {}).get("run_id") in wanted:
                    found.append(step)
        yield from hide(threads, thread, found)


def listed(
    threads: Threads,
    address: Address | None,
    *,
    ns: str | None,
    matching: dict[str, Any] | None,
    before: str | None,
    limit: int | None,
) -> Plan[list[tuple[Thread, GraphStep]]]:
    """The steps that answer, newest first."""
    names = [address.thread] if address is not None else None
    if names is None:
        names = yield from read(lambda: list(threads.all()))
    found: list[tuple[Thread, GraphStep]] = []
    for name in names:
        thread = yield from threads.find(name)
        if thread is None:
            continue
        with thread.lock:
            step_id = None if address is None else address.step
            found += _answering(thread, ns, step_id, matching, before)
            if ns and before is not None and limit == 1:
                # A run that was sent to an older step asks so where a graph inside it
                # stood then. It may have been nowhere yet.
                thread.begin(ns, found[0][1] if found else None)
    if address is None:
        # Ids begin with the time: among threads there is no other order.
        # As text: earlier versions took any id.
        found.sort(key=lambda each: str(each[1].id), reverse=True)
    return found if limit is None else found[:limit]


def _answering(
    thread: Thread,
    ns: str | None,
    id: str | None,
    matching: dict[str, Any] | None,
    before: str | None,
) -> Iterator[tuple[Thread, GraphStep]]:
    is_earlier = _earlier_than(thread, ns, before)
    for step in thread.history.newest_first():
        if (ns is not None and step.ns != ns) or (id is not None and step.id != id):
            continue
        if not is_earlier(step):
            continue
        facts = step.record.get("meta", {})
        wanted = (matching or {}).items()
        if all(facts.get(key) == value for key, value in wanted):
            yield thread, step


def _earlier_than(
    thread: Thread, ns: str | None, before: str | None
) -> Callable[[GraphStep], bool]:
    if before is None:
        return lambda step: True
    bound: GraphStep | None = None
    for step in thread.history.steps.values():
        if step.id == before and (ns is None or step.ns == ns):
            bound = step
    if bound is None:
        # The name of a step that is not here: ids begin with the time.
        return lambda step: step.id < before
    last = bound.seq
    return lambda step: step.seq < last


def delta_history(
    threads: Threads, address: Address, channels: Sequence[str], serde: Serde
) -> Plan[dict[str, DeltaChannelHistory]]:
    """What was written to these channels on the way to a step, back to the last value of each.
    Steps that are hidden are on the way, too.
    """
    found: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        found[channel] = {"writes": []}
    thread = yield from threads.find(address.thread)
    if thread is None:
        return found
    with thread.lock:
        history = thread.history
        step = history.latest(address.ns)
        if address.step is not None:
            step = history.find(address.ns, address.step)
        decoder = _decoder(thread, serde)
        left = set(channels)
        step = None if step is None else history.parent_of(step)
        while step is not None and left:
            for write in reversed(pending(step)):
                if write.channel in left:
                    said = (write.task, write.channel, decoder.decode(write.value))
                    found[write.channel]["writes"].append(said)
            values = history.state(step).values
            for channel in [each for each in left if each in values]:
                found[channel]["seed"] = decoder.decode(values[channel])
                left.discard(channel)
            step = history.parent_of(step)
    for entry in found.values():
        entry["writes"].reverse()
    return found


def tell(
    found: Sequence[tuple[Thread, GraphStep]], serde: Serde
) -> Iterator[CheckpointTuple]:
    """These steps as LangGraph wants them, one at a time."""
    for thread, step in found:
        with thread.lock:
            tuple_ = told(thread, step, serde)
        yield tuple_
