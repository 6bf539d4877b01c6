"""The rules for sessions of the OpenAI Agents SDK."""

from holdfast.doctor.items.rules import item_rules

RULES = item_rules("agents", program="The Agents SDK", record="row")
