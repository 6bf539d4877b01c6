"""Codex's rollouts in the doctor's hands."""

from pathlib import Path

from holdfast.doctor.items.codex_rules import RULES
from holdfast.doctor.items.patient import ItemPatient
from holdfast.foreign.codex import CodexShelf


class CodexPatient(ItemPatient):
    """A file of sessions."""

    kind = "codex"
    rules = RULES

    def __init__(self, path: Path) -> None:
        super().__init__(CodexShelf(path))
