"""The faults, as data: one TOML file for each layer beside this module.

    [[mutant]]
    id = "approval-other-arguments"              # unique over all layers
    fault = "an approval holds for any arguments"
    file = "src/holdfast/domain/approval.py"
    old = '''…'''                                # what stands there now, exactly once
    new = '''…'''                                # the fault
    tests = "tests/domain/test_x.py -k waiting"  # what should notice: arguments of pytest
    equivalent = "why no test can notice"        # in place of `tests`, where that is so

A newline right after the opening quotes is not part of a snippet; neither is one before the closing
quotes.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
FIELDS = {"id", "fault", "file", "old", "new", "tests", "equivalent"}


@dataclass(frozen=True)
class Mutant:
    """One fault: what stands in a file now, what would stand there, and which tests
    should notice.
    """

    id: str
    layer: str
    fault: str
    file: str
    old: str
    new: str
    tests: str = ""
    equivalent: str = ""

    def applied(self, text: str) -> str:
        """The text of the file with the fault in it."""
        return text.replace(self.old, self.new, 1)

    def problem(self, root: Path = ROOT) -> str | None:
        """Why this fault can't be put into the tree, in a sentence; None if it can."""
        path = root / self.file
        if not path.is_file():
            return f"{self.file} is not there"
        count = path.read_text(encoding="utf-8").count(self.old)
        return None if count == 1 else f"its snippet is {count} times in {self.file}, not once"


def layers() -> list[str]:
    """The layers that have faults."""
    return sorted(path.stem for path in HERE.glob("*.toml"))


def mutants(layer: str | None = None) -> list[Mutant]:
    """All faults, or those of one layer."""
    return [mutant for name in layers() if layer in (None, name) for mutant in _read(name)]


def _read(layer: str) -> Iterator[Mutant]:
    with open(HERE / f"{layer}.toml", "rb") as file:
        for told in tomllib.load(file)["mutant"]:
            if unknown := told.keys() - FIELDS:
                raise ValueError(
                    f"{layer}.toml: {told.get('id')} has the unknown fields {sorted(unknown)}"
                )
            yield _mutant(layer, told)


def _mutant(layer: str, told: dict[str, Any]) -> Mutant:
    snippets = {name: told[name].removesuffix("\n") for name in ("old", "new")}
    return Mutant(**{**told, **snippets}, layer=layer)
