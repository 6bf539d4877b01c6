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
from holdfast.errors import Damaged, HoldfastError, StoreUnavailable
from holdfast.importers.damaged_stores import damage_at
from holdfast.importers.detect import parts_of
from holdfast.importers.holdfast_export import is_written_out
from holdfast.importers.private_copy import STILL_WRITTEN, NoRoom, is_live

# Policies whose remedies are applied without asking.
APPLIED = ("auto", "mark")


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
        findings = [finding.as_json() for finding in self.findings]
        return msgspec.structs.asdict(self) | {"findings": findings}


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
        damage = damage_at(path) if os.path.exists(path) else None
        name = "not-a-store" if damage is None else "unreadable-store"
        _add(report, _of_the_store(OWN, name, path, damage or _what_is_at(path)), only)
        return report
    try:
        report.live = is_live(*parts_of(kind, path))
        subject = open_subject(kind, path)
    except NoRoom:
        # That there is no room for a private copy says nothing of the store.
        raise
    except (HoldfastError, OSError) as error:
        if isinstance(error, StoreUnavailable) and error.problem == STILL_WRITTEN:
            raise
        _add(report, _of_the_store(kind, "unreadable-store", path, str(error)), only)
        return report
    try:
        for _ in _look(report, subject, only, session):
            progress(report)
    except Damaged as error:
        # A part that all the rest hangs on, such as the definition of a table.
        _add(report, _of_the_store(kind, "unreadable-store", path, str(error)), only)
    finally:
        subject.close()
    return report


def _of_the_store(kind: str, name: str, path: str, measured: str) -> Finding:
    # Of this kind alone: the rules of the others need not be loaded.
    [rule] = [rule for rule in rules_of(kind) if rule.name == f"{kind}/{name}"]
    return Finding(rule, "", path, measured)


def _what_is_at(path: str) -> str:
    if not os.path.lexists(path):
        return "There is nothing at this path."
    if is_written_out(path):
        return (
            "This is one session, exported: `holdfast import` vets all of it before any of it "
            "is stored."
        )
    if os.path.isdir(path):
        return "There is no store in this folder."
    return "No reader knows what this is."


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
    if not only or _is_hopeless(finding.rule) or _is_one_of(finding.rule, only):
        report.findings.append(finding.without_evidence())


def _is_one_of(rule: Rule, names: Collection[str]) -> bool:
    return any(fnmatch.fnmatchcase(rule.name, name) for name in names)


def _is_hopeless(rule: Rule) -> bool:
    return rule.name.endswith(("/not-a-store", "/unreadable-store"))


def accepting(accepted: Collection[str]) -> Accepts:
    """Applies what needs no question, and what was accepted by name."""

    def accepts(rule: Rule) -> bool:
        # What can't be healed from the store is not healed by being accepted.
        if rule.policy == "ask":
            return _is_one_of(rule, accepted)
        return rule.policy in APPLIED

    return accepts
