"""Messages as goose stores them."""
