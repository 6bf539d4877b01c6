"""Stores are found and examined one after another, while a line on the terminal tells how far that
has come.
"""

from collections.abc import Collection, Sequence
from functools import partial

from holdfast.cli.codes import USAGE, Stop
from holdfast.cli.output import Output
from holdfast.cli.targets import is_address
from holdfast.doctor import detect, exam
from holdfast.engine.address import shown
from holdfast.exporters import units

Found = tuple[str, str]
"""A store: its kind and its path."""


def find(paths: Sequence[str], out: Output) -> list[Found]:
    """The stores that these paths mean."""
    found: list[Found] = []
    for path in paths:
        _insist_on_path(path)
        out.over(f"Looking for stores in {path} ...")
        found += detect.stores_at(path)
    out.over(None)
    return found


def _insist_on_path(path: str) -> None:
    if is_address(path):
        raise Stop(
            USAGE,
            f"`{shown(path)}` is no file, and the doctor reads files, of other programs "
            "and of Holdfast. `holdfast store check --store ADDRESS` checks a Holdfast "
            "store in PostgreSQL, or one that a server has.",
        )


def examine(
    stores: Sequence[Found],
    out: Output,
    *,
    only: Collection[str] = (),
    session: str | None = None,
) -> list[exam.Report]:
    """A report of each."""
    reports: list[exam.Report] = []
    try:
        for kind, path in stores:
            progress = partial(_show, out, len(reports), len(stores))
            # Told before it is begun: making the private copy of a large store takes a
            # while.
            progress(exam.Report(kind, path, False, 0, 0, []))
            reports.append(
                exam.examine(kind, path, only=only, session=session, progress=progress)
            )
    # The line goes away also when an exam fails: the error begins on a line of its own.
    finally:
        out.over(None)
    return reports


def _show(out: Output, done: int, total: int, now: exam.Report) -> None:
    sessions = units.many(now.sessions, "session")
    if total == 1:
        messages = units.many(now.messages, "message")
        out.over(f"Examining {now.path}: {sessions}, {messages}")
    else:
        stores = f"{done:,} of {units.many(total, 'store')}"
        out.bar(done, total, f"{stores}, {now.path}: {sessions}")
