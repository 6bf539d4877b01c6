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
from holdfast.cli.render.diagnosis import as_json, shown, shown_totals
from holdfast.doctor import detect, exam
from holdfast.doctor.finding import Change, Finding
from holdfast.doctor.totals import totals
from holdfast.errors import StoreUnavailable
from holdfast.exporters.units import many
from holdfast.importers.detect import source_of
from holdfast.importers.own_folder import OwnFolder
from holdfast.runtime.transfer.import_store import bring

FORMS = {
    "holdfast": None,
    "goose-json": "goose",
    "hermes": "hermes",
    "openviking": "openviking",
}
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

    report: exam.Report
    out: str | None
    changes: list[Change] = []
    left: list[Finding] = []

    def as_json(self) -> dict[str, Any]:
        """For programs: these fields, in this order."""
        left = [finding.as_json() for finding in self.left]
        return {
            "path": self.report.path,
            "out": self.out,
            "changes": self.changes,
            "left": left,
        }


def heal(options: Any, out: Output) -> int:
    """Examines the stores, writes the healed copies, and looks at those as it would at
    any others.
    """
    if not options.heal:
        raise Stop(USAGE, "--heal needs a path for the healed copy; it is empty.")
    if options.session is not None:
        raise Stop(USAGE, "--heal heals whole stores; leave out --session.")
    stores = doctor_examine.find(options.paths, out)
    for kind, path in stores:
        _insist_on_form(options.form, kind, path)
    # Before the long work; what appears there meanwhile is found when the copies are moved.
    if os.path.lexists(options.heal):
        raise Stop(
            USAGE, f"`{options.heal}` exists already; give a path that does not."
        )
    several = _are_several(stores, options)
    places = _places(stores, options) if several else [""]
    copies = []
    reports = doctor_examine.examine(stores, out)
    for report, place in zip(reports, places, strict=True):
        to = os.path.join(options.heal, place).rstrip(os.sep)
        copies.append(Copy(report, None if report.is_unreadable else to))
    if any(copy.out for copy in copies):
        _write(copies, options, out)
    _show(copies, options, out, several=several)
    if any(copy.out is None for copy in copies):
        return NOT_FOUND
    # What is left is found in the copies themselves, not inferred from what was done.
    return WRONG if any(copy.left for copy in copies) else DONE


def _insist_on_form(form: str, kind: str, path: str) -> None:
    needs = FORMS[form]
    # What can't be read is reported as that, whatever form was asked for.
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
    # One folder was given: places in it stay as they are, however deep the stores lie.
    if len(given) == 1:
        within = given[0]
    else:
        within = os.path.commonpath([os.path.dirname(path) for path in paths])
    places: list[str] = []
    for (kind, _), path in zip(stores, paths, strict=True):
        place = os.path.relpath(path, within)
        if place == os.curdir:  # sessions of the folder itself
            place = kind
        if FORMS[options.form] is None and not place.endswith(OWN_ENDING):
            place += OWN_ENDING
        places.append(_short(place))
    return _apart(places)


def _short(place: str) -> str:
    """The place, its name cut so short that a store can put its log and its lock beside it."""
    folder, name = os.path.split(place)
    root, ending = os.path.splitext(name)
    # In bytes, as file systems count; a letter that is cut in two is left out.
    cut = os.fsencode(root)[: NAME_MAX - len(os.fsencode(ending))]
    return os.path.join(folder, cut.decode("utf-8", "ignore") + ending)


def _apart(places: Sequence[str]) -> list[str]:
    """The places, numbered where two are equal: `x.jsonl` and `x.jsonl.db` may both become
    `x.jsonl.db`.
    """
    names: list[str] = []
    for place in places:
        root, ending = os.path.splitext(place)
        name = place
        number = 1
        # not a name either that one further down has by itself
        while name in names or (number > 1 and name in places):
            number += 1
            name = f"{root}-{number}{ending}"
        names.append(name)
    return names


def _write(copies: Sequence[Copy], options: Any, out: Output) -> None:
    """Writes the copies in a folder of its own beside their place, and moves them there when all
    are whole: nothing else there is ever touched, and what could not be written whole is not left
    behind.
    """
    to = Path(os.path.abspath(options.heal))
    # Beside it, not in the folder for temporary files: a rename works within one file
    # system only.
    with _folder_beside(to) as folder:
        whole = folder.path / "whole" / to.name
        for number, copy in enumerate(copies):
            if copy.out is None:
                continue
            if len(copies) > 1:
                out.bar(number, len(copies), f"healing {copy.report.path}")
            place = whole / Path(os.path.abspath(copy.out)).relative_to(to)
            place.parent.mkdir(parents=True, exist_ok=True)
            copy.changes = _write_one(copy, place, folder.path / "made", options)
        out.over(None)
        _move(whole, to)
    for copy in copies:
        if copy.out is not None:
            copy.left = _left(copy.out, copy.report, options)


