"""All rules there are, by name."""

from holdfast.doctor.detect import SUBJECTS, module_of
from holdfast.doctor.finding import Rule


def rules_of(kind: str) -> tuple[Rule, ...]:
    """The rules for one kind of store; a package may have those of several kinds."""
    # Claude Code, Codex and the Agents SDK share a package, and so a list of rules.
    rules: tuple[Rule, ...] = module_of(kind, "rules").RULES
    return tuple(rule for rule in rules if rule.name.startswith(f"{kind}/"))


def rulebook() -> dict[str, Rule]:
    """Every rule by its name, kind by kind."""
    return {rule.name: rule for kind in SUBJECTS for rule in rules_of(kind)}
