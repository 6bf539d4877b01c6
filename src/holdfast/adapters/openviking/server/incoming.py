"""What clients send, read into what is stored: messages, commits, settings; pure.

A message with `source_message_ids` has an identity of its sender's: together with its `turn_id` and
its words it is added once, however often it is sent. One without is a new message each time, for
two equal texts are two messages (I-2).
"""

import hashlib
import re
from typing import Any

import msgspec

from holdfast.adapters.openviking.server.checking import (
    Where,
    a_bool,
    a_count,
    a_list,
    a_text,
    a_text_or_none,
    an_object,
    one_of,
    wrong,
)
from holdfast.adapters.openviking.server.problem import RequestProblem
from holdfast.adapters.openviking.server.sessions.archive import Json
from holdfast.adapters.openviking.server.sessions.session_handle import NewMessage
from holdfast.domain.message import freeze

BATCH_MAX = 100
KEEP_MAX = 10_000
NAME_MAX = 255
KINDS = ("user_query", "assistant_step", "tool_transport", "checkpoint")
ROLES = ("user", "assistant", "system", "tool")
SCOPES = (
    *("agent", "queue", "resources", "session"),
    *("system", "temp", "upload", "user"),
)
_PEER = re.compile(r"[A-Za-z0-9_.@-]*")


class CommitRequest(msgspec.Struct, frozen=True):
    """What a commit was asked to do."""

    keep: int = 0
    mode: str = ""
    keep_turns: int = 0
    token_budget: int = 0
    tail_min: int = 1
    working_memory: bool | None = None
    reset: bool = False
    metadata: Json = {}


def session_name(given: Any) -> str:
    """The name of a session, as a client may choose it."""
    name = a_text(given, ("body", "session_id"))
    # Here they would do no harm; there they name another folder, and some client may rely on that.
    if name in (".", ".."):
        raise RequestProblem(
            "PERMISSION_DENIED",
            "This name is not allowed.",
        )
    # What stands after a slash is part of an endpoint's path, so no client could ask for it.
    if "/" in name or not name.isprintable() or len(name) > NAME_MAX:
        takes = f"A name has up to {NAME_MAX} letters, and no slash among them"
        raise wrong(("body", "session_id"), takes, "value_error")
    return name


def messages_in(body: Any, *, now: str) -> list[NewMessage]:
    """The messages of a batch."""
    given = an_object(body, ("body",))
    where = ("body", "messages")
    if "messages" not in given:
        raise wrong(where, "Field required", "missing")
    listed = a_list(given["messages"], where)
    # OpenViking's own limit: a client that relies on it meets it here, too.
    if len(listed) > BATCH_MAX:
        words = f"List should have at most {BATCH_MAX} items after validation"
        raise wrong(where, f"{words}, not {len(listed)}", "too_long")
    found: list[NewMessage] = []
    for number, each in enumerate(listed):
        found += message_in(each, now=now, where=(*where, str(number)))
    return found


def message_in(body: Any, *, now: str, where: Where = ("body",)) -> list[NewMessage]:
    """The message that a client sends. A user's message that only carries tools is several, one for
    each of them.
    """
    given = an_object(body, where)
    if "role" not in given:
        raise wrong((*where, "role"), "Field required", "missing")
    role = one_of(
        a_text(given["role"], (*where, "role")),
        ROLES,
        (*where, "role"),
    )
    about = _about(given, where)
    created_at = a_text_or_none(given, "created_at", where) or now
    parts = _parts(given, where)
    if role == "user" and parts and all(part["type"] == "tool" for part in parts):
        # Nobody asked anything: such a message only brings results back.
        about["message_kind"] = "tool_transport"
        split = [[part] for part in parts]
    else:
        split = [parts]
    found = []
    for number, each in enumerate(split):
        # Its number is part of its identity: the same tool may be there twice.
        payload = {
            "role": role,
            "parts": each,
            "created_at": created_at,
            **about,
        }
        found.append(NewMessage(payload, _event(payload, number)))
    return found


