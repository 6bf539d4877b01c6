"""Strands Agents on Holdfast: its session repository, and a session manager whose streams are durable
before they are shown.
"""

from holdfast.adapters.framework import missing

try:
    import strands.session.session_repository  # noqa: F401
except ImportError as error:
    raise missing("strands", "strands") from error

from holdfast.adapters.strands.repository import HoldfastRepository
from holdfast.adapters.strands.session_manager import HoldfastSessionManager

__all__ = ["HoldfastRepository", "HoldfastSessionManager"]
