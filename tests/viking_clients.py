"""Clients of a loopback OpenViking: how tests make them, and what they say with them."""

from typing import Any

import holdfast
from holdfast.adapters.openviking import Client
from viking_server import VikingServer

KEY = "orchard"


def client_of(viking: VikingServer, store: holdfast.Store, **options: Any) -> Client:
    """A client that sends when it is told to flush."""
    return Client(viking.url, store=store, **{"background": False, "timeout_s": 10, **options})


def add(client: Client, *texts: str, key: str = KEY) -> list[str]:
    return [client.add_message(key, "user", text) for text in texts]


def numbers(first: int, last: int) -> list[str]:
    return [f"m{number}" for number in range(first, last)]
