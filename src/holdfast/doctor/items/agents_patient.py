"""Sessions of the OpenAI Agents SDK in the doctor's hands."""

from pathlib import Path

from holdfast.doctor.items.agents_rules import RULES
from holdfast.doctor.items.patient import ItemPatient
from holdfast.foreign.agents import AgentsShelf


class AgentsPatient(ItemPatient):
    """A file of sessions."""

    kind = "agents"
    rules = RULES
    waits = True
    holds_many = True

    def __init__(self, path: Path) -> None:
        super().__init__(AgentsShelf(path))
