"""What the doctor says: a rule, and where a store breaks it.

A rule is data: its name, why it happens, what it looks like, what can be done, and how freely. A sign is a rule broken
at one place, as a detector saw it. A finding is both, told to a person.

    policy    auto      healed without asking; nothing is discarded
              mark      every record is kept, and a marker or a synthetic record is added
              ask       healed only when told to
              report    can't be healed from the store
"""

from typing import Literal

import msgspec

Policy = Literal["auto", "mark", "ask", "report"]
Severity = Literal["error", "warning", "info"]


class Rule(msgspec.Struct, frozen=True):
    """Something that must not be so in a store. `name` is `kind/what-is-wrong`; all texts are whole sentences."""

    name: str
    severity: Severity
    policy: Policy
    cause: str
    expected: str
    example: str
    remedy: str


class Sign(msgspec.Struct, frozen=True):
    """A rule that is broken. `session` is empty for what concerns the store as a whole; `measured` is what was seen."""

    rule: str
    session: str
    place: str
    measured: str


class Change(msgspec.Struct, frozen=True):
    """What healing did to one place, for the report."""

    rule: str
    session: str
    place: str
    before: str
    after: str


class Finding(msgspec.Struct, frozen=True):
    """A sign with its rule, as it is told."""

    rule: str
    session: str
    place: str
    severity: Severity
    cause: str
    measured: str
    expected: str
    remedy: str
    policy: Policy


def told(sign: Sign, rule: Rule) -> Finding:
    """A sign with what its rule says."""
    return Finding(
        rule=rule.name,
        session=sign.session,
        place=sign.place,
        severity=rule.severity,
        cause=rule.cause,
        measured=sign.measured,
        expected=rule.expected,
        remedy=rule.remedy,
        policy=rule.policy,
    )
