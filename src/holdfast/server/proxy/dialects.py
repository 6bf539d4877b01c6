"""The APIs that the proxy can read: where a request has its list, and what their errors look like."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

Body = Mapping[str, Any]


class Dialect(NamedTuple):
    """One API: the format of its messages, and the end of its address."""

    format: str
    path: str
    list_in: str


CHAT = Dialect("openai.chat", "/chat/completions", "messages")
RESPONSES = Dialect("openai.responses", "/responses", "input")
ANTHROPIC = Dialect("anthropic", "/messages", "messages")
DIALECTS = (CHAT, RESPONSES, ANTHROPIC)

_BILLING = "x-anthropic-billing-header:"
"""How a line of Claude Code's begins that changes with every first message, and instructs nobody."""


class Request(NamedTuple):
    """A request for an answer, as its body tells it. `messages` has the instructions in front.
    `goes_on_from`: the list is the news alone, and this response, or conversation, has the rest.
    `prefill`: words that the answer has to begin with, which are no part of the list.
    """

    dialect: Dialect
    body: Body
    messages: list[Any]
    instructions: str
    has_tools: bool
    streams: bool
    goes_on_from: str | None = None
    prefill: str = ""

    @property
    def is_whole(self) -> bool:
        return self.goes_on_from is None

    @property
    def news(self) -> list[Any]:
        """The messages without the instructions in front of them."""
        given = self.body.get(self.dialect.list_in)
        # A list may be one text instead, which `read_request` has made a message of.
        count = len(given) if isinstance(given, list) else 1
        return self.messages[len(self.messages) - count :]

    @property
    def forces_call(self) -> bool:
        """Whether the model has to make a call: answers in a given shape are asked for like that."""
        choice = self.body.get("tool_choice")
        if isinstance(choice, dict):
            return choice.get("type") not in ("auto", "none")
        return choice in ("required", "any")


def dialect_of(method: str, path: str) -> Dialect | None:
    """The API that a request speaks, if it asks for an answer of a model."""
    if method != "POST":
        return None
    for dialect in DIALECTS:
        if path.rstrip("/").endswith(dialect.path):
            return dialect
    return None


def read_request(dialect: Dialect, raw: bytes) -> Request | None:
    """What a request asks for; None when it can't be told, and the provider will say why."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    said = body.get(dialect.list_in)
    if isinstance(said, str) and dialect is RESPONSES:
        said = [{"role": "user", "content": said}]
    if not isinstance(said, list) or not all(isinstance(each, dict) for each in said):
        return None
    told = _text_of(body.get("system")) or _text_of(body.get("instructions"))
    messages, prefill = list(said), ""
    if dialect is ANTHROPIC:
        messages = [settled(each) for each in said]
        prefill = prefill_in(messages)
        if prefill:
            messages.pop()
    if told:
        messages.insert(0, {"role": "system", "content": told})
    return Request(
        dialect,
        body,
        messages,
        instructions=told or _leading(said),
        has_tools=bool(body.get("tools") or body.get("functions")),
        streams=body.get("stream") is True,
        goes_on_from=_goes_on_from(dialect, body),
        prefill=prefill,
    )


def prefill_in(messages: list[Any]) -> str:
    """The words that an answer has to begin with: the last message, if it is the model's and one text.
    Clients join the two, and so the answer is stored with them.
    """
    if len(messages) < 2 or messages[-1].get("role") != "assistant":
        return ""
    content = messages[-1].get("content")
    if isinstance(content, list) and len(content) == 1:
        [block] = content
        is_text = isinstance(block, dict) and block.keys() == {"type", "text"}
        content = block["text"] if is_text else None
    return content if isinstance(content, str) else ""


def settled(message: Any) -> Any:
    """A message without what wanders through a list from one request to the next: marks for a cache,
    and with them a text that is one block. Stored as it comes, each would be an edit of the last.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return message
    blocks = [_unmarked(block) for block in content]
    # Answers are stored in blocks, as they were streamed: made a text, one would look
    # edited.
    if len(blocks) == 1 and message.get("role") != "assistant":
        [block] = blocks
        if isinstance(block, dict) and block.keys() == {"type", "text"}:
            return {**message, "content": block["text"]}
    return {**message, "content": blocks}


def _unmarked(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    return {name: value for name, value in block.items() if name != "cache_control"}


def _text_of(value: Any) -> str:
    """The words of instructions, which are a text or a list of blocks."""
    if isinstance(value, str):
        return value
    words = []
    for block in value if isinstance(value, list) else ():
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str) and not text.startswith(_BILLING):
            words.append(text)
    return "\n\n".join(words)


def _leading(said: list[Any]) -> str:
    words = []
    for message in said:
        if message.get("role") not in ("system", "developer"):
            break
        words.append(_text_of(message.get("content")))
    return "\n\n".join(words)


def _goes_on_from(dialect: Dialect, body: Body) -> str | None:
    if dialect is not RESPONSES:
        return None
    before = body.get("previous_response_id")
    if isinstance(before, str) and before:
        return before
    return provider_session_of(body)


def provider_session_of(body: Body) -> str | None:
    """The provider's own conversation, which a request of the Responses API may go on with."""
    given = body.get("conversation")
    if isinstance(given, dict):
        given = given.get("id")
    return given if isinstance(given, str) and given else None


def error_body(dialect: Dialect | None, message: str, code: str) -> bytes:
    """An error of ours, in the words of the API."""
    if dialect is ANTHROPIC:
        told: Any = {"type": "error", "error": {"type": code, "message": message}}
    else:
        error = {"message": message, "type": code, "code": code, "param": None}
        told = {"error": error}
    return json.dumps(told).encode()
