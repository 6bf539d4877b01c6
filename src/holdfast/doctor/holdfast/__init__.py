"""What may go wrong in our own stores, and what can be got back."""
