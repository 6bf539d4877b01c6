"""The file itself: who may use it, whether it is still the one that was opened, and its locks."""
