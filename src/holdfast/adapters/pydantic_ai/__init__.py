"""Pydantic AI on Holdfast: `HoldfastHistory(session)`, a capability that keeps the messages of an agent's
runs in a session, and `HoldfastStepStore(store)`, the `StepStore` of pydantic-ai-harness.

Messages are kept as Pydantic AI dumps them, but for fields that say nothing, in the format
`pydantic_ai`, and come back equal.
"""

from typing import TYPE_CHECKING, Any

from holdfast.adapters.framework import missing

try:
    import pydantic_ai as _framework  # noqa: F401
except ImportError as error:
    raise missing("pydantic_ai", "pydantic-ai") from error

from holdfast.adapters.pydantic_ai.history import HoldfastHistory

if TYPE_CHECKING:
    from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore

__all__ = ["HoldfastHistory", "HoldfastStepStore"]


def __getattr__(name: str) -> Any:
    # The harness is a package of its own, which most programs do not have.
    if name == "HoldfastStepStore":
        from holdfast.adapters.pydantic_ai.step_store import HoldfastStepStore

        return HoldfastStepStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
