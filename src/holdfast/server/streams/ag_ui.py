"""AG-UI: a session as the messages it has, and its running turn as a run.

    RUN_STARTED  MESSAGES_SNAPSHOT  (the run, from its start)  RUN_FINISHED | RUN_ERROR

Every client checks what it is sent: nothing comes before RUN_STARTED or after RUN_ERROR, and what
was started is ended before the run is. A message's own id is that of its text; what it thought has
ids of its own, for in AG-UI these are messages apart.
"""

from collections.abc import Iterable
from typing import Any

from holdfast.domain.message import Call, Part, Result, Thinking
from holdfast.runtime.live.message import Message, shown_text_of, text_of
from holdfast.server.streams.spoken_turn import SpokenPart
from holdfast.server.waiting import Cut

Json = dict[str, Any]
CUT_SHORT: dict[Cut, tuple[str, str]] = {
    "stopping": (
        "server_stopping",
        "The server is being stopped. Connect again when it is back.",
    ),
    "revoked": (
        "unauthenticated",
        "This token counts no more. Connect again with another one.",
    ),
}


class AgUiRun:
    """From what is spoken to the events of a run."""

    def __init__(self, *, session: str, turn: str) -> None:
        self._run = {"threadId": session, "runId": turn}
        # Of the message that is being spoken: whether its text was started, and which calls.
        self._message: str | None = None
        self._has_text = False
        self._calls: dict[str, str] = {}
        self._thought: str | None = None
        self._thoughts = 0

    def start(self, messages: list[Json]) -> list[Json]:
        """What a run begins with: the messages before it."""
        snapshot = {"type": "MESSAGES_SNAPSHOT", "messages": messages}
        return [{"type": "RUN_STARTED", **self._run}, snapshot]

    def take(self, part: SpokenPart) -> list[Json]:
        """What is sent for this."""
        made: list[Json] = getattr(self, "_" + part.kind)(part)
        return made

    def finished(self) -> list[Json]:
        """A run of which there is no more to tell."""
        return [{"type": "RUN_FINISHED", **self._run}]

    def cut(self, why: Cut) -> list[Json]:
        """What is sent when no more of a run is told."""
        code, told = CUT_SHORT[why]
        return [*self._closed(), {"type": "RUN_ERROR", "message": told, "code": code}]

    def _begin(self, part: SpokenPart) -> list[Json]:
        self._thoughts = 0
        return self._turned_to(part)

    def _turned_to(self, part: SpokenPart) -> list[Json]:
        """Two messages may be spoken at once: what is open of the other one is ended."""
        if part.message_id == self._message:
            return []
        made = self._closed()
        self._message = part.message_id
        return made

    def _text(self, part: SpokenPart) -> list[Json]:
        content = {"messageId": part.message_id, "delta": part.text}
        return [
            *self._turned_to(part),
            *self._thought_ended(),
            *self._text_started(),
            {"type": "TEXT_MESSAGE_CONTENT", **content},
        ]

    def _text_started(self) -> list[Json]:
        if self._has_text or self._message is None:
            return []
        self._has_text = True
        started = {"messageId": self._message, "role": "assistant"}
        return [{"type": "TEXT_MESSAGE_START", **started}]

    def _thinking(self, part: SpokenPart) -> list[Json]:
        made = self._turned_to(part)
        if self._thought is None:
            self._thoughts += 1
            self._thought = f"{part.message_id}-reasoning-{self._thoughts}"
            id = {"messageId": self._thought}
            made.append({"type": "REASONING_START", **id})
            opened = {**id, "role": "reasoning"}
            made.append({"type": "REASONING_MESSAGE_START", **opened})
        content = {"messageId": self._thought, "delta": part.text}
        return [*made, {"type": "REASONING_MESSAGE_CONTENT", **content}]

    def _thought_ended(self) -> list[Json]:
        if self._thought is None:
            return []
        id, self._thought = {"messageId": self._thought}, None
        return [
            {"type": "REASONING_MESSAGE_END", **id},
            {"type": "REASONING_END", **id},
        ]

    def _call(self, part: SpokenPart) -> list[Json]:
        # A model may use an id again: a call that is open is not opened a second time.
        if part.call_id in self._calls:
            return []
        # A call names the message that it belongs to, so that is started first, words
        # or no words.
        made = self._turned_to(part) + self._thought_ended() + self._text_started()
        self._calls[part.call_id] = part.name
        call = {"toolCallId": part.call_id, "toolCallName": part.name}
        parent = {"parentMessageId": part.message_id}
        return [*made, {"type": "TOOL_CALL_START", **call, **parent}]

    def _arguments(self, part: SpokenPart) -> list[Json]:
        if part.call_id not in self._calls:
            return []
        delta = {"toolCallId": part.call_id, "delta": part.text}
        return [{"type": "TOOL_CALL_ARGS", **delta}]

    def _called(self, part: SpokenPart) -> list[Json]:
        if self._calls.pop(part.call_id, None) is None:
            return []
        return [{"type": "TOOL_CALL_END", "toolCallId": part.call_id}]

    def _whole(self, part: SpokenPart) -> list[Json]:
        return self._closed()

    def _closed(self) -> list[Json]:
        """Ends all that is open."""
        made = self._thought_ended()
        for id in self._calls:
            made.append({"type": "TOOL_CALL_END", "toolCallId": id})
        self._calls.clear()
        if self._has_text:
            made.append({"type": "TEXT_MESSAGE_END", "messageId": self._message})
        self._message, self._has_text = None, False
        return made

    def _result(self, part: SpokenPart) -> list[Json]:
        return [
            {
                "type": "TOOL_CALL_RESULT",
                "messageId": result_id(part.message_id, part.call_id),
                "toolCallId": part.call_id,
                "content": part.text,
                "role": "tool",
            }
        ]

    def _asked(self, part: SpokenPart) -> list[Json]:
        value = {"toolCallId": part.call_id, "messageId": part.message_id}
        return [{"type": "CUSTOM", "name": "holdfast.approval_asked", "value": value}]

    def _denied(self, part: SpokenPart) -> list[Json]:
        value = {"toolCallId": part.call_id, "messageId": part.message_id}
        return [{"type": "CUSTOM", "name": "holdfast.approval_denied", "value": value}]

    def _user(self, part: SpokenPart) -> list[Json]:
        id = {"messageId": part.message_id}
        return [
            {"type": "TEXT_MESSAGE_START", **id, "role": "user"},
            {"type": "TEXT_MESSAGE_CONTENT", **id, "delta": part.text},
            {"type": "TEXT_MESSAGE_END", **id},
        ]

    def _end(self, part: SpokenPart) -> list[Json]:
        made = self._closed()
        if part.name == "completed":
            return [*made, *self.finished()]
        if part.name == "interrupted":
            outcome = {"type": "cancelled"}
            return [*made, {"type": "RUN_FINISHED", **self._run, "outcome": outcome}]
        error = {"message": part.text or f"The turn {part.name}.", "code": part.name}
        return [*made, {"type": "RUN_ERROR", **error}]


