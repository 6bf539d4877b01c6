"""The shipped kit: what a store, an engine or an agent can be tested with."""
