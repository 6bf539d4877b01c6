"""Lists as the store has them: the last one of a session, and what stands before news that come alone."""
