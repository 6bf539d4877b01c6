"""OpenViking's session folders, read."""
