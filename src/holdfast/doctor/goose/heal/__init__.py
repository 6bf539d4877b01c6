"""Remedies for sessions of goose."""
