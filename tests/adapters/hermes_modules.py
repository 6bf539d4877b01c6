"""Small modules with the names and signatures of Hermes Agent 0.19.0 that the adapter touches.

They do what Hermes does where it matters: rows in SQLite through one connection, an agent that writes
its list before the model is asked and after each step, callbacks whose errors are swallowed, a last row
that comes after the teardown. `patched` gives them as the import hook would.
"""

import asyncio
import json
import sqlite3
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

from holdfast.adapters.hermes import cache_guard, projection, streams, turns

SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content TEXT, tool_calls TEXT,
    tool_call_id TEXT, finish_reason TEXT, timestamp REAL, active INTEGER DEFAULT 1,
    compacted INTEGER DEFAULT 0);
"""


class SessionDB:
    """The rows of all sessions."""

    _WRITE_MAX_RETRIES = 15

    def __init__(self, db_path: Path | None = None, read_only: bool = False):
        self.db_path, self.read_only = Path(db_path), read_only
        self._lock = threading.Lock()
        self._conn = sqlite3.connect(
            db_path, check_same_thread=False, isolation_level=None, timeout=0.02
        )
        self._conn.execute("PRAGMA journal_mode=WAL")
        self._conn.executescript(SCHEMA)

    def _write(self, *statements):
        for attempt in range(self._WRITE_MAX_RETRIES):
            try:
                with self._lock, self._conn:
                    self._conn.execute("BEGIN IMMEDIATE")
                    return [self._conn.execute(*each).lastrowid for each in statements][-1]
            except sqlite3.OperationalError:
                if attempt == self._WRITE_MAX_RETRIES - 1:
                    raise

    def _insert(self, session_id, row):
        calls = json.dumps(row["tool_calls"]) if row.get("tool_calls") else None
        return (
            "INSERT INTO messages (session_id, role, content, tool_calls, tool_call_id, "
            "finish_reason, timestamp) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                session_id,
                row["role"],
                row.get("content"),
                calls,
                row.get("tool_call_id"),
                row.get("finish_reason"),
                row.get("timestamp") or time.time(),
            ),
        )

    def append_message(
        self,
        session_id: str,
        role: str,
        content: str | None = None,
        tool_name: str | None = None,
        tool_calls=None,
        tool_call_id: str | None = None,
        token_count: int | None = None,
        finish_reason: str | None = None,
        reasoning: str | None = None,
        reasoning_content: str | None = None,
        reasoning_details=None,
        codex_reasoning_items=None,
        codex_message_items=None,
        platform_message_id: str | None = None,
        observed: bool = False,
        effect_disposition: str | None = None,
        timestamp=None,
        api_content: str | None = None,
    ) -> int:
        row = {"role": role, "content": content, "tool_calls": tool_calls}
        row |= {
            "tool_call_id": tool_call_id,
            "finish_reason": finish_reason,
            "timestamp": timestamp,
        }
        return self._write(self._insert(session_id, row))

    def replace_messages(self, session_id: str, messages: list, active_only: bool = False) -> None:
        live = " AND active = 1" if active_only else ""
        self._write(
            (f"DELETE FROM messages WHERE session_id = ?{live}", (session_id,)),
            *(self._insert(session_id, each) for each in messages),
        )

    def archive_and_compact(self, session_id: str, compacted_messages: list) -> int:
        self._write(
            ("UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ?", (session_id,)),
            *(self._insert(session_id, each) for each in compacted_messages),
        )
        return len(compacted_messages)

    def rewind_to_message(self, session_id: str, target_message_id: int) -> dict:
        where = "WHERE session_id = ? AND id >= ?"
        self._write((f"UPDATE messages SET active = 0 {where}", (session_id, target_message_id)))
        return {}

    def restore_rewound(self, session_id: str, since_message_id: int) -> int:
        self._write(("UPDATE messages SET active = 1 WHERE session_id = ?", (session_id,)))
        return 0

    def clear_messages(self, session_id: str) -> None:
        self._write(("DELETE FROM messages WHERE session_id = ?", (session_id,)))

    def create_session(self, session_id: str, source: str, **kwargs) -> str:
        self._write(("INSERT OR IGNORE INTO sessions (id) VALUES (?)", (session_id,)))
        return session_id

    def get_session(self, session_id: str):
        found = self._conn.execute("SELECT id, ended_at FROM sessions WHERE id = ?", (session_id,))
        row = found.fetchone()
        return {"id": row[0], "ended_at": row[1]} if row else None

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        try:
            self._write(
                (
                    "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?",
                    (time.time(), reason, session_id),
                )
            )
            return True
        except sqlite3.OperationalError:
            return False

    def get_messages(self, session_id: str, include_inactive: bool = False) -> list:
        return self.get_messages_as_conversation(session_id, include_inactive=include_inactive)

    def get_resume_conversations(self, session_id: str) -> list:
        return self.get_messages_as_conversation(session_id)

    def get_messages_as_conversation(
        self,
        session_id: str,
        include_ancestors: bool = False,
        include_inactive: bool = False,
        repair_alternation: bool = False,
    ) -> list:
        live = "" if include_inactive else " AND active = 1"
        found = self._conn.execute(
            "SELECT role, content, tool_calls, tool_call_id, finish_reason FROM messages "
            f"WHERE session_id = ?{live} ORDER BY id",
            (session_id,),
        )
        messages = []
        for role, content, calls, call_id, finish in found.fetchall():
            message = {"role": role, "content": content.strip() if content else content}
            if calls:
                message["tool_calls"] = json.loads(calls)
            if call_id:
                message["tool_call_id"] = call_id
            if finish:
                message["finish_reason"] = finish
            messages.append(message)
        return messages

    @staticmethod
    def _decode_content(content):
        return content


def _is_ephemeral_scaffolding(msg) -> bool:
    return isinstance(msg, dict) and bool(msg.get("_empty_recovery_synthetic"))


def _agent_class():
    class AIAgent:
        """Says what its `script` has: for each round a list of pieces, or a dict with `pieces`,
        `tools`, `text`, `finish`."""

        def __init__(self, session_db=None, session_id="s1", script=()):
            self._session_db, self.session_id = session_db, session_id
            self._persist_disabled = False
            self.script = list(script)
            self.requests = []
            self.interrupts = []
            self._interrupt_requested = False
            self._pending_steer = None
            self._interrupt_message = None
            self._current_streamed_assistant_text = ""
            self.stream_delta_callback = None
            self._stream_callback = None
            self.interim_assistant_callback = None
            self.torn_down = lambda: None
            self.transform = str

        def interrupt(self, message=None):
            self._interrupt_requested = True
            self._interrupt_message = message
            self.interrupts.append(message)

        def steer(self, text):
            self._pending_steer = f"{self._pending_steer}\n{text}" if self._pending_steer else text
            return True

        def _drain_pending_steer(self):
            text, self._pending_steer = self._pending_steer, None
            return text

        def _apply_pending_steer_to_tool_results(self, messages, num_tool_msgs):
            text = self._drain_pending_steer()
            if text:
                messages[-1]["content"] += f"\n\n[STEER]\n{text}\n[/STEER]"

        def clear_interrupt(self):
            self._interrupt_requested = False
            self._interrupt_message = None

        def _reset_stream_delivery_tracking(self):
            self._current_streamed_assistant_text = ""

        def _ensure_stream_writer_state(self):
            if not hasattr(self, "_stream_writer_tls"):
                self._stream_writer_tls, self._stream_writer_token = threading.local(), 0

        def _claim_stream_writer(self):
            self._ensure_stream_writer_state()
            self._stream_writer_token += 1
            self._stream_writer_tls.token = self._stream_writer_token
            return self._stream_writer_token

        def _fire_stream_delta(self, text):
            callbacks = (self.stream_delta_callback, self._stream_callback)
            delivered = not any(callbacks)
            for callback in callbacks:
                if callback is not None:
                    try:
                        callback(text)
                        delivered = True
                    except Exception:
                        continue
            if delivered:
                self._current_streamed_assistant_text += text

        def _flush_messages_to_session_db_unlocked(self, messages, conversation_history=None):
            if self._persist_disabled or self._session_db is None:
                return
            old = {id(each) for each in conversation_history or ()}
            try:
                for message in messages:
                    if message.get("_db_persisted") or id(message) in old:
                        message["_db_persisted"] = True
                        continue
                    row = {key: message.get(key) for key in ("tool_calls", "tool_call_id")}
                    self._session_db.append_message(
                        session_id=self.session_id,
                        role=message["role"],
                        content=message.get("content"),
                        finish_reason=message.get("finish_reason"),
                        **row,
                    )
                    message["_db_persisted"] = True
            except Exception:
                return

        def run_conversation(
            self,
            user_message,
            system_message=None,
            conversation_history=None,
            task_id=None,
            stream_callback=None,
            persist_user_message=None,
            persist_user_timestamp=None,
            moa_config=None,
        ):
            history = list(conversation_history or ())
            messages = [*history, {"role": "user", "content": user_message}]
            self._persist_user_message_idx = len(history)
            self._persist_user_message_override = persist_user_message
            self._flush_messages_to_session_db_unlocked(messages, history)
            text = ""
            while self.script and not self._interrupt_requested:
                step = self.script.pop(0)
                step = step if isinstance(step, dict) else {"pieces": step}
                self._reset_stream_delivery_tracking()
                self.requests.append([dict(each) for each in messages])
                text = self._speak(step)
                answer = {"role": "assistant", "content": step.get("text", text)}
                if not self._interrupt_requested:
                    answer["finish_reason"] = "tool_calls" if step.get("tools") else "stop"
                messages.append(answer)
                if not step.get("tools"):
                    break
                answer["tool_calls"] = step["tools"]
                self._flush_messages_to_session_db_unlocked(messages, history)
                if self.stream_delta_callback is not None:
                    self.stream_delta_callback(None)
                for call in step["tools"]:
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
                    self._flush_messages_to_session_db_unlocked(messages, history)
                    self._apply_pending_steer_to_tool_results(messages, 1)
            return self.finalizer.finalize_turn(
                self,
                final_response=text,
                api_call_count=1,
                interrupted=self._interrupt_requested,
                failed=False,
                messages=messages,
                conversation_history=history,
            )

        def _speak(self, step):
            said = ""
            for piece in step["pieces"]:
                if self._interrupt_requested:
                    # What was shown of an answer that is cut off, and no more, is its message.
                    said = self._current_streamed_assistant_text
                    break
                if callable(piece):
                    piece()
                    continue
                self._fire_stream_delta(piece)
                said += piece
            return said.strip()

    return AIAgent


def finalize_turn(
    agent, *, final_response, api_call_count, interrupted, failed, messages, conversation_history
):
    agent.torn_down()
    agent._flush_messages_to_session_db_unlocked(messages, conversation_history)
    result = {
        "final_response": agent.transform(final_response),
        "messages": messages,
        "completed": True,
        "interrupted": interrupted,
        "failed": failed,
    }
    # The command line sends this to the model as the user's next message, whatever it says.
    if interrupted and agent._interrupt_message:
        result["interrupt_message"] = agent._interrupt_message
    agent.clear_interrupt()
    return result


def _runner_class():
    class GatewayRunner:
        def __init__(self):
            self._agent_cache = {}
            self._agent_cache_lock = threading.Lock()
            self.ran = []

        def _evict_cached_agent(self, session_key):
            self._agent_cache.pop(session_key, None)

        async def _run_agent(
            self,
            message,
            context_prompt,
            history,
            source,
            session_id,
            session_key=None,
            run_generation=None,
        ):
            await asyncio.sleep(0)
            agent = self._agent_cache.get(session_key, (None,))[0]
            self.ran.append(agent.session_id if agent else f"new agent for {session_id}")

    return GatewayRunner


def _module(name, **contents):
    module = ModuleType(name)
    for key, value in contents.items():
        setattr(module, key, value)
    return module


def patched():
    """The modules of a Hermes that has just been imported, with all that the hook does to them."""
    state = _module("hermes_state", SessionDB=SessionDB)
    agents = _module(
        "run_agent",
        AIAgent=_agent_class(),
        _is_ephemeral_scaffolding=_is_ephemeral_scaffolding,
    )
    finalizer = _module("agent.turn_finalizer", finalize_turn=finalize_turn)
    gateway = _module("gateway.run", GatewayRunner=_runner_class())
    agents.AIAgent.finalizer = finalizer
    projection.patch_hermes_state(state)
    streams.patch_run_agent(agents)
    turns.patch_run_agent(agents)
    turns.patch_turn_finalizer(finalizer)
    cache_guard.patch_gateway_run(gateway)
    return SimpleNamespace(
        SessionDB=state.SessionDB, AIAgent=agents.AIAgent, GatewayRunner=gateway.GatewayRunner
    )
