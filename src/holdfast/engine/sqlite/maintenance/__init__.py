"""Looking after a file: backup, check, erasure, migration, and what is in it."""
