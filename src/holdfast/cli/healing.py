"""`holdfast doctor --heal`: a healed copy, and a report of each change (I-18: the original is never touched)."""

import os
from pathlib import Path
from typing import Any

import holdfast
from holdfast.cli import wording
from holdfast.cli.codes import DONE, NOT_FOUND, USAGE, WRONG, Stop
from holdfast.cli.diagnosis import SCHEMA, shown
from holdfast.cli.output import Output
from holdfast.doctor import exam, kinds
from holdfast.doctor.finding import Change, Finding
from holdfast.doctor.patient import Healed
from holdfast.doctor.rulebook import rules_of
from holdfast.errors import StoreUnavailable
from holdfast.foreign.kinds import source_of
from holdfast.foreign.own_folder import OwnFolder
from holdfast.runtime.bringing import bring

FORMS = {"holdfast": None, "goose-json": "goose", "hermes": "hermes", "openviking": "openviking"}
"""What a healed copy can be, and the kind of store that it takes; a Holdfast store can be made of all."""


def heal(options: Any, out: Output) -> int:
    """Examines one store, writes the healed copy, and looks at that as it would at any other."""
    kind, path = _one_store(options.paths)
    _insist_on_form(options.form, kind)
    if os.path.lexists(options.heal):
        raise Stop(USAGE, f"There is something at `{options.heal}` already; give a path where there is nothing.")
    report = exam.examine(kind, path)
    if report.is_unreadable:
        if out.is_json:
            out.json({"schema": SCHEMA, "stores": [report]})
        else:
            shown([report], out)
        return NOT_FOUND
    changes = _write(kind, path, options)
    left = _left(options, report)
    if out.is_json:
        healed = {"out": options.heal, "as": options.form, "changes": changes, "left": left}
        out.json({"schema": SCHEMA, "stores": [report], "healed": healed})
    else:
        shown([report], out)
        _told(changes, left, options.heal, out)
    return WRONG if left else DONE


def _one_store(paths: list[str]) -> tuple[str, str]:
    found = [store for path in paths for store in kinds.stores_at(path)]
    if len(found) != 1:
        raise Stop(USAGE, f"There are {len(found)} stores at these paths; heal them one at a time.")
    return found[0]


def _insist_on_form(form: str, kind: str) -> None:
    needs = FORMS[form]
    if needs is not None and needs != kind and kind != kinds.UNKNOWN:
        fitting = [name for name, takes in FORMS.items() if takes in (None, kind)]
        raise Stop(USAGE, f"A {kind} store can't be healed as {form}; as {' or '.join(fitting)} it can.")


def _write(kind: str, path: str, options: Any) -> list[Change]:
    """Writes the copy in a folder of its own beside its place, and moves it there when it is whole: nothing else there
    is ever touched, and what could not be written whole is not left behind.
    """
    out = Path(os.path.abspath(options.heal))
    patient = kinds.open_patient(kind, path)
    try:
        with _folder_beside(out) as folder:
            made = folder.path / out.name
            healed = patient.healed(exam.accepting(options.accept))
            try:
                if FORMS[options.form] is None and kind != kinds.OWN:
                    _write_own(healed, str(made), path)
                else:
                    healed.write(str(made))
            except StoreUnavailable as error:
                raise StoreUnavailable(where=str(out), problem=error.problem, remedy=error.remedy) from error
            _move(made, out)
        return healed.changes()
    finally:
        patient.close()


def _folder_beside(out: Path) -> OwnFolder:
    try:
        return OwnFolder(".holdfast-healing-", out.parent)
    except OSError as error:
        raise Stop(USAGE, f"Nothing can be written to `{out.parent}`: {error.strerror}.") from error


def _write_own(healed: Healed, to: str, path: str) -> None:
    with holdfast.open(to) as store:
        bring(store, healed.stories(), source=source_of(path))


def _move(made: Path, out: Path) -> None:
    """To where there is nothing yet. What stands beside a store, its index of words, is made anew when it is needed."""
    taken = Stop(USAGE, f"There is something at `{out}` by now; nothing was written over.")
    if os.path.lexists(out):
        raise taken
    if made.is_dir():
        os.rename(made, out)
        return
    try:
        os.link(made, out)
    except FileExistsError:
        raise taken from None
    except OSError:  # a file system without links
        os.rename(made, out)
    else:
        os.unlink(made)


def _left(options: Any, report: exam.Report) -> list[Finding]:
    """What the copy still has: found by looking at it, and what of the original is beyond recovery."""
    found = [finding for kind, path in kinds.stores_at(options.heal) for finding in exam.examine(kind, path).findings]
    same = {(finding.rule, finding.session) for finding in found}
    accepts = exam.accepting(options.accept)
    rules = {rule.name: rule for rule in rules_of(report.kind)}
    lost = [each for each in report.findings if not accepts(rules[each.rule]) and (each.rule, each.session) not in same]
    return [*found, *(each for each in lost if each.severity != "info")]


def _told(changes: list[Change], left: list[Finding], to: str, out: Output) -> None:
    for change in changes:
        session = f" in {change.session}" if change.session else ""
        out.line((change.rule, "strong"), f"{session} at {change.place}")
        out.line(("  before: ", "quiet"), change.before)
        out.line(("  after:  ", "quiet"), change.after)
    out.line()
    out.line((f"{wording.many(len(changes), 'change')}; the healed copy is at {to}", "good"))
    for finding in left:
        why = "can't be healed from this store" if finding.policy == "report" else f"`--accept {finding.rule}` heals it"
        session = f" in {finding.session}" if finding.session else ""
        out.line(("left: ", "hit"), f"{finding.rule}{session} at {finding.place}: {finding.measured} ({why})")
