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
        # argparse fills help texts in with `%`, so a percent sign is written twice
        # there.
        self.help = (action.help or "").replace("%%", "%")
        # Switches and --help have 0 here, and options with one value None.
        self.takes = action.nargs != 0
        self.choices = [str(choice) for choice in action.choices or ()]


def _options(name: str) -> list[Option]:
    return [option for option in _arguments(name) if option.names]


def _places(name: str) -> list[str]:
    """What may stand in the places of a command's arguments, where that is one of a few words."""
    words: list[str] = []
    for argument in _arguments(name):
        if not argument.names:
            words += argument.choices
    return words


def _arguments(name: str) -> list[Option]:
    parser, _ = parser_of(name)
    # A private name, but argparse has no public one for what a parser takes.
    return [Option(action) for action in parser._actions]


def _words() -> Iterator[tuple[str, list[str]]]:
    """Each beginning of a command line, and the words that may follow."""
    yield "", [*below(""), "--help", "--version"]
    for group in GROUPS:
        yield group, [*below(group), "--help"]
    for name in COMMANDS:
        words = _places(name)
        for option in _options(name):
            words += option.names
        yield name, words


def _values() -> Iterator[tuple[str, list[str]]]:
    """Each option that takes a word, after its command, and the words that it takes; none when it
    takes any.
    """
    for name in COMMANDS:
        for option in _options(name):
            if option.takes:
                for each in option.names:
                    yield f"{name} {each}", option.choices


def _filled(template: str, words: list[str], values: list[str]) -> str:
    """The script of a shell that has cases: one for what may follow, one for what an option
    takes.
    """
    known = " | ".join(f'"{name}"' for name, _ in _words() if name)
    between = "\n    "
    return template.format(
        commands=known, words=between.join(words), values=between.join(values)
    )


# Braces are doubled for `format`. `-o default` offers files where nothing else was
# found, which is what an option that takes any word needs.
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
    words = []
    for name, after in _words():
        words.append(f'"{name}") words="{" ".join(after)}" ;;')
    values = []
    for name, choices in _values():
        offered = f'COMPREPLY=($(compgen -W "{" ".join(choices)}" -- "$current"))'
        values.append(f'"{name}") {offered}; return ;;')
    return _filled(BASH, words, values)


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
    words = []
    for name, after in _words():
        # Arguments of a command may be paths, where no option is being typed.
        files = "; [[ $PREFIX == -* ]] || _files" if name in COMMANDS else ""
        words.append(f'"{name}") compadd -- {" ".join(after)}{files} ;;')
    values = []
    for name, choices in _values():
        offered = f"compadd -- {' '.join(choices)}" if choices else "_files"
        values.append(f'"{name}") {offered}; return ;;')
    return _filled(ZSH, words, values)


def _fish() -> str:
    lines = ["# Completion of holdfast for fish.", "complete -c holdfast -f"]
    lines += _fish_words("__fish_use_subcommand", "")
    for group in GROUPS:
        seen = (
            f"__fish_seen_subcommand_from {group}; and not __fish_seen_subcommand_from"
        )
        lines += _fish_words(_quoted(f"{seen} {' '.join(below(group))}"), group)
    for name in COMMANDS:
        words = [f"__fish_seen_subcommand_from {word}" for word in name.split()]
        command = f"complete -c holdfast -n {_quoted('; and '.join(words))}"
        places = _places(name)
        if places:
            lines.append(f"{command} -a {_quoted(' '.join(places))}")
        for option in _options(name):
            lines.append(f"{command} {_fish_option(option)}")
    return "\n".join(lines) + "\n"


def _fish_words(when: str, group: str) -> list[str]:
    lines = []
    for word, about in below(group).items():
        lines.append(f"complete -c holdfast -n {when} -a {word} -d {_quoted(about)}")
    return lines


def _fish_option(option: Option) -> str:
    words = []
    for name in option.names:
        words.append(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}")
    if option.choices:
        words.append(f"-x -a {_quoted(' '.join(option.choices))}")
    elif option.takes:
        words.append("-r -F")
    return f"{' '.join(words)} -d {_quoted(option.help)}"


def _quoted(text: str) -> str:
    # Between single quotes fish takes these two escapes and no others.
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
