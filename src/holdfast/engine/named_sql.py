"""Named statements: how the engines read their `.sql` files."""

import os
from typing import Any

Row = tuple[Any, ...]
"""What a statement gives or takes, one value for each column."""
Rows = list[Row]
Values = Row | dict[str, Any]
"""What a statement is given: by place, or by name."""

_NAMED = "-- name: "


def load(text: str) -> dict[str, str]:
    """Name → statement, comments left out."""
    found = {}
    for each in f"\n{text}".split(f"\n{_NAMED}")[1:]:
        name, *body = each.splitlines()
        # the server and the prepared-statement caches go by the text: comments and line
        # breaks are no part of it
        lines = [line for line in body if not line.startswith("--")]
        found[name] = " ".join(" ".join(lines).split()).rstrip("; ")
    return found


def beside(module: str, name: str) -> str:
    """The text of a file beside this module."""
    with open(os.path.join(os.path.dirname(module), name), encoding="utf-8") as file:
        return file.read()


def migrations(module: str) -> dict[int, str]:
    """Version → the script that leads to it from the one before; all of them in order make what
    `schema.sql` makes.
    """
    names = sorted(os.listdir(os.path.join(os.path.dirname(module), "migrations")))
    return {
        int(name[:4]): beside(module, os.path.join("migrations", name))
        for name in names
        if name.endswith(".sql")
    }
