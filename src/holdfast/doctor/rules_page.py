"""The rules as a page to read: what `docs/rules.md` is made of. `python -m
holdfast.doctor.rules_page` prints it.
"""

import sys
from collections.abc import Iterator

from holdfast.doctor.detect import SUBJECTS
from holdfast.doctor.finding import Rule
from holdfast.doctor.rulebook import rules_of

NAMES = {
    "holdfast": "Holdfast's own stores",
    "hermes": "Hermes Agent: `state.db`",
    "goose": "goose: `sessions.db`, JSONL, JSON export",
    "openviking": "OpenViking: session folders",
    "claude": "Claude Code: project JSONL",
    "codex": "Codex: rollout JSONL",
    "agents": "OpenAI Agents SDK: SQLite sessions",
}

HEAD = """# The doctor's rules

`holdfast doctor PATH` finds these, `holdfast doctor --explain RULE` tells about one. \
This page is made from the rules
themselves by `./dev rules`.

| policy | what `--heal` does |
|---|---|
| auto | heals without asking; nothing is discarded |
| mark | keeps every record and adds a marker or a synthetic one |
| ask | heals only with `--accept RULE` |
| report | nothing: it can't be healed from the store |
"""


def page() -> Iterator[str]:
    """The lines of the page."""
    yield HEAD
    for kind in SUBJECTS:
        yield f"## {NAMES[kind]}\n"
        for rule in rules_of(kind):
            yield from _section(rule)


def _section(rule: Rule) -> Iterator[str]:
    yield f"### {rule.name}\n"
    yield f"{rule.severity}, {rule.policy}. {rule.cause}\n"
    yield f"* Expected: {rule.expected}"
    yield f"* Example: {rule.example}"
    yield f"* Remedy: {rule.remedy}\n"


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()))
