"""`HoldfastStepStore`: the `StepStore` of pydantic-ai-harness on a Holdfast store.

    agent = Agent(…, capabilities=[StepPersistence(store=HoldfastStepStore("agent.db"))])

A run's record, events, snapshots and effects of tools are one session; the messages of its snapshots
are another, `pydantic_ai.words:conversation:<id>`, in which each stands once.
"""

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from threading import Lock
from typing import Any, TypeVar

try:
    from pydantic_ai_harness.step_persistence import (
        ContinuableSnapshot,
        RunRecord,
        StepEvent,
        ToolEffectRecord,
    )
except ImportError as error:
    line = "pip install pydantic-ai-harness"
    words = f"pydantic_ai_harness is not there. Install it with: {line}"
    raise ImportError(words, name="pydantic_ai_harness") from error
from pydantic import TypeAdapter

from holdfast.adapters.framework import GivenStore, key_of, sessions_under, store_of
from holdfast.adapters.pydantic_ai.kept_run import KeptRun, KeptWords, Record
from holdfast.adapters.pydantic_ai.messages import FORMAT, plain_of
from holdfast.domain.arguments import kind_of
from holdfast.engine.protocol import Refused, Write
from holdfast.errors import BadArgument
from holdfast.formats.frameworks.pydantic_ai_steps import NAME as STEPS
from holdfast.runtime.changes.open_session import open_session
from holdfast.runtime.live.session_log import SessionLog, speak
from holdfast.runtime.plans.plan import Plan, read, wait_for
from holdfast.runtime.plans.plan_asyncio import arun

RUN, WORDS, RUNS = "pydantic_ai.run", "pydantic_ai.words", "pydantic_ai.runs"
"""The first names of keys: a run, the messages of a conversation, the runs that belong to something."""
KEPT_MAX = 256
"""So many runs and conversations are remembered as far as they were read."""

T = TypeVar("T")
Kept = TypeVar("Kept", KeptRun, KeptWords)


