"""An engine that a store has let go of: whoever still asks is told so."""

from typing import Any

from holdfast.errors import StoreUnavailable


class ClosedEngine:
    """Stands where an engine was. Others may still use that engine."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __getattr__(self, name: str) -> Any:
        raise StoreUnavailable(
            where=self.where, problem="it was closed", remedy="Open it again"
        )
