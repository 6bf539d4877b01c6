"""`holdfast doctor`: what is wrong with somebody's store, and a healed copy of it."""

import fnmatch
from typing import Any

from holdfast.cli.codes import DONE, NOT_FOUND, USAGE, WRONG, Stop
from holdfast.cli.commands import doctor_examine
from holdfast.cli.commands.doctor_heal import FORMS, heal
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.render.diagnosis import (
    as_json,
    explained,
    no_such_rule,
    shown,
    shown_totals,
)
from holdfast.doctor.exam import Report
from holdfast.doctor.rulebook import rulebook
from holdfast.doctor.totals import totals

OUT = (
    "write a healed copy here, or a folder with a copy of each store in PATH; it must "
    "not exist yet"
)


def options(parser: Parser) -> None:
    parser.usage = f"{parser.prog} PATH... [options]"
    help = "a store: a file, a folder, or a folder with stores in it"
    parser.add_value("paths", "PATH", help, nargs="*")
    explain = "explain a rule, or list all rules with `--explain all`"
    parser.add_value("--explain", "RULE", explain)
    only = "check only this rule; may be repeated, and `*` matches anything"
    parser.add_value("--only", "RULE", only, action="append", default=[])
    parser.add_value("--session", "ID", "examine only this session")
    parser.add_value("--heal", "OUT", OUT)
    form = f"what the healed copy is: {', '.join(FORMS)} (default: holdfast)"
    parser.add_value(
        "--as", "FORM", form, dest="form", choices=tuple(FORMS), default="holdfast"
    )
    accept = "also apply this rule's remedy, which is not applied by default; may be repeated"
    parser.add_value("--accept", "RULE", accept, action="append", default=[])
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Find out what is wrong with a store, and write a healed copy.

    Knows Holdfast's own stores, Hermes `state.db`, goose `sessions.db`, its JSONL and its JSON export, OpenViking
    session folders, Claude Code and Codex JSONL, and the SQLite sessions of the OpenAI Agents SDK. What a path is, it
    finds out by itself. Reading harms nothing: stores are copied to a private place and read there.

    With --heal, remedies that discard nothing are applied to a copy (`auto`, `mark`), others (`ask`) only where
    --accept names their rule. The copy is a Holdfast store, or with --as one that the program itself loads again. Of a
    folder with several stores, OUT becomes a folder with a copy of each, where its original lies; none of them is there
    before all are whole, and a store that can't be read is told and keeps none of the others from it.

    The exit code is 0 when nothing was found, 1 when something was (with --heal: when something is left in the copy),
    2 when the command line is wrong, 3 when a store can't be read.

    With --json, one object: `schema`, and `stores`, each with `kind`, `path`, `live`, `sessions`, `messages`,
    `not_examined` (how many records there are of each type that no reader knows) and `findings`, a list with `rule`,
    `session`, `place`, `severity`, `cause`, `measured`, `expected`, `remedy` and `policy`; and `totals`, with `stores`,
    `healthy`, `unreadable`, `live`, `sessions`, `messages`, `severities`, `policies`, `rules`, `not_examined`. With
    --heal, also `healed`, with `out`, `as`, `changes` and `left`; of several stores it has `out`, `as` and `stores`,
    each with `path`, `out`, `changes` and `left`.
    """
    if options.explain is not None:
        return explained(options.explain, out)
    if not options.paths:
        raise Stop(USAGE, "Which store? Give its path; see `holdfast doctor --help`.")
    # Before any store is read, which may take long.
    for name in (*options.only, *options.accept):
        _insist_on_rule(name)
    if options.heal is not None:
        return heal(options, out)
    stores = doctor_examine.find(options.paths, out)
    reports = doctor_examine.examine(
        stores, out, only=options.only, session=options.session
    )
    if options.session is not None:
        _insist_on_session(options.session, reports)
    if out.is_json:
        out.json(as_json(reports, totals(reports)))
    else:
        shown(reports, out)
        if len(reports) > 1:
            shown_totals(totals(reports), reports, out)
    # A store that can't be read outweighs findings: nobody knows what is wrong with it.
    if any(report.is_unreadable for report in reports):
        return NOT_FOUND
    return WRONG if any(report.findings for report in reports) else DONE


def _insist_on_session(session: str, reports: list[Report]) -> None:
    """A session that is nowhere would be examined in vain, and nothing found is good news."""
    if not any(report.sessions or report.is_unreadable for report in reports):
        raise Stop(NOT_FOUND, f"There is no session `{session}` in what was examined.")


def _insist_on_rule(name: str) -> None:
    """A rule that is misspelt would be looked for in vain, and nothing found is good news."""
    if not fnmatch.filter(rulebook(), name):
        raise no_such_rule(name)
