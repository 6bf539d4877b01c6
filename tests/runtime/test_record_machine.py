"""Two agents on one store change their lists in every known way and record them in turn (I-12,
FAULTS B1-B7).

After every step: every message ever presented is in the transcript exactly once, in the order in
which it was first presented; the context is the list that was recorded last, up to repair;
recording it again moves nothing, from the same handle, from one without memory, and from what the
store itself hands out.

The limits that `reconcile` states are kept out of it: between dropping and recording, nothing is
said that equals what was dropped, and nothing that equals what a list was cleared of, by whomever;
only the first agent repeats texts; a memory is lost only with the list, or while the view is the
list.
"""

import copy
import itertools
import shutil
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import holdfast
from holdfast import Session
from holdfast.testing.providers import check

Payload = dict[str, Any]


def user(text: str) -> Payload:
    return {"role": "user", "content": text}


def use(call_id: str, output: str) -> tuple[Payload, Payload]:
    """A tool call and its result."""
    asked = {"id": call_id, "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    made = {"role": "assistant", "content": None, "tool_calls": [asked]}
    return made, {"role": "tool", "tool_call_id": call_id, "content": output}


class Truth:
    """A message as its author meant it. `presented`: it has been in a list that was recorded."""

    def __init__(self, payload: Payload) -> None:
        self.payload = copy.deepcopy(payload)
        self.presented = False


class Item:
    """A payload in a caller's list, and the truths it shows. `settled`: recorded since its last
    change.
    """

    def __init__(self, payload: Payload, truths: list[Truth], *, settled: bool = False) -> None:
        self.payload, self.truths, self.settled = payload, truths, settled

    @property
    def role(self) -> str:
        return str(self.payload["role"])

    def takes_in(self, other: "Item") -> bool:
        """Whether repair shows the two as one: words of one role, and words before the call of the
        same speaker.
        """
        return self.role == other.role != "tool" and "tool_calls" not in self.payload


def fused(truths: list[Truth]) -> list[Truth]:
    """Messages merged before anybody recorded them are one message to the world."""
    out: list[Truth] = []
    for truth in truths:
        if out and not out[-1].presented and not truth.presented:
            out[-1] = Truth(user(out[-1].payload["content"] + "\n\n" + truth.payload["content"]))
        else:
            out.append(truth)
    return out


def joined(items: list[Item]) -> list[Item]:
    """The list as repair shows it."""
    out: list[Item] = []
    for item in items:
        if out and out[-1].takes_in(item):
            texts = [
                payload["content"]
                for payload in (out[-1].payload, item.payload)
                if payload["content"]
            ]
            payload = {**out[-1].payload, **item.payload, "content": "\n\n".join(texts)}
            out[-1] = Item(payload, out[-1].truths + item.truths)
        else:
            out.append(Item(copy.deepcopy(item.payload), list(item.truths)))
    return out


def flushing(change: Callable[..., None]) -> Callable[..., None]:
    """Agents flush often: after most changes, and now and then only after several."""

    @wraps(change)
    def changed(self: "Agents", who: int, flush: int, **how: Any) -> None:
        change(self, who, **how)
        if flush:
            self.record(who, None)

    return changed


class Agents(RuleBasedStateMachine):
    """See the module's docstring."""

    who = st.integers(0, 1)
    flush = st.integers(0, 2)

    def __init__(self, where: str | None = None, key: str = "k") -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-record-"))
        self.where, self.key = where or self.folder / "agent.db", key
        self.stores = [self.open(), self.open()]
        self.handles = [store.session(self.key) for store in self.stores]
        self.lists: list[list[Item]] = [[], []]
        self.expected: list[Truth] = []
        self.view: list[Item] = []
        self.instructions: str | None = None
        self.count = 0
        self.last = 0
        self.dropped = [False, False]

    def open(self) -> holdfast.Store:
        return holdfast.open(self.where, durability="process")

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def unique(self, shape: str) -> str:
        self.count += 1
        return shape.format(self.count, self.count)

    def text(self, who: int, repeated: bool) -> str:
        if repeated and who == 0 and not self.dropped[0] and not self.is_cleared_of("yes"):
            return "yes"
        return self.unique("m{}") if self.count % 3 else self.unique("m{}\n\nn{}")

    def is_cleared_of(self, text: str) -> bool:
        """Whether this was said, and the list that was recorded last does not show all of it."""
        shown = [truth for item in self.view for truth in item.truths]
        return any(
            truth.payload["content"] == text and truth not in shown for truth in self.expected
        )

    # What agents do to their lists.

    @rule(who=who, flush=flush, repeated=st.booleans(), role=st.sampled_from(["user", "assistant"]))
    @flushing
    def speak(self, who: int, repeated: bool, role: str) -> None:
        self.say(who, repeated, role)

    def say(self, who: int, repeated: bool, role: str) -> None:
        payload = {"role": role, "content": self.text(who, repeated)}
        self.lists[who].append(Item(payload, [Truth(payload)]))

    @rule(who=who, flush=flush)
    @flushing
    def use_a_tool(self, who: int) -> None:
        for payload in use(self.unique("call_{}"), self.unique("output {}\n") * 20):
            self.lists[who].append(Item(payload, [Truth(payload)]))

    @rule(who=who, flush=flush, where=st.floats(0, 1))
    @flushing
    def insert_a_summary(self, who: int, where: float) -> None:
        payload = user(self.unique("summary {}"))
        items = self.lists[who]
        place = int(where * len(items))
        if place == len(items) or items[place].role != "tool":
            items.insert(place, Item(payload, [Truth(payload)]))

    @rule(who=who, flush=flush, where=st.floats(0, 1), in_place=st.booleans())
    @flushing
    def merge_two_users(self, who: int, where: float, in_place: bool) -> None:
        items = self.lists[who]
        pairs = [n for n in range(len(items) - 1) if items[n].role == "user" == items[n + 1].role]
        if pairs:
            self._merge(who, pairs[int(where * (len(pairs) - 1))], in_place=in_place)

    @rule(who=who, flush=flush, repeated=st.booleans(), in_place=st.booleans())
    @flushing
    def merge_a_known_user_with_a_new_one(self, who: int, repeated: bool, in_place: bool) -> None:
        if self.lists[who] and self.lists[who][-1].role == "user":
            # Equal texts inside a merged one, seen by somebody with an older view, can't be told
            # apart: a stated limit.
            self.say(who, repeated and not self.lists[1 - who], "user")
            self._merge(who, len(self.lists[who]) - 2, in_place=in_place)

    def _merge(self, who: int, place: int, *, in_place: bool) -> None:
        items = self.lists[who]
        one, two = items[place], items.pop(place + 1)
        text = one.payload["content"] + "\n\n" + two.payload["content"]
        if in_place:
            one.payload["content"] = text
            one.truths, one.settled = fused(one.truths + two.truths), False
        else:
            items[place] = Item(user(text), fused(one.truths + two.truths))

    @rule(who=who, flush=flush, share=st.floats(0, 1))
    @flushing
    def drop_a_head(self, who: int, share: float) -> None:
        items = self.lists[who]
        cut = int(share * len(items))
        while cut < len(items) and items[cut].role == "tool":
            cut += 1
        self._drop(who, slice(0, cut))

    @rule(who=who, flush=flush, where=st.floats(0, 1))
    @flushing
    def drop_a_tool_pair(self, who: int, where: float) -> None:
        pairs = [n for n, item in enumerate(self.lists[who]) if "tool_calls" in item.payload]
        if pairs:
            n = pairs[int(where * (len(pairs) - 1))]
            self._drop(who, slice(n, n + 2))

    @rule(who=who, flush=flush, count=st.integers(1, 3))
    @flushing
    def drop_a_tail(self, who: int, count: int) -> None:
        items = self.lists[who]
        cut = max(0, len(items) - count)
        if cut < len(items) and items[cut].role != "tool":
            self._drop(who, slice(cut, len(items)))

    def _drop(self, who: int, where: slice) -> None:
        gone = self.lists[who][where]
        if all(item.settled for item in self.lists[who]):
            del self.lists[who][where]
            self.dropped[who] = self.dropped[who] or bool(gone)

    @rule(who=who, flush=flush, where=st.floats(0, 1))
    @flushing
    def shorten_a_tool_output(self, who: int, where: float) -> None:
        outputs = [item for item in self.lists[who] if item.role == "tool" and item.settled]
        if outputs:
            outputs[int(where * (len(outputs) - 1))].payload["content"] = self.unique("… {}")

    @rule(who=who, flush=flush)
    @flushing
    def copy_the_list(self, who: int) -> None:
        for item in self.lists[who]:
            item.payload = copy.deepcopy(item.payload)

    @rule(who=who)
    def mark_what_was_flushed(self, who: int) -> None:
        for item in self.lists[who]:
            if item.settled:
                item.payload["_db_persisted"] = True

    @rule(who=who)
    @precondition(lambda self: self.expected)
    def load_the_context(self, who: int) -> None:
        loaded = [payload for payload in self.handles[who].context() if payload["role"] != "system"]
        shown = joined(self.view)
        self.lists[who] = [
            Item(payload, item.truths, settled=True)
            for payload, item in zip(loaded, shown, strict=True)
        ]
        self.dropped[who] = False

    @rule(who=who)
    @precondition(lambda self: self.expected)
    def load_it_through_another_store(self, who: int) -> None:
        self.stores[who].close()
        self.stores[who] = self.open()
        self.handles[who] = self.stores[who].session(self.key)
        self.load_the_context(who)

    # Recording, and what must hold after it.

    @rule(who=who)
    def record_without_memory(self, who: int) -> None:
        if self.last == who:
            self.handles[who] = self.stores[who].session(self.key)
            self.record(who, None)

    @rule(who=who, prompt=st.sampled_from([None, "Be kind.", "Be brief."]))
    def record(self, who: int, prompt: str | None) -> None:
        system = [{"role": "system", "content": prompt}] if prompt else []
        presented = system + [item.payload for item in self.lists[who]]
        self.instructions = prompt or self.instructions
        recorded = self.handles[who].record(presented)
        fresh = []
        for item in self.lists[who]:
            item.settled = True
            fresh += [truth for truth in item.truths if not truth.presented]
            for truth in item.truths:
                truth.presented = True
        self.expected += fresh
        self.view = [
            Item(copy.deepcopy(item.payload), list(item.truths)) for item in self.lists[who]
        ]
        self.last, self.dropped[who] = who, False
        assert len(recorded.new) == len(fresh)
        self._check(self.handles[who], presented, recorded.head)

    def _check(self, handle: Session, presented: list[Payload], head: int) -> None:
        assert [message.payload for message in handle.transcript()] == [
            truth.payload for truth in self.expected
        ]
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        shown = [item.payload for item in joined(self.view)]
        other = self.stores[1 - self.last].session(self.key)
        for reader in (handle, other):
            context = reader.context()
            assert [bare(payload) for payload in context] == [
                bare(payload) for payload in system + shown
            ]
            assert check("openai.chat", [bare(payload) for payload in context]) == []
        assert handle.record(presented) == holdfast.Recorded((), head)
        assert other.record(copy.deepcopy(presented)) == holdfast.Recorded((), head)
        assert other.record(list(other.context())) == holdfast.Recorded((), head)

    @invariant()
    def the_transcript_holds_each_truth_once(self) -> None:
        assert self.handles[0].info().messages == len(self.expected)


def bare(payload: Payload) -> Payload:
    """Without the caller's own marks."""
    return {key: value for key, value in payload.items() if not key.startswith("_")}


Agents.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestAgents = pytest.mark.slow(Agents.TestCase)


@pytest.mark.slow
def test_agents_on_postgres(databases: Callable[..., str]) -> None:
    """The same machine; each of its stories has a key of its own."""
    where, numbers = databases(schema=True), itertools.count()
    few = settings(Agents.TestCase.settings, max_examples=6, stateful_step_count=20)
    run_state_machine_as_test(lambda: Agents(where, f"k{next(numbers)}"), settings=few)
