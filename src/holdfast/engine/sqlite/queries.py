"""The named statements of this engine's `.sql` files, ready to run."""

from holdfast.engine import statements


def _named(file: str) -> dict[str, str]:
    return statements.load(statements.beside(__file__, file))


SEARCH = _named("search.sql")
QUERIES = SEARCH | _named("filing.sql") | _named("laying.sql") | _named("queries.sql")
UPKEEP = _named("upkeep.sql")
SCHEMA = statements.beside(__file__, "schema.sql")
MIGRATIONS = statements.migrations(__file__)
