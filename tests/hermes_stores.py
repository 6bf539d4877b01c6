"""Hermes stores for tests, built with the definitions that Hermes Agent 0.19.0 has for its
`state.db`.

`DAMAGE` has a store for each rule: what the rule's table row describes, beside a session in which
nothing is wrong.
"""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

SESSIONS = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, session_key TEXT, chat_id TEXT, chat_type TEXT,
    thread_id TEXT, display_name TEXT, origin_json TEXT, expiry_finalized INTEGER DEFAULT 0, model TEXT,
    model_config TEXT, system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL,
    end_reason TEXT, message_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0, cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0, cwd TEXT, billing_provider TEXT,
    estimated_cost_usd REAL, title TEXT, api_call_count INTEGER DEFAULT 0, rewind_count INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0, FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
);
CREATE INDEX idx_sessions_parent ON sessions(parent_session_id);
CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL;
"""
MESSAGES = """
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL,
    content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, effect_disposition TEXT,
    timestamp REAL NOT NULL, token_count INTEGER, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT,
    reasoning_details TEXT, codex_reasoning_items TEXT, codex_message_items TEXT, platform_message_id TEXT,
    observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0,
    api_content TEXT
);
"""
OLD_MESSAGES = """
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL,
    content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, token_count INTEGER,
    finish_reason TEXT, reasoning TEXT, reasoning_details TEXT, codex_reasoning_items TEXT,
    platform_message_id TEXT, observed INTEGER DEFAULT 0, active INTEGER NOT NULL DEFAULT 1,
    compacted INTEGER NOT NULL DEFAULT 0
);
"""
SEARCH = """
CREATE INDEX idx_messages_session ON messages(session_id, timestamp);
CREATE VIRTUAL TABLE messages_fts USING fts5(content);
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN INSERT INTO messages_fts(rowid, content)
    VALUES (new.id, COALESCE(new.content, '') || ' ' || COALESCE(new.tool_name, '') || ' ' ||
    COALESCE(new.tool_calls, '')); END;
CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages BEGIN DELETE FROM messages_fts WHERE rowid = old.id; END;
"""
REST = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE compression_locks (session_id TEXT PRIMARY KEY, holder TEXT NOT NULL, acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL);
"""
GATEWAY = """
CREATE TABLE gateway_routing (scope TEXT NOT NULL DEFAULT '', session_key TEXT NOT NULL, entry_json TEXT NOT NULL,
    updated_at REAL NOT NULL, PRIMARY KEY (scope, session_key));
CREATE TABLE delivery_obligations (obligation_id TEXT PRIMARY KEY, session_key TEXT NOT NULL, platform TEXT NOT NULL,
    chat_id TEXT NOT NULL, thread_id TEXT, content TEXT NOT NULL, state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, created_at REAL NOT NULL, updated_at REAL NOT NULL, owner_pid INTEGER,
    owner_started_at INTEGER, last_error TEXT);
"""
START = 1_789_981_000.0
KEY = "agent:main:telegram:dm:104"
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Ferry and tug were logged."


