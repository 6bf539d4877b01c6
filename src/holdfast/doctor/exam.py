"""An exam: what is wrong with one store, told as findings."""

import fnmatch
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

from holdfast.doctor.detect import OWN, UNKNOWN, open_subject
from holdfast.doctor.finding import Finding, Rule
from holdfast.doctor.rulebook import rules_of
from holdfast.doctor.subject import Accepts, Subject
from holdfast.errors import HoldfastError
from holdfast.importers.damaged_stores import damage_at
from holdfast.importers.detect import parts_of
from holdfast.importers.holdfast_export import is_written_out
from holdfast.importers.private_copy import NoRoom, is_live

APPLIED = ("auto", "mark")
"""Policies whose remedies are applied without asking."""


class Report(msgspec.Struct):
    """A store, examined. `live`: some program has it open, so that what is last in it may just be
    under way. `not_examined`: how many records there are of each type that the reader does not
    know.
    """

    kind: str
    path: str
    live: bool
    sessions: int
    messages: int
    findings: list[Finding]
    not_examined: dict[str, int] = {}

    @property
    def is_unreadable(self) -> bool:
        return any(_is_hopeless(finding.rule) for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """For programs: these fields, in this order."""
        return {
            "kind": self.kind,
            "path": self.path,
            "live": self.live,
            "sessions": self.sessions,
            "messages": self.messages,
            "findings": [finding.as_json() for finding in self.findings],
            "not_examined": self.not_examined,
        }


def examine(
    kind: str,
    path: str,
    *,
    only: Collection[str] = (),
    session: str | None = None,
    progress: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Looks at one store. `only` names rules, with `*` for any; `session` one session of it.
    `progress` gets the report after each session, as far as it has come.
    """
    report = Report(kind, path, False, 0, 0, [])
    if kind == UNKNOWN:
        damage = damage_at(path) if os.path.isfile(path) else None
        rule = _rule(OWN, "not-a-store" if damage is None else "unreadable-store")
        _add(report, Finding(rule, "", path, damage or _what_is_at(path)), only)
        return report
    try:
        report.live = is_live(*parts_of(kind, path))
        subject = open_subject(kind, path)
    except NoRoom:
        raise  # which says nothing of the store
    except (HoldfastError, OSError) as error:
        _add(
            report, Finding(_rule(kind, "unreadable-store"), "", path, str(error)), only
        )
        return report
    try:
        for _ in _look(report, subject, only, session):
            progress(report)
    finally:
        subject.close()
    return report


def _what_is_at(path: str) -> str:
    if not os.path.lexists(path):
        return "There is nothing at this path."
    if is_written_out(path):
        return (
            "This is one session, exported: `holdfast import` vets all of it before any of it "
            "is stored."
        )
    return (
        "There is no store in this folder."
        if os.path.isdir(path)
        else "No reader knows what this is."
    )


def _look(
    report: Report, subject: Subject, only: Collection[str], session: str | None
) -> Iterator[None]:
    """Goes on with the report, session by session."""
    for examined in subject.examine(session):
        if examined.session:
            report.sessions += 1
            report.messages += examined.messages
        for finding in examined.findings:
            _add(report, finding, only)
        yield
    report.not_examined = subject.not_examined()


def _add(report: Report, finding: Finding, only: Collection[str]) -> None:
    """Puts a finding into the report, if its rule was asked for; that a store can't be read is
    always said.
    """
    name = finding.rule.name
    if (
        only
        and not _is_hopeless(finding.rule)
        and not any(fnmatch.fnmatchcase(name, one) for one in only)
    ):
        return
    report.findings.append(finding.without_evidence())


def _rule(kind: str, name: str) -> Rule:
    return next(rule for rule in rules_of(kind) if rule.name == f"{kind}/{name}")


def _is_hopeless(rule: Rule) -> bool:
    return rule.name == "holdfast/not-a-store" or rule.name.endswith(
        "/unreadable-store"
    )


def accepting(accepted: Collection[str]) -> Accepts:
    """Applies what needs no question, and what was accepted by name."""
    return lambda rule: (
        rule.policy in APPLIED
        or (
            rule.policy == "ask"
            and any(fnmatch.fnmatchcase(rule.name, name) for name in accepted)
        )
    )
