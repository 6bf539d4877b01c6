"""`holdfast`, the command: finds the command that was named, runs it, and turns what happened into an exit code.

A command loads what it needs when it is called. Data goes to stdout, talk to stderr. The exit code is 0 when all is
well, 1 when a command found something wrong, 2 when it could not be run.
"""

import sys
from collections.abc import Sequence
from typing import Any

from holdfast import HoldfastError, __version__

HELP = """Durable sessions for AI agents.

What the user was shown, what the agent did and what the model is told next are one record, kept in a file, that
survives interrupts and crashes. Start with `holdfast demo`."""

INSTALL = """\
holdfast: the command line needs two more packages, and {missing} is not there. Install them with:

    pip install 'holdfast[cli]'
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("cyclopts", "rich"):
            raise
        sys.stderr.write(INSTALL.format(missing=missing))
    except HoldfastError as error:
        sys.stderr.write(f"holdfast: {error}\n")
    return 2


def _run(arguments: list[str]) -> int:
    from cyclopts import CycloptsError

    try:
        return int(_app()(arguments or ["--help"]) or 0)
    except CycloptsError:
        return 2  # cyclopts has said on stderr what is wrong


def _app() -> Any:
    from cyclopts import App
    from rich.console import Console

    from holdfast.cli.demo import demo

    app = App(
        name="holdfast",
        help=HELP,
        version=f"holdfast {__version__}",
        help_format="markdown",
        error_console=Console(stderr=True),
        result_action="return_value",
        exit_on_error=False,
    )
    app["--help"].group = app["--version"].group = "Options"
    app.command(demo)
    return app


if __name__ == "__main__":
    sys.exit(main())
