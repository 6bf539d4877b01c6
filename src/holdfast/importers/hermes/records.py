"""The records of Hermes' `state.db`, typed, and what can be told from one of them alone.

Only what somebody judges by has a field of its own; every other column that is not NULL is in
`rest`. A healer makes rows too: those have a negative id, an `origin` of their own, and `labels`
that say what they are.
"""

import json
from typing import Any

import msgspec

from holdfast.importers.values import JsonObject

# Content that is a list of parts is stored as text with this in front.
LIST_TAG = "\x00json:"
SUMMARY_STARTS = ("[CONTEXT COMPACTION", "[PRIOR CONTEXT —", "[CONTEXT SUMMARY]:")
UNSAID_STARTS = (
    "[Cron delivery:",
    "[System note:",
    "[System:",
    "[IMPORTANT: Background process",
    "[Your active task list was preserved",
)
DEEP = 200


# Untracked (`gc=False`): a store has very many rows, and none refers to itself.
class HermesRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A row of `messages`."""

    id: int
    session: str
    role: str
    content: str | None
    timestamp: float
    tool_call_id: str | None = None
    tool_calls: str | None = None
    tool_name: str | None = None
    finish_reason: str | None = None
    observed: int = 0
    active: int = 1
    compacted: int = 0
    rest: JsonObject = {}
    origin: str = ""
    labels: JsonObject = {}

    @property
    def name(self) -> str:
        """Its identity in the store; row ids are never given out twice."""
        return self.origin or str(self.id)

    @property
    def place(self) -> str:
        return f"messages.id={self.name}"


class HermesSession(msgspec.Struct, frozen=True):
    """A row of `sessions`; `rest` is filled when the session is read for itself, not in the list of
    all.
    """

    id: str
    rowid: int
    source: str
    started_at: float
    ended_at: float | None = None
    end_reason: str | None = None
    parent: str | None = None
    key: str | None = None
    branched_from: str | None = None
    delegate_from: str | None = None
    message_count: int | None = None
    api_calls: int = 0
    output_tokens: int = 0
    rest: JsonObject = {}


class Route(msgspec.Struct, frozen=True):
    """Which session a chat is in now; `session` is None when its entry can't be read."""

    key: str
    session: str | None


class HermesDelivery(msgspec.Struct, frozen=True):
    """A final reply, as the gateway sent it."""

    key: str
    text: str
    created_at: float

    @property
    def is_notice(self) -> bool:
        """Whether it is the gateway's own word, not the model's."""
        return self.text.lstrip().startswith("⚠")


class CompactionLock(msgspec.Struct, frozen=True):
    """A claim on a session's compaction."""

    session: str
    expires_at: float


def words(row: HermesRow) -> str:
    """What a row says, as it is compared: loading strips, so a copy need not be equal byte for
    byte.
    """
    return (row.content or "").strip()


def is_taken_back(row: HermesRow) -> bool:
    return not row.active and not row.compacted


def is_summary(row: HermesRow) -> bool:
    # asked of every row several times, and nearly always this is enough
    start = (row.content or "")[:1]
    if start != "[" and not start.isspace():
        return False
    return row.role in ("user", "assistant") and words(row).startswith(SUMMARY_STARTS)


def is_unsaid(row: HermesRow) -> bool:
    """Whether nobody said it: metadata, overheard rows, and what the program itself put in as a
    user's.
    """
    if row.role not in ("user", "assistant", "tool") or row.observed:
        return True
    return row.role == "user" and words(row).startswith(UNSAID_STARTS)


def parts(row: HermesRow) -> list[Any] | None:
    """The content as a list of parts, when it is one; `ValueError` when it says so and is not."""
    if row.content is None or not row.content.startswith(LIST_TAG):
        return None
    value = parsed(row.content[len(LIST_TAG) :])
    if not isinstance(value, list):
        raise ValueError("it is tagged as a list and is none")
    return value


def calls(row: HermesRow) -> list[JsonObject] | None:
    """The tool calls of a row; None when they can't be read."""
    if not row.tool_calls:
        return []
    try:
        value = parsed(row.tool_calls)
    except ValueError:
        return None
    if not isinstance(value, list) or not all(isinstance(call, dict) for call in value):
        return None
    return value


def call_ids(call: JsonObject) -> tuple[str, ...]:
    """A result may name its call by either of these."""
    found = (call.get("id"), call.get("call_id"))
    return tuple(
        dict.fromkeys(value for value in found if isinstance(value, str) and value)
    )


def parsed(text: str) -> Any:
    """JSON text as a value; `ValueError` when it is none, or nested too deep to be handed on."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEP} deep") from None
    # Nothing is nested deeper than it has brackets, so nearly every text is done here.
    if (text.count("[") + text.count("{")) > DEEP and _is_deep(value):
        raise ValueError(f"it is nested more than {DEEP} deep")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _is_deep(value: Any) -> bool:
    """Level by level, so that depth costs no stack."""
    level = [value]
    for _ in range(DEEP - 10):  # the payload around it has levels too
        inner = (
            item.values() if isinstance(item, dict) else item
            for item in level
            if isinstance(item, dict | list)
        )
        level = [item for items in inner for item in items]
        if not level:
            return False
    return True
