"""Threads beside the writers: hints to other processes, polling, indexing."""
