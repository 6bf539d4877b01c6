"""Bringing a store of an older version up to this one: in one transaction, so it is as it was or as
it should be.

Migrations add and never edit what happened: rows that an older release wrote are read by this one
as they are.
"""

from typing import Any, cast

import apsw

from holdfast.domain.accepted_events import event_name
from holdfast.engine.sqlite.queries import MIGRATIONS, transaction

SCHEMA_VERSION = 3


def migrate(connection: apsw.Connection) -> int:
    """Runs the scripts that this store has not seen; the version that it had."""
    found: int = connection.execute("PRAGMA user_version").get
    steps = [script for version, script in MIGRATIONS.items() if version > found]
    if steps:
        connection.create_scalar_function(
            "event_name", cast(Any, event_name), 2, deterministic=True
        )
        with transaction(connection, "IMMEDIATE"):
            for script in steps:
                connection.execute(script)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}").fetchall()
    return found
