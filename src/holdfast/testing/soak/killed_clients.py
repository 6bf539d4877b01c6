"""Clients that work on a store until they are killed, and what they were answered until then.

They work beside the desks of a soak, on the same file and under a tenant of their own, one after
the other under one key. Each does what callers do, drawn from its name, and reports through a pipe
what was acknowledged, in the words of `oracle.Acknowledged`; it is killed with SIGKILL after so
many reports, wherever it is by then. What it was doing is there or is not. The next one goes on
from what is there.

When a client dies is a matter of the machine: the kills of a run are not repeated by its seed, the
rest of it is.
"""

import queue
import threading
from collections.abc import Callable

from holdfast.runtime.session import Session
from holdfast.runtime.store import Store, open_store
from holdfast.testing.dice import Dice
from holdfast.testing.faults.kill_loop import Nursery, write_act
from holdfast.testing.oracle import Acknowledged, judge

KEY = "mortal"
EVENTS = 20


class KilledClients:
    """Sends clients to a store, one after the other, while others go on."""

    def __init__(self, place: str, seed: object) -> None:
        self._place = place
        self._seed = seed
        self._acknowledged = Acknowledged()
        self._sent: queue.Queue[int | None] = queue.Queue()
        self._failure: Exception | None = None
        self._thread = threading.Thread(
            target=self._send, name="soak-mortals", daemon=True
        )
        self.kills = 0

    def __enter__(self) -> "KilledClients":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The last in the queue: all that were sent before it are killed and heard.
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
        # A handle that had no part in what was killed.
        with open_store(self._place, durability="process") as store:
            found = judge(store, self._acknowledged)
        return [f"of the mortals, {sentence}" for sentence in found]

    def _send(self) -> None:
        with Nursery(
            self._place, "holdfast.testing.soak.killed_clients.live"
        ) as nursery:
            while (acts_max := self._sent.get()) is not None:
                try:
                    acts = nursery.run(KEY, f"{self._seed}-{self.kills}", acts_max)
                    self._acknowledged.hear(acts)
                    self.kills += 1
                # Kept for `judge`: this thread has nobody to raise to.
                except Exception as failure:
                    self._failure = failure
                finally:
                    self._sent.task_done()


def live(place: str, key: str, name: str) -> None:
    """A client, from its first call to its death."""
    with open_store(place, durability="process") as store:
        client = _KilledClient(store, key, name)
        # There is no other end than being killed.
        while True:
            client.dice.weighted(_DEEDS)(client)


class _KilledClient:
    """One caller of a store."""

    def __init__(self, store: Store, key: str, name: str) -> None:
        self.store = store
        self.key = key
        self.name = name
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


def _converse(client: _KilledClient) -> None:
    """A turn with a stream and a tool in it."""
    question = client.word("ask")
    reply_to = "ann" if client.dice.happens(0.5) else None
    chunks = [f"<{client.word('tell')}>" for _ in range(client.dice.below(9))]
    with client.store.turn(client.key, question, reply_to=reply_to) as turn:
        session = turn._work.session.id
        write_act("began", turn.id)
        write_act("said", session, None, question)
        for text in turn.deliver(chunks):
            write_act("shown", turn.id, turn._work._streams[-1].id.hex(), text)
        call_id = turn.call("look", {"at": client.name})
        write_act("called", turn.id, call_id)
        write_act("said", session, turn.result(call_id, client.word("found")), None)
        for message in turn.inbox():
            write_act("said", session, message.id, message.text)
        write_act("said", session, None, turn.say(client.word("say")))
    write_act("ended", turn.id, "completed")


def _accept(client: _KilledClient) -> None:
    text = client.word("accept")
    event_id = f"event {client.dice.below(EVENTS)}"
    receipt = client.store.accept(client.key, text, event_id=event_id, reply_to="bob")
    write_act("event", client.key, event_id, receipt.message_id)
    if not receipt.again:
        write_act("said", receipt.session_id, receipt.message_id, text)


def _append(client: _KilledClient) -> None:
    session = client.session
    text = client.word("append")
    write_act("said", session.id, session.append(text), text)


def _record(client: _KilledClient) -> None:
    session = client.session
    question = client.word("record")
    answer = client.word("record")
    # All of the context, or all but its first message.
    messages = list(session.context())[client.dice.below(2) :]
    messages.append({"role": "user", "content": question})
    messages.append({"role": "assistant", "content": answer})
    *_, first, second = session.record(messages).new
    write_act("said", session.id, first, question)
    write_act("said", session.id, second, answer)


def _label(client: _KilledClient) -> None:
    id = client.message()
    value = client.word("mark")
    if id is not None:
        # Announced: a label that was stored before the client could say so is right, too.
        write_act("may", "labelled", client.session.id, id, "mark", value)
        client.session.label(id, mark=value)
        write_act("labelled", client.session.id, id, "mark", value)


def _instruct(client: _KilledClient) -> None:
    session = client.session
    text = client.word("Be kind")
    write_act("may", "instructed", session.id, text)
    session.instructions(text)
    write_act("instructed", session.id, text)


def _compact(client: _KilledClient) -> None:
    session = client.session
    compaction = session.compact(
        client.word("summary"), keep_turns=client.dice.below(3)
    )
    if compaction is not None:
        write_act("at", session.id, compaction.seq, "compaction")


def _rewind(client: _KilledClient) -> None:
    if not client.dice.happens(0.5):
        return
    first = next(client.session.transcript(), None)
    # What waits is in no view yet: there is nothing to go back to.
    waiting = [message.id for message in client.session.pending()]
    if first is not None and first.id not in waiting:
        client.session.rewind(first.id)


def _fork(client: _KilledClient) -> None:
    branch = client.session.fork(at=client.message())
    text = client.word("append")
    write_act("said", branch.id, branch.append(text), text)


def _reset(client: _KilledClient) -> None:
    before = client.session
    client.store.reset(client.key)
    write_act("over", before.id)


def _end(client: _KilledClient) -> None:
    session = client.session
    session.end("enough")
    write_act("over", session.id)


def _post(client: _KilledClient) -> None:
    for owed in client.store.outbox(3):
        write_act("owed", owed.id, owed.session_id)
        if client.dice.happens(0.3):
            owed.failed("no line")
        # Announced: it may be paid though the client never says so.
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
