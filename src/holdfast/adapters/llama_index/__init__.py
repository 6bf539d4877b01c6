"""Holdfast under LlamaIndex: `HoldfastChatStore(store)`, a chat store whose messages outlive
whatever happens to the process, and runs of agents on it whose events are durable before they are
shown.
"""

from holdfast.adapters.llama_index.chat_store import HoldfastChatStore

__all__ = ["HoldfastChatStore"]
