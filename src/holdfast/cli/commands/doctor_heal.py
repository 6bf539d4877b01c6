"""`holdfast doctor --heal`: a healed copy of a store, or of each store in a folder, and a report of
each change (I-18: the originals are never touched).
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.cli.codes import DONE, NOT_FOUND, USAGE, WRONG, Stop
from holdfast.cli.commands import doctor_examine
from holdfast.cli.commands.doctor_examine import Found
from holdfast.cli.output import Output
from holdfast.cli.render.diagnosis import SCHEMA, shown, shown_totals
from holdfast.doctor import detect, exam
from holdfast.doctor.finding import Change, Finding
from holdfast.doctor.subject import Healed
from holdfast.doctor.totals import totals
from holdfast.errors import StoreUnavailable
from holdfast.exporters import units
from holdfast.importers.detect import source_of
from holdfast.importers.own_folder import OwnFolder
from holdfast.runtime.transfer.import_store import bring

FORMS = {"holdfast": None, "goose-json": "goose", "hermes": "hermes", "openviking": "openviking"}
"""What a healed copy can be, and the kind of store that it takes; a Holdfast store can be made of
all.
"""
OWN_ENDING = ".db"
NAME_MAX = 200
"""Bytes in the name of a copy: file systems take 255, and a store has files beside it with longer
names.
"""


class Copy(msgspec.Struct):
    """What became of one store; `out` is None when there was nothing to be read in it."""

    path: str
    out: str | None
    changes: list[Change] = []
    left: list[Finding] = []

    def as_json(self) -> dict[str, Any]:
        """For programs: these fields, in this order."""
        left = [finding.as_json() for finding in self.left]
        return {"path": self.path, "out": self.out, "changes": self.changes, "left": left}


def heal(options: Any, out: Output) -> int:
    """Examines the stores, writes the healed copies, and looks at those as it would at
    any others.
    """
    stores = doctor_examine.find(options.paths, out)
    for kind, path in stores:
        _insist_on_form(options.form, kind, path)
    if os.path.lexists(options.heal):
        raise Stop(USAGE, f"`{options.heal}` exists already; give a path that does not.")
    several = _are_several(stores, options)
    reports = doctor_examine.examine(stores, out)
    copies = [
        Copy(report.path, None if report.is_unreadable else os.path.join(options.heal, place))
        for report, place in zip(
            reports, _places(stores, options) if several else [""], strict=True
        )
    ]
    if any(copy.out for copy in copies):
        _write(stores, copies, options, out)
        for report, copy in zip(reports, copies, strict=True):
            copy.left = _left(copy.out, report, options) if copy.out else []
    _tell(reports, copies, options, out, several=several)
    if any(copy.out is None for copy in copies):
        return NOT_FOUND
    return WRONG if any(copy.left for copy in copies) else DONE


def _insist_on_form(form: str, kind: str, path: str) -> None:
    needs = FORMS[form]
    if needs is not None and needs != kind and kind != detect.UNKNOWN:
        fitting = [name for name, takes in FORMS.items() if takes in (None, kind)]
        problem = f"A {kind} store can't be healed as {form}; as {' or '.join(fitting)} it can."
        raise Stop(USAGE, f"{problem} It is at `{path}`.")


def _are_several(stores: Sequence[Found], options: Any) -> bool:
    """Whether the copies go into a folder. A single store that lies in a folder goes there if OUT
    is written as one.
    """
    if len(stores) != 1:
        return True
    is_within = stores[0][1] not in options.paths
    return is_within and options.heal.endswith(os.sep)


def _places(stores: Sequence[Found], options: Any) -> list[str]:
    """Where each copy lies in the folder of copies: as its original lies in the folder that was
    given, or in the one that holds all of them.
    """
    paths = [os.path.abspath(path) for _, path in stores]
    given = [os.path.abspath(path) for path in options.paths]
    within = (
        given[0]
        if len(given) == 1
        else os.path.commonpath([os.path.dirname(path) for path in paths])
    )
    places: list[str] = []
    for (kind, _), path in zip(stores, paths, strict=True):
        place = os.path.relpath(path, within)
        place = kind if place == os.curdir else place  # sessions of the folder itself
        if FORMS[options.form] is None and not place.endswith(OWN_ENDING):
            place += OWN_ENDING
        places.append(_short(place))
    return _apart(places)


def _short(place: str) -> str:
    """The same place, its name cut where a store could not put its log and its lock beside it."""
    folder, name = os.path.split(place)
    root, ending = os.path.splitext(name)
    cut = os.fsencode(root)[: NAME_MAX - len(os.fsencode(ending))]
    return os.path.join(folder, cut.decode("utf-8", "ignore") + ending)


def _apart(places: Sequence[str]) -> list[str]:
    """Each of them once: `x.jsonl` and `x.jsonl.db` may both become `x.jsonl.db`."""
    taken: set[str] = set()
    told = []
    for place in places:
        root, ending = os.path.splitext(place)
        names = (f"{root}-{number}{ending}" for number in range(2, len(places) + 2))
        name = (
            place
            if place not in taken
            else next(name for name in names if name not in {*taken, *places})
        )
        taken.add(name)
        told.append(name)
    return told


def _write(stores: Sequence[Found], copies: Sequence[Copy], options: Any, out: Output) -> None:
    """Writes the copies in a folder of its own beside their place, and moves them there when all
    are whole: nothing else there is ever touched, and what could not be written whole is not left
    behind.
    """
    to = Path(os.path.abspath(options.heal))
    with _folder_beside(to) as folder:
        whole = folder.path / "whole" / to.name
        for number, ((kind, _), copy) in enumerate(zip(stores, copies, strict=True)):
            if copy.out is None:
                continue
            if len(copies) > 1:
                out.bar(number, len(copies), f"healing {copy.path}")
            place = whole / Path(os.path.abspath(copy.out)).relative_to(to)
            place.parent.mkdir(parents=True, exist_ok=True)
            copy.changes = _write_one(kind, copy, place, folder.path / "made", options)
        out.over(None)
        _move(whole, to)


def _write_one(kind: str, copy: Copy, place: Path, folder: Path, options: Any) -> list[Change]:
    """One copy, made in a folder that is removed with all that came into being beside it: what
    stands beside a store, its index of words, is made anew when it is needed.
    """
    patient = detect.open_subject(kind, copy.path)
    folder.mkdir()
    try:
        made = folder / place.name
        healed = patient.healed(exam.accepting(options.accept))
        try:
            if FORMS[options.form] is None and kind != detect.OWN:
                _write_own(healed, str(made), copy.path)
            else:
                healed.write(str(made))
        except StoreUnavailable as error:
            raise StoreUnavailable(
                where=str(copy.out), problem=error.problem, remedy=error.remedy
            ) from error
        os.rename(made, place)
        return healed.changes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        patient.close()


def _folder_beside(out: Path) -> OwnFolder:
    try:
        return OwnFolder(".holdfast-healing-", out.parent)
    except OSError as error:
        raise Stop(USAGE, f"Nothing can be written to `{out.parent}`: {error.strerror}.") from error


def _write_own(healed: Healed, to: str, path: str) -> None:
    with holdfast.open(to) as store:
        bring(store, healed.sessions(), source=source_of(path))


def _move(made: Path, out: Path) -> None:
    """To where there is nothing yet."""
    taken = Stop(USAGE, f"`{out}` exists by now; nothing was overwritten.")
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


def _left(out: str, report: exam.Report, options: Any) -> list[Finding]:
    """What the copy still has: found by looking at it, and what of the original is beyond
    recovery.
    """
    found = [
        finding
        for kind, path in detect.stores_at(out)
        for finding in exam.examine(kind, path).findings
    ]
    same = {(finding.rule.name, finding.session) for finding in found}
    accepts = exam.accepting(options.accept)
    lost: list[Finding] = []
    for finding in report.findings:
        is_found = (finding.rule.name, finding.session) in same
        if not is_found and not accepts(finding.rule) and finding.severity != "info":
            lost.append(finding)
    return [*found, *lost]


def _tell(
    reports: Sequence[exam.Report],
    copies: Sequence[Copy],
    options: Any,
    out: Output,
    *,
    several: bool,
) -> None:
    changes, left = (
        sum(len(getattr(copy, name)) for copy in copies) for name in ("changes", "left")
    )
    come_to = totals(reports, changes=changes, left=left)
    written = any(copy.out for copy in copies)
    if out.is_json:
        about = {"out": options.heal, "as": options.form}
        made = [copy.as_json() for copy in copies]
        of = {"stores": made} if several else {name: made[0][name] for name in ("changes", "left")}
        healed = {"healed": {**about, **of}} if written else {}
        stores = [report.as_json() for report in reports]
        out.json({"schema": SCHEMA, "stores": stores, "totals": come_to, **healed})
        return
    shown(reports, out)
    for copy in copies:
        if copy.out:
            _tell_one(copy, out)
    if several:
        shown_totals(come_to, reports, out)
    if several and written:
        done = f"{units.many(changes, 'change')}; the healed copies are in {options.heal}"
        out.line((done, "good"), f" ({left:,} left)" if left else "")


def _tell_one(copy: Copy, out: Output) -> None:
    for change in copy.changes:
        session = f" in {change.session}" if change.session else ""
        out.line((change.rule, "strong"), f"{session} at {change.place}")
        out.line(("  before: ", "quiet"), change.before)
        out.line(("  after:  ", "quiet"), change.after)
    if copy.changes:
        out.line()
    out.line(
        (f"{units.many(len(copy.changes), 'change')}; the healed copy is at {copy.out}", "good")
    )
    for finding in copy.left:
        rule = finding.rule.name
        why = (
            "can't be healed from this store"
            if finding.policy == "report"
            else f"`--accept {rule}` heals it"
        )
        session = f" in {finding.session}" if finding.session else ""
        out.line(
            ("left: ", "hit"), f"{rule}{session} at {finding.place}: {finding.measured} ({why})"
        )
