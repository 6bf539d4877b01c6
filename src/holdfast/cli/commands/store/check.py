"""`holdfast store check`: damage and broken promises, found and told, never mended."""

from typing import Any

from holdfast.cli.codes import DONE, WRONG
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import opened
from holdfast.exporters import units


def options(parser: Parser) -> None:
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Look for damage and broken invariants; change nothing.

    The exit code is 0 when nothing was found and 1 when something was.

    With --json, one object: `problems`, a list with the fields of `Store.check()`.
    """
    with opened(options) as store:
        problems = store.check()
    if not out.is_json:
        for problem in problems:
            broken = f" ({problem.invariant})" if problem.invariant else ""
            out.line((problem.place, "strong"), f": {problem.problem}{broken}")
            out.line(f"    {problem.remedy}.")
    if not problems:
        out.report({"problems": []}, "No problems found.")
        return DONE
    found = f"{units.many(len(problems), 'problem')} found."
    out.report({"problems": problems}, found)
    return WRONG
