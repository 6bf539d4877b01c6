"""What the command line and the library make of a store: what the doctor finds, and the context after an import."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NEXT = "What did we say last?"
LIMIT_S = 120


class Trouble(Exception):
    """A program could not do what it was told."""


def command(*arguments: str) -> dict[str, Any]:
    """What a command tells with `--json`."""
    call = [sys.executable, "-m", "holdfast.cli.main", *arguments, "--json"]
    paths = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    done = subprocess.run(call, capture_output=True, text=True, env=os.environ | paths)
    if done.returncode not in (0, 1):
        raise Trouble(f"holdfast {' '.join(arguments)} ended with {done.returncode}: {done.stderr or done.stdout}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def found(path: Path) -> set[str]:
    """The rules that the stores at a path break."""
    return {finding["rule"] for store in command("doctor", str(path))["stores"] for finding in store["findings"]}


def unknown_lines(path: Path) -> dict[str, int]:
    """The kinds of lines that no reader knows, with how many there are."""
    counts: dict[str, int] = {}
    for store in command("doctor", str(path))["stores"]:
        for kind, count in store.get("not_examined", {}).items():
            counts[kind] = counts.get(kind, 0) + count
    return counts


def imported(path: Path, into: Path, session: str, format: str) -> list[dict[str, Any]]:
    """The context of a session after all stores at a path were brought over."""
    import holdfast

    command("import", str(path), "--into", str(into))
    with holdfast.open(into) as store:
        for info in store.sessions(limit=500):
            here = store.get(info.id)
            if any(message.labels.get("story", {}).get("id") == session for message in here.transcript()):
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
