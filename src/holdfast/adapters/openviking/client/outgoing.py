"""What a message of a Holdfast session is in OpenViking.

OpenViking keeps a tool's call and its result in one part, and can't change a message that it has.
So an assistant's message that calls tools waits until all calls are answered or its turn is over,
and its results go along with it. The order is that of the transcript.

    transcript   user 1 ─ assistant 2 (calls a, b) ─ result 3 (a) ─ user 4 ─ result 5 (b)
    OpenViking   user 1 ─ assistant 2 + 3 + 5 ─ user 4
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast import Message
from holdfast.adapters.openviking.client.position import LogPlace, Position
from holdfast.domain.repair import UNKNOWN_OUTCOME
from holdfast.formats.reading import NOT_JSON, parsed
from holdfast.parts import Call, Image, Other, Refusal, Result, Text

BATCH_MAX = 100
"""How many messages OpenViking takes at once."""
BATCH_BYTES_MAX = 4 << 20
"""A batch ends when its messages come to this much: large ones go by themselves."""
FORMAT = "openviking"
GIVEN = (
    "role",
    "content",
    "parts",
    "created_at",
    "peer_id",
    "turn_id",
    "message_kind",
)
"""What OpenViking takes of a message beside our ids."""

Body = dict[str, Any]


class Outgoing(msgspec.Struct, frozen=True):
    """A message on its way. `ids` are those of our messages that it carries, its own first; `body`
    is None where there is nothing to send.
    """

    place: LogPlace
    ids: tuple[str, ...]
    body: Body | None


def outgoing(
    messages: Sequence[Message], *, running: str | None, carried: Collection[str] = ()
) -> Iterator[Outgoing]:
    """These messages of a transcript, as OpenViking gets them, up to the first that has to wait.
    `running` is the turn that runs now; `carried` went along with earlier messages.
    """
    # What went along with an earlier message is not sent by itself.
    gone = set(carried)
    for at, message in enumerate(messages):
        place = LogPlace(message.seq, message.id)
        if message.id in gone:
            yield Outgoing(place, (message.id,), None)
            continue
        calls = _calls(message)
        results: Results = {}
        if calls:
            results = _results(message.turn, calls, messages[at + 1 :])
            is_open = len(results) < len(calls)
            # Nothing may overtake it, so all that comes after it waits, too.
            if is_open and message.turn is not None and message.turn == running:
                return
        ids = [message.id]
        for answer, _ in results.values():
            # One message may have the results of several calls.
            if answer not in ids:
                ids.append(answer)
        gone.update(ids)
        yield Outgoing(
            place,
            tuple(ids),
            _body(message, results, ids),
        )


class OutgoingBatch(msgspec.Struct, frozen=True):
    """What goes in one request. When it has arrived, all messages up to `upto` are done with;
    `carried` and `known` are as in a position.
    """

    bodies: list[Body]
    upto: LogPlace
    carried: frozenset[str]
    known: frozenset[str]


def next_batch(
    items: Iterable[Outgoing], position: Position, *, most: int, upto: int | None
) -> OutgoingBatch:
    """The first of these messages, up to seq `upto`, without those that are there already."""
    carried, known = {*position.carried}, {*position.known}
    place, bodies, size = position.sent, list[Body](), 0
    for item in items:
        if upto is not None and item.place.seq > upto:
            break
        id = item.ids[0]
        if item.body is not None and id not in known and id not in position.refused:
            size += len(json.dumps(item.body))
            # One that is larger than a batch may be goes alone: OpenViking may take it.
            if bodies and (len(bodies) == most or size > BATCH_BYTES_MAX):
                break
            bodies.append(item.body)
        place = item.place
        carried.discard(id)
        carried.update(item.ids[1:])
        known.difference_update(item.ids)
    return OutgoingBatch(
        bodies,
        place,
        frozenset(carried),
        frozenset(known),
    )


Results = dict[str, tuple[str, Result]]
"""Results by the id of their call, each with the id of the message it is in."""


def _calls(message: Message) -> set[str]:
    """The calls that wait for results of their own. A message in OpenViking's shape has both in
    one part already.
    """
    if message.format == FORMAT or message.state == "erased":
        return set()
    return {call.call_id for call in message.calls}


def _results(turn: str | None, calls: set[str], later: Sequence[Message]) -> Results:
    found: Results = {}
    for other in later:
        if len(found) == len(calls):
            break
        # Ids of calls repeat from turn to turn: a result belongs to its own turn.
        if other.turn != turn:
            continue
        for result in _only_results(other):
            if result.call_id in calls:
                found.setdefault(result.call_id, (other.id, result))
    return found


def _only_results(message: Message) -> list[Result]:
    """The results of a message that is nothing else: one that says more goes by itself."""
    results = []
    for part in message.parts:
        if not isinstance(part, Result):
            return []
        results.append(part)
    return results


def _body(message: Message, results: Results, ids: list[str]) -> Body | None:
    if message.state == "erased":
        return None
    body: Body | None
    if message.format == FORMAT and isinstance(message.payload, dict):
        body = _given(message.payload)
    else:
        body = _translated(message, results)
    if body is None:
        return None
    # Else it would be the time of arrival, which may be days later.
    body.setdefault("created_at", _moment(message.at))
    if message.turn is not None:
        body.setdefault("turn_id", message.turn)
    return {**body, "source_message_ids": ids}


def _given(payload: Body) -> Body:
    """A message that was given in OpenViking's own shape goes as it is."""
    body = {}
    for name in GIVEN:
        if payload.get(name) is not None:
            body[name] = payload[name]
    return body


def _translated(message: Message, results: Results) -> Body | None:
    # A system message instructs the agent; in OpenViking it would be somebody's words.
    if message.role == "system":
        return None
    parts: list[Body] = []
    for part in message.parts:
        if isinstance(part, Call):
            answer = results.get(part.id)
            parts.append(_tool(part, answer[1] if answer else None))
        elif isinstance(part, Result):
            parts.append(_late(part))
        elif isinstance(part, Text | Refusal):
            if part.text.strip():
                parts.append({"type": "text", "text": part.text})
        elif isinstance(part, Image):
            parts.append({"type": "image_url", "image_url": {"url": part.url}})
        # Thinking is nobody's words; OpenViking has no part for it.
        elif isinstance(part, Other):
            parts.append({"type": "text", "text": f"[{part.kind}]"})
    if not parts:
        return None
    # Only these two: what a tool has answered belongs to the agent.
    role = "user" if message.role == "user" else "assistant"
    return {"role": role, "parts": parts}


def _tool(call: Call, result: Result | None) -> Body:
    part: Body = {
        "type": "tool",
        "tool_id": call.id,
        "tool_name": call.name,
    }
    part["tool_input"] = _input(call.arguments)
    if result is None:
        # Not "running": nothing will ever change it, and OpenViking would wait for it.
        return {
            **part,
            "tool_status": "error",
            "tool_output": UNKNOWN_OUTCOME,
        }
    return {**part, **_outcome(result)}


def _late(result: Result) -> Body:
    """A result whose call went before it: the call's message can't be changed any more."""
    return {
        "type": "tool",
        "tool_id": result.call_id,
        **_outcome(result),
    }


def _outcome(result: Result) -> Body:
    status = "error" if result.error else "completed"
    return {"tool_status": status, "tool_output": result.content}


def _input(arguments: str) -> Body:
    """OpenViking takes an object; what else a model said is put into one."""
    said = parsed(arguments)
    if said is NOT_JSON:
        said = arguments
    return said if isinstance(said, dict) else {"input": said}


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat()
