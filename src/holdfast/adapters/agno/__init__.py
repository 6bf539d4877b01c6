"""Agno on Holdfast: `HoldfastDb(store)`, a database of Agno's for sessions and runs, and streams in
which everything is durable before it is shown.
"""

from holdfast.adapters.framework import missing

try:
    import agno.db.base as _base  # noqa: F401
except ImportError as error:
    raise missing("agno", "agno") from error

from holdfast.adapters.agno.database import HoldfastDb

__all__ = ["HoldfastDb"]
