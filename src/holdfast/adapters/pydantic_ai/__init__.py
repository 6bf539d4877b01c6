"""Pydantic AI on Holdfast: `HoldfastHistory(session)`, a capability that keeps the messages of an agent's
runs in a session.

Messages are kept as Pydantic AI dumps them, in the format `pydantic_ai`, and come back equal.
"""

from holdfast.adapters.framework import missing

try:
    import pydantic_ai as _framework  # noqa: F401
except ImportError as error:
    raise missing("pydantic_ai", "pydantic-ai") from error

from holdfast.adapters.pydantic_ai.history import HoldfastHistory

__all__ = ["HoldfastHistory"]
