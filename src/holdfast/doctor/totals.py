"""What the reports of several stores come to."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.doctor.exam import Report
from holdfast.doctor.finding import Finding


class Totals(msgspec.Struct, frozen=True):
    """Stores that were examined, taken together. `healthy`: stores in which nothing was found.
    `rules`: how many findings there are of each rule; `severities` and `policies` count the same
    findings. `changes` and `left` are about healing.
    """

    stores: int
    healthy: int
    unreadable: int
    live: int
    sessions: int
    messages: int
    severities: dict[str, int]
    policies: dict[str, int]
    rules: dict[str, int]
    not_examined: dict[str, int]
    # None when no healing was asked for; 0 when there was nothing to heal.
    changes: int | None = None
    left: int | None = None

    @property
    def findings(self) -> int:
        return sum(self.rules.values())


def totals(
    reports: Sequence[Report], *, changes: int | None = None, left: int | None = None
) -> Totals:
    """All of these taken together."""
    findings: list[Finding] = []
    unknown = Counter[str]()
    for report in reports:
        findings += report.findings
        unknown.update(report.not_examined)
    return Totals(
        stores=len(reports),
        healthy=sum(not report.findings for report in reports),
        unreadable=sum(report.is_unreadable for report in reports),
        live=sum(report.live for report in reports),
        sessions=sum(report.sessions for report in reports),
        messages=sum(report.messages for report in reports),
        severities=_counted(finding.severity for finding in findings),
        policies=_counted(finding.policy for finding in findings),
        rules=_counted(finding.rule.name for finding in findings),
        not_examined=dict(sorted(unknown.items())),
        changes=changes,
        left=left,
    )


def _counted(words: Iterable[str]) -> dict[str, int]:
    # Sorted, so that a report does not depend on which store was looked at first.
    return dict(sorted(Counter(words).items()))
