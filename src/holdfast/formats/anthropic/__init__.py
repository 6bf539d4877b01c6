"""The Messages API: its messages, its streams, and how a dialogue is worded for it."""
