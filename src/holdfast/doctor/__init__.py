"""What went wrong with a store, and what can be got back."""
