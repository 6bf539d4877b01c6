"""What an agent of Hermes says: its own list, its streams, and the session that both go into."""
