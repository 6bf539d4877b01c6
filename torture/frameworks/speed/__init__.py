"""Frameworks' own stores and ours, side by side: `./dev frameworks --speed`, a program each."""
