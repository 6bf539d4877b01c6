"""`holdfast`, the command: finds the command that was named, runs it, and turns what happened into
an exit code.

A command is loaded when it is called. Data goes to stdout, talk to stderr; an error is one
sentence. The exit codes are in `codes.py`.
"""

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from holdfast import HoldfastError, __version__
from holdfast.cli import codes
from holdfast.cli.command_table import COMMANDS, GROUPS, below
from holdfast.cli.graceful_exit import ReaderGone, ending_in_order
from holdfast.cli.output import Output, discard, talk

ABOUT = """Durable sessions for AI agents.

What the user was shown, what the agent did and what the model is told next are one record, \
kept in a file, that
survives interrupts and crashes. Start with `holdfast demo`."""

INSTALL = (
    "{missing} is not there, which this command needs. Install it with: pip install "
    "'holdfast[{extra}]'"
)
EXTRAS = {
    "rich": "cli",
    "starlette": "server",
    "uvicorn": "server",
    "opentelemetry": "otel",
}
"""What a command may need, and the extra that brings it."""
SHARED = {"--store": 1, "--tenant": 1, "--json": 0}
"""Options that may stand before the command too, with the number of words that follow them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    _prepare()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _tell_warning
            code = _run(list(sys.argv[1:] if arguments is None else arguments))
        # A full disk or a closed pipe may show only now; left to the end of Python, it
        # would be told in Python's words, with another exit code.
        sys.stdout.flush()
        return code
    except (BrokenPipeError, ReaderGone):
        _let_go()
        # `head` and the like have read enough: that is no failure.
        return codes.DONE
    except KeyboardInterrupt:
        return codes.INTERRUPTED
    # Not `BaseException`: a process that was told to end ends by its signal.
    except Exception as error:
        return _sorry(error)


def _prepare() -> None:
    # A process may be started without them, by a service or with `>&-`.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # what a terminal can't show is no reason to end
            stream.reconfigure(errors="backslashreplace")


def _tell_warning(message: Warning | str, *_place: Any, **_more: Any) -> None:
    """A warning is a sentence for whoever runs the command; where in the code it came up is not
    of interest to them.
    """
    Output().say_wrapped(f"holdfast: {message}")


def _let_go() -> None:
    """Flushes stdout. What can't be written is discarded."""
    try:
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)


def _sorry(error: Exception) -> int:
    # Data that came before the error is out before the error is told.
    _let_go()
    if os.environ.get("HOLDFAST_DEBUG"):
        import traceback

        from holdfast.exporters.safe_text import harmless

        # What the error quotes may be stored text, and must not steer the terminal (I-20).
        talk(harmless("".join(traceback.format_exception(error))))
    code, sentence = _explained(error)
    Output().say_wrapped(f"holdfast: {sentence}")
    for line in getattr(error, "more", ()):
        Output().say(line)
    return code


def _explained(error: Exception) -> tuple[int, str]:
    if isinstance(error, codes.Stop):
        return error.code, str(error)
    if isinstance(error, HoldfastError):
        return codes.code_of(error), str(error)
    if isinstance(error, ModuleNotFoundError):
        missing = (error.name or "").partition(".")[0]
        # Only what the extras install: any other module that is missing is a defect of
        # ours.
        if missing in EXTRAS:
            return codes.USAGE, INSTALL.format(missing=missing, extra=EXTRAS[missing])
    if isinstance(error, OSError):
        # An error of writing to a stream names no file; the only stream written to is
        # the output.
        where = error.filename or "the output"
        return codes.OPERATOR, f"{error.strerror or error}: {where}."
    what = f"{type(error).__name__}: {error}"
    return codes.DEFECT, f"this is a defect ({what}); HOLDFAST_DEBUG=1 shows where."


def _named(words: list[str]) -> tuple[str, str, list[str]]:
    """The group of commands that these words begin with, or none; the command; and what is left of
    the words.
    """
    name, *rest = words
    group = name if name in GROUPS else ""
    if group and rest and not rest[0].startswith("-"):
        name = f"{group} {rest.pop(0)}"
    # `holdfast hermes -- COMMAND`: of a group that can run one.
    elif rest[:1] == ["--"] and f"{group} run" in COMMANDS:
        name = f"{group} run"
    return group, name, rest