class Book:
    """A store being written. Time goes on by ten seconds with every row, unless a row says when it
    was.
    """

    def __init__(self, path: Path, *, schema: int = 22) -> None:
        self.path = path
        self.now = START
        self.counted: set[str] = set()
        self.db = sqlite3.connect(path)
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.executescript(
            SESSIONS + (MESSAGES if schema >= 22 else OLD_MESSAGES) + SEARCH + REST
        )
        if schema >= 20:
            self.db.executescript(GATEWAY)
        self.db.execute("INSERT INTO schema_version VALUES (?)", (schema,))

    def tick(self, seconds: float = 10.0) -> float:
        self.now += seconds
        return self.now

    def session(self, name: str, **columns: Any) -> str:
        if "message_count" in columns:
            self.counted.add(name)
        found = {
            "id": name,
            "source": "cli",
            "started_at": self.tick(),
            "model": "lantern-1",
            "title": name,
        }
        self._insert("sessions", found | columns)
        return name

    def end(self, name: str, reason: str = "session_reset", at: float | None = None) -> float:
        at = self.tick() if at is None else at
        self.db.execute(
            "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?", (at, reason, name)
        )
        return at

    def say(
        self, name: str, role: str, content: str | None, at: float | None = None, **columns: Any
    ) -> int:
        found = {
            "session_id": name,
            "role": role,
            "content": content,
            "timestamp": self.tick() if at is None else at,
        }
        if role == "assistant" and "finish_reason" not in columns:
            found["finish_reason"] = "tool_calls" if "tool_calls" in columns else "stop"
        return self._insert("messages", found | columns)

    def turn(self, name: str, question: str, answer: str) -> tuple[int, int]:
        return self.say(name, "user", question), self.say(name, "assistant", answer)

    def route(self, key: str, name: str) -> None:
        entry = json.dumps({"session_key": key, "session_id": name})
        found = {
            "scope": "sessions",
            "session_key": key,
            "entry_json": entry,
            "updated_at": self.now,
        }
        self._insert("gateway_routing", found)

    def send(self, key: str, text: str, at: float | None = None, state: str = "delivered") -> None:
        at = self.tick() if at is None else at
        found = {
            "obligation_id": f"o{at}",
            "session_key": key,
            "platform": "telegram",
            "chat_id": "104",
        }
        self._insert(
            "delivery_obligations",
            found | {"content": text, "state": state, "created_at": at, "updated_at": at},
        )

    def compact(
        self, name: str, head: list[int], tail: list[int], summary: str = SUMMARY, into: str = ""
    ) -> list[int]:
        """What a compaction does: all live rows archived, or another session begun; copies around a
        summary.
        """
        at = self.tick()
        rows = {row: self._row(row) for row in (*head, *tail)}
        if into:
            self.end(name, "compression", at)
        else:
            self.db.execute(
                "UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active = 1",
                (name,),
            )
        new = []
        for number, row in enumerate([*head, 0, *tail]):
            copy = rows.get(row) or {
                "role": "assistant",
                "content": summary,
                "finish_reason": "stop",
            }
            copy = {key: value for key, value in copy.items() if key != "id"} | {
                "session_id": into or name
            }
            if copy["role"] != "user":
                copy["timestamp"] = at + number * 1e-6
            copy |= {"active": 1, "compacted": 0, "content": (copy["content"] or "").strip()}
            new.append(self._insert("messages", copy))
        return new

    def close(self) -> Path:
        counts = "SELECT count(*) FROM messages WHERE session_id = sessions.id AND active = 1"
        for (name,) in self.db.execute("SELECT id FROM sessions").fetchall():
            if name not in self.counted:
                self.db.execute(
                    f"UPDATE sessions SET message_count = ({counts}) WHERE id = ?", (name,)
                )
        self.db.commit()
        self.db.close()
        return self.path

    def _row(self, number: int) -> dict[str, Any]:
        cursor = self.db.execute("SELECT * FROM messages WHERE id = ?", (number,))
        return dict(
            zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True)
        )

    def _insert(self, table: str, row: dict[str, Any]) -> int:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        number = self.db.execute(
            f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values())
        ).lastrowid
        assert number is not None
        return number


def call(name: str, tool: str = "terminal", command: str = "tide") -> dict[str, Any]:
    arguments = json.dumps({"command": command})
    return {
        "id": name,
        "call_id": name,
        "type": "function",
        "function": {"name": tool, "arguments": arguments},
    }


def ask(book: Book, session: str, *names: str, text: str = "") -> int:
    return book.say(
        session, "assistant", text, tool_calls=json.dumps([call(name) for name in names])
    )


def result(book: Book, session: str, name: str, text: str = '{"output": "high 21:40"}') -> int:
    return book.say(session, "tool", text, tool_call_id=name, tool_name="terminal")


# What is healthy, traps included.


def plain(book: Book, name: str = "plain") -> str:
    book.session(name, system_prompt="You keep the harbour book.")
    book.turn(name, "Which berth is free tonight?", "Berth 4 is free until noon.")
    book.turn(name, "Thanks.", "You are welcome.")
    book.turn(
        name,
        "Which berth is free tonight?\n\nI mean for a boat of 11 metres.",
        "Berth 7 takes 11 metres.",
    )
    book.turn(name, "Thanks.", "You are welcome.")
    return name


