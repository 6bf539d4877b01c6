"""Sessions of the OpenAI Agents SDK on Holdfast: `HoldfastSession(session_id, store)`.

Items are kept as they are given, as messages of the format `openai.responses`, and come back
verbatim. What a killed run has shown stands among them as an item of the assistant, and a call
whose outcome nobody knows has an output that says so.
"""

from holdfast.adapters.openai_agents.session import HoldfastSession

__all__ = ["HoldfastSession"]
