"""What those are told who ask an engine that is gone: it was closed, or it is the parent process's."""

from typing import Any

from holdfast.errors import StoreUnavailable


def closed(where: str) -> StoreUnavailable:
    return StoreUnavailable(
        where=where, problem="it was closed", remedy="Open it again"
    )


def ending(where: str) -> StoreUnavailable:
    return StoreUnavailable(
        where=where,
        problem="this process is ending, and the threads of the store have stopped",
        remedy="Nothing was written. Write earlier, in a function of `atexit` at the latest: "
        "when Python drops a program's last objects it is too late",
    )


def forked(where: str) -> StoreUnavailable:
    return StoreUnavailable(
        where=where,
        problem="it was opened before this process forked",
        remedy="Open the store again in this process",
    )


class ClosedEngine:
    """Stands where an engine was that a store has let go of. Others may still use that engine."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __getattr__(self, name: str) -> Any:
        raise closed(self.where)
