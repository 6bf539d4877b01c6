"""Compactions beside all else that changes a view, in any order, by two stores (I-9, I-11)."""

import random
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Session, Store
from looking import other_handle
from talking import assert_same_everywhere, assert_valid, contexts, talk, work
from thorough import few_cases


class Life:
    """Anything that can be done to a view, by dice: sessions and their forks, each held by two
    stores.
    """

    def __init__(self, seed: int, *stores: Store) -> None:
        self.dice, self.stores = random.Random(seed), stores
        self.held = [[store.session("k") for store in stores]]
        self.stopped: list[tuple[Any, str]] = []

    def step(self, n: int) -> None:
        session = self.dice.choice(self.dice.choice(self.held))
        deed = self.dice.choice(
            [
                self.talk,
                self.stop,
                self.come_late,
                self.compact,
                self.rewind,
                self.label,
                self.fork,
                self.record,
                self.trim,
            ]
        )
        deed(session, n)

    def any_message(self, session: Session) -> str | None:
        ids = [message.id for message in session.transcript() if message.state != "pending"]
        return self.dice.choice(ids) if ids else None

    def talk(self, session: Session, n: int) -> None:
        self.dice.choice([talk, work])(session, n)

    def stop(self, session: Session, n: int) -> None:
        turn = session.turn(f"stopped {n}")
        call = turn.call("look", {}, call_id=f"call_{n}")
        session.stop()
        self.stopped.append((turn, call))

    def come_late(self, session: Session, n: int) -> None:
        if self.stopped:
            turn, call = self.stopped.pop(self.dice.randrange(len(self.stopped)))
            with pytest.raises(holdfast.errors.TurnInterrupted):
                if self.dice.random() < 0.5:
                    turn.add(f"late {n}")
                else:
                    turn.result(call, f"late {n}")

    def compact(self, session: Session, n: int) -> None:
        session.compact(f"summary {n}", keep_turns=self.dice.randint(0, 3))

    def rewind(self, session: Session, n: int) -> None:
        message = self.any_message(session)
        if message is not None:
            session.rewind(message)

    def label(self, session: Session, n: int) -> None:
        message = self.any_message(session)
        if message is not None:
            session.label(message, visible_to_model=self.dice.random() < 0.5)

    def fork(self, session: Session, n: int) -> None:
        if len(self.held) < 4:
            fork = session.fork(at=self.any_message(session) if self.dice.random() < 0.5 else None)
            self.held.append([store.get(fork.id) for store in self.stores])

    def record(self, session: Session, n: int) -> None:
        said = {"role": "user", "content": f"recorded {n}"}
        assert len(session.record([*session.context(), said]).new) == 1

    def trim(self, session: Session, n: int) -> None:
        listed = list(session.context())
        if len(listed) > 4:
            assert session.record([listed[0], *listed[3:]]).new == ()


@pytest.mark.slow
@few_cases(every=3)
@pytest.mark.parametrize("seed", range(12))
def test_every_handle_computes_the_same_valid_context_whatever_was_done(
    path: Path, store: Store, seed: int
) -> None:
    """I-9, I-11: compactions, rewinds, forks, labels, recordings and late words in any order, by
    two stores.
    """
    with other_handle(path, durability="process") as other:
        life = Life(seed, store, other)
        for n in range(16):
            life.step(n)
            for one, two in life.held:
                assert contexts(one) == contexts(two)
                assert_valid(one)
        for one, _ in life.held:
            assert_same_everywhere(path, one)
