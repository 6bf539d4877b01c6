"""What the command line and the library make of a store: what the doctor finds, and the context
after an import.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

ROOT = Path(__file__).resolve().parents[2]
NEXT = "What did we say last?"
LIMIT_S = 120


class Trouble(Exception):
    """A program could not do what it was told."""


class Judged(Protocol):
    """A program, as its judge needs it: what it keeps, room beside it, and what it sends to its
    model next.
    """

    files: Path
    folder: Path
    format: str

    def sends_next(self, session: str) -> list[dict[str, Any]]:
        """What it sends when this session is spoken to once more, up to the new prompt."""
        ...


P = TypeVar("P", bound=Judged)
Scenario = tuple[Callable[[P], str], set[str]]
"""What a program does, which gives the session that it did it in; and the rules that its store
breaks then.
"""
Plain = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""Takes out of messages what a program says of itself."""


def judged(program: P, scenario: Scenario[P], plain: Plain) -> list[str]:
    """What is wrong with what a program did: its store is examined and imported, and the context is
    what it sends.
    """
    make, expected = scenario
    try:
        session = make(program)
        problems = []
        rules, unknown = examined(program.files)
        if rules != expected:
            problems.append(f"found {sorted(rules)}, expected {sorted(expected)}")
        if unknown:
            problems.append(f"not examined: {unknown}")
        mine = plain(
            imported(program.files, program.folder / "holdfast.db", session, program.format)
        )
        theirs = plain(program.sends_next(session))
    except Trouble as trouble:
        return [str(trouble)]
    return [*problems, *differences(mine, theirs)]


def counted(rows: Mapping[str, list[str]]) -> tuple[int, int, list[str]]:
    """How many rows were right, of how many, and what was wrong with the others."""
    wrong = [f"{name}: {problem}" for name, problems in rows.items() for problem in problems]
    return sum(not problems for problems in rows.values()), len(rows), wrong


def command(*arguments: str) -> dict[str, Any]:
    """What a command tells with `--json`."""
    call = [sys.executable, "-m", "holdfast.cli.main", *arguments, "--json"]
    paths = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    done = subprocess.run(call, capture_output=True, text=True, env=os.environ | paths)
    if done.returncode not in (0, 1):
        raise Trouble(
            f"holdfast {' '.join(arguments)} ended with {done.returncode}: "
            f"{done.stderr or done.stdout}"
        )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def examined(path: Path) -> tuple[set[str], dict[str, int]]:
    """The rules that the stores at a path break, and how many records there are of each kind that
    no reader knows.
    """
    totals = command("doctor", str(path))["totals"]
    return set(totals["rules"]), totals["not_examined"]


def imported(path: Path, into: Path, session: str, format: str) -> list[dict[str, Any]]:
    """The context of a session after all stores at a path were brought over."""
    import holdfast

    command("import", str(path), "--into", str(into))
    with holdfast.open(into) as store:
        for info in store.sessions(limit=500):
            here = store.get(info.id)
            if any(
                message.labels.get("story", {}).get("id") == session
                for message in here.transcript()
            ):
                context: Any = here.context(format)
                return json.loads(json.dumps(list(context)))  # type: ignore[no-any-return]
    raise Trouble(f"session {session} did not come over")


def differences(mine: list[Any], theirs: list[Any]) -> list[str]:
    """Where two contexts part."""
    for index in range(max(len(mine), len(theirs))):
        one, other = _written(mine[index : index + 1]), _written(theirs[index : index + 1])
        if one != other:
            at = len(os.path.commonprefix((one, other)))
            shown = slice(max(0, at - 60), at + 200)
            return [f"message {index + 1}: ours is …{one[shown]!r}, its own …{other[shown]!r}"]
    return []


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def until(seen: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Waits until something is seen of a process."""
    for _ in range(LIMIT_S * 20):
        if seen():
            return
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        raise Trouble(f"it ended with {process.returncode} before that was seen")
    raise Trouble("that was never seen")


def ended(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """What a process said, once it has ended."""
    try:
        return process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Trouble("it did not end") from None
