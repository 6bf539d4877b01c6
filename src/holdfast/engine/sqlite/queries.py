"""The named statements of this engine's `.sql` files, ready to run."""

from typing import Any

from holdfast.engine import named_sql

Values = named_sql.Row | dict[str, Any]
"""What a statement is given: by place, or by name."""


def _named(file: str) -> dict[str, str]:
    return named_sql.load(named_sql.beside(__file__, file))


SEARCH = _named("search.sql")
QUERIES = SEARCH | _named("filing.sql") | _named("laying.sql") | _named("queries.sql")
UPKEEP = _named("upkeep.sql")
SCHEMA = named_sql.beside(__file__, "schema.sql")
MIGRATIONS = named_sql.migrations(__file__)
