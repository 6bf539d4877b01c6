"""`holdfast copy`: the sessions of one store into another."""

from typing import Any

import holdfast
from holdfast.cli.codes import DONE, WRONG
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import SHORT, insist, insist_on_store_itself
from holdfast.exporters import units

SHOWN = 5
"""So many entries of a session that can't be read are named; how many more there are is told."""


def options(parser: Parser) -> None:
    place = "a store: a file, or postgresql://…"
    parser.add_value("source", "SOURCE", place)
    parser.add_value("target", "TARGET", f"{place}; created if it does not exist")
    tenant = "the tenant whose sessions to copy (default: all tenants)"
    parser.add_value("--tenant", "NAME", tenant)
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Copy the sessions of a store into another: a file into PostgreSQL, and back.

    Both may be in use. Run it again to bring over what is new since, or what is left of a copy that was cut short.
    All that was copied is read back and compared. A session that went on in the target by itself is reported and left
    as it is. In the place of an entry that can't be read comes a placeholder, which is reported, too. In both cases the
    exit code is 1.

    With --json, one object: `sessions`, `entries`, `added`, `digest`, `in_use`, `differences`, `salvaged`.
    """
    for where in (options.source, options.target):
        insist_on_store_itself(where)
    insist(options.source, remedy="check the path, there is nothing to copy")
    # The bar goes away also when the copy fails: an error begins on a line of its own.
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
        _show(out, copied)
    # Sessions in use are no reason: they are the same in both as far as they were
    # copied.
    return WRONG if copied.differences or copied.salvaged else DONE


def _show(out: Output, copied: Any) -> None:
    for each in copied.differences:
        _show_entry(out, each, each.seq, each.problem)
        if each.source_digest or each.target_digest:
            source = each.source_digest or "has none"
            out.line(f"    source {source}, target {each.target_digest or 'has none'}")
    for each in copied.salvaged:
        if not each.seqs:
            _show_line(out, each, f": {each.problem}")
        for seq in each.seqs[:SHOWN]:
            problem = (
                "it can't be read as it was written; the target says so in its place"
            )
            _show_entry(out, each, seq, problem)
        left = len(each.seqs) - SHOWN
        if left > 0:
            out.line(f"    and {units.many(left, 'entry', 'entries')} more")
    sessions = units.many(copied.sessions, "session")
    entries = units.many(copied.entries, "entry", "entries")
    new = f"{copied.added:,} of them new; digest {copied.digest}"
    out.say(f"The same in both: {sessions}, {entries}, {new}.")
    for heading, found, hint in (
        (
            "In use",
            copied.in_use,
            ", copied up to the turn that is running. Copy again when it is over.",
        ),
        (
            "Left as they are",
            copied.differences,
            ". What is in the target is never changed.",
        ),
        (
            "With damage",
            copied.salvaged,
            ". `holdfast store check` tells what is wrong.",
        ),
    ):
        if found:
            out.say_wrapped(f"{heading}: {units.many(len(found), 'session')}{hint}")


def _show_entry(out: Output, each: Any, seq: int, problem: str) -> None:
    _show_line(out, each, f", entry {seq}: {problem}")


def _show_line(out: Output, each: Any, said: str) -> None:
    key = f" ({each.key})" if each.key is not None else ""
    session = f"session {each.session_id[:SHORT]}"
    out.line((session, "strong"), f"{key}{said}")


class _Bar:
    """How far it has come, in one line. It is drawn anew when a thousandth more is done."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._drawn = -1

    def show(self, progress: Any) -> None:
        total = max(progress.entries_total, 1)
        done = min(progress.entries, total)  # what came in meanwhile was not counted
        if done * 1000 // total == self._drawn:
            return
        self._drawn = done * 1000 // total
        sessions = units.many(progress.sessions_total, "session")
        entries = f"{done:,} of {total:,} entries"
        self._out.bar(done, total, f"{progress.sessions:,} of {sessions}, {entries}")
