"""Which Hermes this is for: its version, and the parameters of all that is wrapped.

Compared when a module is patched. What is not exactly so is left alone: a wrapper that guesses
would lose what Hermes by itself keeps.
"""

import inspect
import sys
import sysconfig
from importlib.metadata import distributions
from types import ModuleType

VERSION = "0.19.0"

SIGNATURES: dict[str, dict[str, str]] = {
    "hermes_state": {
        "SessionDB.__init__": "self db_path read_only",
        "SessionDB.append_message": "self session_id role content",
        "SessionDB.replace_messages": "self session_id messages active_only",
        "SessionDB.archive_and_compact": "self session_id compacted_messages",
        "SessionDB.promote_to_session_reset": "self session_id reason",
        "SessionDB.rewind_to_message": "self session_id target_message_id",
        "SessionDB.get_messages_as_conversation": "self session_id include_ancestors",
        "SessionDB.get_messages": "self session_id",
        "SessionDB.get_resume_conversations": "self session_id",
    },
    "run_agent": {
        "AIAgent.__init__": "self",
        "AIAgent.run_conversation": (
            "self user_message system_message conversation_history task_id stream_callback "
            "persist_user_message persist_user_timestamp moa_config"
        ),
        "AIAgent._flush_messages_to_session_db_unlocked": "self messages conversation_history",
        "AIAgent.steer": "self text",
        "AIAgent._drain_pending_steer": "self",
        "AIAgent.interrupt": "self message",
        "AIAgent.clear_interrupt": "self",
        "AIAgent._fire_stream_delta": "self text",
        "AIAgent._reset_stream_delivery_tracking": "self",
        "AIAgent._claim_stream_writer": "self",
        "AIAgent._ensure_stream_writer_state": "self",
    },
    "agent.turn_finalizer": {
        "finalize_turn": "agent final_response api_call_count interrupted failed messages",
    },
    "gateway.platforms.base": {
        "BasePlatformAdapter.handle_message": "self event",
        "BasePlatformAdapter._process_message_background": "self event session_key",
        "BasePlatformAdapter._start_session_processing": "self event session_key",
        "BasePlatformAdapter._queue_text_debounce": "self session_key event",
        "BasePlatformAdapter._text_debounce_store": "self",
        "BasePlatformAdapter._send_with_retry": "self chat_id content reply_to metadata",
        "_reply_anchor_for_event": "event",
        "_thread_metadata_for_source": "source reply_to_message_id",
        "build_session_key": "source group_sessions_per_user thread_sessions_per_user",
        "merge_pending_message_event": "pending_messages session_key event merge_text",
    },
    "gateway.run": {
        "GatewayRunner._handle_active_session_busy_message": "self event session_key",
        "GatewayRunner._prepare_profile_scoped_inbound_message_text": (
            "self event source history session_key"
        ),
        "GatewayRunner._drain_startup_restore_queue": "self",
        "GatewayRunner._handle_message": "self event",
        "GatewayRunner._is_user_authorized": "self source",
        "GatewayRunner._queue_or_replace_pending_event": "self session_key event",
        "GatewayRunner._clear_conversation_scope": "self session_key reason",
        "GatewayRunner._adapter_for_source": "self source",
        "GatewayRunner._thread_metadata_for_source": "self source",
        "GatewayRunner._evict_cached_agent": "self session_key",
        "GatewayRunner._run_agent": (
            "self message context_prompt history source session_id session_key"
        ),
        "GatewayRunner._enqueue_fifo": "self session_key queued_event adapter",
        "GatewayRunner._promote_queued_event": "self session_key adapter pending_event",
    },
}
"""The names of the parameters, by module and by name in it."""


def problem_of(module: ModuleType) -> str | None:
    """Why this module is not the one that the patches are for; None when it is."""
    found = _version()
    if found != VERSION:
        return (
            f"Hermes Agent {found} is left alone: this Holdfast is for {VERSION}. "
            "Nothing is stored by Holdfast."
        )
    for name, parameters in SIGNATURES[module.__name__].items():
        wanted = parameters.split()
        found_there = _parameters(module, name)
        # More may follow: those are not touched here.
        if found_there[: len(wanted)] != wanted:
            return (
                f"{module.__name__}.{name} is not as in Hermes Agent {VERSION}: "
                f"{module.__name__} is left alone"
            )
    return None


def _version() -> str:
    # Of the environment itself first, as Hermes looks for its own: PYTHONPATH may hold another's.
    for path in ([sysconfig.get_paths()["purelib"]], sys.path):
        for found in distributions(name="hermes-agent", path=path):
            return found.version
    return "of unknown version"


def _parameters(module: ModuleType, name: str) -> list[str]:
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        return []
    return list(inspect.signature(found).parameters)