def _run(words: list[str]) -> int:
    words, shared = _shared_first(words)
    if words[:1] == ["--version"]:
        Output().line(f"holdfast {__version__}")
        return codes.DONE
    if shared and not words:
        raise codes.Stop(
            codes.USAGE,
            f"`{shared[0]}` is an option of a command, and none was named; see `holdfast --help`.",
        )
    group, name, rest = _named(words or [""])
    if name in COMMANDS:
        # First: what stands after the command is nearer to it, and wins.
        return _command(name, [*shared, *rest])
    # A group alone, or with --help, is a question and no mistake: its exit code is 0.
    asks = name == group and rest[:1] in ([], ["-h"], ["--help"])
    if asks or not words or name in ("-h", "--help", "help"):
        _help(group)
        return codes.DONE
    # An empty word is one too, and no command.
    wrong = name.removeprefix(group).strip() or "".join(rest[:1])
    raise codes.Stop(codes.USAGE, _unknown(group, wrong))


def _shared_first(words: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the command and is meant for it: `holdfast --store agent.db sessions
    list`.
    """
    at = 0
    while at < len(words) and words[at].partition("=")[0] in SHARED:
        # `--store=agent.db` is one word, `--store agent.db` two.
        at += 1 if "=" in words[at] else 1 + SHARED[words[at]]
    return words[at:], words[:at]


def _command(name: str, words: list[str]) -> int:
    from holdfast.cli.parser import parser_of

    parser, run = parser_of(name)
    for option in ("--store", "--tenant"):
        if not parser.has(option) and _is_given(option, words):
            problem = f"`holdfast {name}` has no option `{option}`"
            if option == "--store":
                named = "by `--into`" if parser.has("--into") else "without one"
                problem += f": its store is named {named}"
            raise codes.Stop(codes.USAGE, f"{problem}; see `holdfast {name} --help`.")
    try:
        options = parser.parse_args(words)
    except SystemExit as end:
        # argparse ends by itself after --help; mistakes are raised as `Stop`.
        return int(end.code or 0)
    # Not around the parsing: until a command runs there is nothing to put away.
    with ending_in_order():
        return run(options, Output(json=getattr(options, "json", False)))


def _is_given(option: str, words: list[str]) -> bool:
    # Behind `--`, words are those of another program.
    own = words[: words.index("--")] if "--" in words else words
    return any(word.partition("=")[0] == option for word in own)


def _help(group: str) -> None:
    # Loaded here: a command line that is wrong or asks for a version need not wait for argparse.
    from holdfast.cli.parser import Parser

    prog = f"holdfast {group}".strip()
    parser = Parser(prog, GROUPS[group] if group else ABOUT)
    parser.usage = f"{prog} COMMAND [options]"
    parser.arguments_are("commands", f"run `{prog} COMMAND --help` for details")
    for word, about in below(group).items():
        # For the layout only: argparse lists commands as it lists arguments, and this
        # parser never parses anything.
        parser.add_argument(f"_{word}", metavar=word, nargs="?", help=about)
    if not group:
        parser.add_argument(
            "--version", action="store_true", help="show the version and exit"
        )
        parser.epilog = codes.listed()
    sys.stdout.write(parser.format_help())


def _unknown(group: str, wrong: str) -> str:
    """A sentence about a word that is no command or option, with what may have been meant."""
    from difflib import get_close_matches

    prog = f"holdfast {group}".strip()
    if not wrong.startswith("-"):
        problem = f"`{prog}` has no command `{wrong}`"
    else:
        problem = f"`{prog}` has no option `{wrong}`"
        if not group:
            for near in get_close_matches(wrong, SHARED, n=1):
                return f"{problem}; did you mean `{near}`?"
    # `holdfast list` is meant for a command below a group; the group need not be known by heart.
    for name in COMMANDS:
        if name.split()[-1] == wrong:
            return f"{problem}; did you mean `holdfast {name}`?"
    words = below(group)
    for near in get_close_matches(wrong, words, n=1):
        return f"{problem}; did you mean `{prog} {near}`?"
    return f"{problem}; there are {', '.join(words)}."


if __name__ == "__main__":
    sys.exit(main())
