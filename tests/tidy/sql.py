"""SQL: the engines' queries have the same names, and the schema to read is the schema that
migrations make.
"""

import re
from collections import Counter
from pathlib import Path

import apsw

from holdfast.domain.accepted_events import event_name

NAME = re.compile(r"^--\s*name:\s*(\S+)", re.M)


def query_names(root: Path) -> list[str]:
    """Every engine has a `queries.sql`, and all have the same names in it."""
    found: list[str] = []
    names: dict[str, set[str]] = {}
    for folder in _engines(root):
        queries = folder / "queries.sql"
        if not queries.exists():
            found.append(
                f"engine/{folder.name} has no queries.sql; put its statements there, each under "
                "`-- name:`."
            )
            continue
        listed = NAME.findall(queries.read_text(encoding="utf-8"))
        found += [
            f"engine/{folder.name}/queries.sql names `{name}` {times} times; a name stands for "
            "one query."
            for name, times in Counter(listed).items()
            if times > 1
        ]
        names[folder.name] = set(listed)
    everywhere = set().union(*names.values())
    return found + [
        f"engine/{folder}/queries.sql has no `{name}`, another engine has; add it, so that the "
        "two read side by side."
        for folder, here in names.items()
        for name in sorted(everywhere - here)
    ]


def _engines(root: Path) -> list[Path]:
    """Those that ask a database: the one over HTTP asks a server, and `sql` is what they share."""
    top = root / "src" / "holdfast" / "engine"
    folders = sorted(path.parent for path in top.glob("*/*.py") if path.name == "__init__.py")
    return [folder for folder in folders if folder.name not in ("remote", "sql")]


def schema_and_migrations(root: Path) -> list[str]:
    """A store made by `schema.sql` and one made by all migrations are the same."""
    folder = root / "src" / "holdfast" / "engine" / "sqlite"
    if not folder.exists():
        return []
    if not (folder / "schema.sql").exists():
        return ["engine/sqlite has no schema.sql; write down there what a store looks like."]
    migrations = sorted((folder / "migrations").glob("*.sql"))
    whole = _objects([folder / "schema.sql"])
    if not migrations:
        return []
    grown = _objects(migrations)
    return [
        f"{kind} `{name}` is {_differs(grown.get((kind, name)), whole.get((kind, name)))}; "
        "make engine/sqlite/schema.sql say what the migrations do."
        for kind, name in sorted(whole.keys() | grown.keys())
        if whole.get((kind, name)) != grown.get((kind, name))
    ]


def _objects(scripts: list[Path]) -> dict[tuple[str, str], str]:
    """Everything in a new database after these scripts; spaces and comments do not matter."""
    database = apsw.Connection(":memory:")
    database.create_scalar_function("event_name", event_name, 2)
    for script in scripts:
        database.execute(script.read_text(encoding="utf-8"))
    rows = list(database.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master"))
    database.close()
    return {(kind, name): _plain(text) for kind, name, text in rows}


def _plain(text: str) -> str:
    text = re.sub(r"--.*|/\*.*?\*/", " ", text)
    return re.sub(r"\s*([(),=])\s*", r"\1", " ".join(text.split())).lower()


def _differs(grown: str | None, whole: str | None) -> str:
    if grown is None:
        return "in the schema and made by no migration"
    return (
        "made by a migration and not in the schema" if whole is None else "not the same in the two"
    )
