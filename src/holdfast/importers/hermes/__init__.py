"""Hermes Agent's `state.db`, read."""
