"""Switching Holdfast on and off under an installed Hermes, for the command line."""
