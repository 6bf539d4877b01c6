"""What a run has left open that was cut off, settled before the next one begins.

Of a run that was killed, LangGraph keeps the last whole step. A new prompt goes on from there and
drops what its tasks had finished; calls of tools without results go to the provider, which refuses
them. Here a step is stored first, as `update_state` would, whose messages are whole:

    what tasks had finished since the last step    as they have written it
    what the user was shown of a message           as far as it was shown, from the transcript
    calls without a result                         with one that says that their outcome is unknown
"""

from contextlib import nullcontext
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.base import copy_checkpoint
from langgraph.checkpoint.base.id import uuid6

from holdfast.adapters.langchain_payloads import with_results
from holdfast.adapters.langgraph import checkpoints
from holdfast.adapters.langgraph.checkpoints import Address, Serde, told
from holdfast.adapters.langgraph.history import GraphStep
from holdfast.adapters.langgraph.thread import Thread
from holdfast.adapters.langgraph.values import Encoded
from holdfast.runtime.plans.plan import Plan, read

USUAL = "messages"


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
        for id in thread.words.left_behind(thread.referenced):
            added.append(thread.words.find(id, None, serde.loads))
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
