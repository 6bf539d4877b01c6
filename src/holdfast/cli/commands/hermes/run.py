"""`holdfast hermes -- COMMAND`: one command of Hermes on Holdfast, and nothing installed."""

import argparse
import os
import signal
import subprocess
from typing import Any

from holdfast.adapters.hermes.switch import trying_out
from holdfast.cli.codes import NOT_FOUND, USAGE, Stop
from holdfast.cli.commands.hermes import add_environment, brought_over, usable
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def options(parser: Parser) -> None:
    parser.usage = f"{parser.prog} COMMAND..., or holdfast hermes -- COMMAND..."
    help = "what to run, such as `hermes gateway run`"
    parser.add_value("command", "COMMAND", help, nargs=argparse.REMAINDER)
    add_environment(parser)
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Run a command of Hermes on Holdfast, this once.

    What Hermes has stored so far is brought over first; then the command runs, and all that it starts, with the import
    hook on its PYTHONPATH. Nothing is installed and nothing of Hermes is changed: run without this, it is as it was.
    `holdfast hermes install` puts the hook there for good.

    The exit code is that of the command, and so is the output, with or without --json.
    """
    command = list(options.command)
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise Stop(
            USAGE,
            "there is no command to run; write it behind `--`: holdfast hermes -- hermes gateway "
            "run.",
        )
    usable(options, command[0])
    brought_over(options, out)
    variables = dict(os.environ)
    if options.home:
        variables["HERMES_HOME"] = options.home
    with trying_out() as more:
        return _run(command, {**variables, **more})


def _run(command: list[str], variables: dict[str, str]) -> int:
    try:
        process = subprocess.Popen(command, env=variables)
    except OSError as error:
        raise Stop(
            NOT_FOUND, f"`{command[0]}` can't be run: {error.strerror}."
        ) from error
    before = {}
    for number in _PASSED_ON:
        # The command decides what it does about it, and this one ends when it does.
        before[number] = signal.signal(
            number, lambda signum, frame: process.send_signal(signum)
        )
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
