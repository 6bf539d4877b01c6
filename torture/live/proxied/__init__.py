"""Agents behind `holdfast proxy`: how each is started, and what happens to its turns."""
