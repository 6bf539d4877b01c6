"""The steps of one thread, read from its records: which there are, and the state at each.

A record says what its step has changed; the state at a step is what its parents have left, changed
by it. The latest step of a namespace is the last one that was stored, whatever the clocks say that
made their ids.

    step    a checkpoint: ns, id, parent (when it is not the latest before it), what it changed
    writes  what a task has written at a step, by task and place in its list
    hide    steps that are not to be found any more; what stands on them still reads what they say
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from langgraph.checkpoint.base import WRITES_IDX_MAP, writes_sort_key

from holdfast.adapters.langgraph.values import Encoded, joined, spliced

Place = tuple[str, str]
"""The namespace and the id of a step."""
STATES_MAX = 4

# What the record of a step has of its own; the rest of a checkpoint is kept under `more`.
_OWN = frozenset(
    {"v", "ts", "id", "channel_values", "channel_versions", "versions_seen"}
)


class State(NamedTuple):
    """The channels at a step: their values and versions, and which versions each node has seen."""

    values: dict[str, Encoded]
    versions: dict[str, Any]
    seen: dict[str, dict[str, Any]]

    def copy(self) -> "State":
        return State(dict(self.values), dict(self.versions), dict(self.seen))


class TaskWrite(NamedTuple):
    """What a task has written to a channel."""

    path: str
    task: str
    place: int
    channel: str
    value: Encoded


class GraphStep:
    """A checkpoint as it was stored. `seq` is its place in the log."""

    __slots__ = ("ns", "parent", "record", "seq", "writes")

    def __init__(self, record: dict[str, Any], parent: str | None, seq: int) -> None:
        self.record = record
        self.ns: str = record.get("ns", "")
        self.parent = parent
        self.seq = seq
        self.writes: dict[tuple[str, int], TaskWrite] = {}

    @property
    def id(self) -> str:
        name: str = self.record["id"]
        return name

    def change(self, state: State) -> None:
        """Makes the state before this step the state after it."""
        record = self.record
        for channel, value in record.get("values", {}).items():
            state.values[channel] = joined(state.values.get(channel), value)
        for channel in record.get("empty", ()):
            state.values.pop(channel, None)
        state.versions.update(record.get("versions", {}))
        state.seen.update(record.get("seen", {}))
        for channel in record.get("dropped", ()):
            state.versions.pop(channel, None)
            state.values.pop(channel, None)
        for node in record.get("unseen", ()):
            state.seen.pop(node, None)


class History:
    """All steps of a thread, up to entry `head` of their log."""

    def __init__(self) -> None:
        self.head = 0
        self.steps: dict[Place, GraphStep] = {}
        self.hidden: set[Place] = set()
        self._order: dict[str, list[str]] = {}
        self._early: dict[Place, dict[tuple[str, int], TaskWrite]] = {}
        self._states: OrderedDict[Place, State] = OrderedDict()

    def add(self, record: dict[str, Any], seq: int) -> None:
        """Takes the next record of the log."""
        self.head = seq
        kind = record.get("kind")
        if kind == "step":
            self._add_step(record, seq)
        elif kind == "writes":
            self._add_writes(record)
        elif kind == "hide":
            self.hidden.update((ns, id) for ns, id in record["steps"])

    def _add_step(self, record: dict[str, Any], seq: int) -> None:
        ns = record.get("ns", "")
        order = self._order.setdefault(ns, [])
        parent = record.get("parent", order[-1] if order else None)
        step = GraphStep(record, parent, seq)
        place = (ns, step.id)
        known = self.steps.get(place)
        if known is not None:
            # The same step stored again: it stays where it is.
            step.seq, step.writes = known.seq, known.writes
            self._states.clear()
        else:
            order.append(step.id)
            step.writes = self._early.pop(place, {})
        self.steps[place] = step
        self.hidden.discard(place)

    def _add_writes(self, record: dict[str, Any]) -> None:
        place = (record.get("ns", ""), record["at"])
        step = self.steps.get(place)
        # LangGraph stores what a task writes while its step is still on the way.
        writes = self._early.setdefault(place, {}) if step is None else step.writes
        task, path = record["task"], record.get("path", "")
        for index, (channel, value) in enumerate(record["writes"]):
            number = WRITES_IDX_MAP.get(channel, index)
            # Marks (an error, an interrupt) are replaced, other writes are kept as they
            # were: the same ones may be stored twice.
            if number >= 0 and (task, number) in writes:
                continue
            writes[task, number] = TaskWrite(path, task, number, channel, value)

    def latest(self, ns: str) -> GraphStep | None:
        """The step that was stored last in this namespace."""
        for id in reversed(self._order.get(ns, ())):
            if (ns, id) not in self.hidden:
                return self.steps[ns, id]
        return None

    def last(self, ns: str) -> str | None:
        """The id of the last step there was, also of one that can't be found any more."""
        order = self._order.get(ns)
        return order[-1] if order else None

    def find(self, ns: str, id: str) -> GraphStep | None:
        """The step of this name."""
        return None if (ns, id) in self.hidden else self.steps.get((ns, id))

    def newest_first(self) -> list[GraphStep]:
        """All steps that can be found."""
        found = [step for place, step in self.steps.items() if place not in self.hidden]
        return sorted(found, key=lambda step: step.seq, reverse=True)

    def namespaces(self) -> list[str]:
        return list(self._order)

    def parent_of(self, step: GraphStep) -> GraphStep | None:
        """The step that this one stands on, also if it can't be found any more."""
        return None if step.parent is None else self.steps.get((step.ns, step.parent))

    def state(self, step: GraphStep | None) -> State:
        """The channels at this step. Not to be changed."""
        todo = []
        known = None
        while step is not None:
            known = self._states.get((step.ns, step.id))
            if known is not None:
                break
            todo.append(step)
            step = self.parent_of(step)
        if not todo:
            return known or State({}, {}, {})
        state = known.copy() if known is not None else State({}, {}, {})
        for each in reversed(todo):
            each.change(state)
        self._remember(todo[0], state)
        return state

    def _remember(self, step: GraphStep, state: State) -> None:
        self._states[step.ns, step.id] = state
        if len(self._states) > STATES_MAX:
            self._states.popitem(last=False)


