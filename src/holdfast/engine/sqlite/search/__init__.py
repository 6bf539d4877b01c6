"""The search index, in a file of its own beside the log."""
