"""Between the framework's messages and what is stored of them."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent_framework import Message

from holdfast.adapters.framework import Named, bodies_of
from holdfast.domain.arguments import kind_of
from holdfast.domain.message import freeze, thaw
from holdfast.domain.repair import UNKNOWN_OUTCOME, StoredMessage
from holdfast.errors import BadArgument, Damaged
from holdfast.formats.frameworks.agent_framework import NAME
from holdfast.formats.reading import fields, is_json, text
from holdfast.runtime.live.message import Message as Stored

Payload = dict[str, Any]


def payloads_of(messages: Any) -> list[Payload]:
    """Messages as they are stored; `BadArgument` when there is something else among them."""
    if isinstance(messages, str | Message) or not isinstance(messages, Iterable):
        takes = "a list of messages"
        raise BadArgument(parameter="messages", takes=takes, given=kind_of(messages))
    found = []
    for message in messages:
        if not isinstance(message, Message):
            takes = "messages of the Agent Framework"
            given = kind_of(message)
            raise BadArgument(parameter="messages", takes=takes, given=given)
        found.append(message.to_dict())
    return found


def named(payloads: Sequence[Payload]) -> list[Named]:
    """These messages, each under the name by which it is known when it comes again. Inputs mostly
    have no id: their name is how far they stand before a message that has one.
    """
    names: list[str | None] = [None] * len(payloads)
    near, distance = "", 0
    for place in range(len(payloads) - 1, -1, -1):
        payload = payloads[place]
        if text(payload.get("message_id")):
            near, distance = payload["message_id"], 0
        if near:
            names[place] = f"{near}/{distance}/{_said(payload)}"
        distance += 1
    return [Named(payload, name) for payload, name in zip(payloads, names, strict=True)]


def named_by(payloads: Sequence[Payload], event_id: str) -> list[Named]:
    """The messages of a batch that has a name. Those without an id are known by it, and by how far
    they stand behind a message that has one: so they are when the batch comes again, grown.
    """
    found = []
    near, distance = "", 0
    for payload in payloads:
        known = text(payload.get("message_id"))
        near, distance = (known, 0) if known else (near, distance + 1)
        place = known or f"{event_id}+{near}"
        found.append(Named(payload, f"{place}/{distance}/{_said(payload)}"))
    return found


def _said(payload: Payload) -> str:
    # Ids are the provider's, and may come again for something else.
    return hashlib.sha256(freeze(payload)).hexdigest()


def restored(stored: Iterable[Stored], unsettled: Any) -> list[Message]:
    """What stands in a session, as the framework's messages. `unsettled` gives the names of turns
    that were cut off: a call of theirs without a result has one that says so.
    """
    payloads: list[tuple[Payload, str | None]] = []
    is_damaged = False
    for message in stored:
        payload = message.payload
        if message.format != NAME or not isinstance(payload, dict):
            # Said by another program, erased or damaged: its words are what is left.
            is_damaged = is_damaged or payload is None
            payload = _in_words(message)
        elif message.state == "partial":
            payload = _sendable(payload)
        payloads.append((payload, message.turn))
    found = [payload for payload, _ in _closed(payloads, unsettled)]
    if is_damaged:
        found = _without_strays(found)
    return _made(found)


def in_one_go(stored: Sequence[StoredMessage]) -> list[Message] | None:
    """What stands in a session, where it is given just as it is stored; None where something may
    have to be put into words, left out or closed: that is found by `restored`.
    """
    bodies = bodies_of(stored, NAME)
    if bodies is None:
        return None
    answered: set[str] = set()
    for seen in stored:
        answered.update(seen.note.answers)
    for seen in stored:
        note = seen.note
        if note.partial or any(call.id not in answered for call in note.calls):
            return None
    try:
        payloads = [thaw(body) for body in bodies]
    except Damaged:
        return None
    if set(map(type, payloads)) - {dict}:
        return None
    return _made(payloads)


def _made(payloads: Sequence[Payload]) -> list[Message]:
    """These payloads as messages; none of one that says nothing. What they hold becomes the
    messages' own.
    """
    made = []
    for payload in payloads:
        if not payload["contents"]:
            continue
        # Without its detours: they take as long as all else.
        contents = list(map(_brief, payload["contents"]))
        said = {**payload, "contents": contents}
        if said.pop("type", None) == "message":
            made.append(Message(**said))
        else:
            made.append(Message.from_dict(payload))
    return made


def _brief(content: Any) -> Any:
    """A content as the framework takes it: of one that is words and nothing else, the words."""
    if type(content) is dict and len(content) == 3 and content.get("type") == "text":
        words = content.get("text")
        if type(words) is str and content.get("additional_properties") == {}:
            return words
    return content


def _in_words(message: Stored) -> Payload:
    role = message.role if message.role != "tool" else "assistant"
    return {"role": role, "contents": [{"type": "text", "text": message.text}]}


def _sendable(payload: Payload) -> Payload:
    """What may be sent again of a message that was cut: its words and its whole calls, not thoughts
    that led to nothing.
    """
    kept = []
    for content in payload["contents"]:
        kind = content.get("type")
        if kind == "text_reasoning":
            continue
        if kind == "function_call":
            arguments = content.get("arguments")
            if isinstance(arguments, str) and not is_json(arguments):
                continue
        kept.append(content)
    return {**payload, "contents": kept}


def _closed(
    payloads: list[tuple[Payload, str | None]], unsettled: Any
) -> Iterator[tuple[Payload, str | None]]:
    answered = set()
    for payload, _ in payloads:
        answered.update(_ids(payload, "function_result"))
    cut_off: Any = None
    for payload, turn in payloads:
        yield payload, turn
        calls = [
            each for each in _ids(payload, "function_call") if each not in answered
        ]
        if not calls or turn is None:
            continue
        if cut_off is None:
            cut_off = unsettled()
        if turn in cut_off:
            results = []
            for call_id in calls:
                result = {"type": "function_result", "call_id": call_id}
                results.append({**result, "result": UNKNOWN_OUTCOME})
            yield {"role": "tool", "contents": results}, turn


def _without_strays(payloads: list[Payload]) -> list[Payload]:
    """These messages without results whose call is not there: it was in what can't be read."""
    calls = set()
    for payload in payloads:
        calls.update(_ids(payload, "function_call"))
    found = []
    for payload in payloads:
        kept = []
        for content in payload["contents"]:
            is_result = fields(content).get("type") == "function_result"
            if not is_result or content.get("call_id") in calls:
                kept.append(content)
        found.append({**payload, "contents": kept})
    return found


def _ids(payload: Payload, kind: str) -> list[str]:
    found = []
    for content in payload["contents"]:
        said = fields(content)
        if said.get("type") == kind and said.get("informational_only") is not True:
            found.append(text(said.get("call_id")))
    return found
