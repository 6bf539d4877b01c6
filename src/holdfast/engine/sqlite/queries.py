"""The named statements of `queries.sql`, ready to run."""

import os
import re

_NAMED = re.compile(r"^-- name: (\w+)\n((?:.|\n)*?)(?=^-- name: |\Z)", re.MULTILINE)


def load(text: str) -> dict[str, str]:
    """Name → statement, comments left out."""
    found = {}
    for name, body in _NAMED.findall(text):
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        found[name] = " ".join(" ".join(lines).split()).rstrip("; ")
    return found


def _beside(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


QUERIES = load(_beside("queries.sql"))
SCHEMA = _beside("schema.sql")