def branch(book: Book) -> None:
    parent = plain(book, "trunk")
    book.end(parent, "branched")
    name = book.session(
        "branch", parent_session_id=parent, model_config=json.dumps({"_branched_from": parent})
    )
    for role, content in book.db.execute(
        "SELECT role, content FROM messages WHERE session_id = ?", (parent,)
    ).fetchall():
        book.say(name, role, content)
    book.turn(name, "And for a boat of 15 metres?", "Only the outer mole, berth 12.")


def tools(book: Book) -> None:
    name = book.session("tools")
    book.say(name, "user", "Check tide, wind and the webcam.")
    ask(book, name, "call_0", "call_1", text="Looking.")
    result(book, name, "call_0")
    result(book, name, "call_1", "\ufffdPNG\ufffd not text")
    book.say(
        name,
        "assistant",
        "",
        finish_reason="incomplete",
        codex_reasoning_items='[{"type": "reasoning"}]',
    )
    book.say(name, "assistant", "High water 21:40.")
    book.say(name, "user", "And tomorrow?")
    ask(book, name, "call_0")
    result(book, name, "call_0")
    book.say(name, "assistant", "Operation interrupted.", finish_reason=None)
    book.say(name, "user", "Start the dredger.")
    ask(book, name, "call_0")
    result(book, name, "call_0")
    book.say(name, "assistant", "It runs.")


def compacted(book: Book) -> list[int]:
    name = book.session("compacted", source="telegram", session_key=KEY)
    rows = [*book.turn(name, "Log the ferry at 9.", "Logged.")]
    book.say(name, "session_meta", None)
    rows += book.turn(name, "Log the tug at 10.", "Logged.")
    rows += book.turn(name, "Log the yacht at 11.", "Logged, no pilot.")
    rows += book.turn(name, "Log the barge at 12. \n", "Logged, two hands.")
    new = book.compact(name, rows[:1], rows[4:])
    book.turn(name, "How many so far?", "Four.")
    book.route(KEY, name)
    return [*rows, *new]


def rotated(book: Book) -> None:
    key = f"{KEY}5"
    name = book.session("before", source="telegram", session_key=key)
    rows = [
        *book.turn(name, "Open the book for May.", "Open."),
        *book.turn(name, "Who paid?", "Nine boats paid."),
    ]
    rows += [
        *book.turn(name, "Who owes?", "Two boats owe."),
        book.say(name, "user", "List the two."),
    ]
    child = book.session("after", source="telegram", session_key=key, parent_session_id=name)
    book.compact(name, rows[:1], rows[4:], into=child)
    book.say(child, "assistant", "Merle and Otter.")
    book.turn(child, "Send them a note.", "Both notes are in the outbox.")
    book.route(key, child)


def multimodal(book: Book) -> None:
    name = book.session("photo", source="acp")
    parts = [
        {"type": "text", "text": "What is marked here?"},
        {"type": "image_url", "image_url": {"url": "data:,x"}},
    ]
    book.say(name, "user", "\x00json:" + json.dumps(parts))
    book.say(name, "assistant", "A wreck, 3 m below the surface.")


def reset(book: Book) -> None:
    key = f"{KEY}7"
    first = book.session("first", source="telegram", session_key=key)
    book.turn(first, "Is the crane free?", "Yes, after 14:00.")
    book.say(first, "session_meta", None)
    book.say(first, "user", "Draw up a crane plan.")
    book.end(first)
    book.say(first, "assistant", "Monday to Friday.")
    second = book.session("second", source="telegram", session_key=key)
    book.turn(second, "Is the slip free?", "The slip is free all day.")
    book.send(key, "The slip is free all day.")
    book.say(second, "session_meta", None)
    book.turn(second, "And the winch?", "The winch is in repair.")
    book.send(key, "The winch is in repair.\n\n— lantern-1 · 440 tokens")
    book.say(second, "assistant", "Storm warning was sent to this chat.", finish_reason=None)
    book.say(second, "user", "[Cron delivery: morning]\nTwo arrivals today.")
    book.say(second, "user", "Book a pilot for Heron.")
    book.route(key, second)


