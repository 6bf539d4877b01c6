"""A stored session as the updates of a `session/load`: what was shown, in order.

Agents forget: goose what it said in a turn that was cancelled, Codex the text of one. A client that
draws a thread from what is replayed shows it whole when the store replays it. Messages are whole
here, each tool call is followed by its outcome, and a call that has none is told as failed: clients
show a call that is never answered as still running.
"""

from collections.abc import Iterator

from holdfast import Message, Session
from holdfast.adapters.acp.loading.known import wire_of
from holdfast.domain.repair import INTERRUPTED
from holdfast.formats.acp.tool_calls import merged
from holdfast.formats.reading import Block, fields, text
from holdfast.parts import Image, Result, Text, Thinking

_HIDDEN = "visible_to_model"


def replayed(session: Session) -> Iterator[Block]:
    """The updates that tell a session from its beginning."""
    answered: set[tuple[str, str]] = set()
    printed: dict[str, list[Block]] = {}
    # Twice over the transcript, not once in memory: a session may be long.
    last: dict[str, str] = {}
    for message in session.transcript():
        for call in message.calls:
            last[call.call_id] = message.id
        for id in _answers(message):
            # An id that is used again names the call that was made last.
            answered.add((last.get(id, ""), id))
        told = last.get(text(wire_of(message.payload).get("toolCallId")))
        if told is not None:
            printed.setdefault(told, []).extend(_wire_updates(message))
    for message in session.transcript():
        # A user's own labels are the user's: what they hide is hidden from the model, not from
        # them.
        if not is_hidden(message):
            yield from _updates(message, answered, printed)


def is_hidden(message: Message) -> bool:
    """Prompts that were refused, and what an agent had added to a replay, are in no thread."""
    is_ours = "acp.replayed" in message.labels or "acp.answer" in message.labels
    return is_ours and message.labels.get(_HIDDEN) is False


def _answers(message: Message) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, Result):
            yield part.call_id


def _updates(
    message: Message,
    answered: set[tuple[str, str]],
    printed: dict[str, list[Block]],
) -> Iterator[Block]:
    if message.role == "user":
        yield from _spoken(message, "user_message_chunk")
    elif message.role == "tool":
        for part in message.parts:
            if isinstance(part, Result):
                yield _outcome(message, part)
    elif message.role == "assistant":
        yield from _spoken(message, "agent_message_chunk")
        for call in message.calls:
            yield _call(message, call.call_id, call.name)
            if (message.id, call.call_id) not in answered:
                yield _failed(call.call_id, printed.get(message.id, []))
    # A client shows the last plan that it was told.
    plan = message.labels.get("acp.plan")
    if isinstance(plan, dict):
        yield plan


def _spoken(message: Message, kind: str) -> Iterator[Block]:
    wire = wire_of(message.payload)
    # Ours where the agent gave none: clients join what has one id.
    id = wire.get("messageId") or message.id
    for part in message.parts:
        update = {"sessionUpdate": kind, "messageId": id}
        if isinstance(part, Text):
            yield {**update, "content": _text(part.text)}
        elif isinstance(part, Thinking):
            update["sessionUpdate"] = "agent_thought_chunk"
            yield {**update, "content": _text(part.text)}
        elif isinstance(part, Image) and part.url.startswith("data:"):
            yield {**update, "content": _picture(part.url)}


def _picture(url: str) -> Block:
    media, _, data = url.removeprefix("data:").partition(";base64,")
    return {
        "type": "image",
        "mimeType": media,
        "data": data,
    }


def _call(message: Message, id: str, name: str) -> Block:
    said = merged(_wire_updates(message))
    if said.get("toolCallId") != id:
        # From another format: the call is told with what every format has.
        said = {"toolCallId": id, "title": name}
    return {
        "title": name,
        **said,
        "status": "pending",
        "sessionUpdate": "tool_call",
    }


def _outcome(message: Message, result: Result) -> Block:
    said = merged(_wire_updates(message))
    status = "failed" if result.error else "completed"
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": result.call_id,
        "status": status,
        "content": [
            {
                "type": "content",
                "content": _text(result.content),
            }
        ],
    }
    # The agent's own words for it say more than what every format has.
    if said.get("toolCallId") == result.call_id:
        update.update(said)
    return update


def _failed(id: str, printed: list[Block]) -> Block:
    """The end of a call that has none, after what it has shown."""
    shown = merged(printed).get("content")
    why = {"type": "content", "content": _text(INTERRUPTED)}
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": id,
        "status": "failed",
        # An update replaces what was shown: it is told again.
        "content": [*shown, why] if isinstance(shown, list) else [why],
    }


def _wire_updates(message: Message) -> list[Block]:
    updates = wire_of(message.payload).get("updates")
    if not isinstance(updates, list):
        return []
    return [fields(update) for update in updates]


def _text(words: str) -> Block:
    return {"type": "text", "text": words}
