"""The benchmark: Holdfast beside raw SQLite and its fastest peer, side by side in one run. `python -m bench` prints it."""
