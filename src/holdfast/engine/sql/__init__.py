"""What both SQL engines do alike."""
