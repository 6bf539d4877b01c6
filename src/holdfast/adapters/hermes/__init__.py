"""Hermes Agent on Holdfast: what comes in, what is shown and what is said is stored first.

An import hook (`hook`) patches five modules of Hermes right after their own code has run, if they
are those of the release that is pinned (`pins`). `serving` has one store for each `state.db`;
`receipts` keeps what came in until a turn has it; `turns`, `streams` and `projection` keep what a
turn says, before Hermes does; `cache_guard` keeps a cached agent to its own session. `switch` turns
all of it on and off.
"""
