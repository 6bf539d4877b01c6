"""Serving: an address, its connections, and the server's life from its start to its end."""
