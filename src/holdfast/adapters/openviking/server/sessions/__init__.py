"""Sessions as OpenViking's clients know them, in the log of a Holdfast store."""
