"""Talking to a server: connections, its errors as ours, and which server leads."""
