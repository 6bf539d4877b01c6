"""Holdfast keeps the sessions of AI agents: what was said survives, and the model's view is computed from it.

import holdfast

store = holdfast.open("agent.db")
session = store.session("telegram:dm:42")
with session.turn("Book a table for two.") as turn:
    for text in turn.deliver(model_stream, format="openai.chat"):
        print(text, end="", flush=True)
"""

from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.domain.entry import Entry
from holdfast.domain.message import Usage
from holdfast.domain.routing import Daily, Idle
from holdfast.domain.turn import CallToRun, ToolCall
from holdfast.errors import HoldfastError
from holdfast.runtime.context import Context
from holdfast.runtime.follow import Event
from holdfast.runtime.message import Message, MessageCall
from holdfast.runtime.posting import Owed, Receipt
from holdfast.runtime.session import Session
from holdfast.runtime.store import Store
from holdfast.runtime.store import open_store as open
from holdfast.runtime.summing import SessionInfo
from holdfast.runtime.turn import Turn

if TYPE_CHECKING:
    from holdfast.runtime.agents import AgentCache
    from holdfast.runtime.aio import AsyncSession, AsyncStore, AsyncTurn, open_async
    from holdfast.runtime.copying import copy
    from holdfast.runtime.recording import Recorded

__version__ = "0.1.0"

__all__ = [
    "AgentCache",
    "AsyncSession",
    "AsyncStore",
    "AsyncTurn",
    "CallToRun",
    "Context",
    "Daily",
    "Entry",
    "Event",
    "HoldfastError",
    "Idle",
    "Message",
    "MessageCall",
    "Owed",
    "Receipt",
    "Recorded",
    "Session",
    "SessionInfo",
    "Store",
    "ToolCall",
    "Turn",
    "Usage",
    "copy",
    "errors",
    "open",
    "open_async",
]

_LATER = {
    "AgentCache": "agents",
    "AsyncSession": "aio",
    "AsyncStore": "aio",
    "AsyncTurn": "aio",
    "Recorded": "recording",
    "copy": "copying",
    "open_async": "aio",
}


def __getattr__(name: str) -> Any:
    """What not every program needs is loaded when it is first asked for: asyncio alone takes longer than all the
    rest.
    """
    if name not in _LATER:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module

    _publish(name, getattr(import_module(f"holdfast.runtime.{_LATER[name]}"), name))
    return globals()[name]


def _publish(name: str, value: Any) -> None:
    """Public names say that they come from here."""
    if hasattr(value, "__module__"):
        value.__module__ = "holdfast"
    if callable(value):
        value.__qualname__ = value.__name__ = name
    globals()[name] = value


for _each in __all__:
    if _each not in _LATER:
        _publish(_each, globals()[_each])
del _each