def _write_one(copy: Copy, place: Path, folder: Path, options: Any) -> list[Change]:
    """One copy, made in a folder that is removed with all that came into being beside it: what
    stands beside a store, its index of words, is made anew when it is needed.
    """
    kind, path = copy.report.kind, copy.report.path
    subject = detect.open_subject(kind, path)
    folder.mkdir()
    try:
        made = folder / place.name
        healed = subject.healed(exam.accepting(options.accept))
        try:
            if FORMS[options.form] is None and kind != detect.OWN:
                with holdfast.open(str(made)) as store:
                    bring(store, healed.sessions(), source=source_of(path))
            else:
                healed.write(str(made))
        # The error names the file in our own folder, which is gone when it is read.
        except StoreUnavailable as error:
            raise StoreUnavailable(
                where=str(copy.out), problem=error.problem, remedy=error.remedy
            ) from error
        _insist_on_whole(made, str(copy.out))
        os.rename(made, place)
        return healed.changes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        subject.close()


def _insist_on_whole(made: Path, out: str) -> None:
    """What is still in the log beside a store did not fit into it: the store alone is cut off."""
    log = Path(f"{made}-wal")
    if log.exists() and log.stat().st_size:
        raise StoreUnavailable(
            where=out,
            problem="the copy could not be written whole; the disk may be full",
            remedy="Free some room, then heal again",
        )


def _folder_beside(out: Path) -> OwnFolder:
    try:
        return OwnFolder(".holdfast-healing-", out.parent)
    except OSError as error:
        raise Stop(
            USAGE, f"Nothing can be written to `{out.parent}`: {error.strerror}."
        ) from error


def _move(made: Path, out: Path) -> None:
    """Moves what was made to `out`, and refuses if anything is there by now."""
    taken = Stop(USAGE, f"`{out}` exists by now; nothing was overwritten.")
    if os.path.lexists(out):
        raise taken
    # A folder replaces only an empty one, so nothing of anybody's is lost. A file would
    # replace a file that came since the look above: a link refuses that.
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
    found: list[Finding] = []
    for kind, path in detect.stores_at(out):
        found += exam.examine(kind, path).findings
    # By rule and session: places in the copy need not be those of the original.
    same = {(finding.rule.name, finding.session) for finding in found}
    accepts = exam.accepting(options.accept)
    for finding in report.findings:
        is_lost = (finding.rule.name, finding.session) not in same
        if is_lost and not accepts(finding.rule) and finding.severity != "info":
            found.append(finding)
    return found


def _show(copies: Sequence[Copy], options: Any, out: Output, *, several: bool) -> None:
    reports = [copy.report for copy in copies]
    changes = sum(len(copy.changes) for copy in copies)
    left = sum(len(copy.left) for copy in copies)
    come_to = totals(reports, changes=changes, left=left)
    written = [copy for copy in copies if copy.out]
    if out.is_json:
        answer = as_json(reports, come_to)
        if written:
            answer["healed"] = _healed_json(copies, options, several=several)
        out.json(answer)
        return
    shown(reports, out)
    for copy in written:
        _show_one(copy, out)
    if several:
        shown_totals(come_to, reports, out)
    if several and written:
        done = f"{many(changes, 'change')}; the healed copies are in {options.heal}"
        rest = f" ({left:,} left)" if left else ""
        out.line((done, "good"), rest)


def _healed_json(
    copies: Sequence[Copy], options: Any, *, several: bool
) -> dict[str, Any]:
    healed = {"out": options.heal, "as": options.form}
    made = [copy.as_json() for copy in copies]
    if several:
        return {**healed, "stores": made}
    return {**healed, "changes": made[0]["changes"], "left": made[0]["left"]}


def _show_one(copy: Copy, out: Output) -> None:
    for change in copy.changes:
        where = _where(change)
        out.line((change.rule, "strong"), where)
        out.line(("  before: ", "quiet"), change.before)
        out.line(("  after:  ", "quiet"), change.after)
    if copy.changes:
        out.line()
    changes = many(len(copy.changes), "change")
    out.line((f"{changes}; the healed copy is at {copy.out}", "good"))
    for finding in copy.left:
        rule = finding.rule.name
        why = f"`--accept {rule}` heals it"
        if finding.policy == "report":
            why = "can't be healed from this store"
        place = f"{rule}{_where(finding)}"
        out.line(("left: ", "hit"), f"{place}: {finding.measured} ({why})")


def _where(found: Change | Finding) -> str:
    session = f" in {found.session}" if found.session else ""
    return f"{session} at {found.place}"
