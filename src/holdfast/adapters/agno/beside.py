"""What Agno asks a database for that is no session and no run: memories, metrics, evals, knowledge,
traces, schedules and more. It is answered by another database of Agno's, if there is one.
"""

from collections.abc import Callable
from typing import Any

from agno.db.base import BaseDb

KEPT = frozenset(
    {
        "cancel_pending_run",
        "delete_run",
        "delete_runs",
        "delete_session",
        "delete_sessions",
        "get_run",
        "get_runs",
        "get_session",
        "get_sessions",
        "reassign_session_owner",
        "rename_session",
        "upsert_run",
        "upsert_session",
        "upsert_sessions",
    }
)
"""What is kept here."""
_OF_OBJECT = frozenset({"close", "from_dict", "to_dict"})
_OF_SCHEMA = frozenset(
    {"get_latest_schema_version", "table_exists", "upsert_schema_version"}
)


def _asked_of_the_other(name: str) -> Callable[..., Any]:
    own = getattr(BaseDb, name)
    is_abstract = name in BaseDb.__abstractmethods__

    def method(self: Any, *given: Any, **named: Any) -> Any:
        if self.beside is not None:
            return getattr(self.beside, name)(*given, **named)
        if not is_abstract:
            return own(self, *given, **named)
        raise NotImplementedError(
            f"HoldfastDb keeps sessions and runs; `{name}` needs a database beside it: "
            "HoldfastDb(store, beside=SqliteDb(…))"
        )

    method.__name__ = name
    return method


def _methods() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in vars(BaseDb).items():
        is_ours = name.startswith("_") or name in KEPT | _OF_OBJECT | _OF_SCHEMA
        if callable(value) and not is_ours:
            made[name] = _asked_of_the_other(name)
    return made


# Made from whatever methods the installed release has: a new one is passed on as well.
OtherTables: Any = type("OtherTables", (BaseDb,), {"beside": None, **_methods()})
"""Agno's `BaseDb`, without the methods of sessions and runs."""
