"""One thread of a graph: two sessions, its words and its steps, and what this process knows of them.

The words are a session like any other, under the key `langgraph:<thread>`. The steps lie in a
session beside it, `langgraph.steps:<thread>`. What a step says and what it adds to the words is one
commit. A thread is over when either of them is.
"""

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from holdfast.adapters.framework import key_of
from holdfast.adapters.langgraph.history import GraphStep, History, Place
from holdfast.adapters.langgraph.words import New, Words
from holdfast.domain.entry import Draft, noted
from holdfast.domain.message import MessageNote, freeze, thaw
from holdfast.engine.protocol import Commit, SessionState, Write
from holdfast.formats import registry
from holdfast.formats.langchain.steps import NAME as STEPS
from holdfast.runtime.clock import mint
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.plans.plan import Notice
from holdfast.runtime.turns.running_turn import RunningTurn

WORDS_KEY = "langgraph"
STEPS_KEY = "langgraph.steps"
PLACES_MAX = 512
_NOTE: MessageNote = registry.get(STEPS).note({"kind": "step"})
_NOTED = noted(_NOTE)
"""What is noted beside every record."""
_REFERRING = ("values", "writes")
"""What of a record has references to messages in it."""


@lru_cache(maxsize=1024)
def words_key(thread_id: str) -> str:
    """The key of the session with a thread's words."""
    return key_of(WORDS_KEY, thread_id)


@lru_cache(maxsize=1024)
def steps_key(thread_id: str) -> str:
    """The key of the session with a thread's steps."""
    return key_of(STEPS_KEY, thread_id)


class Recent:
    """Places in a thread, or names of threads: the last `most` that were named."""

    def __init__(self, most: int = PLACES_MAX) -> None:
        self._most = most
        self._named: dict[Any, None] = {}

    def __contains__(self, name: Any) -> bool:
        return name in self._named

    def __len__(self) -> int:
        return len(self._named)

    def add(self, name: Any) -> None:
        self._named.pop(name, None)
        self._named[name] = None
        if len(self._named) > self._most:
            del self._named[next(iter(self._named))]

    def discard(self, name: Any) -> None:
        self._named.pop(name, None)


class Prepared(NamedTuple):
    """A record that is to be stored, and the messages that are new with it."""

    record: dict[str, Any]
    body: bytes
    new: list[New]

    @classmethod
    def of(cls, record: dict[str, Any], new: list[New]) -> "Prepared":
        return cls(record, freeze(record), new)


class TaskWrites(Notice):
    """What a task has written at a step, on its way to the log."""

    def __init__(
        self,
        place: Place,
        values: Sequence[tuple[str, Any]],
        *,
        task_id: str,
        task_path: str,
    ) -> None:
        super().__init__()
        self.place = place
        self.values = values
        self.task_id = task_id
        self.task_path = task_path
        self.is_taken = False
        """Whether a step has it in its commit."""
        self.is_stored = False


class Marks:
    """What runs of this process have begun from and have stored in a thread. It decides whether one
    that is still on its way was overtaken, so it outlives what else is known of the thread.
    """

    def __init__(self) -> None:
        self.loaded = Recent()
        """Steps that runs have begun from as the latest: namespace and id, None where there was no
        step yet.
        """
        self.chosen = Recent()
        """Steps that were asked for by name, when they were not the latest any more."""
        self.mine = Recent()
        """Steps that were stored by this process."""


