"""A turn from its start to its end: calls, streams, replies, recovery."""
