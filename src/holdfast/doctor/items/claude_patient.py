"""Claude Code's sessions in the doctor's hands."""

from pathlib import Path

from holdfast.doctor.items.claude_rules import RULES
from holdfast.doctor.items.patient import ItemPatient
from holdfast.foreign.claude import ClaudeShelf


class ClaudePatient(ItemPatient):
    """A file of sessions."""

    kind = "claude"
    rules = RULES

    def __init__(self, path: Path) -> None:
        super().__init__(ClaudeShelf(path))
