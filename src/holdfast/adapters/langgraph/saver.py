"""`HoldfastSaver`: a checkpointer of LangGraph that keeps threads in a Holdfast store.

Thin: arguments are checked here, what is done is written in `checkpoints` and `threads`.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)

from holdfast.adapters.framework import GivenStore, store_of
from holdfast.adapters.langgraph import checkpoints
from holdfast.adapters.langgraph.checkpoints import Address, Gate, Serde
from holdfast.adapters.langgraph.durable import DurableGraph
from holdfast.adapters.langgraph.thread import TaskWrites, Thread
from holdfast.adapters.langgraph.threads import Threads
from holdfast.adapters.langgraph.values import typed
from holdfast.domain.arguments import kind_of, optional, refuse, text, whole
from holdfast.errors import BadArgument
from holdfast.runtime.plans.plan import run
from holdfast.runtime.plans.plan_asyncio import arun

_COUNT = optional(whole())
_FIELDS = ("v", "ts", "id", "channel_values", "channel_versions", "versions_seen")


class HoldfastSaver(BaseCheckpointSaver[Any]):
    """Keeps the threads of graphs in `store`: a Store, a path or an address.

    A step is stored as what it has changed, a message once, in a transcript that search, the doctor
    and `holdfast show` read. Use one for all threads, from any thread and event loop.
    """

    def __init__(self, store: GivenStore, *, serde: Any = None) -> None:
        super().__init__(serde=serde)
        self.store = store_of(store)
        self._threads = Threads(self.store)

    def durable(self, graph: Any) -> DurableGraph:
        """The same compiled graph with its runs as turns: one at a time for each thread, streamed
        text stored before it is shown, and what a run that was cut off has left open is settled
        before the next.
        """
        return DurableGraph(self, graph)

    # What LangGraph calls, each twice.

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        """The step that the config names, or the latest; None when there is none."""
        return run(checkpoints.load(self._threads, _address(config), self._serde))

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await arun(
            checkpoints.load(self._threads, _address(config), self._serde)
        )

    def put(
        self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any
    ) -> Any:
        """Stores a step on the one that the config names. Raises `Conflict` if another run has gone
        on from there since it was loaded, `SessionEnded` if the thread was deleted.
        """
        return run(self._put(config, checkpoint, metadata, new_versions, _alone))

    async def aput(
        self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any
    ) -> Any:
        """As `put`."""
        plan = self._put(config, checkpoint, metadata, new_versions, _side_by_side)
        return await arun(plan)

    def put_writes(
        self,
        config: Any,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Stores what a task has written at a step; the same writes again are stored once."""
        run(self._put_writes(config, writes, task_id, task_path, _alone))

    async def aput_writes(
        self,
        config: Any,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`."""
        plan = self._put_writes(config, writes, task_id, task_path, _side_by_side)
        await arun(plan)

    def list(
        self,
        config: Any,
        *,
        filter: dict[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The steps that answer, newest first."""
        found = run(self._listed(config, filter, before, limit))
        yield from checkpoints.tell(found, self._serde)

    async def alist(
        self,
        config: Any,
        *,
        filter: dict[str, Any] | None = None,
        before: Any = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        found = await arun(self._listed(config, filter, before, limit))
        for each in checkpoints.tell(found, self._serde):
            yield each

    def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread: its steps and what was said in it are erased. A run that is on its way
        in it is refused from then on (`SessionEnded`).
        """
        run(self._threads.delete(_name("thread_id", thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await arun(self._threads.delete(_name("thread_id", thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Takes the steps of these runs out of sight, in all threads."""
        run(checkpoints.delete_for_runs(self._threads, _names("run_ids", run_ids)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await arun(
            checkpoints.delete_for_runs(self._threads, _names("run_ids", run_ids))
        )

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread, all of its steps and words, to a name that has none yet."""
        run(self._copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await arun(self._copy(source_thread_id, target_thread_id))

    def prune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest"
    ) -> None:
        """Takes all but the latest step of each namespace out of sight, or, with "delete", deletes
        the threads.
        """
        run(self._prune(thread_ids, strategy))

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest"
    ) -> None:
        """As `prune`."""
        await arun(self._prune(thread_ids, strategy))

    def get_delta_channel_history(
        self, *, config: Any, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was written to these channels on the way to a step."""
        return run(self._delta_history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: Any, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return await arun(self._delta_history(config, channels))

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The version after this one: a number. A thread that was brought from a saver that counts
        in text goes on in text.
        """
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}"
        return 1 if current is None else int(current) + 1

    # What both faces do.

    @property
    def _serde(self) -> Serde:
        # Looked up each time: LangGraph makes copies of a saver with another one.
        return Serde(
            lambda value: typed(value, self.serde.dumps_typed), self.serde.loads_typed
        )

    def _put(
        self, config: Any, checkpoint: Any, metadata: Any, changed: Any, gate: Gate
    ) -> Any:
        address = _address(config)
        _check(checkpoint)
        _by_name("metadata", metadata)
        _by_name("new_versions", changed)
        facts = dict(get_checkpoint_metadata(config, metadata))
        plan = checkpoints.put(
            self._threads, address, checkpoint, facts, changed, self._serde, gate
        )
        yield from plan
        return address._replace(step=checkpoint["id"]).config()

    def _put_writes(
        self, config: Any, writes: Any, task: Any, path: Any, gate: Gate
    ) -> Any:
        address = _address(config)
        if address.step is None:
            takes = "a config with the `checkpoint_id` that was written at"
            raise BadArgument(parameter="config", takes=takes, given="one without")
        made = TaskWrites(
            (address.ns, address.step),
            _pairs(writes),
            task_id=_name("task_id", task),
            task_path=_name("task_path", path),
        )
        return checkpoints.put_writes(
            self._threads, address.thread, made, self._serde, gate
        )

    def _listed(self, config: Any, matching: Any, before: Any, limit: Any) -> Any:
        address = None if config is None else _address(config)
        ns = None
        if config is not None:
            ns = config["configurable"].get("checkpoint_ns")
        limit = _COUNT("limit", limit)
        matching = optional(_by_name)("filter", matching)
        bound = None
        if before is not None:
            bound = _configurable("before", before).get("checkpoint_id")
        return checkpoints.listed(
            self._threads,
            address,
            ns=ns,
            matching=matching,
            before=bound,
            limit=limit,
        )

    def _copy(self, source: Any, target: Any) -> Any:
        source = _name("source_thread_id", source)
        return self._threads.copy(source, _name("target_thread_id", target))

    def _prune(self, thread_ids: Any, strategy: Any) -> Any:
        if strategy not in ("keep_latest", "delete"):
            takes = '"keep_latest" or "delete"'
            raise BadArgument(parameter="strategy", takes=takes, given=repr(strategy))
        names = _names("thread_ids", thread_ids)
        return checkpoints.prune(self._threads, names, strategy)

    def _delta_history(self, config: Any, channels: Any) -> Any:
        names = _names("channels", channels)
        return checkpoints.delta_history(
            self._threads, _address(config), names, self._serde
        )


def _alone(thread: Thread) -> AbstractContextManager[Any]:
    return thread.gate


def _side_by_side(thread: Thread) -> AbstractContextManager[Any]:
    return nullcontext()


def _configurable(parameter: str, config: Any) -> dict[str, Any]:
    named = config.get("configurable") if isinstance(config, dict) else None
    if not isinstance(named, dict):
        takes = "a config with `configurable` in it"
        raise BadArgument(parameter=parameter, takes=takes, given=kind_of(config))
    return named


def _address(config: Any) -> Address:
    named = _configurable("config", config)
    if named.get("thread_id") is None:
        takes = "a config with `configurable` and a `thread_id` in it"
        raise BadArgument(parameter="config", takes=takes, given=kind_of(config))
    step = named.get("checkpoint_id")
    return Address(
        _name("thread_id", named["thread_id"]),
        _name("checkpoint_ns", named.get("checkpoint_ns") or ""),
        None if not step else _name("checkpoint_id", step),
    )


def _check(checkpoint: Any) -> None:
    """Refuses what could not be read again, or would hide the steps of others from lists."""
    _by_name("checkpoint", checkpoint)
    for field in _FIELDS:
        if field not in checkpoint:
            takes, given = f"a checkpoint with `{field}`", "one without"
            raise BadArgument(parameter="checkpoint", takes=takes, given=given)
    text("checkpoint['id']", checkpoint["id"])
    for field in ("channel_values", "channel_versions", "versions_seen"):
        _by_name(f"checkpoint['{field}']", checkpoint[field])
    for seen in checkpoint["versions_seen"].values():
        _by_name("checkpoint['versions_seen']", seen)


def _pairs(writes: Any) -> list[tuple[str, Any]]:
    takes = "a list of pairs, a channel and a value"
    if isinstance(writes, str) or not isinstance(writes, Sequence):
        raise BadArgument(parameter="writes", takes=takes, given=kind_of(writes))
    for each in writes:
        if not isinstance(each, (list, tuple)) or len(each) != 2:
            given = f"a list with {kind_of(each)} in it"
            raise BadArgument(parameter="writes", takes=takes, given=given)
        text("writes", each[0])
    return list(writes)


def _by_name(parameter: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise refuse(parameter, "values by name", value)
    for name in value:
        if not isinstance(name, str):
            given = f"one with {kind_of(name)} for a name"
            raise BadArgument(parameter=parameter, takes="values by name", given=given)
    return value


def _name(parameter: str, value: Any) -> str:
    """A name; numbers are taken as LangGraph takes them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadArgument(parameter=parameter, takes="text", given=kind_of(value))
    if not value.isascii() and any("\ud800" <= sign <= "\udfff" for sign in value):
        given = "text with lone surrogates in it"
        raise BadArgument(parameter=parameter, takes="text", given=given)
    return value


def _names(parameter: str, values: Any) -> list[str]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        takes = "a list of names"
        raise BadArgument(parameter=parameter, takes=takes, given=kind_of(values))
    return [_name(parameter, value) for value in values]
