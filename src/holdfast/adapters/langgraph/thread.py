"""One thread of a graph: two sessions, its words and its steps, and what this process knows of them.

The words are a session like any other, under the key `langgraph:<thread>`. The steps lie in a
session beside it, `langgraph.steps:<thread>`. What a step says and what it adds to the words is one
commit. A thread is over when either of them is.
"""

import threading
from collections.abc import Iterator
from typing import Any

from holdfast.adapters.framework import key_of
from holdfast.adapters.langgraph.history import History, Place
from holdfast.adapters.langgraph.words import New, Words
from holdfast.domain.entry import Draft, noted
from holdfast.domain.message import MessageNote, Spoken, freeze, thaw
from holdfast.engine.protocol import Commit, SessionState, Write
from holdfast.formats import registry
from holdfast.formats.langchain.steps import NAME as STEPS
from holdfast.runtime.clock import mint
from holdfast.runtime.live.session_log import SessionLog
from holdfast.runtime.turns.running_turn import RunningTurn

WORDS_KEY = "langgraph"
STEPS_KEY = "langgraph.steps"
_NOTE: MessageNote = registry.get(STEPS).note({"kind": "step"})
"""What is noted beside every record."""


def words_key(thread_id: str) -> str:
    """The key of the session with a thread's words."""
    return key_of(WORDS_KEY, thread_id)


def steps_key(thread_id: str) -> str:
    """The key of the session with a thread's steps."""
    return key_of(STEPS_KEY, thread_id)


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
        self.referenced: set[str] = set()
        """The messages that steps refer to."""
        self.loaded: set[tuple[str, str | None]] = set()
        """Steps that runs of this process have begun from as the latest: namespace and id."""
        self.chosen: set[Place] = set()
        """Steps that were asked for by name, when they were not the latest any more."""
        self.mine: set[Place] = set()
        """Steps that were stored by this process."""

    def is_of(self, steps: SessionState | None, words: SessionState | None) -> bool:
        """Whether these are the sessions of this thread, and it goes on."""
        if steps is None or words is None or steps.ended or words.ended:
            return False
        return steps.id == self.steps_log.id and words.id == self.words_log.id

    def catch_up(self) -> None:
        """Reads what others have stored since."""
        self.read_words()
        with self.lock:
            while page := self.steps_log.page(self.history.head):
                for entry in page:
                    self.history.head = entry.seq
                    record = _record(entry.kind, entry.body)
                    if record is not None:
                        self._take(record, entry.seq)

    def read_words(self) -> None:
        """Reads what was said since."""
        with self.lock:
            while page := self.words_log.page(self.words.head):
                self.words.learn(page)

    def commit(
        self,
        record: dict[str, Any],
        new: list[New],
        *,
        turn: RunningTurn | None,
        guarded: bool,
    ) -> Commit:
        """The record and the messages that are new with it. The record is last: what the engine
        answers is about it. `guarded`: refused if another record was stored since.
        """
        world = self.steps_log.world
        draft = self.steps_log.message(Spoken(_NOTE, freeze(record)), turn=None)
        head = self.history.head if guarded else None
        step = Write(self.steps_log.id, (draft,), head=head)
        if not new:
            return (step,)
        number = None if turn is None else turn.number
        drafts = []
        for id, spoken in new:
            note = noted(spoken.note)
            drafts.append(Draft("message", number, id, world.now(), note, spoken.body))
        return Write(self.words_log.id, tuple(drafts), fence=number), step

    def stored(self, record: dict[str, Any], new: list[New], seq: int) -> None:
        """What was just stored is known, unless something else came before it: then it is read
        with that.
        """
        with self.lock:
            for each in new:
                self.words.add(each.id.hex(), thaw(each.spoken.body), each.spoken.body)
            if seq == self.history.head + 1:
                self._take(record, seq)

    def _take(self, record: dict[str, Any], seq: int) -> None:
        try:
            self.history.add(record, seq)
        except (KeyError, TypeError, ValueError):
            return  # a record that is not as we write them: damaged (I-25)
        for item in _references(record):
            self.referenced.add(item["$m"])
            if "as" in item:
                self.words.name(item["$m"], item["as"].get("id"))

    def new_id(self) -> bytes:
        """An id for a message."""
        world = self.words_log.world
        return mint(world, world.now())


def _references(value: Any) -> Iterator[dict[str, Any]]:
    """The messages that a record refers to."""
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
