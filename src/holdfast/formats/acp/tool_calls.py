"""Tool calls of the Agent Client Protocol: they are announced, and grow with each update.

An update replaces the fields it gives and leaves the others as they were. Agents differ in where
they say things: the name of a tool stands in a field of its own or in `_meta`, an output in
`content`, in `rawOutput` or in `_meta`, and the input may come after the announcement.
"""

from collections.abc import Iterable

from holdfast.domain.message import Call, Result
from holdfast.formats.reading import Block, dumped, fields, is_blank, text

FINAL = ("completed", "failed")
META = "_meta"
PERMISSION = "request_permission"
"""What a request for permission is called among the updates of its call: it says nothing of the call
itself.
"""


def merged(updates: Iterable[Block]) -> Block:
    """The call as its updates so far describe it."""
    call: Block = {}
    for update in updates:
        if update.get("sessionUpdate") == PERMISSION:
            continue
        # What agents say of themselves is not repeated in later updates.
        meta = {**fields(call.get(META)), **fields(update.get(META))}
        for name, value in update.items():
            if value is not None:
                call[name] = value
        if meta:
            call[META] = meta
    call.pop("sessionUpdate", None)
    return call


def is_final(update: Block) -> bool:
    """Whether this update brings the outcome of its call."""
    return update.get("status") in FINAL


def has_input(update: Block) -> bool:
    """Whether this update says what the tool is called with. Claude announces a call with an
    empty object, before the model has said the arguments.
    """
    return bool(update.get("rawInput"))


def call_part(call: Block) -> Call:
    """The call, for readers of any format."""
    said = call.get("rawInput")
    arguments = "{}" if said is None else dumped(said)
    return Call(text(call.get("toolCallId")), tool_name(call), arguments)


def result_part(call_id: str, updates: list[Block]) -> Result | None:
    """What the tool answered; None while it has not."""
    outcome = merged(updates)
    if not is_final(outcome):
        return None
    words = _output(outcome) or "".join(map(_terminal_text, updates))
    if not words and outcome.get("rawOutput") is not None:
        words = dumped(outcome["rawOutput"])
    return Result(call_id, words, error=outcome["status"] == "failed")


def tool_name(call: Block) -> str:
    """The tool's own name where the agent gives it, else the kind of tool or the title."""
    meta = fields(call.get(META))
    goose = fields(fields(meta.get("goose")).get("toolCall"))
    claude = fields(meta.get("claudeCode"))
    for name in (
        call.get("name"),
        goose.get("toolName"),
        claude.get("toolName"),
        call.get("kind"),
        call.get("title"),
    ):
        if not is_blank(name):
            return text(name)
    return "tool"


def _output(outcome: Block) -> str:
    raw = outcome.get("rawOutput")
    # Claude fences `content` for people's eyes; what the model was given is in `rawOutput`.
    if isinstance(raw, str) and raw:
        return raw
    words = []
    content = outcome.get("content")
    for item in content if isinstance(content, list) else ():
        said = _item_text(fields(item))
        if said:
            words.append(said)
    return "\n".join(words)


def _item_text(item: Block) -> str:
    kind = item.get("type")
    if kind == "content":
        block = fields(item.get("content"))
        if block.get("type") == "text":
            return text(block.get("text"))
        return f"[{text(block.get('type')) or 'content'}]"
    if kind == "diff":
        return f"[changed {text(item.get('path'))}]"
    # The words of a terminal are in `_meta`, or with the client alone.
    return ""


def _terminal_text(update: Block) -> str:
    delta = fields(fields(update.get(META)).get("terminal_output_delta"))
    return text(delta.get("data"))