def group(book: Book) -> None:
    name = book.session("group", source="telegram", session_key=f"{KEY}9")
    book.say(name, "user", "[Ada]\nLow water again.", observed=1, platform_message_id="880")
    book.say(name, "user", "[Ben]\nBring the long ladder.", observed=1, platform_message_id="881")
    book.turn(name, "When is high water?", "At 21:40.")
    book.route(f"{KEY}9", name)


def undone(book: Book) -> None:
    name = book.session("undone", message_count=6)
    book.turn(name, "Name the new buoy.", "Buoy 17.")
    book.say(name, "user", "Name it after the mayor.", active=0)
    book.say(name, "assistant", "Done, buoy 17 is the mayor.", active=0)
    book.turn(name, "Name it after the dog.", "Done, buoy 17 is Rex.")


HEALTHY: tuple[Callable[[Book], Any], ...] = (
    plain,
    branch,
    tools,
    compacted,
    rotated,
    multimodal,
    reset,
    group,
    undone,
)


# What is not.


def orphan_user(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "Which berth is free?")
    book.turn(name, "Is the crane free?", "Yes.")


def orphan_user_at_the_end(book: Book) -> None:
    name = book.session("sick")
    book.turn(name, "Is the crane free?", "Yes.")
    book.say(name, "user", "Which berth is free?")
    book.end(name)


def orphan_user_beside_a_notice(book: Book) -> None:
    name = book.session("sick", session_key=KEY)
    book.say(name, "user", "Which berth is free?")
    book.send(KEY, "⚠️ The gateway restarted.")
    book.turn(name, "Is the crane free?", "Yes.")


def orphan_user_compacted_away(book: Book) -> None:
    name = book.session("sick")
    rows = [*book.turn(name, "Log the ferry.", "Logged."), book.say(name, "user", "Log the tug.")]
    rows += book.turn(name, "Log the yacht.", "Logged, no pilot.")
    book.compact(name, rows[:1], rows[2:])
    book.turn(name, "How many?", "Three.")


def merged_user_blob(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "Log the tug.")
    book.turn(name, "Log the tug.\n\nHow many so far?", "One.")


def partial_unmarked(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "Which berth is free?")
    book.say(name, "assistant", "Berth 4 is fr", finish_reason=None)
    book.turn(name, "Go on.", "Berth 4 is free.")


def split_by_stream_cut(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "Tell me about the harbour.")
    book.say(name, "assistant", "It was built in 18", finish_reason="length")
    book.say(
        name, "user", "[System: The previous response was cut off by a network error. Continue.]"
    )
    book.say(name, "assistant", "71 and has nine ber", finish_reason="length")
    book.say(name, "user", "[System: Your previous response was truncated. Continue.]")
    book.say(name, "assistant", "ths.")
    book.turn(name, "Thanks.", "You are welcome.")


def duplicate_tool_call_row(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "When is high water?")
    ask(book, name, "call_7")
    ask(book, name, "call_7", text="Let me look.")
    book.turn(name, "Well?", "At 21:40.")


def repeated_tail(book: Book) -> None:
    rows = compacted(book)
    last = [row for (row,) in book.db.execute("SELECT max(id) FROM messages")]
    book.compact(
        "compacted",
        [],
        [rows[-2], rows[-1], last[0] - 1, last[0]],
        "[CONTEXT COMPACTION] More was logged.",
    )
    book.turn("compacted", "And now?", "Still four.")


def repeated_tail_in_one_batch(book: Book) -> None:
    name = book.session("compacted")
    rows = [
        *book.turn(name, "Log the ferry at 9.", "Logged."),
        *book.turn(name, "Log the tug at 10.", "Logged too."),
    ]
    book.compact(name, rows[:1], [*rows[2:], *rows[2:]])
    book.turn(name, "How many so far?", "Two.")


