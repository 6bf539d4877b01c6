"""A loopback OpenViking, and a client of it, for the tests of the client."""

import pytest

import holdfast
from viking_clients import client_of
from viking_server import VikingServer


@pytest.fixture
def impatient(monkeypatch):
    """Tries again soon, and looks at tasks often."""
    monkeypatch.setattr("holdfast.adapters.openviking.client.workers.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("holdfast.adapters.openviking.client.commits.POLL_S", 0.05)


@pytest.fixture
def viking():
    with VikingServer() as server:
        yield server


@pytest.fixture
def store(tmp_path):
    with holdfast.open(tmp_path / "a.db", durability="process") as opened:
        yield opened


@pytest.fixture
def client(viking, store):
    made = client_of(viking, store, grace_s=0.3)
    yield made
    made.close()
