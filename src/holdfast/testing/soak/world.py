"""The world of a soak: desks at which callers work on one store, on both sides of a `Differential`, and the
judge of it all.

A desk is a process as far as a store can tell: it has a handle on the store, sessions and turns in
its hands, streams half delivered, and calls under way. A desk can fall asleep with all of that and wake
up much later, be left behind for ever, or be closed and opened again. What its callers were
answered goes to a `Acknowledged`, which is held against the store again and again; and the two
sides must be alike at any moment.
"""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.entry import Entry
from holdfast.engine.protocol import Engine
from holdfast.errors import HoldfastError
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store
from holdfast.runtime.turn import Turn
from holdfast.testing.dice import Dice
from holdfast.testing.oracle import Acknowledged, judge
from holdfast.testing.soak.differential import (
    TENANT,
    Answer,
    Broken,
    Differential,
    Flight,
    Pair,
    Wraps,
    ask,
    begin,
    short,
)

DESKS = 3
FLIGHTS_MAX = 3
MANY = 1_000_000
Then = Callable[[Answer], None]
ODD_ENDINGS = {
    "": 20,
    " \U0001f980": 1,
    " \x00": 1,
    " \ud800": 1,
    " ä\u0308漢": 1,
    " long" * 2000: 1,
}
"""How words end, and how often: mostly plainly."""


class HeldSession:
    """A session in somebody's hands, and the list that its holder keeps of it."""

    def __init__(self, logs: Pair) -> None:
        disk, reference = logs
        self.logs = logs
        # Kept, and not made for each call: a face remembers what was recorded with it.
        self.faces = (Session(disk), Session(reference))
        self.id: str = reference.id
        self.key: str | None = reference.key
        self.scope = self.key if self.key is not None else self.id
        self.lists: Pair | None = None


class HeldTurn:
    """A turn in somebody's hands, with its calls and the streams that are under way."""

    def __init__(self, works: Pair) -> None:
        disk, reference = works
        self.works = works
        self.faces = (Turn(disk), Turn(reference))
        self.session = reference.session.id
        self.id = f"{self.session}:{reference.number}"
        self.calls: list[str] = []
        self.streams: list[HeldStream] = []


class HeldStream:
    """A message that is being delivered, chunk by chunk."""

    def __init__(self, deliveries: Pair, calls: list[str]) -> None:
        self.deliveries = deliveries
        self.calls = calls
        self.id = ""


