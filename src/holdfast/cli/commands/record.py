"""`holdfast record`: an agent that speaks the Agent Client Protocol, recorded."""

import argparse
import os
import signal
from typing import Any

import holdfast
from holdfast.adapters.acp.record import record
from holdfast.cli.codes import NOT_FOUND, USAGE, Stop
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import access


def options(parser: Parser) -> None:
    parser.add_value(
        "command",
        "-- COMMAND …",
        "the agent and its arguments, such as `-- goose acp`",
        nargs=argparse.REMAINDER,
    )
    parser.add_value(
        "--name",
        "NAME",
        "the agent's name in keys of sessions (default: what it says itself, and its home)",
    )
    parser.add_switch(
        "--serve-load", "replay loaded sessions from the store, not from the agent"
    )
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Run an agent for a client that speaks the Agent Client Protocol, and record both.

    Put it in front of the agent's command where the client has that: `holdfast record --store agent.db -- goose acp`.
    Every byte is passed on unchanged, each line once it is stored. Sessions have keys like `acp:goose:20261115_4`.

    What can't be stored is not shown: the prompt is answered with an error, and the agent told to stop. The exit code
    is the agent's; 2, 3 and 5 when it could not be started. Standard output belongs to the protocol, with --json, too.
    """
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise Stop(USAGE, "there is no command to record; put it after `--`.")
    with holdfast.open(
        options.store, tenant=options.tenant, **access(options.store)
    ) as store:
        try:
            code = record(
                store,
                command,
                name=options.name,
                serves_load=options.serve_load,
                say=out.say_wrapped,
            )
        except FileNotFoundError as missing:
            raise Stop(NOT_FOUND, f"There is no command `{command[0]}`.") from missing
    if code < 0:
        # Ended by a signal: whoever has started us is to see the same.
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code
