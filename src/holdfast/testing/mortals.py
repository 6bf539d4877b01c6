"""Mortals: processes that work on a store until they are killed, and what they were told until then.

They live beside the desks of a soak, on the same file and under a tenant of their own, one after the other under one
key. Each does what callers do, drawn from its name, and reports through a pipe what was acknowledged, in the words of
`acknowledged`; it is killed with SIGKILL after so many reports, wherever it is by then. What it was doing is there or
is not. The next one goes on from what is there.

When a mortal dies is a matter of the machine: the kills of a run are not repeated by its seed, the rest of it is.
"""

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from holdfast.runtime.session import Session
from holdfast.runtime.store import Store, open_store
from holdfast.testing.acknowledged import Acknowledged
from holdfast.testing.dice import Dice
from holdfast.testing.examine import broken
from holdfast.testing.killing import Nursery, tell

KEY = "mortal"
EVENTS = 20


class Mortals:
    """Sends mortals to a store, one after the other, while others go on."""

    def __init__(self, place: str, seed: object) -> None:
        self._place, self._seed = place, seed
        self._told = Acknowledged()
        self._sent: queue.Queue[int | None] = queue.Queue()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._send, name="soak-mortals", daemon=True)
        self.kills = 0

    def __enter__(self) -> "Mortals":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sent.put(None)
        self._thread.join()

    def send(self, acts_max: int) -> None:
        """Another one, to be killed after so many acts; whoever sends does not wait."""
        self._sent.put(acts_max)

    def judge(self) -> list[str]:
        """When all that were sent are dead: a sentence for everything that does not hold."""
        self._sent.join()
        if self._failure is not None:
            return [f"a mortal did not die as it should: {self._failure}"]
        with open_store(self._place, durability="process") as store:
            return [f"of the mortals, {sentence}" for sentence in (*self._told.judge(store), *broken(store))]

    def _send(self) -> None:
        with Nursery(self._place, "holdfast.testing.mortals.live") as nursery:
            while (acts_max := self._sent.get()) is not None:
                try:
                    acts = nursery.run(KEY, f"{self._seed}-{self.kills}", acts_max)
                    self._told.hear(act for act in acts if act[0] != "event" or not self._wrong(act))
                    self.kills += 1
                except Exception as failure:
                    self._failure = failure
                finally:
                    self._sent.task_done()

    def _wrong(self, act: list[Any]) -> bool:
        sentence = self._told.event(*act[1:])
        if sentence is not None:
            self._failure = AssertionError(sentence)
        return True


def live(place: str, key: str, name: str) -> None:
    """A mortal's life."""
    with open_store(place, durability="process") as store:
        mortal = _Mortal(store, key, name)
        while True:
            mortal.dice.weighted(_DEEDS)(mortal)


class _Mortal:
    """One caller of a store."""

    def __init__(self, store: Store, key: str, name: str) -> None:
        self.store, self.key, self.name = store, key, name
        self.dice = Dice("mortal", name)
        self.words = 0

    def word(self, about: str) -> str:
        self.words += 1
        return f"{about} {self.name}.{self.words}"

    @property
    def session(self) -> Session:
        return self.store.session(self.key)

    def message(self) -> str | None:
        """One of the messages of the session."""
        ids = [message.id for message in self.session.transcript()]
        return self.dice.pick(ids) if ids else None


def _converse(mortal: _Mortal) -> None:
    """A turn with a stream and a tool in it."""
    question, reply_to = mortal.word("ask"), "ann" if mortal.dice.happens(0.5) else None
    with mortal.store.turn(mortal.key, question, reply_to=reply_to) as turn:
        session, number = turn._work.room.id, turn._work.number
        tell("began", session, number)
        tell("said", session, None, question)
        for text in turn.deliver([f"<{mortal.word('tell')}>" for _ in range(mortal.dice.below(9))]):
            tell("shown", session, number, turn._work._streams[-1].id.hex(), text)
        call_id = turn.call("look", {"at": mortal.name})
        tell("called", session, number, call_id)
        tell("said", session, turn.result(call_id, mortal.word("found")), None)
        for message in turn.inbox():
            tell("said", session, message.id, message.text)
        tell("said", session, None, turn.say(mortal.word("say")))
    tell("ended", session, number, "completed")


def _accept(mortal: _Mortal) -> None:
    text, event_id = mortal.word("accept"), f"event {mortal.dice.below(EVENTS)}"
    receipt = mortal.store.accept(mortal.key, text, event_id=event_id, reply_to="bob")
    tell("event", mortal.key, event_id, receipt.message_id)
    if not receipt.again:
        tell("said", receipt.session_id, receipt.message_id, text)


def _append(mortal: _Mortal) -> None:
    session, text = mortal.session, mortal.word("append")
    tell("said", session.id, session.append(text), text)


def _record(mortal: _Mortal) -> None:
    session, texts = mortal.session, [mortal.word("record"), mortal.word("record")]
    messages = list(session.context())[mortal.dice.below(2) :]
    roles = ("user", "assistant")
    messages += [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    for id, text in zip(session.record(messages).new[-2:], texts, strict=True):
        tell("said", session.id, id, text)


def _label(mortal: _Mortal) -> None:
    id, value = mortal.message(), mortal.word("mark")
    if id is not None:
        tell("may", "labelled", mortal.session.id, id, "mark", value)
        mortal.session.label(id, mark=value)
        tell("labelled", mortal.session.id, id, "mark", value)


def _instruct(mortal: _Mortal) -> None:
    session, text = mortal.session, mortal.word("Be kind")
    tell("may", "instructed", session.id, text)
    session.instructions(text)
    tell("instructed", session.id, text)


def _compact(mortal: _Mortal) -> None:
    session = mortal.session
    compaction = session.compact(mortal.word("summary"), keep_turns=mortal.dice.below(3))
    if compaction is not None:
        tell("at", session.id, compaction.seq, "compaction")


def _rewind(mortal: _Mortal) -> None:
    id = mortal.dice.happens(0.5) and next((message.id for message in mortal.session.transcript()), None)
    if id and id not in {message.id for message in mortal.session.pending()}:
        mortal.session.rewind(id)


def _fork(mortal: _Mortal) -> None:
    branch, text = mortal.session.fork(at=mortal.message()), mortal.word("append")
    tell("said", branch.id, branch.append(text), text)


def _reset(mortal: _Mortal) -> None:
    before = mortal.session
    mortal.store.reset(mortal.key)
    tell("over", before.id)


def _end(mortal: _Mortal) -> None:
    session = mortal.session
    session.end("enough")
    tell("over", session.id)


def _post(mortal: _Mortal) -> None:
    for owed in mortal.store.outbox(3):
        tell("owed", owed.id, owed.session_id)
        if mortal.dice.happens(0.3):
            owed.failed("no line")
        tell("may", "paid", owed.session_id, owed.id)
        owed.sent("p-1")
        tell("paid", owed.id)


_DEEDS: dict[Callable[[_Mortal], None], int] = {
    _converse: 8, _accept: 6, _append: 3, _record: 2, _label: 2, _instruct: 1, _compact: 2, _rewind: 1, _fork: 1,
    _reset: 1, _end: 1, _post: 3,
}  # fmt: skip
