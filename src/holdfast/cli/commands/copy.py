"""`holdfast copy`: the sessions of one store into another."""

from typing import Any

import holdfast
from holdfast.cli.codes import DONE, WRONG
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import SHORT, insist
from holdfast.exporters import units

SHOWN = 5
"""So many entries of a session that can't be read are named; how many more there are is told."""


def options(parser: Parser) -> None:
    place = "a store: a file, or postgresql://…"
    parser.add_argument("source", metavar="SOURCE", help=place)
    parser.add_argument(
        "target", metavar="TARGET", help=f"{place}; created if it does not exist"
    )
    parser.add_argument(
        "--tenant",
        metavar="NAME",
        help="the tenant whose sessions to copy (default: all tenants)",
    )
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Copy the sessions of a store into another: a file into PostgreSQL, and back.

    Both may be in use. Run it again to bring over what is new since, or what is left of a copy that was cut short.
    All that was copied is read back and compared. A session that went on in the target by itself is reported and left
    as it is. In the place of an entry that can't be read comes a placeholder, which is reported, too. In both cases the
    exit code is 1.

    With --json, one object: `sessions`, `entries`, `added`, `digest`, `in_use`, `differences`, `salvaged`.
    """
    insist(options.source, remedy="check the path, there is nothing to copy")
    try:
        copied = holdfast.copy(
            options.source,
            options.target,
            tenant=options.tenant,
            progress=_Bar(out).show,
        )
    finally:
        out.over(None)
    if out.is_json:
        out.json(copied)
    else:
        _tell(out, copied)
    return WRONG if copied.differences or copied.salvaged else DONE


def _tell(out: Output, copied: Any) -> None:
    for each in copied.differences:
        out.line(*_named(each), f", entry {each.seq}: {each.problem}")
        if each.source_digest or each.target_digest:
            out.line(
                f"    source {each.source_digest or 'has none'}, target "
                f"{each.target_digest or 'has none'}"
            )
    for each in copied.salvaged:
        for seq in each.seqs[:SHOWN]:
            out.line(
                *_named(each),
                f", entry {seq}: it can't be read, and is a placeholder in the target",
            )
        if len(each.seqs) > SHOWN:
            out.line(
                f"    and {units.many(len(each.seqs) - SHOWN, 'entry', 'entries')} more"
            )
    held = (
        f"{units.many(copied.sessions, 'session')}, "
        f"{units.many(copied.entries, 'entry', 'entries')}"
    )
    out.say(
        f"The same in both: {held}, {copied.added:,} of them new; digest {copied.digest}."
    )
    if copied.in_use:
        count = units.many(len(copied.in_use), "session")
        out.tell(
            f"In use: {count}, copied up to the turn that is running. Copy again when it is over."
        )
    if copied.differences:
        left = units.many(len(copied.differences), "session")
        out.tell(f"Left as they are: {left}. What is in the target is never changed.")
    if copied.salvaged:
        some = units.many(len(copied.salvaged), "session")
        out.tell(
            f"With entries that can't be read: {some}. `holdfast store check` tells what is wrong."
        )


def _named(each: Any) -> tuple[tuple[str, str], str]:
    """A session as a report names it."""
    return (
        f"session {each.session_id[:SHORT]}",
        "strong",
    ), f" ({each.key})" if each.key is not None else ""


class _Bar:
    """How far it has come, in one line. It is drawn anew when a thousandth more is done."""

    def __init__(self, out: Output) -> None:
        self._out, self._drawn = out, -1

    def show(self, progress: Any) -> None:
        total = max(progress.entries_total, 1)
        done = min(progress.entries, total)  # what came in meanwhile was not counted
        if done * 1000 // total == self._drawn:
            return
        self._drawn = done * 1000 // total
        sessions = (
            f"{progress.sessions:,} of {units.many(progress.sessions_total, 'session')}"
        )
        self._out.bar(done, total, f"{sessions}, {done:,} of {total:,} entries")
