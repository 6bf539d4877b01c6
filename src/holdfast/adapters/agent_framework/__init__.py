"""The Microsoft Agent Framework on Holdfast: `HoldfastHistoryProvider(store)`.

A run is a turn of a session. Its input is durable before the model is asked, each update before it
is yielded, each call before its tool runs; the provider brings what is needed for that into the run
by itself.
"""

from holdfast.adapters.framework import missing

try:
    import agent_framework as _framework  # noqa: F401
except ImportError as error:
    raise missing("agent_framework", "agent-framework") from error

from holdfast.adapters.agent_framework.provider import HoldfastHistoryProvider

__all__ = ["HoldfastHistoryProvider"]