class HoldfastStepStore:
    """A step store in a Holdfast store, which is given open, by its path or by its address. It may be used
    from several event loops and threads.
    """

    def __init__(self, store: GivenStore) -> None:
        self.store = store_of(store)
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._lock = Lock()

    async def register_run(self, record: RunRecord) -> None:
        """Stores a run's record, once: the same registration again changes nothing, another one
        under its id is refused.
        """
        _check("record", record, RunRecord)
        await arun(self._register(_record("run", record)))

    async def get_run(self, *, run_id: str) -> RunRecord | None:
        found = await self._found(run_id)
        if found is None or found.registered is None:
            return None
        return _made(RunRecord, found.registered)

    async def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """The runs of a conversation, or of the run that started them, or all, oldest first. The
        cost of the first two does not grow with the other runs in the store.
        """
        work = partial(self._listed, parent_run_id, conversation_id)
        records = await arun(read(work))
        runs = [_made(RunRecord, record) for record in records]
        return sorted(runs, key=lambda run: run.started_at)

    async def append_event(self, event: StepEvent) -> None:
        _check("event", event, StepEvent)
        record = _record("event", event)
        await arun(self._append(event.run_id, record, event.idempotency_key))

    async def list_events(self, *, run_id: str) -> list[StepEvent]:
        found = await self._found(run_id)
        events = [] if found is None else list(found.events)
        return [_made(StepEvent, record) for record in events]

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Stores what is new among the messages, and which of them the snapshot has, in one
        commit.
        """
        _check("snapshot", snapshot, ContinuableSnapshot)
        await arun(self._save(snapshot, list(snapshot.messages)))

    async def latest_snapshot(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> ContinuableSnapshot | None:
        for record in reversed(await self._snapshots(run_id, include_interrupted)):
            return await arun(read(partial(self._read, record)))
        return None

    async def list_snapshots(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> list[ContinuableSnapshot]:
        """All snapshots of a run, in the order in which they were saved."""
        records = await self._snapshots(run_id, include_interrupted)
        return [await arun(read(partial(self._read, record))) for record in records]

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        _check("record", record, ToolEffectRecord)
        await arun(self._append(record.run_id, _record("effect", record), None))

    async def get_tool_effect(
        self, *, run_id: str, tool_call_id: str
    ) -> ToolEffectRecord | None:
        found = await self._found(run_id)
        record = None if found is None else found.effects.get(tool_call_id)
        return None if record is None else _made(ToolEffectRecord, record)

    async def list_unresolved_tool_effects(
        self, *, run_id: str
    ) -> list[ToolEffectRecord]:
        found = await self._found(run_id)
        records = [] if found is None else list(found.effects.values())
        effects = [_made(ToolEffectRecord, record) for record in records]
        return [effect for effect in effects if effect.status == "started"]

    async def _snapshots(self, run_id: str, also_interrupted: bool) -> list[Record]:
        found = await self._found(run_id)
        kept = []
        for record in [] if found is None else list(found.snapshots):
            if also_interrupted or record.get("state", "complete") == "complete":
                kept.append(record)
        return kept

    def _register(self, record: Record) -> Plan[None]:
        run = yield from self._run(record["run_id"])
        writes = [_write(run.log, record, "registered")]
        # In the same commit, beside what they belong to: so they are listed without
        # looking through all runs.
        for name in ("conversation", "parent_run"):
            of = record.get(f"{name}_id")
            if of is not None:
                key = key_of(RUNS, name, of)
                log = yield from open_session(self.store._work, key)
                writes.append(_write(log, record, None))
        outcome = yield from wait_for(run.log.engine.submit(tuple(writes)))
        if not isinstance(outcome, Refused):
            return
        if outcome.why != "accepted":
            raise (yield from read(run.log.ended))
        known = (yield from read(run.catch_up)).registered or {}
        registration = record.get("registration_id")
        if registration is None or known.get("registration_id") != registration:
            takes, given = "a run that is not registered yet", record["run_id"]
            raise BadArgument(parameter="record", takes=takes, given=repr(given))

    def _append(self, run_id: str, record: Record, key: str | None) -> Plan[None]:
        run = yield from self._run(run_id)
        name = None if key is None else f"event/{key}"
        write = _write(run.log, record, name)
        outcome = yield from wait_for(run.log.engine.submit((write,)))
        # What came under this key before is there.
        if isinstance(outcome, Refused) and outcome.why != "accepted":
            raise (yield from read(run.log.ended))

    def _save(self, snapshot: ContinuableSnapshot, messages: list[Any]) -> Plan[None]:
        run = yield from self._run(snapshot.run_id)
        words = yield from self._words(snapshot)
        key = snapshot.idempotency_key
        name = None if key is None else f"snapshot/{key}"
        record = _record("snapshot", dataclasses.replace(snapshot, messages=[]))
        while True:
            new = words.placed(messages)
            told = {**record, "messages": new.ranges, "words": words.log.id}
            commit = [_write(run.log, told, name)]
            if new.payloads:
                drafts = []
                for payload in new.payloads:
                    spoken = speak(payload, FORMAT)
                    drafts.append(words.log.message(spoken, turn=None))
                # Refused if others have stored some since: places are counted from there.
                commit.append(Write(words.log.id, tuple(drafts), head=new.head))
            outcome = yield from wait_for(run.log.engine.submit(tuple(commit)))
            if not isinstance(outcome, Refused):
                yield from read(partial(words.stored, messages, new))
                return
            if outcome.why == "accepted":
                return
            if outcome.why == "ended":
                raise (yield from read(run.log.ended))
            yield from read(words.catch_up)

    def _read(self, record: Record) -> ContinuableSnapshot:
        words = self._kept_of(record["words"])
        if words is None:
            log = self.store.get(record["words"])._log
            words = self._keep(record["words"], KeptWords(log))
        words.catch_up()
        told = {**record, "messages": []}
        made: ContinuableSnapshot = _made(ContinuableSnapshot, told)
        return dataclasses.replace(made, messages=words.read(record["messages"]))

    def _listed(self, parent: str | None, conversation: str | None) -> list[Record]:
        found: dict[str, Record] = {}
        for record in self._candidates(parent, conversation):
            if parent is not None and record.get("parent_run_id") != parent:
                continue
            if conversation is None or record.get("conversation_id") == conversation:
                found[record["run_id"]] = record
        return list(found.values())

    def _candidates(
        self, parent: str | None, conversation: str | None
    ) -> Iterator[Record]:
        if parent is None and conversation is None:
            for state in sessions_under(self.store, RUN):
                run = KeptRun(self.store._work.session_log(state)).catch_up()
                if run.registered is not None:
                    yield run.registered
            return
        name, of = "conversation", conversation
        if of is None:
            name, of = "parent_run", parent
        state = self._current(key_of(RUNS, name, str(of)))
        if state is not None:
            for message in self.store.get(state.id).transcript():
                if isinstance(message.payload, dict):
                    yield message.payload

    async def _found(self, run_id: str) -> KeptRun | None:
        """A run, as far as it is stored; None when there is none."""
        _check("run_id", run_id, str)
        return await arun(read(partial(self._find, run_id)))

    def _find(self, run_id: str) -> KeptRun | None:
        key = key_of(RUN, run_id)
        state = self._current(key)
        if state is None:
            return None
        kept = self._kept_of(key)
        if kept is None or kept.log.id != state.id:
            kept = self._keep(key, KeptRun(self.store._work.session_log(state)))
        found: KeptRun = kept.catch_up()
        return found

    def _run(self, run_id: str) -> Plan[KeptRun]:
        """The run to write to: the one that was meant when this process first used it."""
        _check("run_id", run_id, str)
        key = key_of(RUN, run_id)
        kept = self._kept_of(key)
        if kept is None:
            log = yield from open_session(self.store._work, key)
            kept = self._keep(key, KeptRun(log))
        found: KeptRun = kept
        return found

    def _words(self, snapshot: ContinuableSnapshot) -> Plan[KeptWords]:
        names = ("run", snapshot.run_id)
        if snapshot.conversation_id is not None:
            names = ("conversation", snapshot.conversation_id)
        key = key_of(WORDS, *names)
        state = yield from read(partial(self._current, key))
        log = None
        if state is None:
            log = yield from open_session(self.store._work, key)
            state = yield from read(log.state)
        kept = self._kept_of(state.id)
        if kept is None:
            log = log or self.store._work.session_log(state)
            kept = self._keep(state.id, KeptWords(log))
            yield from read(kept.catch_up)
        found: KeptWords = kept
        return found

    def _current(self, key: str) -> Any:
        work = self.store._work
        state = work.engine.current(work.tenant, key)
        return None if state is None or state.ended else state

    def _kept_of(self, name: str) -> Any:
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None:
                self._kept.move_to_end(name)
            return kept

    def _keep(self, name: str, kept: Kept) -> Kept:
        with self._lock:
            known = self._kept.get(name)
            # Of two callers that have read it at once, both are to use the same one.
            if known is not None and known.log.id == kept.log.id:
                return known  # type: ignore[no-any-return]
            self._kept[name] = kept
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return kept


def _check(parameter: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind) or value == "":
        takes = f"a {kind.__name__}" if kind is not str else "a name"
        raise BadArgument(parameter=parameter, takes=takes, given=kind_of(value))
    if kind is not str:
        _check("run_id", getattr(value, "run_id", None), str)


def _record(kind: str, value: Any) -> Record:
    """A value of the harness as the record that is stored; what says nothing is left out."""
    said = {}
    for name, each in plain_of(value).items():
        # The kind of an event has a name of its own here.
        if each is not None and each != {}:
            said["event" if name == "kind" else name] = each
    return {"kind": kind, **said}


_readers: dict[Any, TypeAdapter[Any]] = {}
"""Kept: to make one takes longer than to read a thousand messages."""


def _made(kind: type[T], record: Record) -> T:
    """The value of the harness that was stored as this record."""
    said = dict(record)
    said.pop("kind", None)
    said.pop("words", None)
    if "event" in said:
        said["kind"] = said.pop("event")
    reader = _readers.get(kind)
    if reader is None:
        reader = _readers[kind] = TypeAdapter(kind)
    made: T = reader.validate_python(said)
    return made


def _write(log: SessionLog, record: Record, name: str | None) -> Write:
    draft = log.message(speak(record, STEPS), turn=None)
    event = None if name is None else log.event(f"{log.epoch}/{name}")
    return Write(log.id, (draft,), event=event)
