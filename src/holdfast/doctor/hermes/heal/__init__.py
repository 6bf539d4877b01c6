"""Remedies for sessions of Hermes."""
