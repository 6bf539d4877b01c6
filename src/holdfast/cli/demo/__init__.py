"""The demo: an agent is killed in the middle of a sentence."""
