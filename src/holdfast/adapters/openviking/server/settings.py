"""What a session is set to: when it commits by itself, and what an extractor is told; pure."""

from typing import Any

from holdfast.adapters.openviking.server.checking import (
    a_count,
    a_list,
    a_text,
    an_object,
    wrong,
)
from holdfast.adapters.openviking.server.problem import RequestProblem
from holdfast.adapters.openviking.server.sessions.archive import Json

# Each with what it is unless told otherwise, and the most that it can be.
POLICY = {
    "pending_token_threshold": (150_000, 1_000_000),
    "message_count_threshold": (100, 1000),
    "idle_timeout_seconds": (86_400, 604_800),
    "keep_recent_count": (0, 500),
    "min_commit_interval_seconds": (0, 604_800),
}
MEMORY = ("memory_types", "peer", "self", "working_memory")


def at_creation(body: Json) -> Json:
    """The settings of a session that is made so; nothing where nothing is set."""
    settings: Json = {}
    policy = body.get("auto_commit_policy")
    if policy is not None:
        settings["auto_commit_policy"] = _policy(policy, {})
    memory = body.get("memory_policy")
    if memory is not None:
        an_object(memory, ("body", "memory_policy"))
        if set(memory) - set(MEMORY):
            words = f"memory_policy supports only: {', '.join(MEMORY)}"
            raise RequestProblem("INVALID_ARGUMENT", words, {})
        settings["memory_policy"] = memory
    return settings


def changed(settings: Json, body: Any) -> Json:
    """The settings after a client has changed some of them."""
    allowed = ("auto_commit_policy", "memory_extraction_config", "telemetry")
    given = an_object(body, ("body",), allowed)
    settings = dict(settings)
    if "auto_commit_policy" in given:
        policy = given["auto_commit_policy"]
        # There and nothing says off; not there says as it was.
        if policy is None:
            settings.pop("auto_commit_policy", None)
        else:
            standing = settings.get("auto_commit_policy") or {}
            settings["auto_commit_policy"] = _policy(policy, standing)
    config = given.get("memory_extraction_config")
    if config is not None:
        where = ("body", "memory_extraction_config")
        events = an_object(config, where, ("events",)).get("events")
        if events is not None:
            tags = an_object(events, (*where, "events"), ("tags",)).get("tags")
            settings["event_tags"] = _tags(tags, (*where, "events", "tags"))
    return settings


def extraction_config(settings: Json) -> Json:
    """What is told of the settings of extraction."""
    return {"events": {"tags": settings.get("event_tags", [])}}


def wants_working_memory(settings: Json, asked: bool | None) -> bool:
    """Whether a commit is to have an overview: as it was asked for, else as the session is set."""
    if asked is not None:
        return asked
    memory = (settings.get("memory_policy") or {}).get("working_memory")
    return isinstance(memory, dict) and memory.get("enabled") is True


def commits_by_itself(
    settings: Json, *, messages: int, tokens: int, since_commit_s: float | None
) -> bool:
    """Whether a session has grown so much that it commits without being told."""
    policy = settings.get("auto_commit_policy")
    if not policy:
        return False
    # Before the first commit there is nothing to be too close to.
    if since_commit_s is not None:
        if since_commit_s < policy["min_commit_interval_seconds"]:
            return False
    is_long = messages > policy["message_count_threshold"]
    return bool(is_long or tokens > policy["pending_token_threshold"])


def _policy(given: Any, standing: Json) -> Json:
    where = ("body", "auto_commit_policy")
    policy = an_object(given, where, POLICY)
    effective: Json = {}
    for name, (usual, most) in POLICY.items():
        value = standing.get(name, usual)
        if name in policy:
            if policy[name] is None:
                words = "Value error, auto_commit_policy fields must be integers"
                raise wrong(where, words, "value_error")
            value = a_count(policy[name], (*where, name), least=None)
        # Out of bounds is brought back into them, as OpenViking does.
        effective[name] = min(max(value, 0), most)
    return effective


def _tags(given: Any, where: tuple[str, ...]) -> list[str]:
    tags: list[str] = []
    for number, tag in enumerate(a_list(given or [], where)):
        word = a_text(tag, (*where, str(number))).strip().lower()
        # What is not a name and a value is left out, as OpenViking does.
        if "=" in word and word not in tags:
            tags.append(word)
    return tags
