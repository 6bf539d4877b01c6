"""Looking after a database: erasure, migration, and what is in it."""
