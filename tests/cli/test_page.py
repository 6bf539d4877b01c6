"""`docs/cli.md`: every example on the page prints what the page says, but for ids, times
and sizes.
"""

import re
import shlex
from pathlib import Path

import pytest

from commanding import command
from holdfast.cli import codes
from holdfast.cli.command_table import COMMANDS
from holdfast.cli.parser import parser_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```console\n\$ (?P<line>.*)\n(?P<said>(?:.*\n)*?)```$", re.M)
VARIES = [
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "MESSAGE-ID"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b|\bffffffff\b"), "SHORT-ID"),
    (re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?"), "TIME"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "MS"),
    (re.compile(r"\b\d+\.\d s\b"), "SPAN"),
    (re.compile(r" *\b[\d.,]+ (bytes|KB|MB)\b"), " SIZE"),
    (re.compile(r"SQLite [\d.]+|^file system .*", re.M), "SYSTEM"),
    (re.compile(r"(?<=[\s])/\S+/(?=\w+\.db)"), ""),
    (re.compile(r"^ {12,}SIZE .*\n?", re.M), ""),  # the files of a store, of which some come and go
]


def steady(text: str) -> str:
    """The text without what is different each time."""
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    return text.rstrip()


def test_every_example_prints_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"<!-- runs -->\n```python\n(.*?)```", TEXT, re.S)
    exec(compile(code[1], str(PAGE), "exec"), {})
    examples = list(EXAMPLE.finditer(TEXT))
    assert len(examples) > 12
    for example in examples:
        done = command(*shlex.split(example["line"])[1:], HOLDFAST_STORE="agent.db")
        assert steady(done.err + done.out) == steady(example["said"]), example["line"]


def test_the_page_tells_every_command_and_every_code():
    for name in COMMANDS:
        assert f"holdfast {name}" in TEXT
    for code, meaning in codes.MEANINGS.items():
        assert f"| {code} | {meaning} |" in TEXT


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("completion", "demo")])
def test_every_option_of_a_command_that_is_its_own_is_on_the_page(name):
    own = {each for action in parser_of(name)[0]._actions for each in action.option_strings} - {
        "-h",
        "--help",
    }
    assert all(f"{option}" in TEXT for option in own)
