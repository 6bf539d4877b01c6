"""The named statements of `queries.sql`, ready to run."""

import re
from importlib import resources

_NAMED = re.compile(r"^-- name: (\w+)\n((?:.|\n)*?)(?=^-- name: |\Z)", re.MULTILINE)


def load(package: str) -> dict[str, str]:
    """Name → statement, comments left out."""
    text = resources.files(package).joinpath("queries.sql").read_text("utf-8")
    found = {}
    for name, body in _NAMED.findall(text):
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        found[name] = " ".join(" ".join(lines).split()).rstrip("; ")
    return found


QUERIES = load("holdfast.engine.sqlite")
SCHEMA = resources.files("holdfast.engine.sqlite").joinpath("schema.sql").read_text("utf-8")
