"""The SQLite engine: one file, one writer thread, group commit."""
