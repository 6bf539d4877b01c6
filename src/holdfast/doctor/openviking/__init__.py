"""What goes wrong in OpenViking's folders, and what can be got back."""
