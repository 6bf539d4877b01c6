"""The UI message stream of the AI SDK: a running turn as one message of a page.

A page that comes back is told the whole message, from `start` on, under the id that it had: the id
of the first message that the model spoke in this turn. Each message of the model's is a step, with
what its tools answered. A turn that is idle is answered 204 by the route.

Only what versions 6 and 7 both know is sent: a part that a page does not know ends its stream.
"""

from typing import Any

from holdfast.server.streams.spoken_turn import SpokenPart
from holdfast.server.streams.ui_history import CUT_OFF, tool_input
from holdfast.server.waiting import Cut

VERSION = "v1"
HEADER = "x-vercel-ai-ui-message-stream"
DONE = b"data: [DONE]\n\n"
CUT_SHORT: dict[Cut, str] = {
    "stopping": "The server is being stopped. Resume the stream when it is back.",
    "revoked": "This token counts no more. Resume the stream with another one.",
}
_FINISH = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "content_filter": "content-filter",
    "refusal": "content-filter",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "tool_use": "tool-calls",
}
Json = dict[str, Any]


class UiMessageStream:
    """From what is spoken to the parts of the stream; see the module."""

    def __init__(self) -> None:
        self._begun = self._in_step = False
        # The part that is open: its kind, its message and its id. One at a time is, and a change
        # closes it.
        self._open: tuple[str, str, str] | None = None
        self._parts = 0
        self._calls: set[str] = set()
        self._finish = "stop"

    def take(self, part: SpokenPart) -> list[Json]:
        """What is sent for this."""
        made: list[Json] = getattr(self, "_" + part.kind)(part)
        return made

    def cut(self, why: Cut) -> list[Json]:
        """What is sent when no more of a turn is told."""
        return [*self._closed(), {"type": "error", "errorText": CUT_SHORT[why]}]

    def _begin(self, part: SpokenPart) -> list[Json]:
        made: list[Json] = self._step_finished()
        if not self._begun:
            self._begun = True
            made.append({"type": "start", "messageId": part.message_id})
        self._in_step = True
        return [*made, {"type": "start-step"}]

    def _text(self, part: SpokenPart) -> list[Json]:
        return self._grown("text", part)

    def _thinking(self, part: SpokenPart) -> list[Json]:
        return self._grown("reasoning", part)

    def _grown(self, kind: str, part: SpokenPart) -> list[Json]:
        made: list[Json] = []
        if self._open is None or self._open[:2] != (kind, part.message_id):
            made = self._closed()
            self._parts += 1
            id = f"{kind}-{self._parts}"
            self._open = (kind, part.message_id, id)
            made.append({"type": f"{kind}-start", "id": id})
        _, _, id = self._open
        made.append({"type": f"{kind}-delta", "id": id, "delta": part.text})
        return made

    def _closed(self) -> list[Json]:
        if self._open is None:
            return []
        kind, _, id = self._open
        self._open = None
        return [{"type": f"{kind}-end", "id": id}]

    def _call(self, part: SpokenPart) -> list[Json]:
        self._calls.add(part.call_id)
        return [*self._closed(), {"type": "tool-input-start", **_named(part)}]

    def _arguments(self, part: SpokenPart) -> list[Json]:
        delta = {"toolCallId": part.call_id, "inputTextDelta": part.text}
        return [{"type": "tool-input-delta", **delta}]

    def _called(self, part: SpokenPart) -> list[Json]:
        input = tool_input(part.text)
        if part.failed:
            told = {"input": input, "errorText": CUT_OFF}
            return [{"type": "tool-input-error", **_named(part), **told}]
        return [{"type": "tool-input-available", **_named(part), "input": input}]

    def _whole(self, part: SpokenPart) -> list[Json]:
        # The step goes on with what its tools answer.
        self._finish = _FINISH.get(part.name, "other") if part.name else "stop"
        return self._closed()

    def _step_finished(self) -> list[Json]:
        if not self._in_step:
            return []
        self._in_step = False
        return [*self._closed(), {"type": "finish-step"}]

    def _result(self, part: SpokenPart) -> list[Json]:
        # A page knows no result of a call that it was not told of.
        if part.call_id not in self._calls:
            return []
        told = {"toolCallId": part.call_id, "dynamic": True}
        if part.failed:
            return [{"type": "tool-output-error", **told, "errorText": part.text}]
        return [{"type": "tool-output-available", **told, "output": part.text}]

    def _asked(self, part: SpokenPart) -> list[Json]:
        if part.call_id not in self._calls:
            return []
        told = {"approvalId": part.call_id, "toolCallId": part.call_id}
        return [{"type": "tool-approval-request", **told}]

    def _denied(self, part: SpokenPart) -> list[Json]:
        if part.call_id not in self._calls:
            return []
        return [{"type": "tool-output-denied", "toolCallId": part.call_id}]

    def _user(self, part: SpokenPart) -> list[Json]:
        # A page has its own list of what its user said.
        return []

    def _end(self, part: SpokenPart) -> list[Json]:
        made = self._step_finished()
        if part.name == "completed":
            return [*made, {"type": "finish", "finishReason": self._finish}]
        if part.name == "failed":
            told = part.text or "The turn failed."
            return [*made, {"type": "error", "errorText": told}]
        return [*made, {"type": "abort", "reason": part.text or part.name}]


def _named(part: SpokenPart) -> Json:
    # Tools that a page does not declare are dynamic, and which it declares nobody here knows.
    return {"toolCallId": part.call_id, "toolName": part.name, "dynamic": True}
