"""`holdfast hermes`: Hermes Agent on Holdfast, for a try-out or for good."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from holdfast.adapters.hermes.history import bring_history
from holdfast.adapters.hermes.received.given_up import count_of
from holdfast.adapters.hermes.serving import FILE
from holdfast.adapters.hermes.switch import (
    Environment,
    NoHermes,
    environment_of,
    home_of,
)
from holdfast.cli.codes import NOT_FOUND, OPERATOR, USAGE, Stop
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.errors import HoldfastError
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
    folder = home_of(options.home)
    if folder.is_dir():
        return folder
    if os.path.lexists(folder):
        raise Stop(USAGE, f"{folder} is no folder: Hermes can't have its files there.")
    # One that was named is a slip of the pen; the usual one Hermes makes when it first starts.
    if options.home:
        raise Stop(
            USAGE,
            f"There is no folder {folder}. If Hermes is to have its files there, make it first.",
        )
    return folder


class StoreState(NamedTuple):
    """How many messages wait in the store of a home and how many were given up, or why that can't
    be known.
    """

    waiting: int | None
    given_up: int | None
    problem: str | None


def store_state(path: Path) -> StoreState:
    """Whether Hermes could use this store, or make it."""
    real = Path(os.path.realpath(path))
    if not os.path.lexists(real):
        if path.is_symlink() and not real.parent.is_dir():
            problem = f"The store {path} is a link to {real}, and there is no folder {real.parent}."
            return StoreState(None, None, problem)
        return StoreState(0, 0, None)
    try:
        # Empty, as a kill may leave it: it is made a store by whoever opens it next.
        if real.is_file() and not real.stat().st_size:
            return StoreState(0, 0, None)
        return _counted(path)
    except (HoldfastError, OSError) as error:
        return StoreState(None, None, str(error))


def _counted(path: Path) -> StoreState:
    count, after = 0, None
    with holdfast.open(path, read_only=True) as store:
        while True:
            page = store.pending(after=after, limit=1000)
            count += len(page)
            after = page.next
            if after is None:
                return StoreState(count, count_of(store), None)


def brought_over(options: Any, out: Output) -> dict[str, int]:
    """Imports what Hermes has stored so far, and says so."""
    folder = home(options)
    problem = store_state(folder / FILE).problem
    # Hermes would answer nothing on such a store.
    if problem is not None:
        raise Stop(OPERATOR, problem)
    try:
        came = bring_history(folder)
    finally:
        out.over(None)
    if came is None:
        out.say(f"Hermes has stored nothing in {folder}: nothing was brought over.")
        return {"sessions": 0, "messages": 0}
    if came.new:
        sessions = units.many(came.new, "session")
        messages = units.many(came.messages, "message")
        out.say(f"{sessions} of {folder} brought over, {messages}.")
    for note in came.notes:
        out.say(f"  {note}")
    return {"sessions": came.new, "messages": came.messages}
