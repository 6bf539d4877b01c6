"""`SessionDB`, with Holdfast before it: what is said is stored there first, then in Hermes' own tables.

A subclass under the old name: all that Hermes and other programs read in `state.db` stays as it is, row for
row. What Hermes deletes of a conversation is a change of the view here, never a deletion. A row that its
table refuses is kept in the backlog, and the caller goes on: the words are stored.

`state.db` is read and written through Hermes' own connection only (see `serving`).
"""

import contextlib
import functools
import hashlib
import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from holdfast import Message
from holdfast.adapters.hermes import unusable
from holdfast.adapters.hermes.rows.catch_up import LastTurn, Row, last_turn, missing
from holdfast.adapters.hermes.serving import Serving, serving_at
from holdfast.adapters.hermes.spoken.live_list import ROLES, Live, Payload, plain
from holdfast.adapters.hermes.spoken.steered import results_first
from holdfast.errors import AlreadyAccepted, HoldfastError

log = logging.getLogger("holdfast.hermes")

REFUSED = -1
"""The id of a row that is in the backlog. Hermes uses the ids of rows for nothing."""
TRIES = 3
"""How often a write of Hermes is tried, a second each: its words are safe, and the user waits."""

_thread = threading.local()


@contextlib.contextmanager
def recorded(steered: list[str]) -> Iterator[None]:
    """What is appended in here by this thread was recorded with its agent's list; and so were words
    that have steered its turn, of which no row is appended by Hermes.
    """
    before = getattr(_thread, "recorded", False), getattr(_thread, "steered", [])
    _thread.recorded, _thread.steered = True, steered
    try:
        yield
    finally:
        _thread.recorded, _thread.steered = before


def patch_hermes_state(module: ModuleType) -> None:
    """Puts the subclass in the place of `SessionDB`."""
    base: Any = module.SessionDB
    body: dict[str, Any] = {
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "_WRITE_MAX_RETRIES": TRIES,
        "append_message": _appending(base),
        "replace_messages": _replacing(base),
        "archive_and_compact": _compacting(base),
        "promote_to_session_reset": _promoting(base),
    }
    for name in ("rewind_to_message", "restore_rewound", "clear_messages"):
        body[name] = _changing(base, name)
    for name in (
        "get_messages_as_conversation",
        "get_resume_conversations",
        "get_messages",
    ):
        body[name] = _loading(base, name)
    unusable.tell_in_a_sentence()
    module.SessionDB = type(base.__name__, (base,), body)  # type: ignore[attr-defined]


def serving_for(db: Any) -> Serving | None:
    """What this database is served with; None where it is only read."""
    # A viewer of another program's: it must not make a store.
    if db.read_only:
        return None
    return serving_at(db.db_path)


def _appending(base: Any) -> Callable[..., int]:
    append = base.append_message

    @functools.wraps(append)
    def append_message(
        self: Any, session_id: str, role: str, content: Any = None, **named: Any
    ) -> int:
        serving = serving_for(self)
        row = {"session_id": session_id, "role": role, "content": content, **named}
        if serving is None:
            return int(append(self, **row))
        # An agent's list was recorded as a whole, with the identity that a row does not have.
        if not getattr(_thread, "recorded", False):
            if _is_known(serving, row):
                return REFUSED
        # After the results of all calls of a message: none of them may stand behind it.
        elif role != "tool":
            told = list(_thread.steered)
            _thread.steered.clear()
            for words in told:
                self.append_message(session_id, "user", words)
        # A row in the backlog is known by its time, if it is tried again.
        row["timestamp"] = _time_of(row.get("timestamp"), serving)
        if _write_backlog(self, base, serving, look=False):
            try:
                return int(append(self, **row))
            except Exception as error:
                log.warning("a row of %s is kept for later: %s", session_id, error)
        _keep(self, base, serving, "append_message", row)
        return REFUSED

    return append_message


