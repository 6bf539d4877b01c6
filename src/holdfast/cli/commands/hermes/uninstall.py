"""`holdfast hermes uninstall`: Hermes as it was before."""

from typing import Any

from holdfast.adapters.hermes.switch import switch_off
from holdfast.cli.codes import DONE
from holdfast.cli.commands.hermes import add_environment, found
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser


def options(parser: Parser) -> None:
    add_environment(parser)
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Take Holdfast away from under Hermes.

    The two files that `holdfast hermes install` wrote are removed. Hermes goes on with its own `state.db`, which has
    all that was said meanwhile. The Holdfast store stays where it is.

    With --json, one object: `python`, `folder`, and `was_there`.
    """
    environment = found(options)
    was_there = switch_off(environment)
    facts = {"python": environment.python, "folder": environment.folder}
    sentence = "Hermes runs by itself from its next start on."
    if not was_there:
        sentence = "Holdfast was not under this Hermes."
    out.report({**facts, "was_there": was_there}, sentence)
    return DONE
