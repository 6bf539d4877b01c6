"""What only the whole of Claude Code's file tells: whose it is, what it is called, and which branch
goes on.

Lines name their parents, and what Claude Code notes for itself (attachments) stands in that chain
too. The branch that goes on is the one of the last line; a line that hangs off it was left, unless
it belongs to it in all but form: the result of a call, or another block of the same answer, both of
which are siblings when calls run side by side.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from holdfast.importers.jsonl import lines, parsed_line
from holdfast.importers.values import (
    JsonObject,
    milliseconds,
    object_or_empty,
    text_or_none,
)

_LEFT, _ALONG, _APART = range(3)
SPOKEN = ("user", "assistant")
# From the weakest to the strongest: `title` takes the last of these that is there.
TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
# Types of lines in which nobody says anything, as of release 2.1.325.
NOTES = frozenset(
    (
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "api-request",
        "api-request-blob",
        "api-request-shape",
        "artifact-autoreact-ledger",
        "artifact-comment-monitor",
        "atis-latch",
        "attribution-snapshot",
        "bridge-session",
        "content-replacement",
        "continued-in",
        "cost-state",
        "custom-title",
        "data-flow-incomplete",
        "data-flow-records",
        "derived-from",
        "dev-mods",
        "ended-by-model",
        "file-history-delta",
        "file-history-snapshot",
        "fork-context-ref",
        "frame-link",
        "history-suppression",
        "isolation-latch",
        "last-prompt",
        "memory-mode",
        "mode",
        "observer-ref",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "relocated",
        "repl-mode",
        "resume-head-vouch",
        "session-owner",
        "summary",
        "tag",
        "tools-used",
        "worktree-state",
    )
)
# Types of attachments by which Claude Code reminds the model of something, as of the
# same release.
REMINDERS = frozenset(
    (
        "account_memory_recall",
        "advisor_stripped",
        "advisor_tool",
        "agent_listing_delta",
        "agent_mention",
        "artifact_opening_prefetch",
        "async_hook_response",
        "async_hook_response_batch",
        "at_mention_reference",
        "auto_mode",
        "auto_mode_exit",
        "batching_reminder",
        "batching_reminder_sent",
        "claude_app_notice",
        "compact_file_reference",
        "context_sections",
        "coordinator_context",
        "cowork_memory_context",
        "critical_system_reminder",
        "date",
        "date_change",
        "deferred_tools_delta",
        "deferred_tools_record",
        "diagnostics",
        "dir_sync_notice",
        "directory",
        "document",
        "dynamic_skill",
        "edited_image_file",
        "edited_text_file",
        "environment",
        "file",
        "fork_briefing",
        "hook_additional_context",
        "hook_blocking_error",
        "hook_cancelled",
        "hook_deferred_tool",
        "hook_error_during_execution",
        "hook_non_blocking_error",
        "hook_permission_decision",
        "hook_stopped_continuation",
        "hook_success",
        "hook_system_message",
        "image",
        "inlined_image_paths",
        "instruction_files_not_loaded",
        "instructions",
        "invoked_skills",
        "language",
        "max_turns_reached",
        "mcp_instructions_delta",
        "mcp_resource",
        "message_pdf_reads",
        "model",
        "nested_memory",
        "opened_file_in_ide",
        "output_limit_note",
        "output_style",
        "output_style_instructions",
        "pdf_reference",
        "peer_mention",
        "plan_file_reference",
        "plan_mode",
        "plan_mode_exit",
        "plan_mode_reentry",
        "poll_events",
        "project_doc_reads",
        "projects_thread_ask",
        "prompt_render_point",
        "prompt_snapshot",
        "read_truncation_notice",
        "relevant_memories",
        "remote_session_change",
        "repl_mcp_needs_auth",
        "sandbox_instructions",
        "secondary_reminder",
        "secondary_reminder_sent",
        "selected_lines_in_diff",
        "selected_lines_in_ide",
        "session_context",
        "session_cron_carry",
        "silent_turn_reminder",
        "skill_listing",
        "structured_output",
        "task_reminder",
        "task_status",
        "team_context",
        "teammate_mailbox",
        "teammate_shutdown_batch",
        "thinking_stripped",
        "todo_reminder",
        "tool_host_result_lines",
        "tool_hosts_notice",
        "tool_search_usage_reminder",
        "total_tokens_reminder",
        "ultra_effort_enter",
        "ultra_effort_exit",
        "workflow_size_guideline_change",
    )
)


def blocks_of(content: Any) -> list[JsonObject]:
    """The blocks of a message's content."""
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict)]


def results_in(line: JsonObject) -> list[Any]:
    """The results of tools in a line."""
    blocks = blocks_of(object_or_empty(line.get("message")).get("content"))
    return [block for block in blocks if block.get("type") == "tool_result"]


def queued_prompt(line: JsonObject) -> Any:
    """What was typed while Claude worked, if this line holds it: words, or blocks."""
    if line.get("type") != "attachment":
        return None
    held = object_or_empty(line.get("attachment"))
    if held.get("type") != "queued_command":
        return None
    prompt = held.get("prompt")
    return prompt if prompt and isinstance(prompt, str | list) else None


