"""The kit's real runner with a model that says what it is told to."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from adk_events import PLACE
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types
from pydantic import PrivateAttr

OF_ANN = {"user_id": "ann", "session_id": "s"}
STREAMED = RunConfig(streaming_mode=StreamingMode.SSE)


class Scripted(BaseLlm):
    """Says each answer in pieces, then whole. At a piece `...` it stands still; a dict is the arguments
    of a call of `water`, with its `id`.
    """

    model: str = "scripted"
    _answers: list[Any] = PrivateAttr(default_factory=list)
    _asked: list[list[str]] = PrivateAttr(default_factory=list)

    def say(self, *answers: Any) -> "Scripted":
        self._answers += answers
        return self

    @property
    def asked(self) -> list[list[str]]:
        """What each request has told the model, in words."""
        return self._asked

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        self._asked.append([_words(content) for content in llm_request.contents])
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        parts: list[types.Part] = []
        words = [piece for piece in answer if isinstance(piece, str) and piece != "..."]
        for piece in answer:
            if piece == "...":
                await asyncio.Event().wait()
            elif isinstance(piece, dict):
                call = types.FunctionCall(id=piece.pop("id", "c1"), name="water", args=piece)
                parts.append(types.Part(function_call=call))
            elif stream:
                said = types.Content(role="model", parts=[types.Part(text=piece)])
                yield LlmResponse(content=said, partial=True)
        if words:
            parts.insert(0, types.Part(text="".join(words)))
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def _words(content: Any) -> str:
    found = []
    for part in content.parts:
        if part.text:
            found.append(part.text)
        if part.function_call:
            found.append(f"call {part.function_call.name}")
        if part.function_response:
            found.append(f"answer {part.function_response.response}")
    return f"{content.role}: {' '.join(found)}"


def water(row: int) -> str:
    """Waters a row."""
    return f"row {row} is wet"


def app(model: Any, plugins: Any = (), **more: Any) -> App:
    more.setdefault("tools", [water])
    agent = LlmAgent(name="gardener", model=model, **more)
    return App(name=PLACE["app_name"], root_agent=agent, plugins=list(plugins))


def runner(service: Any, made: App) -> Runner:
    return Runner(app=made, session_service=service, auto_create_session=True)


def message(words: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=words)])


async def asked(events: Any) -> str:
    """Reads a run to its end; what it has shown."""
    shown = ""
    async for event in events:
        if event.partial and event.content:
            shown += "".join(part.text or "" for part in event.content.parts)
    return shown


def ask(made: Runner, words: str, **more: Any) -> Any:
    """A streamed run, as its users begin one."""
    return made.run_async(**OF_ANN, new_message=message(words), run_config=STREAMED, **more)
