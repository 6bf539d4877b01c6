"""Holdfast keeps the sessions of AI agents: what was said survives, and the model's view is computed from it.

import holdfast

store = holdfast.open("agent.db")
session = store.session("telegram:dm:42")
with session.turn("Book a table for two.") as turn:
    for text in turn.deliver(model_stream, format="openai.chat"):
        print(text, end="", flush=True)
"""

from types import FunctionType
from typing import TYPE_CHECKING, Any

from holdfast import errors, parts
from holdfast.domain.arguments import Durability, OnBusy, State
from holdfast.domain.entry import Entry
from holdfast.domain.message import Usage
from holdfast.domain.routing import Daily, Idle, Policy
from holdfast.domain.turn import CallId, CallToRun, ToolCall
from holdfast.errors import HoldfastError
from holdfast.runtime.clock import World
from holdfast.runtime.context import Context
from holdfast.runtime.delivery import Delivery
from holdfast.runtime.follow import Event
from holdfast.runtime.message import Message, MessageCall
from holdfast.runtime.posting import Owed, Receipt
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store
from holdfast.runtime.store import open_store as open
from holdfast.runtime.summing import SessionInfo, TurnInfo
from holdfast.runtime.turn import Turn

if TYPE_CHECKING:
    from holdfast.engine.upkeep import Backup, Problem, StoreInfo
    from holdfast.runtime.agents import AgentCache
    from holdfast.runtime.aio import (
        AsyncOwed,
        AsyncSession,
        AsyncStore,
        AsyncTurn,
        OpeningStore,
        StartingTurn,
        open_async,
    )
    from holdfast.runtime.aio_delivery import AsyncDelivery
    from holdfast.runtime.carrying import Difference
    from holdfast.runtime.compacting import Compaction, Summary
    from holdfast.runtime.copying import Copied, Progress, Salvaged, copy
    from holdfast.runtime.erasing import Erasure
    from holdfast.runtime.listing import Listed, Page
    from holdfast.runtime.pending import PendingMessage
    from holdfast.runtime.recording import Recorded
    from holdfast.runtime.searching import Hit

__version__ = "0.1.0"

__all__ = [
    "AgentCache",
    "AsyncDelivery",
    "AsyncOwed",
    "AsyncSession",
    "AsyncStore",
    "AsyncTurn",
    "Backup",
    "CallId",
    "CallToRun",
    "Compaction",
    "Context",
    "Copied",
    "Daily",
    "Delivery",
    "Difference",
    "Durability",
    "Entry",
    "Erasure",
    "Event",
    "Hit",
    "HoldfastError",
    "Idle",
    "Listed",
    "Message",
    "MessageCall",
    "OnBusy",
    "OpeningStore",
    "Owed",
    "Page",
    "PendingMessage",
    "Policy",
    "Problem",
    "Progress",
    "Receipt",
    "Recorded",
    "Salvaged",
    "Session",
    "SessionInfo",
    "StartingTurn",
    "State",
    "Store",
    "StoreInfo",
    "Summary",
    "ToolCall",
    "Turn",
    "TurnInfo",
    "Usage",
    "World",
    "copy",
    "errors",
    "open",
    "open_async",
    "parts",
]

_LATER = {
    "AgentCache": "runtime.agents",
    "AsyncDelivery": "runtime.aio_delivery",
    "AsyncOwed": "runtime.aio",
    "AsyncSession": "runtime.aio",
    "AsyncStore": "runtime.aio",
    "AsyncTurn": "runtime.aio",
    "Backup": "engine.upkeep",
    "Compaction": "runtime.compacting",
    "Copied": "runtime.copying",
    "Difference": "runtime.carrying",
    "Erasure": "runtime.erasing",
    "Hit": "runtime.searching",
    "Listed": "runtime.listing",
    "OpeningStore": "runtime.aio",
    "Page": "runtime.listing",
    "PendingMessage": "runtime.pending",
    "Problem": "engine.upkeep",
    "Progress": "runtime.copying",
    "Recorded": "runtime.recording",
    "Salvaged": "runtime.copying",
    "StartingTurn": "runtime.aio",
    "StoreInfo": "engine.upkeep",
    "Summary": "runtime.compacting",
    "copy": "runtime.copying",
    "open_async": "runtime.aio",
}


def __getattr__(name: str) -> Any:
    """What not every program needs is loaded when it is first asked for: asyncio alone takes longer than all the
    rest.
    """
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    _publish(name, getattr(import_module(f"holdfast.{_LATER[name]}"), name))
    return globals()[name]


def _publish(name: str, value: Any) -> None:
    """Public names say that they come from here."""
    if isinstance(value, type | FunctionType):
        value.__module__ = "holdfast"
        value.__qualname__ = value.__name__ = name
    globals()[name] = value


for _each in __all__:
    if _each not in _LATER:
        _publish(_each, globals()[_each])
del _each
