"""The PostgreSQL engine: one store for any number of machines."""
