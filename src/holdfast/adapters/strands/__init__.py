"""Strands Agents on Holdfast: its session repository."""

from holdfast.adapters.framework import missing

try:
    import strands.session.session_repository  # noqa: F401
except ImportError as error:
    raise missing("strands", "strands") from error

from holdfast.adapters.strands.repository import HoldfastRepository

__all__ = ["HoldfastRepository"]
