"""The streams of a server, read by the clients that they are made for."""
