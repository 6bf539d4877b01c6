"""Sessions as the JSON that goose exports and imports: one file for a session, a folder of them for
several.

goose refuses a whole file for one field that is not as it wants it, so everything it asks for is
given, from what the store says or as goose itself would begin it. The same sessions give the same
bytes; files are their owner's alone.
"""

import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.doctor.goose.case import ROLES, GooseCase, metadata_of
from holdfast.doctor.goose.heal.records import PLACEHOLDER
from holdfast.errors import StoreUnavailable
from holdfast.importers.goose.convert import named
from holdfast.importers.goose.records import (
    FLAGS,
    GooseRow,
    instant_of,
    milliseconds_of,
)
from holdfast.importers.jsonl import parsed

# What goose knows; the first of each stands for what it does not.
_TYPES = ("user", "scheduled", "sub_agent", "hidden", "terminal", "gateway", "acp")
_MODES = ("auto", "approve", "smart_approve", "chat")
# The names of the counters in an export, and those of their columns.
_TOKENS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_write_input_tokens": "cache_write_tokens",
}
# Fields without which goose refuses a model's settings.
_MODEL = {
    "temperature": None,
    "max_tokens": None,
    "toolshim": False,
    "toolshim_model": None,
}
_KEPT = (
    "schedule_id",
    "provider_name",
    "archived_at",
    "project_id",
    "parent_session_id",
)
Json = dict[str, Any]
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]")


def write(cases: Iterable[GooseCase], out: str, *, several: bool) -> None:
    """Writes sessions to a path where there is nothing yet."""
    target = Path(out)
    if target.exists() or target.is_symlink():
        problem = "there is something already"
        raise StoreUnavailable(
            where=out, problem=problem, remedy="Name a path where nothing is"
        )
    if not several:
        for case in cases:
            _write(target, case)
        return
    target.mkdir(mode=0o700)
    taken: set[str] = set()
    for case in cases:
        _write(target / f"{_free(case.session.id, taken)}.json", case)


def export_of(case: GooseCase) -> Json:
    """A session as goose exports it."""
    columns = case.session.columns
    spoken = [_message(row, case.session.id) for row in case.rows]
    # An export has the names that goose wants already.
    stored = columns if case.session.source == "export" else _from_row(columns)
    times = map(milliseconds_of, (row.created for row in case.rows))
    known = list(filter(None, times)) or [0]
    name = _text(columns.get("name")) or _text(columns.get("description"))
    return {
        **stored,
        "id": case.session.id,
        "working_dir": _text(columns.get("working_dir")),
        "name": name or "Recovered session",
        "user_set_name": bool(columns.get("user_set_name")),
        "session_type": _one_of(columns.get("session_type"), _TYPES),
        "created_at": _date(columns.get("created_at"), known[0]),
        "updated_at": _date(columns.get("updated_at"), known[-1]),
        "extension_data": _object(columns.get("extension_data")) or {},
        "goose_mode": _one_of(columns.get("goose_mode"), _MODES),
        "model_config": _model(
            columns.get("model_config", columns.get("model_config_json"))
        ),
        "message_count": len(spoken),
        "conversation": spoken,
    }


def _from_row(columns: Json) -> Json:
    """What the columns of a session's row are called in an export."""
    return {
        "usage": _usage(columns, ""),
        "accumulated_usage": _usage(columns, "accumulated_"),
        "accumulated_cost": _count(columns.get("accumulated_cost")),
        "recipe": _object(columns.get("recipe_json")),
        "user_recipe_values": _object(columns.get("user_recipe_values_json")),
        **{name: _text(columns.get(name), None) for name in _KEPT},
        "archived_at": _date(columns.get("archived_at"), None),
    }


def _usage(columns: Json, before: str) -> Json:
    usage = {}
    for name, column in _TOKENS.items():
        usage[name] = _count(columns.get(before + column))
    return usage


def _message(row: GooseRow, session: str) -> Json:
    """A message that goose loads, whatever the row still lacks."""
    metadata = {**dict.fromkeys(FLAGS, True), **metadata_of(row)}
    content = row.content
    # A remedy that was not accepted leaves rows that goose can't load; the model must not see them.
    if content is None or row.role not in ROLES or row.metadata_problem:
        metadata["agentVisible"] = False
    if content is None:
        content = [{"type": "text", "text": PLACEHOLDER}]
    return {
        **row.rest,
        "id": named(row, session),
        "role": row.role if row.role in ROLES else "user",
        "created": row.created or 0,
        "content": content,
        "metadata": metadata,
    }


def _write(path: Path, case: GooseCase) -> None:
    # Half of a surrogate pair can't be written as UTF-8, and must not keep the rest from being
    # written.
    text = json.dumps(export_of(case), ensure_ascii=False, indent=1)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text.encode("utf-8", "replace") + b"\n")


def _free(name: str, taken: set[str]) -> str:
    """A file name for a session; ids are other people's texts."""
    fit = _UNFIT.sub("_", name)[:100].lstrip(".") or "session"
    free = fit
    number = 1
    # Some file systems take two names for one if only their case differs.
    while free.lower() in taken:
        number += 1
        free = f"{fit}-{number}"
    taken.add(free.lower())
    return free


def _text(value: Any, otherwise: str | None = "") -> str | None:
    return value if isinstance(value, str) else otherwise


def _one_of(value: Any, known: tuple[str, ...]) -> str:
    return value if value in known else known[0]


def _count(value: Any) -> int | float | None:
    # True is an int for Python, and no count for goose.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def _object(value: Any) -> Json | None:
    if isinstance(value, str):
        value = parsed(value.encode("utf-8", "replace"))[0]
    return value if isinstance(value, dict) else None


def _model(value: Any) -> Json | None:
    found = _object(value)
    if found is None or not isinstance(found.get("model_name"), str):
        return None
    return {**found, **_MODEL, **found}


def _date(value: Any, otherwise: int | None) -> str | None:
    """A date as goose reads it."""
    when = instant_of(value)
    if when is None:
        when = otherwise
    if when is None:
        return None
    seconds = min(when // 1000, 253402300799)  # the end of the year 9999
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
