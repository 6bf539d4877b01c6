"""Samples of programs that keep their sessions in a SQLite file: the file as the program left it,
in one piece, without the paths of this machine; and what the program sent when it was spoken to
once more. Those of OpenViking are folders, and what it would send is the context that it gives.
"""

import gzip
import json
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from torture.systems import agents, goose, hermes, openviking
from torture.systems.goose_program import PACKAGE, goose_command
from torture.systems.judging import Judged, Plain
from torture.systems.scripted import Scripted

AGENTS = (
    ("chat", "turns with a tool"), ("chat", "undo"), ("chat", "error of the model"),
    ("responses", "calls side by side"), ("responses", "turn after a kill -9 in a tool"),
)  # fmt: skip
GOOSE = (
    "turns with a tool",
    "compaction",
    "kill -9 in a tool",
    "turn after a kill -9",
    "stream that was cut",
)
HERMES = (
    "turns with a tool",
    "branch",
    "turn after a kill -9",
    "compaction in place",
    "compaction into a child",
)
OPENVIKING = ("tools", "committed", "reset", "memory-off")
INSTRUCTIONS = "You keep the harbour book."
ELSEWHERE = "/orchard"


def of_agents(environment: Path, into: Path) -> None:
    """Makes those of the OpenAI Agents SDK."""
    for api, name in AGENTS:
        with tempfile.TemporaryDirectory() as folder, Scripted() as model:
            program = agents.Agents(environment, Path(folder), model, api)
            session = agents.SCENARIOS[name][0](program)
            sample = into / f"agents-{agents.RELEASE}" / plain_name(f"{api} {name}")
            keep(program, session, agents.plain, sample, folder)


def of_goose(environment: Path, into: Path) -> None:
    """Makes those of goose."""
    command, release = goose_command(environment), PACKAGE.rpartition("@")[2]
    for name in GOOSE:
        with tempfile.TemporaryDirectory() as folder, goose.Model() as model:
            program = goose.Goose(command, Path(folder, "home"), model)
            session = goose.SCENARIOS[name][0](program)
            keep(
                program, session, goose.plain, into / f"goose-{release}" / plain_name(name), folder
            )


def of_hermes(environment: Path, into: Path) -> None:
    """Makes those of Hermes. Its instructions, which tell of the machine, are other ones."""
    for name in HERMES:
        with tempfile.TemporaryDirectory() as folder, hermes.Model() as model:
            program = hermes.Hermes(environment, Path(folder), model)
            try:
                book = hermes.Book(program, Path(folder, "book"))
                session = hermes.SCENARIOS[name][0](book)
                keep(
                    book,
                    session,
                    hermes.plain,
                    into / f"hermes-{hermes.RELEASE}" / plain_name(name),
                    folder,
                )
            finally:
                program.close()


def of_openviking(environment: Path, into: Path) -> None:
    """Makes those of OpenViking: the folders of its sessions, and the contexts that it gives."""
    with tempfile.TemporaryDirectory() as folder, openviking.Model() as model:
        workspace, shown = Path(folder, "workspace"), {}
        with openviking.Server(environment, workspace, model) as server:
            for name in OPENVIKING:
                server.post("", {"session_id": name})
                openviking.OWN[name](server, name)
                shown[name] = openviking.plain(server.context(name))
        for name in OPENVIKING:
            sample = into / f"openviking-{openviking.RELEASE}" / name
            shutil.rmtree(sample, ignore_errors=True)
            shutil.copytree(workspace / openviking.SESSIONS / name, sample / name)
            for path in sample.rglob("*"):
                if path.is_file():
                    path.write_text(path.read_text().replace(folder, ELSEWHERE))
            told = {"session": name, "format": "openviking", "sent": shown[name]}
            (sample / "sent.json").write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n")
            print(f"{sample.parent.name}: {name}", file=sys.stderr)


def plain_name(name: str) -> str:
    """The folder of a sample."""
    return name.replace(" ", "-")


def keep(program: Judged, session: str, plain: Plain, into: Path, folder: str) -> None:
    """Writes the store and what the program sends next. All that it knows of this machine lies in
    the folder.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    packed = gzip.compress(_in_one_piece(program.files, folder), mtime=0)
    (into / f"{program.files.name}.gz").write_bytes(packed)
    told = {
        "session": session,
        "format": program.format,
        "sent": plain(program.sends_next(session)),
    }
    text = json.dumps(told, ensure_ascii=False, indent=1) + "\n"
    (into / "sent.json").write_text(text.replace(folder, ELSEWHERE))
    print(f"{into.parent.name}: {into.name}", file=sys.stderr)


def _in_one_piece(path: Path, folder: str) -> bytes:
    """A database with what lies in its log, without the paths of this machine."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "copy.db")
        with closing(sqlite3.connect(path)) as store, closing(sqlite3.connect(copy)) as kept:
            store.backup(kept)
            for table, column in _texts(kept):
                kept.execute(
                    f'UPDATE "{table}" SET "{column}" = replace("{column}", ?, ?)',
                    (folder, ELSEWHERE),
                )
            if "system_prompt" in [column for _, column in _texts(kept)]:
                kept.execute("UPDATE sessions SET system_prompt = ?", (INSTRUCTIONS,))
            kept.commit()
            kept.execute("PRAGMA journal_mode = DELETE")
            kept.execute("VACUUM")
        return copy.read_bytes()


def _texts(store: sqlite3.Connection) -> list[tuple[str, str]]:
    """The columns with texts of the tables that hold sessions and what was said."""
    found = []
    for table in ("sessions", "messages", "agent_sessions", "agent_messages"):
        rows = store.execute("SELECT name, type FROM pragma_table_info(?) WHERE NOT pk", (table,))
        found += [(table, name) for name, type in rows if type.upper() in ("TEXT", "")]
    return found
