"""Codex's rollouts, read."""
