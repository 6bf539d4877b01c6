"""Files of Claude Code, Codex and the Agents SDK, as those programs leave them: one session in
each, whole or hurt.
"""

import json
import sqlite3

STEPS = ("ask", "call", "result", "say", "ask", "say")


def at(second):
    return f"2026-09-21T08:00:{second:02d}.000Z"


class Claude:
    """Lines of Claude Code, each a child of the one before."""

    kind, name = "claude", "11111111-2222-4333-8444-555555555555.jsonl"

    @staticmethod
    def line(number, type, content, **more):
        said = {
            "parentUuid": f"u{number - 1}" if number > 1 else None,
            "isSidechain": False,
            "userType": "external",
        }
        said |= {
            "cwd": "/orchard",
            "sessionId": "11111111-2222-4333-8444-555555555555",
            "version": "2.1.0",
            "type": type,
        }
        message = {"role": type, "content": content}
        if type == "assistant":
            usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3}
            message |= {
                "id": f"msg_{number}",
                "type": "message",
                "model": "claude-x",
                "usage": usage,
            }
        return {**said, "message": message, "uuid": f"u{number}", "timestamp": at(number), **more}

    @classmethod
    def records(cls, steps=STEPS):
        made, call = [], 0
        for number, step in enumerate(steps, 1):
            call += step == "call"
            content = {
                "ask": f"How is row {number}?",
                "say": [{"type": "text", "text": f"Row {number} is fine."}],
                "call": [
                    {
                        "type": "tool_use",
                        "id": f"call_{call}",
                        "name": "look",
                        "input": {"row": call},
                    }
                ],
                "result": [
                    {"type": "tool_result", "tool_use_id": f"call_{call}", "content": "wet"}
                ],
                "stray": [{"type": "tool_result", "tool_use_id": "call_lost", "content": "dry"}],
            }[step]
            made.append(
                cls.line(
                    number, "user" if step in ("ask", "result", "stray") else "assistant", content
                )
            )
        return made

    @staticmethod
    def write(path, records):
        path.write_bytes(b"".join(_line(record) + b"\n" for record in records))


class Codex(Claude):
    """Lines of a rollout."""

    kind, name = "codex", "rollout-2026-09-21T08-00-00-0199.jsonl"

    @staticmethod
    def line(number, type, payload):
        return {"timestamp": at(number), "type": type, "payload": payload}

    @classmethod
    def records(cls, steps=STEPS):
        meta = {
            "id": "0199-session",
            "timestamp": at(0),
            "cwd": "/orchard",
            "instructions": "Be brief.",
        }
        made, call = (
            [cls.line(0, "session_meta", meta), cls.line(0, "turn_context", {"model": "gpt-x"})],
            0,
        )
        for number, step in enumerate(steps, 1):
            call += step == "call"
            item = {
                "ask": {
                    "type": "message",
                    "role": "user",
                    "content": [_text("input_text", f"How is row {number}?")],
                },
                "say": {
                    "type": "message",
                    "role": "assistant",
                    "content": [_text("output_text", f"Row {number}.")],
                },
                "call": {
                    "type": "function_call",
                    "name": "look",
                    "arguments": "{}",
                    "call_id": f"call_{call}",
                },
                "result": {
                    "type": "function_call_output",
                    "call_id": f"call_{call}",
                    "output": "wet",
                },
                "stray": {"type": "function_call_output", "call_id": "call_lost", "output": "dry"},
            }[step]
            made.append(cls.line(number, "response_item", item))
            if step == "say":
                usage = {"input_tokens": 10, "output_tokens": 5, "cached_input_tokens": 3}
                made.append(
                    cls.line(number, "event_msg", {"type": "agent_message", "message": "Row."})
                )
                made.append(
                    cls.line(
                        number,
                        "event_msg",
                        {"type": "token_count", "info": {"last_token_usage": usage}},
                    )
                )
        return made


class Agents(Claude):
    """Rows of the Agents SDK."""

    kind, name = "agents", "sessions.db"
    tables = """
        CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
            updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
        CREATE TABLE agent_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
            message_data TEXT NOT NULL, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
            FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id) ON DELETE CASCADE);
        CREATE INDEX idx_agent_messages_session_id ON agent_messages (session_id, id);
    """

    @classmethod
    def records(cls, steps=STEPS):
        made = [
            record["payload"]
            for record in Codex.records(steps)
            if record["type"] == "response_item"
        ]
        return [
            {"role": "user", "content": one["content"][0]["text"]}
            if one.get("role") == "user"
            else one
            for one in made
        ]

    @classmethod
    def write(cls, path, records):
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(cls.tables)
        connection.execute(
            "INSERT INTO agent_sessions VALUES ('s', '2026-09-21 08:00:00', '2026-09-21 08:00:00')"
        )
        rows = [(_line(record).decode(),) for record in records]
        query = (
            "INSERT INTO agent_messages (session_id, message_data, created_at) VALUES ('s', "
            "?, '2026-09-21 08:00:01')"
        )
        connection.executemany(query, rows)
        connection.commit()
        connection.close()


def _line(record):
    return record if isinstance(record, bytes) else json.dumps(record, ensure_ascii=False).encode()


def _text(type, text):
    return {"type": type, "text": text}


PROGRAMS = (Claude, Codex, Agents)


def made(program, folder, records):
    path = folder / program.name
    program.write(path, records)
    return path


def unanswered(program):
    return program.records(("ask", "call", "ask", "say"))


def stray(program):
    return program.records(("ask", "stray", "say"))


def repeated(program):
    records = program.records(("ask", "call", "result", "say"))
    said = [index for index, record in enumerate(records) if "call_1" in json.dumps(record)]
    return [*records[: said[1] + 1], records[said[1]], *records[said[1] + 1 :]]


def unreadable(program):
    records = program.records()
    return [*records[:-1], b'{"type": "cut in the midd']


DAMAGED = {
    "tool-call-without-result": unanswered,
    "tool-result-without-call": stray,
    "repeated-message": repeated,
    "unreadable-record": unreadable,
}
