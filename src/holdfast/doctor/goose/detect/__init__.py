"""What is wrong with a session of goose."""
