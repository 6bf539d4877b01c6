"""Which session a request means, by what it says itself.

A name is strong when it means one conversation: a header of ours, the id of a session that an agent
sends. It is weak when several conversations may share it (`user`, `metadata.user_id`,
`prompt_cache_key`): then the list tells which of them it is. Most requests of small programs have
neither, and their list alone tells.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.server.proxy.dialects import Request, provider_session_of

HEADER = "holdfast-session"
KEY_MAX = 400
_METADATA = ("session_id", "conversation_id", "thread_id", "chat_id")

Headers = Mapping[str, str]
"""By names in small letters."""


class NamedSession(NamedTuple):
    """A key, and how sure it is. `client` is the agent that sends it, where that is known; `parent` the key
    of the session that this one was forked off from, where the agent tells.
    """

    key: str
    is_strong: bool = True
    client: str | None = None
    parent: str | None = None


def name_of(headers: Headers, request: Request) -> NamedSession | None:
    """How a request names its session; None if it does not."""
    found = headers.get(HEADER)
    if found:
        # A header that is configured once goes with the requests of sub-agents, too.
        key = _of_agent(_short(found), headers)
        return NamedSession(key, client=client_of(headers))
    for finder in (_claude_code, _codex, _goose):
        name = finder(headers, request.body)
        if name is not None:
            return name
    found = headers.get("x-session-id") or provider_session_of(request.body)
    if found:
        return NamedSession(_short(found))
    metadata = request.body.get("metadata")
    if isinstance(metadata, dict):
        for key in _METADATA:
            if isinstance(metadata.get(key), str) and metadata[key]:
                return NamedSession(_short(metadata[key]))
    return _weak(request.body)


def client_of(headers: Headers) -> str | None:
    """The agent that sends a request, where its headers tell."""
    if "x-claude-code-session-id" in headers:
        return "claude-code"
    if "x-codex-turn-metadata" in headers:
        return "codex"
    if "agent-session-id" in headers:
        return "goose"
    return None


def tries_again(headers: Headers) -> bool:
    """Whether the client says that it has sent this before: the providers' own clients count."""
    count = headers.get("x-stainless-retry-count", "0")
    return count.isdigit() and int(count) > 0


def told_by_codex(headers: Headers, name: str) -> str | None:
    """What Codex tells of a request under this name: its kind, the turn that it belongs to."""
    about = headers.get("x-codex-turn-metadata")
    if about is None:
        return None
    try:
        value = json.loads(about).get(name)
    except (ValueError, AttributeError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _claude_code(headers: Headers, body: Mapping[str, Any]) -> NamedSession | None:
    session = headers.get("x-claude-code-session-id") or _session_in(body)
    if not session:
        return None
    key = _of_agent(f"claude-code:{_short(session)}", headers)
    return NamedSession(key, client="claude-code")


def _of_agent(key: str, headers: Headers) -> str:
    """The key of a sub-agent of Claude Code: under its parent's name, but a dialogue of its own."""
    agent = headers.get("x-claude-code-agent-id")
    return f"{key}/agent:{_short(agent)}" if agent else key


def _session_in(body: Mapping[str, Any]) -> str | None:
    """The session that Claude Code names in `metadata.user_id`: JSON, or the end of a longer name."""
    user = _user_in(body)
    if user is None:
        return None
    if user.startswith("{"):
        try:
            told = json.loads(user)
        except (ValueError, RecursionError):
            return None
        session = told.get("session_id") if isinstance(told, dict) else None
        return session if isinstance(session, str) else None
    if user.startswith("user_") and "_session_" in user:
        return user.rpartition("_session_")[2]
    return None


def _user_in(body: Mapping[str, Any]) -> str | None:
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return user if isinstance(user, str) and user else None


def _codex(headers: Headers, body: Mapping[str, Any]) -> NamedSession | None:
    # `thread-id` and `session-id` could be anybody's headers; this one is Codex' own.
    if "x-codex-turn-metadata" not in headers:
        return None
    thread = headers.get("thread-id") or headers.get("session-id")
    if not thread:
        return None
    forked = told_by_codex(headers, "forked_from_thread_id")
    parent = f"codex:{_short(forked)}" if forked else None
    return NamedSession(f"codex:{_short(thread)}", client="codex", parent=parent)


def _goose(headers: Headers, body: Mapping[str, Any]) -> NamedSession | None:
    session = headers.get("agent-session-id")
    if not session:
        return None
    return NamedSession(f"goose:{_short(session)}", client="goose")


def _weak(body: Mapping[str, Any]) -> NamedSession | None:
    given = (body.get("prompt_cache_key"), body.get("user"), _user_in(body))
    for name in given:
        if isinstance(name, str) and name:
            return NamedSession(_short(name), is_strong=False)
    return None


def _short(name: str) -> str:
    """The name, or what stands for one that can be no key."""
    plain = name.encode(errors="backslashreplace")
    if name.isprintable() and name == name.strip() and 0 < len(plain) <= KEY_MAX:
        return name
    return f"~{hashlib.sha256(plain).hexdigest()[:32]}"
