"""The Durable Streams protocol on the same store: append-only streams of bytes or JSON, at addresses."""

from holdfast.server.durable.endpoints import routes

__all__ = ["routes"]
