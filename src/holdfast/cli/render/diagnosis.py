"""What the doctor found, shown to a person: a summary first, then each store's findings; and rules
explained.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.cli.codes import DONE, USAGE, Stop
from holdfast.cli.output import Output, Piece
from holdfast.cli.render.table import Column, table
from holdfast.doctor.exam import Report
from holdfast.doctor.finding import Finding, Rule
from holdfast.doctor.rulebook import rulebook
from holdfast.doctor.totals import Totals
from holdfast.exporters import units
from holdfast.exporters.safe_text import wrapped

SCHEMA = 1
"""Of what is told to programs."""
STYLES = {"error": "bad", "warning": "hit", "info": "quiet"}
WAYS = {
    "auto": "healed without asking",
    "mark": "healed by a mark",
    "ask": "healed if you accept it",
    "report": "beyond healing",
}
"""What can be done about a finding, by the policy of its rule."""
COLUMNS = (
    Column("severity"),
    Column("rule"),
    Column("policy"),
    Column("session", shrinks=3),
    Column("place", shrinks=2),
    Column("measured", shrinks=1),
)


def as_json(reports: Sequence[Report], come_to: Totals) -> dict[str, Any]:
    """What the doctor found, for programs."""
    stores = [report.as_json() for report in reports]
    return {"schema": SCHEMA, "stores": stores, "totals": come_to}


def shown(reports: Sequence[Report], out: Output) -> None:
    """All stores that were looked at; then what their findings mean, each rule once."""
    for report in reports:
        out.line((report.path, "strong"), f"  {_what(report)}")
        out.line("  ", *_verdict(report.findings))
        if report.not_examined:
            out.line("  ", (units.not_examined(report.not_examined), "hit"))
        rows = [_row(finding) for finding in report.findings]
        out.lines(table(COLUMNS, rows, width=out.width))
        if report.findings and report is not reports[-1]:
            out.line()
    # At the end, once each: hundreds of findings may be of one rule, and of many
    # stores.
    broken = {finding.rule.name: finding.rule for finding in _findings(reports)}
    for rule in broken.values():
        out.line()
        out.line((rule.name, "strong"))
        _paragraph(out, rule.cause)
        _paragraph(out, f"Remedy ({rule.policy}): {rule.remedy}")
    out.line()


def shown_totals(come_to: Totals, reports: Sequence[Report], out: Output) -> None:
    """What several stores come to: how many are healthy, and how often each rule is broken."""
    verb = "is" if come_to.healthy == 1 else "are"
    pieces = [f"{come_to.healthy:,} {verb} healthy"]
    if come_to.unreadable:
        pieces.append(f"{come_to.unreadable:,} can't be read")
    if come_to.live:
        pieces.append(f"{come_to.live:,} in use")
    out.line((units.many(come_to.stores, "store"), "strong"), f": {', '.join(pieces)}")
    sizes = f"{units.many(come_to.sessions, 'session')}, {units.many(come_to.messages, 'message')}"
    out.line(f"  {sizes}, {units.many(come_to.findings, 'finding')}")
    findings = _findings(reports)
    if findings:
        out.line("  ", *_verdict(findings))
    for name, count in come_to.rules.items():
        stores = 0
        for report in reports:
            stores += any(finding.rule.name == name for finding in report.findings)
        where = units.many(stores, "store")
        out.line(f"  {name}: {units.many(count, 'finding')} in {where}")
    if come_to.not_examined:
        out.line("  ", (units.not_examined(come_to.not_examined), "hit"))


def _findings(reports: Sequence[Report]) -> list[Finding]:
    found: list[Finding] = []
    for report in reports:
        found += report.findings
    return found


def _what(report: Report) -> str:
    live = ", in use" if report.live else ""
    sessions = units.many(report.sessions, "session")
    messages = units.many(report.messages, "message")
    return f"{report.kind}{live}: {sessions}, {messages}"


def _verdict(findings: Sequence[Finding]) -> list[Piece]:
    if not findings:
        return [("No problems found.", "good")]
    counts = Counter[str](finding.severity for finding in findings)
    pieces: list[Piece] = []
    for severity, style in STYLES.items():
        count = counts[severity]
        if not count:
            continue
        if pieces:
            pieces.append(", ")
        # "info" has no plural
        text = f"{count} info" if severity == "info" else units.many(count, severity)
        pieces.append((text, style))
    policies = Counter[str](finding.policy for finding in findings)
    ways = []
    for policy, way in WAYS.items():
        if policies[policy]:
            ways.append(f"{policies[policy]} {way}")
    return [*pieces, f" ({', '.join(ways)})"]


def _row(finding: Finding) -> tuple[Piece, ...]:
    return (
        (finding.severity, STYLES[finding.severity]),
        finding.rule.name,
        finding.policy,
        finding.session,
        finding.place,
        finding.measured,
    )


def explained(name: str, out: Output) -> int:
    """One rule, or a list of all."""
    rules = rulebook()
    if name == "all":
        _listed(list(rules.values()), out)
        return DONE
    if name not in rules:
        raise no_such_rule(name)
    rule = rules[name]
    if out.is_json:
        out.json(rule)
        return DONE
    out.line((rule.name, "strong"), f"  {rule.severity}, {rule.policy}")
    texts = {
        "Cause": rule.cause,
        "Expected": rule.expected,
        "Example": rule.example,
        "Remedy": rule.remedy,
    }
    for heading, text in texts.items():
        _paragraph(out, f"{heading}: {text}")
    return DONE


def no_such_rule(name: str) -> Stop:
    """The end of a command that was given a rule which nobody knows."""
    from difflib import get_close_matches

    hint = "`holdfast doctor --explain all` lists them."
    for near in get_close_matches(name, rulebook(), n=1, cutoff=0.5):
        hint = f"do you mean `{near}`?"
    return Stop(USAGE, f"There is no rule `{name}`; {hint}")


def _listed(rules: Sequence[Rule], out: Output) -> None:
    if out.is_json:
        out.json({"rules": rules})
        return
    rows: list[list[Piece]] = []
    for rule in rules:
        severity = (rule.severity, STYLES[rule.severity])
        rows.append([severity, rule.name, rule.policy, rule.cause])
    columns = (*COLUMNS[:3], Column("cause", shrinks=1))
    out.lines(table(columns, rows, width=out.width))


def _paragraph(out: Output, text: str) -> None:
    width = out.width
    if width is not None:
        width -= 2
    for line in wrapped(text, width):
        out.line(f"  {line}")