def _time_of(given: Any, serving: Serving) -> float:
    try:
        if hasattr(given, "timestamp"):
            given = given.timestamp()
        return float(given)
    except (TypeError, ValueError):
        return serving.world.now() / 1000


def _is_known(serving: Serving, row: dict[str, Any]) -> bool:
    """Stores what is appended outside an agent's list; whether it was appended before. That is told
    by its time alone: without one, equal words are two messages (I-2).
    """
    if row["role"] not in ROLES:
        return False
    payload = plain(row)
    event = None
    if row.get("timestamp") is not None:
        known_by = [payload, str(row["timestamp"])]
        said = json.dumps(known_by, sort_keys=True)
        event = hashlib.sha256(said.encode()).hexdigest()
    try:
        session = serving.conversation(row["session_id"])
        session.append(payload, event_id=event)
    except AlreadyAccepted:
        return True
    return False


def _write_backlog(db: Any, base: Any, serving: Serving, *, look: bool) -> bool:
    """Writes the rows that wait; whether none is left."""
    make = functools.partial(_make, db, base)
    return serving.backlog.write(make, look=look)


def _keep(
    db: Any, base: Any, serving: Serving, call: str, named: dict[str, Any]
) -> None:
    """Keeps a call that was refused, and has it tried again."""
    serving.backlog.add(call, named)
    make = functools.partial(_make, db, base)
    serving.backlog.write_later(make)


def _make(db: Any, base: Any, call: str, named: dict[str, Any]) -> None:
    if call != "append_message" or not _has_row(db, named):
        getattr(base, call)(db, **named)


def _has_row(db: Any, row: dict[str, Any]) -> bool:
    with db._lock:
        found = db._conn.execute(
            "SELECT 1 FROM messages WHERE session_id = ? AND role = ? AND timestamp = ?",
            (row["session_id"], row["role"], row["timestamp"]),
        ).fetchone()
    return found is not None


def _replacing(base: Any) -> Callable[..., None]:
    replace = base.replace_messages

    @functools.wraps(replace)
    def replace_messages(
        self: Any, session_id: str, messages: list[Live], active_only: bool = False
    ) -> None:
        if serving_for(self) is not None:
            _record(self, session_id, messages)
            # Else rows that a compaction has archived would be deleted, too (#80216).
            active_only = True
        replace(self, session_id, messages, active_only)

    return replace_messages


def _compacting(base: Any) -> Callable[..., int]:
    compact = base.archive_and_compact

    @functools.wraps(compact)
    def archive_and_compact(
        self: Any, session_id: str, compacted_messages: list[Live]
    ) -> int:
        if serving_for(self) is not None:
            _record(self, session_id, compacted_messages)
        return int(compact(self, session_id, compacted_messages))

    return archive_and_compact


def _changing(base: Any, name: str) -> Callable[..., Any]:
    """What takes rows away: which ones are left only the table knows, so that is asked afterwards.
    Killed in between, the next turn's list says the same.
    """
    change = getattr(base, name)

    @functools.wraps(change)
    def changed(self: Any, session_id: str, *more: Any, **named: Any) -> Any:
        result = change(self, session_id, *more, **named)
        if serving_for(self) is not None:
            _record(
                self, session_id, base.get_messages_as_conversation(self, session_id)
            )
        return result

    return changed


def _promoting(base: Any) -> Callable[..., bool]:
    promote = base.promote_to_session_reset

    @functools.wraps(promote)
    def promote_to_session_reset(
        self: Any, session_id: str, reason: str = "session_reset"
    ) -> bool:
        if promote(self, session_id, reason):
            return True
        serving = serving_for(self)
        if serving is None:
            return False
        # It says no for an error, too: a session that has not ended was to be ended.
        session = self.get_session(session_id)
        if session and session.get("ended_at") is None:
            named = {"session_id": session_id, "reason": reason}
            _keep(self, base, serving, "promote_to_session_reset", named)
        return False

    return promote_to_session_reset


