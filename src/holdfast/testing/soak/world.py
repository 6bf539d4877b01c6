"""The stage of a soak: desks at which callers work on one store, on both sides of `twins`, and the
judge of it all.

A desk is a process as far as a store can tell: it has a handle on the store, sessions and turns in
its hands, streams half told, and calls under way. A desk can fall asleep with all of that and wake
up much later, be left behind for ever, or be closed and opened again. What its callers were
answered goes to a `Acknowledged`, which is held against the store again and again; and the two
sides must be alike at any moment.
"""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.domain.entry import Entry
from holdfast.engine.protocol import Engine
from holdfast.errors import HoldfastError
from holdfast.runtime.plans.plan import Plan
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store
from holdfast.runtime.turn import Turn
from holdfast.testing.oracle import Acknowledged, judge
from holdfast.testing.soak.dice import Dice
from holdfast.testing.soak.differential import (
    TENANT,
    Answer,
    Broken,
    Differential,
    Flight,
    Pair,
    Side,
    Wrap,
)

DESKS = 3
FLIGHTS_MAX = 3
MANY = 1_000_000
Then = Callable[[Answer, bool], None]


class HeldSession:
    """A session in somebody's hands, and the list that its holder keeps of it."""

    def __init__(self, logs: Pair) -> None:
        self.logs = logs
        # kept, and not made for each call: a face remembers what was recorded with it
        self.faces = Pair([Session(log) for log in logs])
        self.id: str = logs[1].id
        self.key: str | None = logs[1].key
        self.lists: Pair | None = None

    @property
    def scope(self) -> str:
        return self.key if self.key is not None else self.id


class HeldTurn:
    """A turn in somebody's hands, with its calls and the streams that are half told."""

    def __init__(self, works: Pair) -> None:
        self.works, self.faces = works, Pair([Turn(work) for work in works])
        self.session = works[1].session.id
        self.id = f"{self.session}:{works[1].number}"
        self.calls: list[str] = []
        self.streams: list[HeldStream] = []


class HeldStream:
    """A message being told, chunk by chunk."""

    def __init__(self, tellings: Pair, calls: list[str]) -> None:
        self.tellings, self.calls = tellings, calls
        self.id = ""


