"""Stores of goose, built for tests: `sessions.db` with the tables of its releases, JSON lines,
exports.

    with GooseStore(path) as store:
        store.session("20260921_1")
        store.say("user", text("How many pear trees?"))

`HEALTHY` and `DAMAGED` write one session each into a store; the damaged ones are named by the rule
that they break.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

SEEN = (True, True)
FOR_MODEL = (False, True)
FOR_READER = (True, False)
START = 1790010000

_SESSIONS_6 = """CREATE TABLE sessions (
    id TEXT PRIMARY KEY, description TEXT NOT NULL DEFAULT '', working_dir TEXT NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    extension_data TEXT DEFAULT '{}', total_tokens INTEGER, input_tokens INTEGER, output_tokens INTEGER,
    accumulated_total_tokens INTEGER, accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER,
    schedule_id TEXT, recipe_json TEXT, user_recipe_values_json TEXT, name TEXT DEFAULT '',
    user_set_name BOOLEAN DEFAULT FALSE, session_type TEXT NOT NULL DEFAULT 'user', provider_name TEXT,
    model_config_json TEXT)"""
_MESSAGES_6 = """CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL,
    content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL, timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    tokens INTEGER, metadata_json TEXT)"""
_THREADS = """CREATE TABLE threads (
    id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT 'New Chat', user_set_name BOOLEAN DEFAULT FALSE, working_dir TEXT,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    archived_at TIMESTAMP, metadata_json TEXT DEFAULT '{}')"""
_THREAD_MESSAGES = """CREATE TABLE thread_messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, thread_id TEXT NOT NULL REFERENCES threads(id), session_id TEXT,
    message_id TEXT, role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL,
    metadata_json TEXT DEFAULT '{}')"""
_LEDGER = """CREATE TABLE usage_ledger (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    created_timestamp INTEGER NOT NULL, model TEXT, input_tokens INTEGER, output_tokens INTEGER, total_tokens INTEGER,
    cache_read_tokens INTEGER, cache_write_tokens INTEGER, cost REAL, cost_source TEXT,
    is_compaction INTEGER DEFAULT 0)"""
_STEPS: dict[int, tuple[str, ...]] = {
    6: (
        "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP DEFAULT "
        "CURRENT_TIMESTAMP)",
        _SESSIONS_6,
        _MESSAGES_6,
        "CREATE INDEX idx_messages_session ON messages(session_id)",
    ),
    7: (
        "ALTER TABLE messages ADD COLUMN message_id TEXT",
        "CREATE INDEX idx_messages_message_id ON messages(message_id)",
    ),
    8: ("ALTER TABLE sessions ADD COLUMN goose_mode TEXT NOT NULL DEFAULT 'auto'",),
    10: ("ALTER TABLE sessions ADD COLUMN thread_id TEXT", _THREADS, _THREAD_MESSAGES),
    12: (
        "ALTER TABLE sessions ADD COLUMN archived_at TIMESTAMP",
        "ALTER TABLE sessions ADD COLUMN project_id TEXT",
    ),
    13: ("ALTER TABLE sessions ADD COLUMN accumulated_cost REAL",),
    14: ("ALTER TABLE sessions ADD COLUMN cache_read_tokens INTEGER",),
    15: (_LEDGER,),
    16: (
        "ALTER TABLE sessions ADD COLUMN parent_session_id TEXT",
        "CREATE INDEX idx_messages_session_created ON messages(session_id, created_timestamp, id)",
    ),
}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str, command: str = "ls") -> dict[str, Any]:
    value = {"name": "shell", "arguments": {"command": command}}
    return {"type": "toolRequest", "id": call_id, "toolCall": {"status": "success", "value": value}}


def result(call_id: str, words: str = "saw") -> dict[str, Any]:
    value = {"content": [text(words)], "isError": False}
    return {
        "type": "toolResponse",
        "id": call_id,
        "toolResult": {"status": "success", "value": value},
    }


def thinking(words: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


CONTEXT = text("<turn-context>\n<cwd>/home/robin</cwd>\n</turn-context>")


class GooseStore:
    """A `sessions.db` of some release. What is said goes to the session that was begun last, a
    second apart.
    """

    def __init__(self, path: Path, schema: int = 16) -> None:
        self.path = path
        self.schema = schema
        self.database = apsw.Connection(str(path))
        self.database.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
        for version in range(6, schema + 1):
            for step in _STEPS.get(version, ()):
                self.database.execute(step)
            self.database.execute("INSERT INTO schema_version (version) VALUES (?)", (version,))
        self.name = ""
        self.now = START
        self._count = 0

    def __enter__(self) -> "GooseStore":
        return self

    def __exit__(self, *error: object) -> None:
        self.database.close()

    def session(self, name: str, **columns: Any) -> None:
        self.name, self.now = name, self.now + 10_000
        columns = {"id": name, "name": f"About {name}", "working_dir": "/home/robin", **columns}
        columns.setdefault("created_at", "2026-09-20 08:00:00")
        self.insert("sessions", columns)

    def say(
        self,
        role: str,
        /,
        *blocks: Any,
        at: int | None = None,
        seen: Any = SEEN,
        usage: bool | None = None,
        **row: Any,
    ) -> None:
        """One message; `usage` is told for assistants that all see, unless asked otherwise."""
        self.now, self._count = self.now + 1, self._count + 1
        metadata: dict[str, Any] = {"userVisible": seen[0], "agentVisible": seen[1]}
        if (role == "assistant" and seen != FOR_MODEL) if usage is None else usage:
            metadata["usage"] = {"inputTokens": 400, "outputTokens": 40, "totalTokens": 440}
            self.pay()
        columns = {
            "message_id": f"msg_{self._count:03}",
            "session_id": self.name,
            "role": role,
            "content_json": json.dumps(blocks),
            "created_timestamp": self.now if at is None else at,
            "metadata_json": json.dumps({**metadata, **row.pop("metadata", {})}),
            **row,
        }
        if self.schema < 7:
            del columns["message_id"]
        self.insert("messages", columns)

    def ask(self, words: str, **row: Any) -> None:
        """A prompt, with the row that goose adds for the model."""
        self.say("user", text(words), **row)
        self.say("user", CONTEXT, seen=FOR_MODEL, metadata={"turnContext": True}, at=self.now)

    def pay(self, *, compaction: bool = False) -> None:
        if self.schema >= 15:
            row = {
                "session_id": self.name,
                "created_timestamp": self.now,
                "input_tokens": 400,
                "output_tokens": 40,
            }
            self.insert("usage_ledger", {**row, "is_compaction": int(compaction)})

    def insert(self, table: str, columns: dict[str, Any]) -> None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        self.database.execute(
            f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values())
        )


def one_call(store: GooseStore) -> None:
    store.ask("How many pear trees?")
    store.say("assistant", text("I will look."), call("call_p1"))
    store.say("user", result("call_p1", "41"))
    store.say("assistant", text("There are 41."))


def three_calls(store: GooseStore) -> None:
    store.ask("Frost, wind and rain?")
    store.say("assistant", text("All three."), call("call_a"), call("call_b"), call("call_c"))
    offline = {
        "type": "toolResponse",
        "id": "call_c",
        "toolResult": {"status": "error", "error": "offline"},
    }
    store.say("user", result("call_a"), result("call_b"), offline)
    store.say("assistant", thinking("The gauge is down.", "sig-1"), text("No frost."))


def compacted(store: GooseStore) -> None:
    for number in range(3):
        store.say("user", text(f"Note {number}."), seen=FOR_READER)
        store.say(
            "user", CONTEXT, seen=(False, False), metadata={"turnContext": True}, at=store.now
        )
        store.say("assistant", text("Noted."), seen=FOR_READER)
    store.pay(compaction=True)
    store.say("user", text("Three notes were taken."), seen=FOR_MODEL)
    store.say("assistant", text("Your context was compacted."), seen=FOR_MODEL, at=store.now)
    store.say("user", text("/compact"), seen=FOR_READER, at=store.now)
    store.say("assistant", text("Compaction complete"), seen=FOR_READER, usage=False)
    store.ask("And the south field?")
    store.say("assistant", text("Nothing yet."))


def pair_summarised(store: GooseStore) -> None:
    store.ask("What is in the shed?")
    store.say("assistant", call("call_s1"), seen=FOR_READER)
    store.say("user", result("call_s1"), seen=FOR_READER)
    store.say("user", text("A call listed the shed: a saw."), seen=FOR_MODEL, at=store.now)
    store.say("assistant", text("A saw."))


def two_prompts(store: GooseStore) -> None:
    store.say("user", text("One more thing:"))
    store.say("user", text("use metric units. How tall is the ladder?"))
    store.say("assistant", text("About 2.4 m."))


def reused_ids(store: GooseStore) -> None:
    """Some servers number the calls of every reply from 0."""
    for _ in range(2):
        store.ask("Look again.")
        store.say("assistant", call("call_0"))
        store.say("user", result("call_0"))
        store.say("assistant", text("A saw."))


def only_a_command(store: GooseStore) -> None:
    store.say("user", text("/help"), seen=FOR_READER)
    store.say("assistant", text("There is no help."), seen=FOR_READER, usage=False)


HEALTHY: tuple[Callable[[GooseStore], None], ...] = (
    one_call, three_calls, compacted, pair_summarised, two_prompts, reused_ids, only_a_command,
)  # fmt: skip


def orphan_tool_request(store: GooseStore) -> None:
    store.ask("Run the long test.")
    store.say("assistant", text("Starting."), call("call_o1"))
    store.ask("Never mind. What is the time?")
    store.say("assistant", text("Noon."))


def orphan_at_the_end(store: GooseStore) -> None:
    store.ask("Run the long test.")
    store.say("assistant", call("call_o1"), call("call_o2"))


def orphan_tool_response(store: GooseStore) -> None:
    store.ask("What is in the shed?")
    store.say("user", result("call_gone"))
    store.say("assistant", text("A saw."))


def result_before_call(store: GooseStore) -> None:
    store.ask("What is in the shed?")
    store.say("assistant", call("call_r1"), at=store.now + 5)
    store.say("user", result("call_r1"), at=store.now + 1)
    store.say("assistant", text("A saw."), at=store.now + 9)


def duplicate_tool_result(store: GooseStore) -> None:
    store.ask("What is in the shed?")
    store.say("assistant", call("call_d1"), call("call_d2"))
    store.say("user", result("call_d1"), result("call_d2"))
    store.say("user", result("call_d1", "saw, again"))
    store.say("assistant", text("A saw."))


def duplicate_rows(store: GooseStore) -> None:
    one_call(store)
    store.say("user", result("call_p1", "41"), message_id=f"msg_{store._count - 1:03}")
    store.say(
        "assistant", text("There are 41."), message_id=f"msg_{store._count - 1:03}", usage=False
    )


def token_split_rows(store: GooseStore) -> None:
    store.say("user", text("Say hello to the bees."))
    store.pay()
    for piece in ("Hello", " bees,", " bye", " bye", "."):
        store.say("assistant", text(piece), message_id="chatcmpl-bees", usage=False, at=store.now)


def lost_turn(store: GooseStore) -> None:
    store.ask("Mow rows 1 to 3, then report.")
    store.pay()
    store.now += 30
    store.ask("Are you done?")
    store.say("assistant", text("I have not started."))


def cut_stream(store: GooseStore) -> None:
    one_call(store)
    store.ask("Tell me more.")
    store.say("assistant", text("The pear is a"), usage=False)


def unanswered_prompt(store: GooseStore) -> None:
    """Killed before anything of an answer was stored, and once more after the next prompt."""
    store.ask("Mow row 4.")
    store.ask("Are you there?")
    store.say("assistant", text("I am."))
    store.ask("Then mow row 5.")


def unfinished_turn(store: GooseStore) -> None:
    store.ask("What is in the shed?")
    store.say("assistant", call("call_u1"))
    store.say("user", result("call_u1"))


def merged_users(store: GooseStore) -> None:
    store.say("user", text("How many pear trees?"), CONTEXT, text("And apple trees?"))
    store.say("assistant", text("41 and 12."))


def metadata_clobbered(store: GooseStore) -> None:
    store.ask("What is in the shed?")
    store.say("assistant", call("call_c1"))
    store.say("user", result("call_c1"))
    store.say("user", text("A call listed the shed: a saw."), seen=FOR_MODEL, at=store.now)
    store.say("assistant", text("A saw."))


def summary_deleted(store: GooseStore) -> None:
    store.ask("What is in the shed?")
    store.say("assistant", call("call_s1"), seen=FOR_READER)
    store.say("user", result("call_s1"), seen=FOR_READER)
    store.say("assistant", text("A saw."))


def compacted_without_summary(store: GooseStore) -> None:
    for number in range(3):
        store.say("user", text(f"Note {number}."), seen=FOR_READER)
        store.say("assistant", text("Noted."), seen=FOR_READER)


def metadata_unreadable(store: GooseStore) -> None:
    store.say("user", text("Hello."))
    store.say("assistant", text("Hello."))
    store.say("user", text("For the agent alone."), metadata_json='{"userVisible":false,"agentVis')
    store.say("assistant", text("Understood."), usage=True)


def metadata_missing(store: GooseStore) -> None:
    store.say("user", text("Hello."))
    store.say("assistant", text("Hello."))
    store.say("user", text("For the agent alone."), metadata_json=None)
    store.say("assistant", text("Understood."))


def unknown_content_type(store: GooseStore) -> None:
    store.ask("What is in the shed?")
    store.say("assistant", {"type": "reasoning", "text": "Only a saw."}, text("A saw."))


def content_not_json(store: GooseStore) -> None:
    store.say("user", content_json='[{"type":"text","te')
    store.say("assistant", text("A saw."))


def millisecond_timestamps(store: GooseStore) -> None:
    start = store.now
    store.say("user", text("Old question."), at=(start + 1) * 1000)
    store.say("assistant", text("Old answer."), at=(start + 3) * 1000)
    store.say("user", text("New question."), at=(start + 3) * 1000, timestamp="2030-01-01 00:00:00")
    store.say(
        "assistant", text("New answer."), at=(start + 3) * 1000, timestamp="2030-01-01 00:00:05"
    )


def duplicate_thinking(store: GooseStore) -> None:
    store.ask("What is in the shed?")
    store.say("assistant", thinking("I should look.", "sig-7"), text("I will look."))
    store.say("assistant", thinking("I should look.", "sig-7"), call("call_t1"))
    store.say("user", result("call_t1"))
    store.say("assistant", text("A saw."))


def odd_role(store: GooseStore) -> None:
    store.ask("Hello.")
    store.say("tool", text("I am not from here."))
    store.say("assistant", text("Hello."))


def empty_row(store: GooseStore) -> None:
    store.ask("Hello.")
    store.say("assistant", text(" "), usage=False)
    store.say("assistant", text("Hello."))


def stranded_messages(store: GooseStore) -> None:
    two_prompts(store)
    store.database.execute("DELETE FROM sessions WHERE id = ?", (store.name,))
    store.database.execute("DELETE FROM usage_ledger WHERE session_id = ?", (store.name,))


def thread_tables_present(store: GooseStore) -> None:
    two_prompts(store)
    store.insert("threads", {"id": "t-1", "name": "Bees", "working_dir": "/home/robin"})
    for role, words in (("user", "Are there bees?"), ("assistant", "There are.")):
        row = {
            "thread_id": "t-1",
            "message_id": f"tm_{role}",
            "role": role,
            "created_timestamp": store.now,
        }
        store.insert("thread_messages", {**row, "content_json": json.dumps([text(words)])})


def rewritten_history(store: GooseStore) -> None:
    """A neighbour begins later and is stored first: this session was deleted and written again."""
    name, began = store.name, store.now
    store.session(f"{name}-neighbour")
    two_prompts(store)
    store.name, store.now = name, began
    store.database.execute("UPDATE sqlite_sequence SET seq = seq + 10 WHERE name = 'messages'")
    two_prompts(store)


def unreadable_record(store: GooseStore) -> None:
    store.ask("Hello.")
    store.say("assistant", text("Hello."), content_json="[" * 300 + "]" * 300)


DAMAGED: dict[Callable[[GooseStore], None], str] = {
    orphan_tool_request: "orphan-tool-request",
    orphan_at_the_end: "orphan-tool-request",
    orphan_tool_response: "orphan-tool-response",
    result_before_call: "result-before-call",
    duplicate_tool_result: "duplicate-tool-result",
    duplicate_rows: "duplicate-rows",
    token_split_rows: "token-split-rows",
    lost_turn: "lost-turn",
    unanswered_prompt: "unanswered-prompt",
    cut_stream: "cut-stream",
    unfinished_turn: "unfinished-turn",
    merged_users: "merged-users",
    metadata_clobbered: "metadata-clobbered",
    summary_deleted: "summary-deleted",
    compacted_without_summary: "compacted-without-summary",
    metadata_unreadable: "metadata-unreadable",
    metadata_missing: "metadata-unreadable",
    unknown_content_type: "unknown-content-type",
    content_not_json: "content-not-json",
    millisecond_timestamps: "millisecond-timestamps",
    duplicate_thinking: "duplicate-thinking",
    odd_role: "empty-and-odd-roles",
    empty_row: "empty-and-odd-roles",
    stranded_messages: "stranded-messages",
    thread_tables_present: "thread-tables-present",
    rewritten_history: "rewritten-history",
    unreadable_record: "unreadable-record",
}
"""Each writes one session that breaks one rule and no other."""


def built(path: Path, *cases: Callable[[GooseStore], None], schema: int = 16) -> Path:
    """A store with a session for each case."""
    with GooseStore(path, schema) as store:
        for number, case in enumerate(cases, start=1):
            store.session(f"20260921_{number}")
            case(store)
    return path


def legacy_lines(*messages: tuple[str, Any]) -> bytes:
    """A session of goose's first releases."""
    header = {
        "working_dir": "/home/robin",
        "description": "Bean poles",
        "message_count": len(messages),
    }
    spoken = [
        {"role": role, "created": START + number, "content": [block]}
        for number, (role, block) in enumerate(messages)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in (header, *spoken))


def export(*messages: tuple[str, Any], **columns: Any) -> dict[str, Any]:
    """A session as goose exports it."""
    flags = {"userVisible": True, "agentVisible": True}
    spoken = [
        {
            "id": f"m{number}",
            "role": role,
            "created": START + number,
            "content": [block],
            "metadata": flags,
        }
        for number, (role, block) in enumerate(messages)
    ]
    head = {
        "id": "20260921_1",
        "working_dir": "/home/robin",
        "name": "Poles",
        "created_at": "2026-09-21T09:00:00Z",
    }
    tail = {
        "updated_at": "2026-09-21T09:00:00Z",
        "extension_data": {},
        "message_count": len(spoken),
    }
    return {**head, **tail, **columns, "conversation": spoken}
