"""The named statements of the `.sql` files beside this one, ready to run."""

import re

from holdfast.engine import named_sql

_FILES = (
    "queries.sql",
    "batching.sql",
    "searching.sql",
    "polling.sql",
    "restoring.sql",
    "upkeep.sql",
)
_array = re.compile(r"%\(\w+\)s::[a-z ]+\[\]")
_unnested = re.compile(rf"(?<=unnest\()(?:{_array.pattern}(?:, )?)+")


def _planned_once(statement: str) -> str:
    """The statement with its arrays where the planner can't look at them. It would find out how
    long they are and make a new plan every time, which takes longer than the work.
    """
    return _unnested.sub(
        lambda arrays: _array.sub(r"(SELECT \g<0>)", arrays[0]), statement
    )


QUERIES = {
    name: _planned_once(text)
    for file in _FILES
    for name, text in named_sql.load(named_sql.beside(__file__, file)).items()
}
SCHEMA = named_sql.beside(__file__, "schema.sql")
MIGRATIONS = named_sql.migrations(__file__)
