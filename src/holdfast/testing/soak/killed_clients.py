"""Mortals: processes that work on a store until they are killed, and what they were answered until
then.

They live beside the desks of a soak, on the same file and under a tenant of their own, one after
the other under one key. Each does what callers do, drawn from its name, and reports through a pipe
what was acknowledged, in the words of `oracle.Acknowledged`; it is killed with SIGKILL after so
many reports, wherever it is by then. What it was doing is there or is not. The next one goes on
from what is there.

When a mortal dies is a matter of the machine: the kills of a run are not repeated by its seed, the
rest of it is.
"""

import queue
import threading
from collections.abc import Callable
from types import TracebackType

from holdfast.runtime.session import Session
from holdfast.runtime.store import Store, open_store
from holdfast.testing.dice import Dice
from holdfast.testing.faults.kill_loop import Nursery, write_act
from holdfast.testing.oracle import Acknowledged, judge

KEY = "mortal"
EVENTS = 20


class KilledClients:
    """Sends mortals to a store, one after the other, while others go on."""

    def __init__(self, place: str, seed: object) -> None:
        self._place, self._seed = place, seed
        self._ledger = Acknowledged()
        self._sent: queue.Queue[int | None] = queue.Queue()
        self._failure: Exception | None = None
        self._thread = threading.Thread(
            target=self._send, name="soak-mortals", daemon=True
        )
        self.kills = 0

    def __enter__(self) -> "KilledClients":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
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
            return [
                f"of the mortals, {sentence}" for sentence in judge(store, self._ledger)
            ]

    def _send(self) -> None:
        with Nursery(
            self._place, "holdfast.testing.soak.killed_clients.live"
        ) as nursery:
            while (acts_max := self._sent.get()) is not None:
                try:
                    acts = nursery.run(KEY, f"{self._seed}-{self.kills}", acts_max)
                    self._ledger.hear(acts)
                    self.kills += 1
                except Exception as failure:
                    self._failure = failure
                finally:
                    self._sent.task_done()


def live(place: str, key: str, name: str) -> None:
    """A mortal's life."""
    with open_store(place, durability="process") as store:
        mortal = _KilledClient(store, key, name)
        while True:
            mortal.dice.weighted(_DEEDS)(mortal)


class _KilledClient:
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


def _converse(mortal: _KilledClient) -> None:
    """A turn with a stream and a tool in it."""
    question, reply_to = mortal.word("ask"), "ann" if mortal.dice.happens(0.5) else None
    with mortal.store.turn(mortal.key, question, reply_to=reply_to) as turn:
        session = turn._work.session.id
        write_act("began", turn.id)
        write_act("said", session, None, question)
        for text in turn.deliver(
            [f"<{mortal.word('tell')}>" for _ in range(mortal.dice.below(9))]
        ):
            write_act("shown", turn.id, turn._work._streams[-1].id.hex(), text)
        call_id = turn.call("look", {"at": mortal.name})
        write_act("called", turn.id, call_id)
        write_act("said", session, turn.result(call_id, mortal.word("found")), None)
        for message in turn.inbox():
            write_act("said", session, message.id, message.text)
        write_act("said", session, None, turn.say(mortal.word("say")))
    write_act("ended", turn.id, "completed")


def _accept(mortal: _KilledClient) -> None:
    text, event_id = mortal.word("accept"), f"event {mortal.dice.below(EVENTS)}"
    receipt = mortal.store.accept(mortal.key, text, event_id=event_id, reply_to="bob")
    write_act("event", mortal.key, event_id, receipt.message_id)
    if not receipt.again:
        write_act("said", receipt.session_id, receipt.message_id, text)


def _append(mortal: _KilledClient) -> None:
    session, text = mortal.session, mortal.word("append")
    write_act("said", session.id, session.append(text), text)


def _record(mortal: _KilledClient) -> None:
    session, texts = mortal.session, [mortal.word("record"), mortal.word("record")]
    messages = list(session.context())[mortal.dice.below(2) :]
    roles = ("user", "assistant")
    messages += [
        {"role": role, "content": text} for role, text in zip(roles, texts, strict=True)
    ]
    for id, text in zip(session.record(messages).new[-2:], texts, strict=True):
        write_act("said", session.id, id, text)


def _label(mortal: _KilledClient) -> None:
    id, value = mortal.message(), mortal.word("mark")
    if id is not None:
        write_act("may", "labelled", mortal.session.id, id, "mark", value)
        mortal.session.label(id, mark=value)
        write_act("labelled", mortal.session.id, id, "mark", value)


def _instruct(mortal: _KilledClient) -> None:
    session, text = mortal.session, mortal.word("Be kind")
    write_act("may", "instructed", session.id, text)
    session.instructions(text)
    write_act("instructed", session.id, text)


def _compact(mortal: _KilledClient) -> None:
    session = mortal.session
    compaction = session.compact(
        mortal.word("summary"), keep_turns=mortal.dice.below(3)
    )
    if compaction is not None:
        write_act("at", session.id, compaction.seq, "compaction")


def _rewind(mortal: _KilledClient) -> None:
    id = mortal.dice.happens(0.5) and next(
        (message.id for message in mortal.session.transcript()), None
    )
    if id and id not in {message.id for message in mortal.session.pending()}:
        mortal.session.rewind(id)


def _fork(mortal: _KilledClient) -> None:
    branch, text = mortal.session.fork(at=mortal.message()), mortal.word("append")
    write_act("said", branch.id, branch.append(text), text)


def _reset(mortal: _KilledClient) -> None:
    before = mortal.session
    mortal.store.reset(mortal.key)
    write_act("over", before.id)


def _end(mortal: _KilledClient) -> None:
    session = mortal.session
    session.end("enough")
    write_act("over", session.id)


def _post(mortal: _KilledClient) -> None:
    for owed in mortal.store.outbox(3):
        write_act("owed", owed.id, owed.session_id)
        if mortal.dice.happens(0.3):
            owed.failed("no line")
        write_act("may", "paid", owed.session_id, owed.id)
        owed.sent("p-1")
        write_act("paid", owed.id)


_DEEDS: dict[Callable[[_KilledClient], None], int] = {
    _converse: 8,
    _accept: 6,
    _append: 3,
    _record: 2,
    _label: 2,
    _instruct: 1,
    _compact: 2,
    _rewind: 1,
    _fork: 1,
    _reset: 1,
    _end: 1,
    _post: 3,
}