class Thread:
    """A thread as it is known here. Its lock is held while one looks at it or changes it, never
    while one waits for the store.
    """

    def __init__(self, id: str, words: SessionLog, steps: SessionLog) -> None:
        self.id = id
        self.words_log = words
        self.steps_log = steps
        self.lock = threading.RLock()
        self.gate = threading.Lock()
        """Held by a thread of this process while it stores something, and waits for that."""
        self.history = History()
        self.words = Words()
        self.referenced: dict[str, bool] = {}
        """The messages that the graph has: whether a step refers to them, or a task's writes alone."""
        self.inside: dict[str, str] = {}
        """The messages that graphs inside this one have, with the namespace of the first."""
        self.marks = Marks()
        self.waiting: list[TaskWrites] = []
        """What tasks have written that waits for the step that comes next."""

    def is_of(self, steps: SessionState | None, words: SessionState | None) -> bool:
        """Whether these are the sessions of this thread, and it goes on."""
        if steps is None or words is None or steps.ended or words.ended:
            return False
        return steps.id == self.steps_log.id and words.id == self.words_log.id

    def begin(self, ns: str, step: GraphStep | None) -> None:
        """A run begins from this step. That decides later whether it was overtaken; one that was
        sent back by its caller makes a branch.
        """
        marks = self.marks
        begun = marks.loaded if step is self.history.latest(ns) else marks.chosen
        begun.add((ns, None if step is None else step.id))

    def catch_up(self) -> None:
        """Reads what others have stored since: the words last, or those of the last steps would be
        missing, and nobody may look in between.
        """
        with self.lock:
            while page := self.steps_log.page(self.history.head):
                for entry in page:
                    self.history.head = entry.seq
                    record = _record(entry.kind, entry.body)
                    if record is not None:
                        self._take(record, entry.seq)
            self.read_words()

    def read_words(self) -> None:
        """Reads what was said since."""
        with self.lock:
            while page := self.words_log.page(self.words.head):
                self.words.learn(page)

    def commit(
        self,
        prepared: Sequence[Prepared],
        *,
        turn: RunningTurn | None,
        head: int | None,
    ) -> Commit:
        """The records, in order, and the messages that are new with them. The records are last: what
        the engine answers is about them. Refused if one was stored behind `head`.
        """
        world = self.steps_log.world
        at = world.now()
        number = None if turn is None else turn.number
        said, records = [], []
        for each in prepared:
            id = mint(world, at)
            records.append(Draft("message", None, id, at, _NOTED, each.body))
            for new in each.new:
                note = noted(new.spoken.note)
                body = new.spoken.body
                said.append(Draft("message", number, new.id, at, note, body))
        steps = Write(self.steps_log.id, tuple(records), head=head)
        if not said:
            return (steps,)
        return Write(self.words_log.id, tuple(said), fence=number), steps

    def stored(self, prepared: Sequence[Prepared], seq: int) -> None:
        """What was just stored, the first record as this entry, is known, unless something else came
        before it: then it is read with that.
        """
        with self.lock:
            for each in prepared:
                self.words.add_all(each.new)
            if seq != self.history.head + 1:
                return
            for place, each in enumerate(prepared):
                self._take(each.record, seq + place)

    def _take(self, record: dict[str, Any], seq: int) -> None:
        try:
            self.history.add(record, seq)
        except (KeyError, TypeError, ValueError):
            return  # a record that is not as we write them: damaged (I-25)
        for part in _REFERRING:
            for item in _references(record.get(part)):
                self._refer(item["$m"], record.get("ns", ""), in_step=part == "values")
                if "as" in item:
                    self.words.name(item["$m"], item["as"].get("id"))

    def _refer(self, id: str, ns: str, *, in_step: bool) -> None:
        if ns:
            self.inside.setdefault(id, ns)
        else:
            self.referenced[id] = in_step or self.referenced.get(id, False)

    def new_id(self) -> bytes:
        """An id for a message."""
        world = self.words_log.world
        return mint(world, world.now())


def _references(value: Any) -> Iterator[dict[str, Any]]:
    """The messages that a part of a record refers to."""
    if type(value) is dict:
        if "$m" in value:
            yield value
            return
        value = [*value.values()]
    if type(value) is list:
        for item in value:
            # Most items are names and numbers.
            if type(item) is dict or type(item) is list:
                yield from _references(item)


def _record(kind: str, body: bytes) -> dict[str, Any] | None:
    """What an entry of the steps says; None for one that says nothing, or can't be read (I-25)."""
    if kind != "message":
        return None
    try:
        record = thaw(body)
        registry.get(STEPS).note(record)
    except Exception:
        return None
    return record if isinstance(record, dict) else None
