"""The rules for Claude Code's session files."""

from holdfast.doctor.items.rules import item_rules

RULES = item_rules("claude", program="Claude Code", record="line")
