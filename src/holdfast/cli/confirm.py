"""A plan before a deed: what destroys or changes much is told first, and done only when somebody
says yes (I-21).

Without a terminal nobody is asked: the plan is printed, with the line that carries it out.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from holdfast.cli.codes import WRONG
from holdfast.cli.output import Output, talk
from holdfast.engine.address import shown


def agreed(
    options: Any, out: Output, plan: Sequence[str], *, line: Sequence[str]
) -> bool:
    """Tells the plan; whether it may be carried out. `line` is the command line that does so."""
    for sentence in plan:
        out.say_wrapped(sentence)
    if options.yes:
        return True
    # A question needs somebody who reads it and somebody who answers.
    if not out.is_json and _is_terminal(sys.stdin) and _is_terminal(sys.stderr):
        return _asked()
    out.say("Nothing was done. To do it: ", (shlex.join([*line, "--yes"]), "strong"))
    return False


def _is_terminal(stream: TextIO | None) -> bool:
    # There is none where it was closed before the start (`<&-`).
    return stream is not None and stream.isatty()


def _asked() -> bool:
    talk("Do it? [y/N] ")
    # Not `input()`: its question may go to stdout, where data goes.
    answer = sys.stdin.readline()
    if answer.strip().lower() in ("y", "yes"):
        return True
    # Ctrl-D leaves the cursor behind the question.
    if not answer.endswith("\n"):
        talk("\n")
    talk("Nothing was done.\n")
    return False


def not_done(out: Output, facts: dict[str, Any], code: int = WRONG) -> int:
    """The end of a command that has changed nothing: its plan was not confirmed, or there was
    nothing to do.
    """
    if out.is_json:
        out.json({"done": False, **facts})
    return code


def again(options: Any, *words: str) -> list[str]:
    """A command line on the same store and tenant. It has no password in it: that stays where it
    was said.
    """
    from holdfast.cli.parser import STORE, STORE_VARIABLE

    # What is said by default need not be said again.
    line = ["holdfast", *words]
    if options.store not in (STORE, os.environ.get(STORE_VARIABLE)):
        line += ["--store", shown(options.store)]
    if options.tenant != "default":
        line += ["--tenant", options.tenant]
    return line
