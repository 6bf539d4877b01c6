"""`holdfast completion`: scripts that complete commands and options in a shell.

The scripts are made from the parsers themselves, so they know what the commands know. They start
nothing while somebody types.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.command_table import COMMANDS, GROUPS, below
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser, parser_of

SHELLS = ("bash", "zsh", "fish")


def options(parser: Parser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish"
    )
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Print a script that completes commands in your shell.

    bash: put this into ~/.bashrc

        eval "$(holdfast completion bash)"

    zsh: put this into ~/.zshrc, after compinit

        eval "$(holdfast completion zsh)"

    fish: run this once

        holdfast completion fish > ~/.config/fish/completions/holdfast.fish

    With --json, one object: `shell` and `script`.
    """
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]()
    if out.is_json:
        out.json({"shell": options.shell, "script": script})
    else:
        out.raw(script.encode())
    return DONE


class Option:
    """An option of a command: its names, what it is for, and what may follow it."""

    def __init__(self, action: argparse.Action) -> None:
        self.names = list(action.option_strings)
        self.help = (action.help or "").replace("%%", "%")
        self.takes = action.nargs != 0
        self.choices = [str(choice) for choice in action.choices or ()]


def _options(name: str) -> list[Option]:
    parser, _ = parser_of(name)
    return [Option(action) for action in parser._actions if action.option_strings]


def _places(name: str) -> list[str]:
    """What may stand in the places of a command's arguments, where that is one of a few words."""
    parser, _ = parser_of(name)
    return [
        str(choice)
        for action in parser._actions
        if not action.option_strings
        for choice in action.choices or ()
    ]


def _words() -> Iterator[tuple[str, list[str]]]:
    """Each beginning of a command line, and the words that may follow."""
    yield "", [*below(""), "--help", "--version"]
    for group in GROUPS:
        yield group, [*below(group), "--help"]
    for name in COMMANDS:
        yield (
            name,
            [
                *_places(name),
                *(each for option in _options(name) for each in option.names),
            ],
        )


def _values() -> Iterator[tuple[str, list[str]]]:
    """Each option that takes a word, after its command, and the words that it takes; none when it
    takes any.
    """
    for name in COMMANDS:
        for option in _options(name):
            if option.takes:
                yield from ((f"{name} {each}", option.choices) for each in option.names)


BASH = """\
# Completion of holdfast for bash.
_holdfast() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} \
command="" word words="" at
    for ((at = 1; at < COMP_CWORD; at++)); do
        word="${{command:+$command }}${{COMP_WORDS[at]}}"
        case "$word" in
        {commands}) command="$word" ;;
        esac
    done
    case "$command $previous" in
    {values}
    esac
    case "$command" in
    {words}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _holdfast holdfast
"""


def _bash() -> str:
    known = " | ".join(f'"{name}"' for name, _ in _words() if name)
    words = "\n    ".join(
        f'"{name}") words="{" ".join(after)}" ;;' for name, after in _words()
    )
    values = "\n    ".join(
        f'"{name}") COMPREPLY=($(compgen -W "{" ".join(choices)}" -- "$current")); return ;;'
        for name, choices in _values()
    )
    return BASH.format(commands=known, words=words, values=values)


ZSH = """\
#compdef holdfast
# Completion of holdfast for zsh.
_holdfast() {{
    local command="" word at
    for ((at = 2; at < CURRENT; at++)); do
        word="${{command:+$command }}${{words[at]}}"
        case "$word" in
        {commands}) command="$word" ;;
        esac
    done
    case "$command ${{words[CURRENT - 1]}}" in
    {values}
    esac
    case "$command" in
    {words}
    esac
}}
compdef _holdfast holdfast
"""


def _zsh() -> str:
    known = " | ".join(f'"{name}"' for name, _ in _words() if name)
    words = "\n    ".join(
        f'"{name}") compadd -- '
        f"{' '.join(after)}{'; [[ $PREFIX == -* ]] || _files' if name in COMMANDS else ''} ;;"
        for name, after in _words()
    )
    values = "\n    ".join(
        f'"{name}") {"compadd -- " + " ".join(choices) if choices else "_files"}; return ;;'
        for name, choices in _values()
    )
    return ZSH.format(commands=known, words=words, values=values)


def _fish() -> str:
    lines = ["# Completion of holdfast for fish.", "complete -c holdfast -f"]
    for word, about in below("").items():
        lines.append(
            f"complete -c holdfast -n __fish_use_subcommand -a {word} -d {_quoted(about)}"
        )
    for group in GROUPS:
        seen = (
            f"__fish_seen_subcommand_from {group}; and not __fish_seen_subcommand_from "
            f"{' '.join(below(group))}"
        )
        for word, about in below(group).items():
            lines.append(
                f"complete -c holdfast -n {_quoted(seen)} -a {word} -d {_quoted(about)}"
            )
    for name in COMMANDS:
        when = _quoted(
            "; and ".join(
                f"__fish_seen_subcommand_from {word}" for word in name.split()
            )
        )
        if places := _places(name):
            lines.append(
                f"complete -c holdfast -n {when} -a {_quoted(' '.join(places))}"
            )
        lines += [
            f"complete -c holdfast -n {when} {_fish_option(option)}"
            for option in _options(name)
        ]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
        for name in option.names
    )
    takes = (
        f" -x -a {_quoted(' '.join(option.choices))}"
        if option.choices
        else " -r -F"
        if option.takes
        else ""
    )
    return f"{names}{takes} -d {_quoted(option.help)}"


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
