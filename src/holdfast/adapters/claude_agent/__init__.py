"""The Claude Agent SDK on Holdfast: its `SessionStore`, and `query` with each piece of an answer
durable before it is shown.
"""

from holdfast.adapters.framework import missing

try:
    import claude_agent_sdk as _sdk  # noqa: F401
except ImportError as error:
    raise missing("claude_agent_sdk", "claude-agent") from error

from holdfast.adapters.claude_agent.session_store import HoldfastSessionStore

__all__ = ["HoldfastSessionStore"]
