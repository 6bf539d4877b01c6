"""The providers' own clients for asyncio, through the proxy: what they are told is stored, and one that is cancelled
in the middle stops nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from clients import SCRIPTS
from proxy_world import KEY, LIMIT_S, cut_off, provider, proxied, told, turns
from servers import waiting_until

FORMATS = ("openai.chat", "openai.responses", "anthropic")
HI = [{"role": "user", "content": "Hi"}]


async def streamed(port: int, format: str, messages: list[Any]) -> AsyncIterator[Any]:
    """The events of an answer, as the provider's asynchronous client gives them."""
    package: Any = anthropic if format == "anthropic" else openai
    base = f"http://127.0.0.1:{port}" + ("" if format == "anthropic" else "/v1")
    options: dict[str, Any] = {
        "api_key": KEY,
        "base_url": base,
        "max_retries": 0,
        "default_headers": {"Holdfast-Session": "mine"},
        "http_client": package.DefaultAsyncHttpxClient(verify=False, timeout=LIMIT_S),
    }
    if format == "anthropic":
        async with anthropic.AsyncAnthropic(**options) as client:
            stream = await client.messages.create(
                model="m", max_tokens=9, messages=messages, stream=True
            )
            async for event in stream:
                yield event
        return
    async with openai.AsyncOpenAI(**options) as asking:
        if format == "openai.chat":
            stream = await asking.chat.completions.create(model="m", messages=messages, stream=True)
        else:
            stream = await asking.responses.create(model="m", input=messages, stream=True)
        async for event in stream:
            yield event


@pytest.mark.parametrize("format", FORMATS)
def test_a_conversation_and_a_cut(tmp_path: Path, format: str) -> None:
    store = tmp_path / "a.db"

    async def talk(port: int) -> None:
        upstream.answer(SCRIPTS[format](["Hel", "lo."]))
        assert [event async for event in streamed(port, format, HI)]
        said = [
            *HI,
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "And?"},
        ]
        upstream.answer(SCRIPTS[format](["All ", "well."], number=2)[:-3], ending="cut")
        with cut_off():
            assert [event async for event in streamed(port, format, said)]

    with provider() as upstream, proxied(store, upstream) as port:
        asyncio.run(talk(port))
    assert told(store, "mine")[:3] == [
        ("user", "Hi", "complete"),
        ("assistant", "Hello.", "complete"),
        ("user", "And?", "complete"),
    ]
    assert told(store, "mine")[3][2] == "partial"


@pytest.mark.parametrize("format", FORMATS)
def test_a_task_that_is_cancelled_stops_nothing(tmp_path: Path, format: str) -> None:
    store = tmp_path / "a.db"

    async def read(port: int, begun: asyncio.Event) -> None:
        async for _ in streamed(port, format, HI):
            begun.set()

    async def leave(port: int) -> None:
        begun = asyncio.Event()
        reading = asyncio.create_task(read(port, begun))
        await asyncio.wait_for(begun.wait(), LIMIT_S)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    with provider() as upstream, proxied(store, upstream) as port:
        script = SCRIPTS[format](["Hel", "lo."])
        upstream.answer(script, hold_after=len(script) - 1)
        asyncio.run(leave(port))
        upstream.go_on()
        assert upstream.ended.get(timeout=LIMIT_S)
        for _ in waiting_until("the answer is stored whole"):
            if told(store, "mine")[1:] == [("assistant", "Hello.", "complete")]:
                break
    assert turns(store, "mine") == ["completed"]
