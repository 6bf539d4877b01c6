"""What spans say: the words of OpenTelemetry's GenAI conventions, and a few of our own.

All of it is pure. Without `content` nothing that anybody has said is in it: ids, counts, names of
models and tools, and kinds of errors. A reason or an error of the caller's own is somebody's words;
of these only the kind is told.
"""

import re
from collections.abc import Mapping
from typing import Any

from holdfast.domain.entry import TurnEnded
from holdfast.domain.ids import turn_id
from holdfast.domain.message import Usage
from holdfast.formats.secret_shapes import redacted

Attributes = dict[str, Any]

INVOKE_AGENT, EXECUTE_TOOL, CHAT = "invoke_agent", "execute_tool", "chat"
OPERATION = "gen_ai.operation.name"
SESSION = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"
TOOL_NAME, TOOL_ID = "gen_ai.tool.name", "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
ERROR = "error.type"

COMMIT = "holdfast.commit"
TENANT = "holdfast.tenant"
TURN = "holdfast.turn.id"
END, REASON = "holdfast.turn.end", "holdfast.turn.reason"
CHUNKS = "holdfast.turn.chunks"
SETTLED = "holdfast.turn.settled"
"""Whoever ended the turn is not the one who ran it."""
SUPERSEDED = "holdfast.turn.superseded"
"""Whoever ran the turn has lost it; another span, or the log, tells how it ended."""
ENTRIES, KINDS = "holdfast.commit.entries", "holdfast.commit.kinds"
REFUSED = "holdfast.commit.refused"

NAME_MAX = 200
"""Names that others choose (of models, tools, calls) are told up to this many characters."""
OTHER = "_OTHER"
"""What the conventions call an error whose kind can't be told."""

OWN_REASONS = frozenset(
    {
        "its process is gone",
        "its lease ran out",
        "seized and left",
        "it was dropped",
        "its start was interrupted",
        "a new turn took over",
        "the store was closed",
        "its process ended",
        "its block was left",
        "its last message was cut off",
        "its last message could not be read",
        "its event loop was closed",
        "its client's lease ran out",
        "stopped: the session is erased",
        "its client left",
        "its client left, and asked for something else",
        "the session was forked",
        "stopped: user",
        "KeyboardInterrupt",
        "CancelledError",
        "GeneratorExit",
        "SystemExit",
        "TimeoutError",
        "InterruptedError",
    }
)
"""Why a turn ends, in words of ours: they quote nobody."""

_ERROR_NAME = re.compile(r"[A-Z][A-Za-z]{2,60}(?:Error|Exception|Timeout)")
_FORMATS = {"openai.chat": "openai", "openai.responses": "openai"}
_PROVIDERS = {"anthropic": "anthropic", "claude.code": "anthropic", **_FORMATS}


def of_turn(session: str, number: int) -> Attributes:
    """What every span of a turn says."""
    return {SESSION: session, TURN: turn_id(session, number)}


def provider_of(format: str) -> str | None:
    """Whose API has answered in this format, where that can be told."""
    return _PROVIDERS.get(format)


def short(name: str) -> str:
    """A name that somebody else has chosen: one line of it, and not too much."""
    return " ".join(name.split())[:NAME_MAX]


def of_ending(ending: TurnEnded, *, content: bool) -> Attributes:
    """How a turn ended, and as much of the reason as may be told."""
    found: Attributes = {END: ending.end}
    reason = ending.reason
    if reason is not None and (content or reason in OWN_REASONS):
        found[REASON] = redacted(short(reason))
    if is_failure(ending):
        found[ERROR] = kind_of_error(ending)
    return found


def is_failure(ending: TurnEnded) -> bool:
    """Whether the span of a turn that ended so is one of an error. One that was interrupted was
    stopped by somebody who wanted that.
    """
    return ending.end in ("failed", "abandoned")


def kind_of_error(ending: TurnEnded) -> str:
    """The name of the exception that a turn failed by, if it was one; never what that says."""
    if ending.end != "failed":
        return ending.end
    name = (ending.error or "").partition(":")[0]
    return name if _ERROR_NAME.fullmatch(name) else OTHER


def of_usage(usage: Mapping[str, int]) -> Attributes:
    """Tokens, as far as somebody has counted them."""
    return {
        f"gen_ai.usage.{name}_tokens": count for name, count in usage.items() if count
    }


def usage_in(usage: Usage, format: str) -> dict[str, int]:
    """A provider's counts by the names of the conventions. There the input has all of it, also what
    was in the cache, which Anthropic counts apart.
    """
    apart = usage.cached if provider_of(format) == "anthropic" else 0
    return {
        "input": usage.input + apart,
        "output": usage.output,
        "cache_read.input": usage.cached,
        "reasoning.output": usage.reasoning,
    }
