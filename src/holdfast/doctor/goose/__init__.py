"""What goes wrong in goose's stores, and what can be got back."""
