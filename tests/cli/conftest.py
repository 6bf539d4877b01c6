"""Stores for the tests of the command line, made through the library: one to look into, and one to
change.
"""

from pathlib import Path

import pytest

import holdfast
from exhibits import World, fill_long, fill_table
from worlds import HandWorld


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A store to look into. Tests must not change it."""
    path = tmp_path_factory.mktemp("world") / "agent.db"
    with holdfast.open(path, durability="process") as store:
        table, long = store.session("telegram:dm:42"), store.session("cli:ada")
        fork = fill_long(long)
        fill_table(store, table)
        with holdfast.open(path, tenant="acme", durability="process") as other:
            acme = other.session("slack:C1")
            with acme.turn("hello") as turn:
                turn.say("hi")
        return World(path, table.id, long.id, fork.id, acme.id)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store to change: one session, `k`, of three turns, years ago."""
    path = tmp_path / "agent.db"
    with holdfast.open(path, durability="process", world=HandWorld()) as store:
        session = store.session("k")
        for number in range(3):
            with session.turn(f"Question {number}.") as turn:
                turn.say(f"Answer {number}.")
    return path
