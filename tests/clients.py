"""The providers' own clients, asked for a stream: `openai` (chat and Responses) and `anthropic`,
sync and async.
"""

from typing import Any

import anthropic
import openai

from sse_server import Provider, anthropic_script, chat_script, responses_script

PATHS = {"openai.chat": "completions", "openai.responses": "responses", "anthropic": "messages"}
SCRIPTS = {
    "openai.chat": chat_script,
    "openai.responses": responses_script,
    "anthropic": anthropic_script,
}
REFUSED = (openai.BadRequestError, anthropic.BadRequestError)

_OPTIONS: dict[str, Any] = {"api_key": "none", "max_retries": 0}


class Clients:
    """One client for each provider, kept for as long as its server runs."""

    def __init__(self, provider: Provider) -> None:
        self._openai = openai.OpenAI(base_url=provider.url, **_OPTIONS)
        self._anthropic = anthropic.Anthropic(base_url=provider.url, **_OPTIONS)

    def ask(self, format: str, context: list[Any]) -> Any:
        """The provider's stream for this context."""
        if format == "anthropic":
            return self._anthropic.messages.create(
                model="m", messages=list(context), stream=True, max_tokens=9
            )
        if format == "openai.chat":
            return self._openai.chat.completions.create(
                model="m", messages=list(context), stream=True
            )
        return self._openai.responses.create(model="m", input=list(context), stream=True)


class AsyncClients:
    """The same for asyncio; made inside the loop that uses them."""

    def __init__(self, provider: Provider) -> None:
        self._openai = openai.AsyncOpenAI(base_url=provider.url, **_OPTIONS)
        self._anthropic = anthropic.AsyncAnthropic(base_url=provider.url, **_OPTIONS)

    async def ask(self, format: str, context: list[Any]) -> Any:
        """The provider's stream for this context."""
        if format == "anthropic":
            return await self._anthropic.messages.create(
                model="m", messages=list(context), stream=True, max_tokens=9
            )
        if format == "openai.chat":
            return await self._openai.chat.completions.create(
                model="m", messages=list(context), stream=True
            )
        return await self._openai.responses.create(model="m", input=list(context), stream=True)


def script(format: str, texts: list[str], *, thinking: list[str] = (), **options: Any) -> list[Any]:
    """A provider's stream of these texts, with reasoning and whatever else its script takes."""
    if thinking:
        options["thinking" if format == "anthropic" else "reasoning"] = thinking
    if format == "anthropic":
        # said in words, with a stop reason of its own
        texts = [*texts, *options.pop("refusal", ())]
    return SCRIPTS[format](texts, **options)
