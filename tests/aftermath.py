"""What must hold after trouble, whatever it was: for the tests that fail the disk and cut the
power.

A store that a life was lived in is opened anew and looked at: nothing that callers were told is
missing or there twice, every invariant holds, the file is sound, what was erased is gone, and work
goes on.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

import holdfast
from holdfast.runtime.clock import RealWorld
from holdfast.testing.faults.scripted_workload import ScriptedWorkload, go_on
from holdfast.testing.oracle import Acknowledged, Act, judge

FORMATS = ("openai.chat", "anthropic")
"""The usual one and the strictest: two are quicker looked at than four."""


class Later(RealWorld):
    """The same world some days on: whoever ran a turn before has lost its lease. The process of a
    test outlives the power cuts it plays, so a turn's holder would seem to be alive.
    """

    def __init__(self, days: int = 1) -> None:
        self._ahead_s = days * 86_400

    def tick(self) -> float:
        return super().tick() + self._ahead_s


def wrong(
    place: Path, told: Sequence[Act], life: ScriptedWorkload, *, again: bool = False, **options: Any
) -> list[str]:
    """Everything that is not as it should be in the store at `place`, when callers had been told
    this much. `again`: it is looked at a second time, after work has gone on.
    """
    erased = sum(act[0] == "erased" for act in told)
    found = left_over(place, life.secrets[:erased])
    with holdfast.open(place, durability="process", **options) as store:
        found += judge(store, Acknowledged(told, tried=life.tried), formats=FORMATS)
        go_on(store, "The next one")
        found += judge(store, formats=FORMATS) if again else []
    return found + unsound(place)


def unsound(place: Path) -> list[str]:
    """What SQLite's own check finds."""
    connection = apsw.Connection(str(place))
    try:
        problems = [
            row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"
        ]
    except apsw.CorruptError as error:
        problems = [str(error)]
    connection.close()
    return [f"the file is damaged: {problem} (I-18)" for problem in problems]


def left_over(place: Path, secrets: Sequence[str]) -> list[str]:
    """Words of erased sessions that still lie in a file of the store."""
    files = [
        path
        for path in place.parent.iterdir()
        if path.is_file() and path.name.startswith(place.name)
    ]
    contents = {path.name: path.read_bytes() for path in files}
    return [
        f"{secret!r} was erased and lies in {name} (I-21)"
        for secret in secrets
        for name, content in contents.items()
        if secret.encode() in content
    ]


def fresh(folder: Path) -> Path:
    """An empty folder in place of this one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