def _record(db: Any, session_id: str, messages: list[Live]) -> None:
    """A new shape of a conversation: nothing that was said is gone (I-1)."""
    serving = serving_for(db)
    assert serving is not None
    said = []
    for live in messages:
        if not isinstance(live, dict):
            continue
        if live.get("role") in ROLES:
            said.append(plain(live))
    serving.conversation(session_id).record(said)


def _loading(base: Any, name: str) -> Callable[..., Any]:
    load = getattr(base, name)

    @functools.wraps(load)
    def loaded(self: Any, session_id: str, *more: Any, **named: Any) -> Any:
        serving = serving_for(self)
        if serving is None:
            return load(self, session_id, *more, **named)
        _catch_up(self, base, serving, session_id)
        try:
            return load(self, session_id, *more, **named)
        except sqlite3.Error as error:
            session = serving.known_conversation(session_id)
            if session is None or name != "get_messages_as_conversation":
                raise
            # Hermes would take that for an empty history, and its model would know nothing.
            log.error("the rows of %s can't be read: %s", session_id, error)
            return list(session.context(prefill=True))

    return loaded


def _catch_up(db: Any, base: Any, serving: Serving, session_id: str) -> None:
    """Writes the rows that Hermes was kept from writing. What goes wrong here does not stand in the
    way of loading what there is.
    """
    try:
        is_written = _write_backlog(db, base, serving, look=True)
        session = serving.known_conversation(session_id)
        # Rows that are still refused would be there twice once they are taken.
        if session is not None and is_written:
            turn = last_turn(session)
            # A turn that has completed has written its rows, or has them in the backlog.
            if turn.end not in (None, "completed"):
                _write_missing(db, base, session_id, turn)
        # Before the rows are read: a turn that ends in between counts as not loaded.
        serving.note_load(session_id, session)
    except (HoldfastError, OSError, sqlite3.Error) as error:
        log.warning("rows of %s may be missing: %s", session_id, error)


def _write_missing(db: Any, base: Any, session_id: str, turn: LastTurn) -> None:
    said = []
    stored = []
    for message in results_first(turn.messages):
        if message.role in ROLES:
            said.append(message)
            words = _text(message.payload)
            stored.append(Row(message.role, words))
    # A few more than there can be: rows of the turn before may stand between.
    rows = _last_rows(db, session_id, len(stored) + 8)
    count = missing(stored, rows)
    first = len(said) - count
    for message in said[first:]:
        log.warning("a row of %s is written anew: it was cut off", session_id)
        row = _row_of(message)
        base.append_message(db, session_id=session_id, **row)


def _row_of(message: Message) -> dict[str, Any]:
    """A row as Hermes itself would have written it."""
    row = dict(message.payload or {})
    row["role"] = message.role
    if message.state == "partial":
        row["finish_reason"] = "interrupted"
    elif message.role == "assistant":
        row["finish_reason"] = message.finish or "stop"
    # Hermes counts in seconds.
    row["timestamp"] = message.at / 1000
    return row


def _last_rows(db: Any, session_id: str, limit: int) -> list[Row]:
    """The last rows of a session, oldest first."""
    with db._lock:
        found = db._conn.execute(
            "SELECT role, content FROM messages WHERE session_id = ? AND active = 1 "
            "ORDER BY id DESC LIMIT ?",
            (session_id, limit),
        ).fetchall()
    rows = []
    for role, content in reversed(found):
        # Parts are kept as JSON behind a mark, which only Hermes knows.
        words = db._decode_content(content)
        rows.append(Row(role, _text({"content": words})))
    return rows


def _text(payload: Payload | None) -> str:
    words = (payload or {}).get("content")
    if isinstance(words, str):
        return words
    texts = []
    for part in words or ():
        if not isinstance(part, dict):
            continue
        words = part.get("text")
        if isinstance(words, str):
            texts.append(words)
    return "\n".join(texts)
