"""What happens over time: stores, sessions, turns, delivery, following, recovery."""