class Reader:
    """Somebody who follows a session, with a cursor to go on from."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.cursor: str | None = None
        self.seqs: list[int] = []
        self.texts: dict[str, str] = {}

    def hear(self, events: list[Any]) -> None:
        """What it is given, and where it would go on."""
        for event in events:
            self.cursor = event.cursor
            if event.entry is not None:
                self.seqs.append(event.entry.seq)
            if event.message_id is not None:
                before = self.texts.get(event.message_id, "")
                self.texts[event.message_id] = before + event.text

    def misled(self, store: Store) -> Iterator[str]:
        """What it missed, or heard twice (I-15)."""
        if self.seqs != list(range(1, len(self.seqs) + 1)):
            yield f"a reader was told the seqs {self.seqs}"
        for message in store.get(self.session).transcript():
            text = self.texts.get(message.id)
            if text is None or message.state == "erased":
                continue
            # Before its entry has come, a reader may have the beginning of a message.
            is_whole = message.seq <= len(self.seqs)
            begins_so = message.text.startswith(text)
            if not begins_so or (is_whole and message.text != text):
                yield f"{message.id} was told as {text!r}"


class Desk:
    """A process as far as a store can tell."""

    def __init__(self, stores: Pair) -> None:
        disk, reference = stores
        self.stores = stores
        self.works = (disk._work, reference._work)
        self.engines: tuple[Engine, Engine] = (
            disk._work.engine,
            reference._work.engine,
        )
        self.sessions: list[HeldSession] = []
        self.turns: list[HeldTurn] = []
        self.flights: list[tuple[Flight, Then]] = []
        self.asleep = False

    def leave_flights(self, *, only_waiting: bool = False) -> None:
        """The callers of what is under way go, or those of them who wait for news."""
        for flight, _ in self.flights:
            if flight.waits or not only_waiting:
                flight.close()

    def drop(self, turn: HeldTurn) -> None:
        """It is over, or nobody works on it any more."""
        if turn in self.turns:
            self.turns.remove(turn)


class SoakWorld:
    """One world: its desks, its dice, what was acknowledged in it, and what has happened."""

    def __init__(self, place: str, seed: object, wraps: Wraps) -> None:
        self.dice = Dice("steps", seed)
        self.sides = Differential(place, seed, wraps)
        self.desks = [Desk(self.sides.open()) for _ in range(DESKS)]
        self.left_behind: list[Desk] = []
        self.acknowledged = Acknowledged()
        self.readers: list[Reader] = []
        # Ids of all sessions that callers were ever given.
        self.known: set[str] = set()
        # Those that were erased; nothing is held against the store of them.
        self.lost: set[str] = set()
        self.parents: dict[str, str] = {}
        # Calls that wait for somebody's approval: session, id, name, arguments.
        self.asked: list[tuple[str, str, str, dict[str, Any]]] = []
        self.refusals: Counter[str] = Counter()
        self.words = 0
        # Up to where logs were compared: a whole log at every look would make long worlds
        # slow.
        self._heads: dict[str, int] = {}
        self._trace = hashlib.blake2b(digest_size=16)

    # Doing things.

    def word(self, about: str) -> str:
        """Words like no others, now and then such as nobody expects."""
        self.words += 1
        return f"{about} {self.words}{self.dice.weighted(ODD_ENDINGS)}"

    def ask(self, work: Callable[..., Any], *pairs: Pair) -> Answer:
        """Does this on both sides at once, with what each has of these pairs."""
        return self._noted(ask(work, *pairs))

    def call(
        self,
        desk: Desk,
        then: Then,
        plan: Callable[..., Plan[Any]],
        *pairs: Pair,
        flies: float = 0.0,
    ) -> None:
        """Calls on both sides, with what each has of these pairs; `then` is given what came of it,
        at once or, if it flies or has to wait, later on.
        """
        flight = begin(plan, *pairs)
        # A desk that is full of calls draws nothing here: chance is spent only on what is
        # possible.
        may_fly = len(desk.flights) < FLIGHTS_MAX
        if may_fly and self.dice.happens(flies):
            desk.flights.append((flight, then))
        elif flight.run():
            then(self._noted(flight.answer))
        else:
            desk.flights.append((flight, then))

    def fly(self, desk: Desk) -> None:
        """One of the calls that are under way gets further."""
        index = self.dice.below(len(desk.flights))
        flight, then = desk.flights[index]
        for _ in range(1 + self.dice.below(4)):
            flight.move()
            if flight.done:
                del desk.flights[index]
                answer = self._noted(flight.answer)
                answer.at_once = False
                then(answer)
                return

    def _noted(self, answer: Answer) -> Answer:
        self.note(answer.plain)
        if answer.error is not None:
            self.refusals[answer.error] += 1
        return answer

    def note(self, fact: Any) -> None:
        """Something that a replay must come to as well."""
        self._trace.update(repr(fact).encode("utf-8", "backslashreplace"))

    @property
    def trace(self) -> str:
        """A digest of all that has come of the steps so far."""
        return self._trace.hexdigest()

    # What desks go through.

    def close(self, desk: Desk) -> None:
        """Its callers leave, and its store is closed."""
        desk.leave_flights()
        self.calm(desk)
        for store in desk.stores:
            store.close()

    def leave_behind(self, desk: Desk) -> None:
        """It does nothing any more, and nobody is told: as a process that was stopped or cut off.
        Those who wait with a message take their leave: a living process is waited for, and this one
        lives as far as anybody can tell.
        """
        desk.leave_flights(only_waiting=True)
        self.calm(desk)
        self.left_behind.append(desk)

    def replace(self, desk: Desk) -> None:
        """Another desk in its place."""
        self.desks[self.desks.index(desk)] = Desk(self.sides.open())

    def calm(self, desk: Desk) -> None:
        """What this desk has submitted and nobody waits for is done."""
        for engine in desk.engines:
            # An empty commit is answered after all that were submitted before it.
            engine.submit(()).result()

    def end(self) -> None:
        """The world ends; what was left behind is let go of, and ends nothing any more."""
        for desk in self.left_behind:
            desk.leave_flights()
            # What it had under way may fail; nobody waits for it.
            with contextlib.suppress(HoldfastError):
                self.calm(desk)
            for engine in desk.engines:
                engine.close()
        for desk in self.desks:
            self.close(desk)

    # Judging.

    def compare(self) -> None:
        """Both sides are alike in all that can be read; of each log, what has come since the last
        look.
        """
        disk, reference = (
            _reading(engine, self._heads) for engine in self.awake().engines
        )
        for (name, one), (_, two) in zip(disk, reference, strict=True):
            if one != two:
                raise Broken(
                    f"{name} on disk: {short(one)}; in the reference: {short(two)}"
                )
        for name, entries in reference:
            if name.startswith("log ") and entries:
                self._heads[name.removeprefix("log ")] = entries[-1].seq

    def judge(self) -> None:
        """Everything is held against the store, on both sides."""
        # From the first entry on: an erasure may have changed what was compared before.
        self._heads.clear()
        self.compare()
        found = []
        places = ("on disk", "in the reference")
        for place, store in zip(places, self.awake().stores, strict=True):
            for sentence in judge(store, self.acknowledged):
                found.append(f"{place}, {sentence}")
            for reader in self.readers:
                for sentence in reader.misled(store):
                    session = reader.session[:8]
                    found.append(f"{place}, session {session}: {sentence} (I-15)")
        if found:
            raise Broken("\n".join(found))
        # Again: a look settles turns whose owner is gone, on both sides alike.
        self.compare()

    def is_lost(self, session: str) -> bool:
        """Whether it was erased, or shares the past of one that was."""
        while session not in self.lost:
            if session not in self.parents:
                return False
            session = self.parents[session]
        return True

    def awake(self) -> Desk:
        return next(desk for desk in self.desks if not desk.asleep)

    @property
    def logs(self) -> str:
        """A digest of all logs on disk."""
        engine = self.awake().engines[0]
        digest = hashlib.blake2b(digest_size=16)
        for state in engine.find(TENANT, "", MANY):
            for entry in engine.entries(state.id, limit=MANY):
                row = [state.id, *msgspec.structs.astuple(entry)]
                digest.update(msgspec.json.encode(row))
        return digest.hexdigest()


def _reading(engine: Engine, heads: dict[str, int]) -> list[tuple[str, Any]]:
    """All that can be read, without what an engine may choose."""
    out: list[tuple[str, Any]] = []
    for state in engine.find(TENANT, "", MANY):
        # Where a journal lies is for an engine to say.
        out.append((f"the state of {state.id}", replace(state, journal=0)))
        entries = engine.entries(state.id, after=heads.get(state.id, 0), limit=MANY)
        out.append((f"log {state.id}", [_comparable(entry) for entry in entries]))
        out.append((f"the inbox of {state.id}", engine.inbox(state.id)))
        # After a turn an engine may drop its rows.
        if state.turn is not None:
            rows = engine.journal(state.id, after=state.journal, limit=MANY)
            chunks = [replace(row, position=0) for row in rows]
            out.append((f"the journal of {state.id}", chunks))
    out.append(("the outbox", engine.outbox(TENANT, limit=MANY)))
    return out


def _comparable(entry: Entry) -> Entry:
    """An audit entry says what was taken from the store, which is for its engine to say."""
    return replace(entry, note=b"") if entry.kind == "erased" else entry
