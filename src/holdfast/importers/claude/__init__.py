"""Claude Code's sessions, read."""