class Branches:
    """One pass through a file."""

    def __init__(self, path: Path) -> None:
        self.sessions: list[str] = []
        self.agent = ""
        self.titles: dict[str, str] = {}
        self.opened_at: int | None = None
        self.facts: JsonObject = {}
        self.unknown: Counter[str] = Counter()
        self.keeps: dict[str, tuple[str, ...]] = {}
        self.last_of_answer: dict[str, str] = {}
        self._parents: dict[str, str | None] = {}
        self._turns_off: set[str] = set()
        self._answer_of: dict[str, str] = {}
        self._left: dict[str | None, int] = {}
        self._kept: tuple[str, ...] = ()
        self._summaries: set[str] = set()
        self._last = ""
        others: Counter[str] = Counter()
        spoken = 0
        aside = 0
        for raw in lines(path):
            line, problem = parsed_line(raw)
            if problem or not isinstance(line, dict):
                continue
            kind = text_or_none(line.get("type")) or ""
            if kind in SPOKEN:
                spoken += 1
                aside += line.get("isSidechain") is True
            else:
                others[kind] += 1
            self._note(line, kind)
        self.is_aside = spoken > 0 and spoken == aside
        if others:
            self.facts["other_lines"] = dict(sorted(others.items()))
        self._path = self._ancestors(self._last)
        self._path_answers = {self._answer_of.get(uuid) for uuid in self._path}
        # A compaction begins a chain too, but it goes on with the session.
        top = next(reversed(self._path), "")
        self._begins_anew = (
            self._parents.get(top, "") is None and top not in self._summaries
        )

    def title(self) -> str | None:
        """What the session is called: by its user, else by the model, else by its summary."""
        for kind in reversed(TITLES):
            if kind in self.titles:
                return self.titles[kind]
        return None

    def is_left(self, uuid: str) -> bool:
        """Whether a line stands on a branch that was left."""
        climbed: dict[str, None] = {}
        at: str | None = uuid
        while at and at in self._parents:
            # Up to what is known; a damaged file may have a circle of parents.
            if at in self._path or at in self._left or at in climbed:
                break
            climbed[at] = None
            at = self._parents[at]
        if at in self._left:
            state = self._left[at]
        elif at in self._path:
            state = _ALONG
        elif at is None and self._begins_anew:
            # Two chains that both begin a session: the one that does not go on was left.
            state = _LEFT
        else:
            # A chain whose beginning is lost may belong anywhere.
            state = _APART
        for one in reversed(climbed):
            if state == _ALONG and self._turned_off(one):
                state = _LEFT
            self._left[one] = state
        return self._left.get(uuid) == _LEFT

    def _turned_off(self, uuid: str) -> bool:
        """Whether something else begins with this line, which is not on the path."""
        answer = self._answer_of.get(uuid)
        return uuid in self._turns_off or (
            answer is not None and answer not in self._path_answers
        )

    def _note(self, line: JsonObject, kind: str) -> None:
        session, uuid = line.get("sessionId"), line.get("uuid")
        if isinstance(session, str) and session and session not in self.sessions:
            self.sessions.append(session)
        if not self.agent and isinstance(line.get("agentId"), str):
            self.agent = line["agentId"]
        if self.opened_at is None:
            self.opened_at = milliseconds(line.get("timestamp"))
        if kind in TITLES and isinstance(line.get(TITLES[kind]), str):
            self.titles[kind] = line[TITLES[kind]]
        for name in ("cwd", "gitBranch", "version", "slug"):
            if isinstance(line.get(name), str):
                self.facts.setdefault(name, line[name])
        self._note_kind(line, kind)
        if isinstance(uuid, str):
            self._note_place(line, kind, uuid)

    def _note_kind(self, line: JsonObject, kind: str) -> None:
        if kind == "attachment":
            type = object_or_empty(line.get("attachment")).get("type")
            if type not in REMINDERS and queued_prompt(line) is None:
                self.unknown[f"attachment/{type}"] += 1
        elif kind not in NOTES and kind not in (*SPOKEN, "system"):
            self.unknown[kind] += 1

    def _note_place(self, line: JsonObject, kind: str, uuid: str) -> None:
        # A boundary has no parent; what it follows is told beside it.
        parent = line.get("parentUuid") or line.get("logicalParentUuid")
        self._parents.setdefault(uuid, text_or_none(parent))
        typed = queued_prompt(line) is not None
        # A result hangs off its call and begins nothing; a prompt does.
        if typed or (kind == "user" and not results_in(line)):
            self._turns_off.add(uuid)
        if kind == "assistant":
            answer = object_or_empty(line.get("message")).get("id")
            if not isinstance(answer, str):
                answer = uuid
            self._answer_of[uuid] = answer
            self.last_of_answer[answer] = uuid
        # A subagent's line goes on with its own chain, not with the session.
        if (kind in SPOKEN or typed) and line.get("isSidechain") is not True:
            self._last = uuid
        # The boundary names what stays, and the summary comes in a line after it.
        if kind == "system" and line.get("subtype") == "compact_boundary":
            self._kept = self._preserved(line.get("compactMetadata"))
            self._summaries.add(uuid)
        if line.get("isCompactSummary") is True:
            self.keeps[uuid] = self._kept
            self._kept = ()
            self._summaries.add(uuid)

    def _preserved(self, about: Any) -> tuple[str, ...]:
        """The lines that a compaction leaves as they are."""
        if not isinstance(about, dict):
            return ()
        named = about.get("preservedMessages")
        part = about.get("preservedSegment")
        if isinstance(named, dict) and isinstance(named.get("uuids"), list):
            return tuple(uuid for uuid in named["uuids"] if isinstance(uuid, str))
        if not isinstance(part, dict):
            return ()
        found: dict[str, None] = {}
        at = part.get("tailUuid")
        while isinstance(at, str) and at in self._parents and at not in found:
            found[at] = None
            if at == part.get("headUuid"):
                return tuple(reversed(found))
            at = self._parents[at]
        return ()

    def _ancestors(self, uuid: str | None) -> dict[str, None]:
        found: dict[str, None] = {}
        while uuid and uuid in self._parents and uuid not in found:
            found[uuid] = None
            uuid = self._parents[uuid]
        return found
