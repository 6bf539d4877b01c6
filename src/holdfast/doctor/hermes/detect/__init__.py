"""What is wrong with a session of Hermes."""
