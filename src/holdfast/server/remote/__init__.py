"""The engine's verbs over HTTP, for `holdfast.open("http://…")`: the server's side.

A client that speaks them does the work of the runtime itself and asks for reads and commits, so
what it sends is looked at as if a stranger had written it: whose session, whose event, and whether
what is to be stored can be read again.
"""

from holdfast.server.remote.endpoints import routes

__all__ = ["routes"]
