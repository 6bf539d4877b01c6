"""Strands Agents on Holdfast: its session repository, a session manager whose streams are durable
before they are shown, and the storage that its snapshots are written to.
"""

from holdfast.adapters.framework import missing

try:
    import strands.session.session_repository  # noqa: F401
except ImportError as error:
    raise missing("strands", "strands") from error

from holdfast.adapters.strands.repository import HoldfastRepository
from holdfast.adapters.strands.session_manager import HoldfastSessionManager
from holdfast.adapters.strands.storage import HoldfastStorage

__all__ = ["HoldfastRepository", "HoldfastSessionManager", "HoldfastStorage"]
