"""`python -m torture.systems.samples [NAME…]`: makes `tests/samples/<program>-<release>` anew, with
the programs themselves.

A sample is a folder with the files that the program left, and `sent.json`: the session, and what
the program sent when it was spoken to once more. What the programs say of themselves (instructions,
skills, the machine, the state of their screens) is taken out, paths are those of an orchard, and
nothing else is changed. `sample_stores` makes those of programs that keep their sessions in
databases.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from torture.systems import claude, codex, sample_stores
from torture.systems.npm import npm_folder
from torture.systems.sample_stores import plain_name
from torture.systems.scripted import Scripted

SAMPLES = Path(__file__).resolve().parents[2] / "tests" / "samples"
CLAUDE = (
    "prompts typed while a tool runs",
    "rewind",
    "rewind into a turn",
    "rewind and back again",
    "two compactions",
    "sub-agents",
    "large output",
    "interrupt in a tool",
    "kill -9 in a tool",
    "error of the model",
)
CODEX = (
    "calls side by side",
    "fork of a fork",
    "two compactions",
    "fork of a compacted one",
    "three turns rolled back",
    "patch",
    "ctrl-c in an answer",
    "kill -9 in a tool",
)
OUTPUT_MAX = 4000
"""Letters of an output that lies in a file of its own."""
ENVIRONMENTS = Path(tempfile.gettempdir()) / "holdfast-systems"
BARE = ("api-request", "api-request-blob", "api-request-shape", "atis-latch", "cost-state")
STATES = ("turn_context", "world_state", "token_usage_record", "event_msg")


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture.systems.samples", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(MAKERS)} (default: all)"
    )
    parser.add_argument(
        "--into", type=Path, default=SAMPLES, help="where they are written (default: %(default)s)"
    )
    options = parser.parse_args()
    for name in options.names or MAKERS:
        MAKERS[name](ENVIRONMENTS / name, options.into)
    return 0


def _of_claude(environment: Path, into: Path) -> None:
    program = claude.program_in(environment)
    for name in CLAUDE:
        with tempfile.TemporaryDirectory() as folder, Scripted() as model:
            its = claude.Claude(program, Path(folder), model)
            session = claude.SCENARIOS[name][0](its)
            files = its.files
            _keep(into / f"claude-{_release(claude)}" / plain_name(name), Path(folder), files)
            _keep_sent(
                into / f"claude-{_release(claude)}" / plain_name(name),
                session,
                Path(folder),
                its,
                claude,
            )


def _of_codex(environment: Path, into: Path) -> None:
    program = npm_folder(environment, codex.PACKAGE) / ".bin" / "codex"
    for name in CODEX:
        with tempfile.TemporaryDirectory() as folder, Scripted() as model:
            its = codex.Codex(program, Path(folder), model)
            session = codex.SCENARIOS[name][0](its)
            files = its.files
            _keep(into / f"codex-{_release(codex)}" / plain_name(name), Path(folder), files)
            _keep_sent(
                into / f"codex-{_release(codex)}" / plain_name(name),
                session,
                Path(folder),
                its,
                codex,
            )


MAKERS = {
    "agents": sample_stores.of_agents,
    "claude": _of_claude,
    "codex": _of_codex,
    "goose": sample_stores.of_goose,
    "hermes": sample_stores.of_hermes,
    "openviking": sample_stores.of_openviking,
}


def _release(program: Any) -> str:
    return str(program.PACKAGE.rpartition("@")[2])


def _keep(into: Path, folder: Path, files: Path) -> None:
    """The files that a program left."""
    shutil.rmtree(into, ignore_errors=True)
    for path in sorted(path for path in files.rglob("*") if path.is_file()):
        below = path.relative_to(files)
        below = Path("orchard", *below.parts[1:]) if below.parts[0].startswith("-") else below
        (into / below).parent.mkdir(parents=True, exist_ok=True)
        text = _elsewhere(path.read_text(), folder)
        if path.suffix == ".jsonl":
            lines = [_scrubbed(json.loads(line)) for line in text.splitlines()]
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        elif path.parent.name == "tool-results":
            text = text[:OUTPUT_MAX]
        (into / below).write_text(text)


def _keep_sent(into: Path, session: str, folder: Path, program: Any, kind: Any) -> None:
    """What the program sends when it is spoken to once more."""
    sent = json.loads(
        _elsewhere(json.dumps(kind.plain(program.sends_next(session)), ensure_ascii=False), folder)
    )
    told = {"session": session, "sent": [_cut(one) for one in sent]}
    (into / "sent.json").write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n")
    print(f"{into.parent.name}: {into.name}", file=sys.stderr)


def _elsewhere(text: str, folder: Path) -> str:
    """Text without the paths of this machine."""
    flat = str(folder).replace("/", "-").replace("_", "-").replace(".", "-")
    return (
        text.replace(str(folder), "/orchard")
        .replace(flat, "-orchard")
        .replace("/tmp/claude-0/", "/orchard/")
    )


def _scrubbed(line: dict[str, Any]) -> dict[str, Any]:
    """A line without what the program says of itself."""
    line.pop("gitBranch", None)
    if line["type"] in BARE:
        return {key: line[key] for key in ("type", "sessionId", "timestamp") if key in line}
    held = line.get("attachment")
    if isinstance(held, dict) and held["type"] != "queued_command":
        line.pop("rendered", None)
        return {**line, "attachment": {"type": held["type"]}}
    if isinstance(line.get("toolUseResult"), dict):
        kept = {key: value for key, value in line["toolUseResult"].items() if len(str(value)) < 300}
        line = {**line, "toolUseResult": kept}
    if "payload" not in line:
        return line
    payload = line["payload"]
    if line["type"] in STATES:
        names = ("type", "turn_id", "num_turns", "info", "model")
        return {**line, "payload": {name: payload[name] for name in names if name in payload}}
    if line["type"] == "session_meta":
        return {**line, "payload": {**payload, "base_instructions": {"text": codex.BASE}}}
    if isinstance(payload.get("replacement_history"), list):
        payload = {
            **payload,
            "replacement_history": [_cut(one) for one in payload["replacement_history"]],
        }
    return {**line, "payload": _cut(payload)}


def _cut(item: dict[str, Any]) -> dict[str, Any]:
    """An item in which what Codex says as a developer is short."""
    if item.get("role") != "developer":
        return item
    return {**item, "content": [{**part, "text": part["text"][:40]} for part in item["content"]]}


if __name__ == "__main__":
    sys.exit(main())
