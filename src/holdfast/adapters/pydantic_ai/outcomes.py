"""What tools have answered to the last response of a run that `run_stream` ends.

The framework runs the calls of that response after it was streamed, says so in no event, and has the
answers in a list that only its result knows. So they are noted where the tools are run, and put into a
request as the framework would.
"""

from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import DeferredToolRequests

# As the framework says it.
FINAL = "Final result processed."
OUTPUT_UNUSED = "Output tool not used - a final result was already processed."
NOT_EXECUTED = "Tool not executed - a final result was already processed."


class Outcomes:
    """What is known of the calls of a run."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Any]] = {}
        self._final: Any = None

    def note(self, call: Any, answer: Any) -> None:
        """A tool has answered."""
        said = answer if isinstance(answer, ToolReturn) else ToolReturn(answer)
        named = (call.tool_name, said.return_value, call.tool_call_id)
        parts: list[Any] = [ToolReturnPart(*named, metadata=said.metadata)]
        if said.content:
            parts.append(UserPromptPart(said.content))
        self._parts[call.tool_call_id] = parts

    def note_failure(self, call: Any, error: BaseException) -> None:
        """A tool has said what is wrong with its call."""
        part = getattr(error, "tool_retry", None) or getattr(error, "tool_failed", None)
        if part is not None:
            self._parts[call.tool_call_id] = [part]

    def note_node(self, node: Any) -> None:
        """A step of the run begins: the last one of a streamed run says which call was the output."""
        self._final = getattr(node, "final_result", self._final)

    def closing(self, messages: Sequence[Any], output: Any) -> Any:
        """The request that answers the calls of the last message; None when none are left open."""
        last = messages[-1] if messages else None
        if not isinstance(last, ModelResponse) or not last.tool_calls:
            return None
        if self._final is None or isinstance(output, DeferredToolRequests):
            return None
        return self._request(last, lambda call: [self._status(call)])

    def known(self, messages: Sequence[Any]) -> Any:
        """The same of a run that was cut off: of the calls that nobody has answered, nothing is said."""
        last = messages[-1] if messages else None
        return (
            self._request(last, lambda call: [])
            if isinstance(last, ModelResponse)
            else None
        )

    def _request(self, last: Any, otherwise: Any) -> Any:
        parts, beside = [], []
        for call in last.tool_calls:
            first, *more = self._parts.get(call.tool_call_id) or [
                *otherwise(call),
                None,
            ]
            parts += [] if first is None else [first]
            beside += [part for part in more if part is not None]
        if not parts:
            return None
        named = {"run_id": last.run_id, "conversation_id": last.conversation_id}
        return ModelRequest([*parts, *beside], **named)

    def _status(self, call: Any) -> Any:
        said = NOT_EXECUTED
        if call.tool_call_id == self._final.tool_call_id:
            said = FINAL
        elif call.tool_name == self._final.tool_name:
            said = OUTPUT_UNUSED
        return ToolReturnPart(call.tool_name, said, call.tool_call_id)