def pending(step: GraphStep) -> list[TaskWrite]:
    """What tasks have written at this step, in the order in which LangGraph applies it."""
    return sorted(
        step.writes.values(), key=lambda w: writes_sort_key(w.path, w.task, w.place)
    )


def step_record(
    history: History,
    before: State,
    *,
    ns: str,
    parent: str | None,
    checkpoint: dict[str, Any],
    values: dict[str, Encoded],
    metadata: Encoded,
) -> dict[str, Any]:
    """The record of a new step on the state at its parent. `values` are those of its channels that
    have changed.
    """
    versions, seen = checkpoint["channel_versions"], checkpoint["versions_seen"]
    record: dict[str, Any] = {"kind": "step"}
    if ns:
        record["ns"] = ns
    record |= {"id": checkpoint["id"], "v": checkpoint["v"], "ts": checkpoint["ts"]}
    if parent != history.last(ns):
        record["parent"] = parent
    changed = {}
    for channel, value in values.items():
        changed[channel] = spliced(before.values.get(channel), value)
    more = {key: checkpoint[key] for key in checkpoint if key not in _OWN}
    parts = {
        "versions": _changed(before.versions, versions),
        "dropped": [key for key in before.versions if key not in versions],
        "seen": _changed(before.seen, seen),
        "unseen": [node for node in before.seen if node not in seen],
        "values": changed,
        "empty": _emptied(before, versions, values),
        # An empty list says as much as none: older releases had one there.
        "more": {key: value for key, value in more.items() if value not in (None, [])},
        "meta": metadata,
    }
    record.update((key, part) for key, part in parts.items() if part)
    return record


def _emptied(
    before: State, versions: Mapping[str, Any], values: Mapping[str, Encoded]
) -> list[str]:
    """Channels that had a value and have moved on to none."""
    empty = []
    for channel in before.values:
        moved = before.versions.get(channel) != versions.get(channel)
        if moved and channel in versions and channel not in values:
            empty.append(channel)
    return empty


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in after.items()
        if key not in before or before[key] != value
    }
