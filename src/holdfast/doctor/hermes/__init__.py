"""What goes wrong in Hermes Agent's stores, and what can be got back."""