def _about(given: Json, where: Where) -> Json:
    """What a message says about itself, as far as it does."""
    about: Json = {}
    # OpenViking takes no other, and says so in these words.
    peer = a_text_or_none(given, "peer_id", where)
    if peer is not None and not _PEER.fullmatch(peer):
        words = "Value error, Invalid peer_id: peer_id must be alpha_numeric string."
        raise wrong((*where, "peer_id"), words, "value_error")
    kind = one_of(
        given.get("message_kind"),
        KINDS,
        (*where, "message_kind"),
    )
    turn = a_text_or_none(given, "turn_id", where)
    for name, value in (("peer_id", peer), ("turn_id", turn), ("message_kind", kind)):
        if value:
            about[name] = value
    place = (*where, "source_message_ids")
    sources = a_list(given.get("source_message_ids") or [], place)
    for number, source in enumerate(sources):
        a_text(source, (*place, str(number)))
    if sources:
        about["source_message_ids"] = sources
    return about


def _parts(given: Json, where: Where) -> list[Json]:
    content = a_text_or_none(given, "content", where)
    if given.get("parts") is None:
        if content is None:
            words = "Value error, Either 'content' or 'parts' must be provided"
            raise wrong(where, words, "value_error")
        return [{"type": "text", "text": content}]
    parts = []
    for number, part in enumerate(a_list(given["parts"], (*where, "parts"))):
        place = (*where, "parts", str(number))
        if not isinstance(part, dict):
            raise wrong(
                place,
                "Input should be a valid dictionary",
                "dict_type",
            )
        parts.append(_part(part, place))
    return parts


def _part(part: Json, where: Where) -> Json:
    kind = part.get("type")
    if kind == "tool":
        return {
            "type": "tool",
            "tool_id": part.get("tool_id") or "",
            "tool_name": part.get("tool_name") or "",
            "tool_uri": part.get("tool_uri") or "",
            "skill_uri": part.get("skill_uri") or "",
            "tool_status": part.get("tool_status") or "pending",
            **_others(
                part,
                ("type", "tool_id", "tool_name", "tool_uri", "skill_uri"),
            ),
        }
    if kind == "context":
        uri = a_text(part.get("uri") or "", (*where, "uri"))
        scope = uri.removeprefix("viking://").partition("/")[0]
        if uri and scope not in (*SCOPES, "~"):
            reason = f"Invalid scope '{scope}'. Must be one of: {', '.join(SCOPES)}"
            details = {"uri": uri, "reason": reason}
            raise RequestProblem(
                "INVALID_URI", f"Invalid URI: {uri} ({reason})", details
            )
        return part
    if kind == "image_url":
        return part
    # Any other part is taken for its words, as OpenViking does.
    return {
        "type": "text",
        "text": a_text(part.get("text") or "", (*where, "text")),
    }


def _others(part: Json, known: tuple[str, ...]) -> Json:
    others = {}
    for name, value in part.items():
        # An empty field says the same as none.
        if name not in known and value is not None:
            others[name] = value
    return others


def _event(payload: Json, number: int) -> str | None:
    """The identity of a message that its sender has given one."""
    sources = payload.get("source_message_ids")
    if not sources:
        return None
    said = [payload.get("turn_id"), sources, payload["role"], payload["parts"], number]
    # Not its time: a sender that tries again may tell another one.
    return f"add {hashlib.sha256(freeze(said)).hexdigest()}"


def commit_in(body: Any) -> CommitRequest:
    """What a commit is asked to do."""
    given = an_object({} if body is None else body, ("body",))

    def number(
        name: str, default: int, *, least: int = 0, most: int | None = None
    ) -> int:
        value = given.get(name)
        if value is None:
            return default
        return a_count(value, ("body", name), least=least, most=most)

    def switch(name: str) -> bool | None:
        value = given.get(name)
        if value is None:
            return None
        return a_bool(value, ("body", name))

    place = ("body", "retention_mode")
    mode = one_of(
        given.get("retention_mode"),
        ["turn_budget"],
        place,
    )
    metadata = given.get("extraction_metadata") or {}
    an_object(
        metadata,
        ("body", "extraction_metadata"),
        ("event",),
    )
    return CommitRequest(
        keep=number("keep_recent_count", 0, most=KEEP_MAX),
        mode=mode or "",
        keep_turns=number("keep_recent_turn_count", 0, most=KEEP_MAX),
        token_budget=number("retained_message_token_budget", 0),
        tail_min=number("min_raw_tail_steps", 1, least=1),
        working_memory=switch("enable_working_memory"),
        reset=switch("reset_context") or False,
        metadata=metadata,
    )
