"""Frameworks under faults, each with its own store and with Holdfast: `./dev frameworks`."""
