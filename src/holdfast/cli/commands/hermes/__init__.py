"""`holdfast hermes`: Hermes Agent on Holdfast, for a try-out or for good."""

from pathlib import Path
from typing import Any

from holdfast.adapters.hermes.history import bring_history
from holdfast.adapters.hermes.switch import (
    Environment,
    NoHermes,
    environment_of,
    home_of,
)
from holdfast.cli.codes import NOT_FOUND, USAGE, Stop
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.exporters import units


def add_environment(parser: Parser) -> None:
    """The options that say which Hermes is meant."""
    python = "the Python of Hermes' environment (default: that of the `hermes` command)"
    parser.add_value("--python", "PATH", python)
    home = "the folder of Hermes' files (default: $HERMES_HOME, else ~/.hermes)"
    parser.add_value("--home", "PATH", home)


def found(options: Any, hermes: str = "hermes") -> Environment:
    """The Hermes that is meant."""
    try:
        return environment_of(hermes, options.python)
    except NoHermes as error:
        raise Stop(NOT_FOUND, str(error)) from error


def usable(options: Any, hermes: str = "hermes") -> Environment:
    """The Hermes that is meant, if Holdfast can be put under it."""
    environment = found(options, hermes)
    if environment.problem is not None:
        raise Stop(USAGE, environment.problem)
    return environment


def home(options: Any) -> Path:
    """The folder of the Hermes that is meant."""
    return home_of(options.home)


def brought_over(options: Any, out: Output) -> dict[str, int]:
    """Imports what Hermes has stored so far, and says so."""
    try:
        came = bring_history(home(options))
    finally:
        out.over(None)
    if came is None:
        return {"sessions": 0, "messages": 0}
    if came.new:
        sessions = units.many(came.new, "session")
        messages = units.many(came.messages, "message")
        out.say(f"{sessions} of {home(options)} brought over, {messages}.")
    for note in came.notes:
        out.say(f"  {note}")
    return {"sessions": came.new, "messages": came.messages}