def written_after_end(book: Book) -> None:
    name = book.session("sick", source="telegram", session_key=KEY)
    book.turn(name, "Is the crane free?", "Yes.")
    book.end(name)
    other = book.session("right", source="telegram", session_key=KEY)
    book.turn(other, "Is the slip free?", "All day.")
    book.turn(name, "And the winch?", "In repair.")
    book.turn(other, "And the ramp?", "Wet.")
    book.route(KEY, other)


def interleaved_turns(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "Is the crane free?")
    book.say(name, "user", "Is the slip free?")
    book.say(name, "assistant", "The crane is.")
    book.say(name, "assistant", "The slip is not.")
    book.turn(name, "Thanks.", "You are welcome.")


def double_user_row(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "Is the crane free?")
    book.say(name, "user", "Is the crane free?", book.now + 0.02)
    book.say(name, "assistant", "Yes.")


def tool_result_without_call(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "When is high water?")
    result(book, name, "call_9")
    book.say(name, "assistant", "At 21:40.")


def tool_result_twice(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "When is high water?")
    ask(book, name, "call_9")
    result(book, name, "call_9")
    result(book, name, "call_9")
    book.say(name, "assistant", "At 21:40.")


def tool_call_without_result(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "When is high water?")
    ask(book, name, "call_3", "call_4")
    result(book, name, "call_4")
    book.turn(name, "Well?", "At 21:40.")


def tool_call_without_result_at_the_end(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "When is high water?")
    ask(book, name, "call_3")
    book.end(name)


def session_meta_repeated(book: Book) -> None:
    name = book.session("sick", source="telegram")
    book.turn(name, "Is the crane free?", "Yes.")
    book.say(name, "session_meta", None)
    book.turn(name, "And the slip?", "Which slip?")
    book.say(name, "session_meta", None)
    book.turn(name, "The one beside it.", "It is free.")


def compression_without_child(book: Book) -> None:
    name = book.session("sick", source="telegram", session_key=KEY)
    book.turn(name, "Is the crane free?", "Yes.")
    book.say(name, "user", "And the slip?")
    book.end(name, "compression")
    book.session("worker", source="tool", parent_session_id=name)


def compression_with_a_next_session(book: Book) -> None:
    compression_without_child(book)
    name = book.session("next", source="telegram", session_key=KEY)
    book.turn(name, "And the winch?", "In repair.")
    book.route(KEY, name)


def message_count_drift(book: Book) -> None:
    name = book.session("sick", message_count=7)
    book.turn(name, "Is the crane free?", "Yes.")


def replaced_characters(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "Which boat?")
    items = [
        {"type": "message", "content": [{"type": "output_text", "text": "The yellow 🚤 tonight."}]}
    ]
    lost = "The yellow \ufffd\ufffd tonight."
    book.say(name, "assistant", lost, codex_message_items=json.dumps(items))


def replaced_characters_for_good(book: Book) -> None:
    name = book.session("sick")
    book.turn(name, "Which boat \ufffd?", "The yellow one.")


def tool_calls_not_json(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "When is high water?")
    raw = json.dumps([call("call_5"), call("call_6")])
    book.say(name, "assistant", "Let me look.", tool_calls=raw[: raw.index("call_6") + 40])
    result(book, name, "call_5")
    result(book, name, "call_6")
    book.say(name, "assistant", "At 21:40.")


def ghost_route(book: Book) -> None:
    book.route(KEY, "20260921_000000_nowhere")


def lost_turn(book: Book) -> None:
    name = book.session(
        "sick", source="telegram", session_key=KEY, api_call_count=2, output_tokens=80
    )
    book.send(KEY, "The slip is free all day.")
    book.send(KEY, "⚠️ The disk is full.")
    book.send(KEY, "The winch is in repair.")
    book.route(KEY, name)


def answer_only_in_ledger(book: Book) -> None:
    name = book.session("sick", source="telegram", session_key=KEY)
    book.turn(name, "Is the crane free?", "Yes.")
    book.send(KEY, "Yes.")
    book.say(name, "user", "Is the slip free?")
    book.send(KEY, "Yes. The slip is free all day.")
    book.turn(name, "And the winch?", "In repair.")
    book.send(KEY, "In repair.")
    book.route(KEY, name)


