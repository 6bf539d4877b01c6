"""A session that is loaded again: what of its replay the store has already."""
