"""Reading a command line: the standard library's parser, with our words, and the options that
commands share.

argparse, because a command has to be done in the time that a larger parser takes to be imported:
`import cyclopts` alone is 105 ms here, `import argparse` 13 ms, and a listing may take 150.
"""

import argparse
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

from holdfast.cli import codes
from holdfast.cli.command_table import module_of

HELP_WIDTH_MAX = 100
STORE, STORE_VARIABLE = "holdfast.db", "HOLDFAST_STORE"
PORT_MAX = 65_535


class Parser(argparse.ArgumentParser):
    """The parser of one command. A mistake is one sentence with exit code 2."""

    def __init__(self, prog: str, about: str) -> None:
        super().__init__(
            prog=prog,
            description=about,
            # argparse takes any beginning of an option that is unique: an option that
            # comes with a later release would break scripts that use one.
            allow_abbrev=False,
            add_help=False,
            formatter_class=_Formatter,
        )
        self.arguments_are("arguments")
        self.add_argument("-h", "--help", action="help", help="show this help and exit")

    def format_help(self) -> str:
        self.description = _filled(self.description or "")
        words = [self.prog]
        for action in self._actions:
            if not action.option_strings:
                words.append(str(action.metavar or action.dest))
        # argparse would list every option in the usage, over several lines, and again
        # below.
        self.usage = self.usage or " ".join([*words, "[options]"])
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise codes.Stop(codes.USAGE, f"{message}; {self._hint(message)}")

    def _hint(self, message: str) -> str:
        """What may have been meant by an option that there is not, else where to read on."""
        # Loaded here: only a mistake needs it, and every command would wait for it.
        from difflib import get_close_matches

        # argparse tells what was wrong in a sentence only; several words may be in it,
        # the first one counts.
        wrong = message.removeprefix("unrecognized arguments: ")
        wrong = wrong.split("=")[0].split(" ")[0]
        if wrong.startswith("-"):
            for near in get_close_matches(wrong, self._option_string_actions, n=1):
                return f"did you mean `{near}`?"
        return f"see `{self.prog} --help`."

    def has(self, option: str) -> bool:
        """Whether there is an option of this name."""
        return option in self._option_string_actions

    def arguments_are(self, title: str, about: str | None = None) -> None:
        """What the words are called that are not options."""
        self._positionals.title, self._positionals.description = title, about

    def add_value(self, name: str, metavar: str, help: str, **more: Any) -> None:
        """An argument, or an option with a value."""
        self.add_argument(name, metavar=metavar, help=help, **more)

    def add_switch(self, name: str, help: str) -> None:
        """An option that is there or not."""
        self.add_argument(name, action="store_true", help=help)

    def add_store(self) -> None:
        """The options of every command that works on a store."""
        group = self.add_argument_group("the store")
        help = f"a file, postgresql://… or http://… (default: ${STORE_VARIABLE}, else {STORE})"
        group.add_argument(
            "--store", metavar="STORE", default=default_store(), help=help
        )
        group.add_argument(
            "--tenant",
            metavar="NAME",
            default="default",
            help="the tenant (default: default)",
        )
        self.add_json()

    def add_json(self) -> None:
        self.add_switch("--json", "print JSON for programs")

    def add_session(self) -> None:
        """The argument that names a session."""
        help = "an id or the beginning of one, a key (its current session), or @latest"
        self.add_value("session", "SESSION", help)

    def add_yes(self) -> None:
        """The consent that a plan needs."""
        self.add_switch(
            "--yes",
            "do it; without this, the plan is shown and, on a terminal, you are asked",
        )


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """argparse's layout, with paragraphs as they were written and no wider than people read."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=help_width())


def default_store() -> str:
    """The store that is meant where none is named."""
    return os.environ.get(STORE_VARIABLE) or STORE


def help_width() -> int:
    """Of a terminal, or as COLUMNS says."""
    try:
        # What argparse would find out itself, but with `shutil`, which it loads for
        # that.
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        columns = 80
    return min(columns or 80, HELP_WIDTH_MAX)


def _filled(text: str) -> str:
    """The paragraphs of a docstring, filled to the width; indented ones stay as they are."""
    from textwrap import dedent

    first, _, rest = text.partition("\n")
    paragraphs = f"{first}\n{dedent(rest)}".strip().split("\n\n")
    return "\n\n".join(_fill(paragraph) for paragraph in paragraphs)


def _fill(paragraph: str) -> str:
    from textwrap import fill

    if paragraph.startswith(" "):
        return paragraph
    return fill(
        " ".join(paragraph.split()),
        help_width(),
        break_on_hyphens=False,
        break_long_words=False,
    )


def parser_of(name: str) -> tuple[Parser, Callable[..., int]]:
    """The parser of a command, and what runs it."""
    module: Any = import_module(f"holdfast.cli.{module_of(name)}")
    parser = Parser(f"holdfast {name}", module.run.__doc__ or "")
    module.options(parser)
    return parser, module.run


def whole_number(text: str) -> int:
    """A number of things: 0 or more."""
    # `int` takes more than people mean: spaces, underscores, a sign, digits of any
    # script.
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number")
    return int(text)


def count(text: str) -> int:
    """A number of things: 1 or more."""
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be 1 or more")
    return number


def port(text: str) -> int:
    """The number of a port; 0 for one that is free."""
    number = whole_number(text)
    if number > PORT_MAX:
        raise argparse.ArgumentTypeError(f"a port is {PORT_MAX} at most")
    return number