class Reader:
    """Somebody who follows a session, with a cursor to go on from."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.cursor: str | None = None
        self.seqs: list[int] = []
        self.texts: dict[str, str] = {}


class Desk:
    """A process as far as a store can tell."""

    def __init__(self, stores: Pair) -> None:
        self.stores = stores
        self.sessions: list[HeldSession] = []
        self.turns: list[HeldTurn] = []
        self.flights: list[tuple[Flight, Then]] = []
        self.asleep = False

    def engine(self, side: Side) -> Engine:
        engine: Engine = self.stores.of(side)._work.engine
        return engine

    def drop(self, turn: HeldTurn) -> None:
        """It is over, or nobody works on it any more."""
        if turn in self.turns:
            self.turns.remove(turn)


class SoakWorld:
    """One world: its desks, its dice, what was acknowledged in it, and what has happened."""

    def __init__(
        self,
        place: str,
        seed: object,
        *,
        wraps: tuple[Wrap | None, Wrap | None] = (None, None),
    ) -> None:
        self.place, self.dice = place, Dice("steps", seed)
        self.twins = Differential(place, seed, wraps=wraps)
        self.desks = [Desk(self.twins.open()) for _ in range(DESKS)]
        self.left_behind: list[Desk] = []
        self.ledger = Acknowledged()
        self.readers: list[Reader] = []
        self.known: set[str] = set()
        self.lost: set[str] = set()
        self.parents: dict[str, str] = {}
        self.asked: list[tuple[str, str, str, dict[str, Any]]] = []
        self.refusals: Counter[str] = Counter()
        self.words = 0
        self._heads: dict[str, int] = {}
        self._trace = hashlib.blake2b(digest_size=16)

    # Doing things.

    def word(self, about: str) -> str:
        """Words like no others, now and then such as nobody expects."""
        self.words += 1
        odd = {
            "": 20,
            " \U0001f980": 1,
            " \x00": 1,
            " \ud800": 1,
            " ä\u0308漢": 1,
            " long" * 2000: 1,
        }
        return f"{about} {self.words}{self.dice.weighted(odd)}"

    def ask(self, work: Callable[[Side], Any]) -> Answer:
        """Does this on both sides at once."""
        return self._noted(self.twins.ask(work))

    def call(
        self,
        desk: Desk,
        plan: Callable[[Side], Plan[Any]],
        then: Then,
        *,
        flies: float = 0.0,
    ) -> None:
        """Calls on both sides; `then` is told what came of it, at once or, if it flies or has to
        wait, later on, and whether it was at once.
        """
        flight = self.twins.begin(plan)
        may_fly = len(desk.flights) < FLIGHTS_MAX
        if may_fly and self.dice.happens(flies):
            desk.flights.append((flight, then))
        elif flight.run():
            then(self._noted(flight.answer), True)
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
                then(self._noted(flight.answer), False)
                return

    def _noted(self, answer: Answer) -> Answer:
        self.note(answer.plain)
        if answer.error is not None:
            self.refusals[answer.error] += 1
        return answer

    def note(self, fact: Any) -> None:
        """Something that a replay must come to as well."""
        self._trace.update(repr(fact).encode("utf-8", "backslashreplace"))

    def objects(self, sentence: str | None) -> None:
        """Stops the world when there is something to say against it."""
        if sentence is not None:
            raise Broken(sentence)

    @property
    def trace(self) -> str:
        """A digest of all that has come of the steps so far."""
        return self._trace.hexdigest()

    # What desks go through.

    def close(self, desk: Desk) -> None:
        """Its callers leave, and its store is closed."""
        for flight, _ in desk.flights:
            flight.close()
        self.calm(desk)
        for store in desk.stores:
            store.close()

    def leave_behind(self, desk: Desk) -> None:
        """It does nothing any more, and nobody is told: as a process that was stopped or cut off.
        Those who wait with a message take their leave: a living process is waited for, and this one
        lives as far as anybody can tell.
        """
        for flight, _ in desk.flights:
            if flight.waits:
                flight.close()
        self.calm(desk)
        self.left_behind.append(desk)

    def replace(self, desk: Desk) -> Desk:
        """Another desk in its place."""
        new = Desk(self.twins.open())
        self.desks[self.desks.index(desk)] = new
        return new

    def calm(self, desk: Desk) -> None:
        """What this desk has submitted and nobody waits for is done."""
        for side in self.twins.sides:
            desk.engine(side).submit(()).result()

    def end(self) -> None:
        """The world ends; what was left behind is let go of, and ends nothing any more."""
        for desk in self.left_behind:
            for flight, _ in desk.flights:
                flight.close()
            with contextlib.suppress(HoldfastError):
                self.calm(desk)
            for side in self.twins.sides:
                desk.engine(side).close()
        for desk in self.desks:
            self.close(desk)

    # Judging.

    def compare(self) -> None:
        """Both sides are alike in all that can be read; of each log, what has come since the last
        look.
        """
        desk = self.awake()
        kept, told = (
            _reading(desk.engine(side), self._heads) for side in self.twins.sides
        )
        for (name, one), (_, two) in zip(kept, told, strict=True):
            if one != two:
                raise Broken(
                    f"{name} on disk: {_short(one)}; in the reference: {_short(two)}"
                )
        for name, entries in told:
            if name.startswith("log ") and entries:
                self._heads[name.removeprefix("log ")] = entries[-1].seq

    def judge(self) -> None:
        """Everything is held against the store, on both sides."""
        self._heads.clear()
        self.compare()
        desk = self.awake()
        found = []
        for side in self.twins.sides:
            store: Store = desk.stores.of(side)
            where = "on disk" if side is self.twins.kept else "in the reference"
            for sentence in (*judge(store, self.ledger), *self._misled(store)):
                found.append(f"{where}, {sentence}")
        if found:
            raise Broken("\n".join(found))
        self.compare()

    def _misled(self, store: Store) -> list[str]:
        """Readers who missed something or heard it twice (I-15)."""
        found = []
        for reader in self.readers:
            if reader.seqs != list(range(1, len(reader.seqs) + 1)):
                found.append(
                    f"session {reader.session[:8]}: a reader was told the seqs {reader.seqs} (I-15)"
                )
            texts = {
                message.id: message
                for message in store.get(reader.session).transcript()
            }
            for id, text in reader.texts.items():
                message = texts.get(id)
                if message is not None and message.state == "erased":
                    continue
                whole = message is not None and message.seq <= len(reader.seqs)
                if message is not None and (
                    message.text != text if whole else not message.text.startswith(text)
                ):
                    found.append(
                        f"session {reader.session[:8]}: {id} was told as {text!r} (I-15)"
                    )
        return found

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
        engine = self.awake().engine(self.twins.kept)
        digest = hashlib.blake2b(digest_size=16)
        for state in engine.find(TENANT, "", MANY):
            for entry in engine.entries(state.id, limit=MANY):
                digest.update(
                    msgspec.json.encode([state.id, *msgspec.structs.astuple(entry)])
                )
        return digest.hexdigest()


def _reading(engine: Engine, heads: dict[str, int]) -> list[tuple[str, Any]]:
    """All that can be read, without what an engine may choose."""
    out: list[tuple[str, Any]] = []
    for state in engine.find(TENANT, "", MANY):
        out.append(
            (f"the state of {state.id}", msgspec.structs.replace(state, journal=0))
        )
        entries = engine.entries(state.id, after=heads.get(state.id, 0), limit=MANY)
        out.append((f"log {state.id}", [_comparable(entry) for entry in entries]))
        out.append((f"the inbox of {state.id}", engine.inbox(state.id)))
        if state.turn is not None:
            rows = engine.journal(state.id, after=state.journal, limit=MANY)
            out.append(
                (
                    f"the journal of {state.id}",
                    [(row.turn, row.message, row.index, row.body) for row in rows],
                )
            )
    out.append(("the outbox", engine.outbox(TENANT, limit=MANY)))
    return out


def _comparable(entry: Entry) -> Entry:
    """An audit entry says what was taken from the store, which is for its engine to say."""
    return msgspec.structs.replace(entry, note=b"") if entry.kind == "erased" else entry


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 1000 else f"{text[:1000]}…"
