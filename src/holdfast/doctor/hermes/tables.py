"""The tables of a healed `state.db`, made with our own words.

A schema is a program, and that of a store that was damaged or crafted is not run. Tables are made
anew from the names and types of their columns; keys, defaults that are plain literals and
references as Hermes has them; indexes, full text and its triggers are those of Hermes Agent 0.19.0,
each where the store has one of that name. What else a schema may hold is left out: Hermes makes
what it misses when it opens the store.
"""

import re
from collections.abc import Set
from contextlib import suppress

import apsw

from holdfast.importers.damaged_rows import quoted
from holdfast.importers.sqlite_file import SqliteFile, TableColumn

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_ ]{0,40}(\([0-9, ]{1,20}\))?")
_LITERAL = re.compile(
    r"NULL|[+-]?[0-9]{1,18}(\.[0-9]{1,18})?|'[^'\0]{0,200}'", re.IGNORECASE
)
_REFERENCES = {
    ("sessions", "parent_session_id"): "REFERENCES sessions(id)",
    ("messages", "session_id"): "REFERENCES sessions(id)",
    ("session_model_usage", "session_id"): "REFERENCES sessions(id) ON DELETE CASCADE",
}
# Ids that are never given out twice.
_NUMBERED = {("messages", "id")}
_INDEXES = {
    "idx_sessions_source": "sessions(source)",
    "idx_sessions_source_id": "sessions(source, id)",
    "idx_sessions_parent": "sessions(parent_session_id)",
    "idx_sessions_started": "sessions(started_at DESC)",
    "idx_messages_session": "messages(session_id, timestamp)",
    "idx_compression_locks_expires": "compression_locks(expires_at)",
    "idx_session_model_usage_session": "session_model_usage(session_id)",
    "idx_session_model_usage_model": "session_model_usage(model)",
    "idx_async_delegations_delivery": "async_delegations(delivery_state, completed_at)",
    "idx_messages_platform_msg_id": "messages(session_id, platform_message_id) WHERE "
    "platform_message_id IS NOT NULL",
    "idx_messages_session_active": "messages(session_id, active, timestamp)",
    "idx_messages_active_null": "messages(active) WHERE active IS NULL",
    "idx_sessions_session_key": "sessions(session_key, started_at DESC)",
    "idx_sessions_gateway_peer": "sessions(source, user_id, chat_id, chat_type, thread_id, "
    "started_at DESC)",
    "idx_sessions_handoff_state": "sessions(handoff_state, started_at)",
}
_UNIQUE = {"idx_sessions_title_unique": "sessions(title) WHERE title IS NOT NULL"}
_SEARCH = {
    "messages_fts": "content",
    "messages_fts_trigram": "content, tokenize='trigram'",
}
_SEARCHED = ("content", "tool_name", "tool_calls")
_SHADOWS = ("data", "idx", "content", "docsize", "config")
_WORDS = " || ' ' || ".join(f"COALESCE(new.{column}, '')" for column in _SEARCHED)


def make_tables(store: SqliteFile, target: apsw.Connection) -> list[str]:
    """Makes what the store has, as far as we know it; the names of the tables whose rows are to be
    copied.
    """
    names = {name for _, name, _ in store.schema()}
    tables, virtual = _stored_tables(store)
    made = [name for name in tables if _make(store, target, name)]
    for how, known in (("INDEX", _INDEXES), ("UNIQUE INDEX", _UNIQUE)):
        # In the order of our own list: that of a set is another one in every process, and the same
        # store has to give the same bytes.
        for name, columns in known.items():
            if name in names:
                with suppress(apsw.SQLError):  # an older schema has no such column yet
                    target.execute(f"CREATE {how} {name} ON {columns}")
    if set(_SEARCHED) <= set(store.columns("messages")):
        for name in _SEARCH:
            if name in virtual:
                _make_search(target, name, names)
    return made


def _stored_tables(store: SqliteFile) -> tuple[list[str], set[str]]:
    """Tables that hold rows of their own, and the virtual ones."""
    tables = []
    virtual = set()
    for kind, name, sql in store.schema():
        if kind == "table" and sql.upper().startswith("CREATE VIRT"):
            virtual.add(name)
        elif kind == "table" and not name.startswith("sqlite_"):
            tables.append(name)
    # SQLite makes the tables behind a full text index together with it.
    shadows = {f"{name}_{tail}" for name in virtual for tail in _SHADOWS}
    return [name for name in tables if name not in shadows], virtual


def _make(store: SqliteFile, target: apsw.Connection, table: str) -> bool:
    columns = store.definitions(table)
    if not columns:
        return False
    # `key` is the place of a column in the primary key, from 1 on.
    keys = {column.key: quoted(column.name) for column in columns if column.key}
    parts = [_column(table, column, alone=len(keys) == 1) for column in columns]
    if len(keys) > 1:
        names = ", ".join(name for _, name in sorted(keys.items()))
        parts.append(f"PRIMARY KEY ({names})")
    target.execute(f"CREATE TABLE {quoted(table)} ({', '.join(parts)})")
    return True


def _column(table: str, column: TableColumn, *, alone: bool) -> str:
    words = [quoted(column.name)]
    if _TYPE.fullmatch(column.type):
        words.append(column.type)
    if column.key and alone:
        words.append("PRIMARY KEY")
        if (table, column.name) in _NUMBERED and column.type.upper() == "INTEGER":
            words.append("AUTOINCREMENT")
    if column.required:
        words.append("NOT NULL")
    if column.default is not None and _LITERAL.fullmatch(column.default):
        words.append(f"DEFAULT {column.default}")
    if (table, column.name) in _REFERENCES:
        words.append(_REFERENCES[table, column.name])
    return " ".join(words)


def _make_search(target: apsw.Connection, name: str, names: Set[str]) -> None:
    target.execute(f"CREATE VIRTUAL TABLE {name} USING fts5({_SEARCH[name]})")
    add = f"INSERT INTO {name}(rowid, content) VALUES (new.id, {_WORDS});"
    drop = f"DELETE FROM {name} WHERE rowid = old.id;"
    for act, does in (("insert", add), ("delete", drop), ("update", f"{drop} {add}")):
        if f"{name}_{act}" in names:
            target.execute(
                f"CREATE TRIGGER {name}_{act} AFTER {act.upper()} ON messages BEGIN {does} END"
            )
