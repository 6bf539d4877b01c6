"""What a run has left open that was cut off, settled before the next one begins.

Of a run that was killed, LangGraph keeps the last whole step. A new prompt goes on from there and
drops what its tasks had finished; calls of tools without results go to the provider, which refuses
them. Here a step is stored first, as `update_state` would, whose messages are whole:

    what tasks had finished since the last step    as they have written it
    what the user was shown of a message           as far as it was shown, from the transcript
    what tasks and graphs inside them said         whole, from the transcript, if they had not finished
    calls without a result                         with one that says that their outcome is unknown
"""

from contextlib import nullcontext
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, copy_checkpoint
from langgraph.checkpoint.base.id import uuid6

from holdfast.adapters.langchain_payloads import with_results
from holdfast.adapters.langgraph import checkpoints
from holdfast.adapters.langgraph.checkpoints import Address, Serde, told
from holdfast.adapters.langgraph.history import GraphStep
from holdfast.adapters.langgraph.thread import Thread
from holdfast.adapters.langgraph.values import Encoded
from holdfast.runtime.plans.plan import Plan, read

USUAL = "messages"
NS_SEP, NS_END = "|", ":"
"""How LangGraph names a graph inside: the nodes on the way to it, each with its task."""


def settle(saver: Any, thread_id: str) -> Plan[None]:
    """Stores a step with what the last run has left open, if it has left anything."""
    serde: Serde = saver._serde
    thread = yield from saver._threads.find(thread_id)
    if thread is None:
        return
    # A turn that was cut off is in the words, not in the steps.
    yield from read(thread.read_words)
    with thread.lock:
        step = thread.history.latest("")
        if step is None:
            return
        channel = _channel(thread, step)
        if channel is None:
            return
        tuple_ = told(thread, step, serde)
        said = list(tuple_.checkpoint["channel_values"].get(channel, []))
        added = _finished(tuple_, channel, said)
        added += _left_behind(thread, tuple_, [*said, *added], serde)
        whole = with_results([*said, *added], to_the_end=True)
    if len(whole) == len(said):
        return
    checkpoint: dict[str, Any] = dict(copy_checkpoint(tuple_.checkpoint))
    versions = checkpoint["channel_versions"]
    version = saver.get_next_version(max(versions.values()), None)
    versions[channel] = version
    checkpoint["channel_values"][channel] = whole
    # Ids of steps sort by time, as LangGraph makes them.
    checkpoint["id"] = str(uuid6(clock_seq=-2))
    facts = {"source": "update", "step": tuple_.metadata["step"] + 1, "parents": {}}
    yield from checkpoints.put(
        saver._threads,
        Address(thread_id, "", step.id),
        checkpoint,
        {**facts, "holdfast": "settled"},
        {channel: version},
        serde,
        lambda thread: nullcontext(),
    )


def _channel(thread: Thread, step: GraphStep) -> str | None:
    """The channel that the messages are in."""
    found = []
    for name, value in thread.history.state(step).values.items():
        if not name.startswith("__") and _holds_messages(value):
            found.append(name)
    if USUAL in found:
        return USUAL
    return found[0] if found else None


def _holds_messages(value: Encoded) -> bool:
    return type(value) is list and any(
        type(item) is dict and ("$m" in item or "$p" in item) for item in value
    )


def _left_behind(
    thread: Thread, tuple_: Any, there: list[Any], serde: Serde
) -> list[Any]:
    """The messages that were said since the step, and that no task has written."""
    names = {getattr(message, "id", None) for message in there} - {None}
    over = _finished_tasks(tuple_)
    found: dict[str, Any] = {}
    for id in thread.words.left_behind(thread.referenced):
        # What a graph inside has kept for itself, whose task was finished, stays there.
        if _task_of(thread.inside.get(id, "")) in over:
            continue
        message = thread.words.find(id, None, serde.loads)
        # A node may have said one thing and written another under the same name.
        if message.id not in names:
            found[message.id or id] = message
    return list(found.values())


def _finished_tasks(tuple_: Any) -> set[str]:
    """The tasks that have written what they have made."""
    writes = tuple_.pending_writes or ()
    return {task for task, where, _ in writes if where not in WRITES_IDX_MAP}


def _task_of(ns: str) -> str | None:
    """The task of the outer graph in which a graph inside runs; its name has it, unless it goes on
    from run to run.
    """
    return ns.split(NS_SEP)[0].partition(NS_END)[2] or None


def _finished(tuple_: Any, channel: str, said: list[Any]) -> list[Any]:
    """The messages that tasks have written since the step."""
    names = {message.id for message in said if getattr(message, "id", None)}
    found = []
    for _, where, value in tuple_.pending_writes or ():
        if where != channel:
            continue
        for message in value if isinstance(value, list) else [value]:
            if isinstance(message, AIMessage | ToolMessage) and message.id not in names:
                found.append(message)
    return found
