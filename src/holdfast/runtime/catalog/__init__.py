"""Questions about a whole store: listing, searching, what waits, maintenance."""