def stale_compression_lock(book: Book) -> None:
    name = book.session("sick")
    book._insert(
        "compression_locks",
        {"session_id": name, "holder": "1:2", "acquired_at": 1.0, "expires_at": book.now},
    )
    book.turn(name, "Is the crane free?", "Yes.")


def review_harness_turn(book: Book) -> None:
    name = book.session("sick")
    book.turn(name, "Is the crane free?", "Yes.")
    book.say(
        name,
        "user",
        "Review the conversation above and update the skill library. You may only use one tool.",
    )
    ask(book, name, "call_1")
    result(book, name, "call_1")
    book.say(name, "assistant", "Nothing to save.")
    book.turn(name, "And the slip?", "All day.")


def history_stored_twice(book: Book) -> None:
    name = book.session("sick")
    rows = [
        *book.turn(name, "Is the crane free?", "Yes."),
        *book.turn(name, "And the slip?", "All day."),
    ]
    for row in map(book._row, rows):
        del row["id"]
        book._insert("messages", row)
    book.turn(name, "Thanks.", "You are welcome.")


def summary_without_source(book: Book) -> None:
    name = book.session("sick")
    book.say(name, "user", "Log the ferry.")
    book.say(name, "assistant", SUMMARY)
    book.turn(name, "How many?", "Three.")


def unreadable_record(book: Book) -> None:
    name = book.session("sick")
    book.turn(name, "Is the crane free?", "Yes.")
    book.say(name, "user", b"\xff\xfe bytes")  # type: ignore[arg-type]
    book.turn(name, "And the slip?", "All day.")


DAMAGE: dict[str, tuple[str, Callable[[Book], Any]]] = {
    made.__name__: (rule, made)
    for rule, cases in {
        "hermes/orphan-user": (
            orphan_user,
            orphan_user_at_the_end,
            orphan_user_beside_a_notice,
            orphan_user_compacted_away,
        ),
        "hermes/merged-user-blob": (merged_user_blob,),
        "hermes/partial-unmarked": (partial_unmarked,),
        "hermes/split-by-stream-cut": (split_by_stream_cut,),
        "hermes/duplicate-tool-call-row": (duplicate_tool_call_row,),
        "hermes/repeated-tail": (repeated_tail, repeated_tail_in_one_batch),
        "hermes/written-after-end": (written_after_end,),
        "hermes/interleaved-turns": (interleaved_turns,),
        "hermes/double-user-row": (double_user_row,),
        "hermes/tool-result-without-call": (tool_result_without_call, tool_result_twice),
        "hermes/tool-call-without-result": (
            tool_call_without_result,
            tool_call_without_result_at_the_end,
        ),
        "hermes/session-meta-repeated": (session_meta_repeated,),
        "hermes/compression-without-child": (
            compression_without_child,
            compression_with_a_next_session,
        ),
        "hermes/message-count-drift": (message_count_drift,),
        "hermes/replaced-characters": (replaced_characters, replaced_characters_for_good),
        "hermes/tool-calls-not-json": (tool_calls_not_json,),
        "hermes/ghost-route": (ghost_route,),
        "hermes/lost-turn": (lost_turn,),
        "hermes/answer-only-in-ledger": (answer_only_in_ledger,),
        "hermes/stale-compression-lock": (stale_compression_lock,),
        "hermes/review-harness-turn": (review_harness_turn,),
        "hermes/history-stored-twice": (history_stored_twice,),
        "hermes/summary-without-source": (summary_without_source,),
        "hermes/unreadable-record": (unreadable_record,),
    }.items()
    for made in cases
}


def healthy(path: Path, *, schema: int = 22) -> Path:
    """All that is healthy, in one store."""
    book = Book(path, schema=schema)
    for make in HEALTHY:
        make(book)
    return book.close()


def damaged(path: Path, name: str) -> Path:
    """A store with one defect, beside a session without."""
    book = Book(path)
    plain(book)
    DAMAGE[name][1](book)
    return book.close()
