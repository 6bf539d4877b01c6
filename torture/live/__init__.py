"""Real programs in their real releases, without Holdfast and with it, under the same faults."""
