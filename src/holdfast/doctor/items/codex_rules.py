"""The rules for Codex's rollouts."""

from holdfast.doctor.items.rules import item_rules

RULES = item_rules("codex", program="Codex", record="line")
