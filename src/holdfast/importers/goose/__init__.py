"""goose's sessions, read: its database, its first files, its exports."""
