"""What goes wrong in stores of plain items, those of Claude Code, Codex and the Agents SDK."""
