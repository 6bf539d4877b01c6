"""`holdfast completion`: scripts that know what the parsers know."""

import subprocess

import pytest

from commanding import command
from holdfast.cli.command_table import COMMANDS, below
from holdfast.cli.parser import parser_of


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "holdfast.bash"
    path.write_text(command("completion", "bash").out)
    return path


def complete(script, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    ask = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _holdfast; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", ask, "bash", script, *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_accepts_the_script(script):
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    ask = 'source "$1"; complete -p holdfast'
    asked = subprocess.run(["bash", "-c", ask, "bash", script], capture_output=True, text=True)
    assert asked.stdout.strip() == "complete -o default -F _holdfast holdfast"


def test_commands_are_completed(script):
    assert complete(script, "holdfast", "") == {*below(""), "--help", "--version"}
    assert complete(script, "holdfast", "ses") == {"sessions"}
    assert complete(script, "holdfast", "sessions", "") == {*below("sessions"), "--help"}
    assert complete(script, "holdfast", "--store", "x.db", "store", "b") == {"backup"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_completed(script, name):
    offered = complete(script, "holdfast", *name.split(), "-")
    known = {each for action in parser_of(name)[0]._actions for each in action.option_strings}
    assert offered == known
    assert "--help" in known


def test_choices_are_completed_and_free_words_are_left_to_files(script):
    assert complete(script, "holdfast", "sessions", "list", "--state", "") == {
        "open",
        "running",
        "ended",
    }
    openai = {"openai.chat", "openai.responses"}
    assert complete(script, "holdfast", "sessions", "export", "x", "--as", "openai") == openai
    assert complete(script, "holdfast", "sessions", "list", "--store", "") == set()
    assert complete(script, "holdfast", "completion", "z") == {"zsh"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_command_and_option_too(shell):
    script = command("completion", shell).out
    for name in COMMANDS:
        assert name.split()[-1] in script
        for action in parser_of(name)[0]._actions:
            for option in action.option_strings:
                assert (
                    option in script or f"-l {option[2:]}" in script or f"-s {option[1:]}" in script
                )


def test_json_wraps_the_script(script):
    assert command("completion", "bash", "--json").json == {
        "shell": "bash",
        "script": script.read_text(),
    }
