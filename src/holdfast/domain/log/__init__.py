"""From entries to what a session is: folding, the model's view, rewinding, compaction."""
