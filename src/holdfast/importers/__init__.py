"""Other people's stores, read only."""
