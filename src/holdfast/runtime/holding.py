"""An engine as a store and its sessions hold it: when none of them is left, it is closed.

An engine has threads, and these know it: it would live for ever. What the store, its sessions and its turns know is
this handle, which no thread knows. When the last of them is gone, engine and keeper are closed in the background:
whoever drops the last handle may be in the middle of anything.
"""

import os
import threading
import weakref
from typing import Any

from holdfast.engine.protocol import Engine
from holdfast.runtime.keeper import Keeper

_USED_OFTEN = ("current", "entries", "inbox", "look_s", "read_only", "state", "submit", "watch", "where")


class HeldEngine:
    """The engine itself to all who use it."""

    def __init__(self, engine: Engine, keeper: Keeper) -> None:
        self._engine = engine
        for name in _USED_OFTEN:
            setattr(self, name, getattr(engine, name))
        self._dropped = weakref.finalize(self, _let_go, engine, keeper, os.getpid())
        self._dropped.atexit = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def close(self) -> None:
        self._dropped.detach()
        self._engine.close()


def _let_go(engine: Engine, keeper: Keeper, process: int) -> None:
    if os.getpid() == process:
        threading.Thread(target=_close, args=(engine, keeper), name="holdfast-dropped", daemon=True).start()


def _close(engine: Engine, keeper: Keeper) -> None:
    keeper.close()
    engine.close()
