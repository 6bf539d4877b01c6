"""Holdfast keeps the sessions of AI agents: what was said survives, and the model's view is
computed from it.

import holdfast

store = holdfast.open("agent.db")
session = store.session("telegram:dm:42")
with session.turn("Book a table for two.") as turn:
    for text in turn.deliver(model_stream, format="openai.chat"):
        print(text, end="", flush=True)
"""

from types import FunctionType
from typing import TYPE_CHECKING, Any

from holdfast import errors, forked_imports, parts, process_fork
from holdfast.domain.arguments import Durability, OnBusy, State
from holdfast.domain.entry import Entry
from holdfast.domain.message import Usage
from holdfast.domain.reset_policy import Daily, Idle, Policy
from holdfast.domain.turn import CallId, CallToRun, ToolCall
from holdfast.errors import HoldfastError
from holdfast.runtime.clock import World
from holdfast.runtime.live.context import Context
from holdfast.runtime.live.follow import Event
from holdfast.runtime.live.message import Message, MessageCall
from holdfast.runtime.live.totals import SessionInfo, TurnInfo
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store
from holdfast.runtime.store import open_store as open
from holdfast.runtime.turn import Turn
from holdfast.runtime.turns.outbox import Owed, Receipt
from holdfast.runtime.turns.streams.delivery import Delivery
from holdfast.runtime.turns.streams.push_stream import PushStream

if TYPE_CHECKING:
    from holdfast.engine.store_info import Backup, Problem, StoreInfo
    from holdfast.runtime.agent_cache import AgentCache
    from holdfast.runtime.aio import (
        AsyncOwed,
        AsyncSession,
        AsyncStore,
        OpeningStore,
        open_async,
    )
    from holdfast.runtime.catalog.list_sessions import Listed
    from holdfast.runtime.catalog.page import Page
    from holdfast.runtime.catalog.pending import PendingMessage
    from holdfast.runtime.catalog.search import Hit
    from holdfast.runtime.changes.compact import Compaction, Summary
    from holdfast.runtime.changes.erase import Erasure
    from holdfast.runtime.changes.record import Recorded
    from holdfast.runtime.tracing.tracing import Tracing
    from holdfast.runtime.transfer.copy_session import Difference
    from holdfast.runtime.transfer.copy_store import Copied, Progress, Salvaged, copy
    from holdfast.runtime.turn_async import AsyncTurn, StartingTurn
    from holdfast.runtime.turns.streams.delivery_async import AsyncDelivery
    from holdfast.runtime.turns.streams.push_stream_async import AsyncPushStream

__version__ = "0.1.0"

forked_imports.wait_at_forks()
process_fork.wait_at_forks()

__all__ = [
    "AgentCache",
    "AsyncDelivery",
    "AsyncOwed",
    "AsyncPushStream",
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
    "PushStream",
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
    "Tracing",
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
    "AgentCache": "runtime.agent_cache",
    "AsyncDelivery": "runtime.turns.streams.delivery_async",
    "AsyncPushStream": "runtime.turns.streams.push_stream_async",
    "AsyncOwed": "runtime.aio",
    "AsyncSession": "runtime.aio",
    "AsyncStore": "runtime.aio",
    "AsyncTurn": "runtime.turn_async",
    "Backup": "engine.store_info",
    "Compaction": "runtime.changes.compact",
    "Copied": "runtime.transfer.copy_store",
    "Difference": "runtime.transfer.copy_session",
    "Erasure": "runtime.changes.erase",
    "Hit": "runtime.catalog.search",
    "Listed": "runtime.catalog.list_sessions",
    "OpeningStore": "runtime.aio",
    "Page": "runtime.catalog.page",
    "PendingMessage": "runtime.catalog.pending",
    "Problem": "engine.store_info",
    "Progress": "runtime.transfer.copy_store",
    "Recorded": "runtime.changes.record",
    "Salvaged": "runtime.transfer.copy_store",
    "StartingTurn": "runtime.turn_async",
    "StoreInfo": "engine.store_info",
    "Summary": "runtime.changes.compact",
    "Tracing": "runtime.tracing.tracing",
    "copy": "runtime.transfer.copy_store",
    "open_async": "runtime.aio",
}


def __getattr__(name: str) -> Any:
    """What not every program needs is loaded when it is first asked for: asyncio alone takes longer
    than all the rest.
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
