"""Agents that speak the Agent Client Protocol, driven by a client that can be killed."""
