"""What clients are told, with OpenViking's names for it; pure."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from holdfast.adapters.openviking.server import settings
from holdfast.adapters.openviking.server.sessions.archive import (
    Extracted,
    Json,
    SessionArchive,
)
from holdfast.adapters.openviking.server.sessions.directory import Requester
from holdfast.adapters.openviking.server.sessions.served_session import (
    ServedMessage,
    ServedSession,
    tokens_of,
)
from holdfast.adapters.openviking.server.sessions.session_handle import SessionHandle
from holdfast.adapters.openviking.server.sessions.tool_output import ToolOutput

UNIT = "unicode_code_point"
NO_TOKENS = {
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "total_tokens": 0,
    "cached_tokens": 0,
    "reasoning_tokens": 0,
}


def created(requester: Requester, name: str, handle: SessionHandle) -> Json:
    """A session that was just made."""
    set_to = handle.served().settings
    return {
        "session_id": name,
        "uri": handle.uri,
        "user": _user(requester),
        "auto_commit_policy": set_to.get("auto_commit_policy"),
        "memory_extraction_config": settings.extraction_config(set_to),
    }


def listed(name: str, uri: str, active_at: int) -> Json:
    """A session in a list."""
    changed = datetime.fromtimestamp(active_at / 1000, UTC)
    moment = f"{changed:%Y-%m-%dT%H:%M:%SZ}"
    return {
        "session_id": name,
        "uri": uri,
        "is_dir": True,
        "mod_time": moment,
    }


def details(requester: Requester, name: str, handle: SessionHandle) -> Json:
    """All there is to tell about a session but its messages."""
    served = handle.served()
    set_to = served.settings
    last = served.last
    asked = last.asked if last is not None else {}
    total = sum(served.memories.values())
    live = served.live
    return {
        "session_id": name,
        "created_at": moment(served.opened_at),
        "updated_at": moment(served.changed_at or served.opened_at),
        "created_by_account_id": requester.account,
        "created_by_user_id": requester.user,
        "message_count": served.live_count,
        "commit_count": served.commits,
        "memories_extracted": {**served.memories, "total": total},
        "last_commit_at": moment(last.at) if last is not None else "",
        # Extractors keep their own accounts.
        "llm_token_usage": NO_TOKENS,
        "embedding_token_usage": {"total_tokens": 0},
        "pending_tokens": served.new_tokens,
        "keep_recent_count": asked.get("keep_recent_count", 0),
        "retention_mode": asked.get("retention_mode", ""),
        "keep_recent_turn_count": asked.get("keep_recent_turn_count", 0),
        "retained_message_token_budget": asked.get("retained_message_token_budget", 0),
        "min_raw_tail_steps": asked.get("min_raw_tail_steps", 1),
        "memory_policy": set_to.get("memory_policy"),
        "auto_commit_policy": set_to.get("auto_commit_policy"),
        "last_message_at": moment(live[-1].at) if live else "",
        "last_auto_commit_at": "",
        "last_idle_commit_accepted_at": "",
        "total_message_count": served.archived_count + served.live_count,
        "uri": handle.uri,
        "user": _user(requester),
        "memory_extraction_config": settings.extraction_config(set_to),
    }


def context(served: ServedSession, budget: int, failed: int) -> Json:
    """What a model is to see: the overview of what is archived, and the messages after it, the
    latest first to get a place in the budget.
    """
    shown: list[ServedMessage] = []
    tokens = 0
    # From the end: what was said last is what the next answer is about.
    for message in reversed(served.messages):
        if tokens + message.tokens > budget:
            break
        tokens += message.tokens
        shown.append(message)
    shown.reverse()
    overview = served.overview
    size = tokens_of(len(overview))
    # All of it or nothing: a summary that is cut says something else.
    if tokens + size > budget:
        overview, size = "", 0
    return {
        "latest_archive_overview": overview,
        "pre_archive_abstracts": [],
        "messages": payloads(shown),
        "estimatedTokens": tokens + size,
        "stats": {
            "totalArchives": served.commits,
            "includedArchives": 0,
            "droppedArchives": served.extracted,
            "failedArchives": failed,
            "activeTokens": tokens,
            "archiveTokens": size,
        },
    }


def payloads(messages: Sequence[ServedMessage]) -> list[Json]:
    return [message.payload for message in messages]


def committed(
    name: str, handle: SessionHandle, archive: SessionArchive | None, *, memory: bool
) -> Json:
    """What a commit came to."""
    told: Json = {
        "session_id": name,
        "status": "skipped",
        "task_id": None,
        "archive_uri": None,
        "archived": False,
        "effective_enable_working_memory": memory,
    }
    if archive is None:
        return {**told, "reason": "no_messages", "trace_id": ""}
    return {
        **told,
        "status": "accepted",
        "task_id": task_name(handle, archive.number),
        "archive_uri": archive_uri(handle, archive),
        "archived": True,
        "trace_id": "",
        "estimated_active_tokens": handle.served().live_tokens,
        "budget_exceeded": False,
    }


def archived(
    archive: SessionArchive, done: Extracted | None, messages: Sequence[ServedMessage]
) -> Json:
    """An archive; one whose extraction is still to be done has no overview yet."""
    return {
        "archive_id": archive.name,
        "abstract": done.abstract if done is not None else "",
        "overview": done.overview if done is not None else "",
        "messages": payloads(messages),
    }


def archive_to_extract(
    requester: Requester,
    name: str,
    handle: SessionHandle,
    served: ServedSession,
    archive: SessionArchive,
) -> Json:
    """What an extractor is called with."""
    return {
        "task_id": task_name(handle, archive.number),
        "session_id": name,
        "user": _user(requester),
        "archive_id": archive.name,
        "archive_uri": archive_uri(handle, archive),
        "enable_working_memory": archive.working_memory,
        "extraction_metadata": archive.asked.get("extraction_metadata", {}),
        "memory_policy": served.settings.get("memory_policy"),
        "memory_extraction_config": settings.extraction_config(served.settings),
        "previous_overview": served.overview,
        "messages": payloads(handle.messages_of(archive)),
    }


def task(
    name: str,
    handle: SessionHandle,
    archive: SessionArchive,
    done: Extracted | None,
    *,
    status: str,
    problem: str | None,
) -> Json:
    """How the extraction of an archive stands."""
    ended = done.at if done is not None else archive.at
    result = None
    if done is not None:
        result = {
            "session_id": name,
            "archive_uri": archive_uri(handle, archive),
            "memories_extracted": done.memories,
        }
    return {
        "task_id": task_name(handle, archive.number),
        "task_type": "session_commit",
        "status": status,
        "created_at": archive.at / 1000,
        "updated_at": ended / 1000,
        "processing_seconds": None,
        "resource_id": name,
        "meta": {},
        "stage": "completed" if done is not None else None,
        "result": result,
        "error": problem,
        "created_at_iso": moment_of_message(archive.at),
        "updated_at_iso": moment_of_message(ended),
    }


def tool_result(
    requester: Requester,
    name: str,
    handle: SessionHandle,
    message: ServedMessage,
    output: ToolOutput,
) -> Json:
    """What is known of a long output."""
    uri = f"{handle.uri}/tool-results/{output.name}"
    return {
        "tool_result_id": output.name,
        "session_id": name,
        "message_id": message.payload["id"],
        "tool_id": output.tool_id,
        "tool_name": output.tool_name,
        "user_id": requester.user,
        "peer_id": message.payload.get("peer_id"),
        "created_at": message.payload.get("created_at"),
        "original_chars": output.chars,
        "preview_chars": message.payload["parts"][output.index][
            "tool_output_preview_chars"
        ],
        "sha256": output.sha256,
        "mime_type": "text/plain",
        "synopsis_kind": "text",
        "storage_uri": uri,
        "offset_unit": UNIT,
    }


def archive_uri(handle: SessionHandle, archive: SessionArchive) -> str:
    return f"{handle.uri}/history/{archive.name}"


def task_name(handle: SessionHandle, number: int) -> str:
    """The name of the task of an archive. It says where the archive is, so no list is kept."""
    return f"{handle.log.id}-{number}"


def place_of_task(name: str) -> tuple[str, int] | None:
    """The session and the number of the archive that a task is for; None when it is no task's."""
    session, _, number = name.rpartition("-")
    if not (session and number.isascii() and number.isdigit() and len(number) < 10):
        return None
    return session, int(number)


def moment(at: int) -> str:
    """A time as sessions have it."""
    return f"{moment_of_message(at)[:23]}Z"


def moment_of_message(at: int) -> str:
    """A time as messages have it."""
    when = datetime.fromtimestamp(at / 1000, UTC)
    return when.isoformat(timespec="microseconds")


def _user(requester: Requester) -> dict[str, Any]:
    return {
        "account_id": requester.account,
        "user_id": requester.user,
    }
