"""A model for Strands that says what a script tells it, in pieces."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from strands.models import Model


class ScriptedModel(Model):
    """Each answer is a list: texts are pieces of words, dicts are calls of tools, functions are called
    between two pieces. `asked` are the messages that it was sent.
    """

    def __init__(self, *answers: list[str | dict[str, Any] | Callable[[], None]]) -> None:
        self._answers = list(answers)
        self.asked: list[list[Any]] = []

    def update_config(self, **config: Any) -> None:
        return

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *given: Any, **more: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *given: Any, **more: Any) -> AsyncIterator[Any]:
        self.asked.append([*messages])
        answer = self._answers.pop(0) if self._answers else ["Yes."]
        calls = [step for step in answer if isinstance(step, dict)]
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        for step in answer:
            if isinstance(step, str):
                yield {"contentBlockDelta": {"delta": {"text": step}}}
            elif not isinstance(step, dict):
                step()
        yield {"contentBlockStop": {}}
        for call in calls:
            if "redactContent" in call:
                yield call
                continue
            start = {"toolUseId": call["id"], "name": call["name"]}
            yield {"contentBlockStart": {"start": {"toolUse": start}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call["input"]}}}}
            yield {"contentBlockStop": {}}
        made = any("id" in call for call in calls)
        yield {"messageStop": {"stopReason": "tool_use" if made else "end_turn"}}
        usage = {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def words_of(messages: list[Any]) -> list[str]:
    """The words of messages, one text for each."""
    found = []
    for message in messages:
        texts = [block["text"] for block in message["content"] if "text" in block]
        found.append("".join(texts))
    return found
