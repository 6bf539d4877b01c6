"""What the doctor says: a rule, and where a store breaks it.

A rule is data: its name, why it happens, what it looks like, what can be done, and how freely. A
finding is a rule that is broken at one place, with what a detector saw there.

    policy    auto      healed without asking; nothing is discarded
              mark      every record is kept, and a marker or a synthetic record is added
              ask       healed only when told to
              report    can't be healed from the store
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

Policy = Literal["auto", "mark", "ask", "report"]
Severity = Literal["error", "warning", "info"]


class Rule(msgspec.Struct, frozen=True):
    """Something that must not be so in a store. `name` is `kind/what-is-wrong`; all texts are whole
    sentences.
    """

    name: str
    severity: Severity
    policy: Policy
    cause: str
    expected: str
    example: str
    remedy: str


class Change(msgspec.Struct, frozen=True):
    """What healing did to one place, for the report."""

    rule: str
    session: str
    place: str
    before: str
    after: str


class Finding(msgspec.Struct, frozen=True):
    """A rule that is broken at one place. `session` is empty for what concerns the store as a
    whole; `measured` is what was seen there. `rows` and `data` are what the rule's remedy works on;
    no report has them.
    """

    rule: Rule
    session: str
    place: str
    measured: str
    # Every kind of store has records of its own types; its remedies know them.
    rows: tuple[Any, ...] = ()
    data: Any = None

    @property
    def severity(self) -> Severity:
        return self.rule.severity

    @property
    def policy(self) -> Policy:
        return self.rule.policy

    def without_evidence(self) -> "Finding":
        """What a report keeps: findings of all sessions, and the rows of none."""
        return Finding(self.rule, self.session, self.place, self.measured)

    def as_json(self) -> dict[str, str]:
        """For programs: these fields, in this order."""
        rule = self.rule
        return {
            "rule": rule.name,
            "session": self.session,
            "place": self.place,
            "severity": rule.severity,
            "cause": rule.cause,
            "measured": self.measured,
            "expected": rule.expected,
            "remedy": rule.remedy,
            "policy": rule.policy,
        }


# What a detector gives.
Findings = Iterator[Finding]