def result_id(message_id: str, call_id: str) -> str:
    """The id of a tool's message: one stored message may answer several calls."""
    return f"{message_id}:{call_id}"


def snapshot(messages: Iterable[Message]) -> list[Json]:
    """Stored messages as AG-UI has them: words, calls, results. Pictures and files are left out."""
    made: list[Json] = []
    for message in messages:
        if message.state not in ("erased", "pending"):
            made += _told(message, message.parts)
    return made


def _told(message: Message, parts: list[Part]) -> list[Json]:
    made: list[Json] = []
    for part in parts:
        if isinstance(part, Result):
            id = result_id(message.id, part.call_id)
            made.append(
                {
                    "id": id,
                    "role": "tool",
                    "toolCallId": part.call_id,
                    "content": part.content,
                }
            )
    if made or message.role == "tool":
        return made
    if message.role != "assistant":
        return [{"id": message.id, "role": message.role, "content": text_of(parts)}]
    thoughts = "".join(part.text for part in parts if isinstance(part, Thinking))
    if thoughts:
        id = f"{message.id}-reasoning-1"
        made.append({"id": id, "role": "reasoning", "content": thoughts})
    told: Json = {"id": message.id, "role": "assistant"}
    told["content"] = shown_text_of(parts)
    calls = [_call(part) for part in parts if isinstance(part, Call)]
    if calls:
        told["toolCalls"] = calls
    return [*made, told]


def _call(part: Call) -> Json:
    function = {"name": part.name, "arguments": part.arguments}
    return {"id": part.id, "type": "function", "function": function}
