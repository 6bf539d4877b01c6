"""What runs inside Hermes' own environment: one task after another, told by lines of JSON.

A task names a store, a session and what the user says; the answer has what Hermes returned. A task
can also be an act that a user or the program itself may do to a session: a compaction, an undo, a
branch. Nothing of Holdfast is imported here.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

logging.disable(logging.CRITICAL)

from hermes_state import SessionDB  # noqa: E402
from run_agent import AIAgent  # noqa: E402


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        task = json.loads(line)
        try:
            answer = ACTS[task["act"]](task)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def say(task: dict[str, Any]) -> dict[str, Any]:
    """One turn, as the gateway runs it: the history from the store, repaired, and what the user
    says.
    """
    database = SessionDB(Path(task["store"]))
    try:
        history = database.get_messages_as_conversation(task["session"], repair_alternation=True)
        history = [message for message in history if message["role"] != "session_meta"]
        agent = _agent(task, database)
        returned = agent.run_conversation(task["text"], conversation_history=history)
        return {"answer": returned.get("final_response"), "history": len(history)}
    finally:
        database.close()


def compact(task: dict[str, Any]) -> dict[str, Any]:
    """A compaction by the program's own compressor, whose protected parts are made small."""
    from agent.context_compressor import _DB_PERSISTED_MARKER
    from agent.conversation_compression import compress_context

    database = SessionDB(Path(task["store"]))
    try:
        agent = _agent(task, database)
        agent.compression_in_place = task["in_place"]
        compressor = agent.context_compressor
        compressor.protect_first_n, compressor.protect_last_n, compressor.tail_token_budget = (
            1,
            2,
            40,
        )
        history = database.get_messages_as_conversation(task["session"], repair_alternation=True)
        for message in history:
            message[_DB_PERSISTED_MARKER] = True  # as in the list of an agent that is at work
        shorter, _ = compress_context(agent, history, "You keep the harbour book.", force=True)
        return {"before": len(history), "after": len(shorter), "session": agent.session_id}
    finally:
        database.close()


def undo(task: dict[str, Any]) -> dict[str, Any]:
    """The last question taken back."""
    database = SessionDB(Path(task["store"]))
    try:
        rows = database.get_messages(task["session"])
        last = max(row["id"] for row in rows if row["role"] == "user")
        return {"undone": database.rewind_to_message(task["session"], last)["rewound_count"]}
    finally:
        database.close()


def branch(task: dict[str, Any]) -> dict[str, Any]:
    """What /branch does, with the store's own calls."""
    database = SessionDB(Path(task["store"]))
    try:
        parent, child = task["session"], task["into"]
        history = database.get_messages_as_conversation(parent)
        database.end_session(parent, "branched")
        marker = {"_branched_from": parent}
        database.create_session(
            child, "cli", parent_session_id=parent, model="lantern-1", model_config=marker
        )
        for message in history:
            known = ("tool_name", "tool_calls", "tool_call_id", "finish_reason")
            kept = {name: message[name] for name in known if message.get(name)}
            database.append_message(child, message["role"], message.get("content"), **kept)
        return {"copied": len(history)}
    finally:
        database.close()


def _agent(task: dict[str, Any], database: SessionDB) -> AIAgent:
    return AIAgent(
        base_url=task["url"],
        api_key="none",
        provider="custom",
        model="lantern-1",
        quiet_mode=True,
        enabled_toolsets=["todo"],
        session_id=task["session"],
        session_db=database,
        skip_context_files=True,
        skip_memory=True,
        max_iterations=4,
    )


ACTS = {"say": say, "compact": compact, "undo": undo, "branch": branch}

if __name__ == "__main__":
    main()
