"""A loop of your own with Anthropic's client, without asyncio and with it: tools, a request that is sent
twice, Ctrl-C, kill -9.

    python examples/anthropic_loop.py [--asyncio] [--store loop.db] [--request ID] [PROMPT …]

`ask` is the whole pattern, and `ask_async` is the same with `await`. Copy one of them. With
ANTHROPIC_API_KEY set it asks Anthropic; without, a scripted provider on loopback answers, so that it runs
without a network.
"""

import argparse
import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anthropic import Anthropic, AsyncAnthropic

import holdfast
from holdfast.errors import AlreadyAccepted

MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5-5")
PROMPTS = ["Water row 7, please.", "Which row was that?"]
ROW = {"type": "object", "properties": {"row": {"type": "integer"}}, "required": ["row"]}
TOOLS: Any = [{"name": "water", "description": "Waters a row.", "input_schema": ROW}]


# Without asyncio
# --------------------------------------------------------------------------------------------------


def ask(
    client: Anthropic, session: holdfast.Session, prompt: str, request: str | None = None
) -> None:
    """One turn. The prompt is durable before the model is asked, each piece of the answer before it
    is shown, a call before its tool runs. Whatever ends the block, the turn has its end.
    """
    try:
        with session.turn(prompt, format="anthropic", event_id=request) as turn:
            while True:
                context = turn.context("anthropic")
                reply = client.messages.create(
                    model=MODEL,
                    max_tokens=1024,
                    system=context.instructions,  # beside the list, as Anthropic wants it
                    messages=context,
                    tools=TOOLS,
                    stream=True,
                )
                for text in turn.deliver(reply, format="anthropic"):
                    print(text, end="", flush=True)
                calls = turn.calls()
                if not calls:
                    break
                for call in calls:
                    turn.call(call.name, call.arguments, call.call_id)  # now the tool may run
                    said, failed = outcome_of(call)
                    turn.result(call.call_id, said, error=failed)
    except AlreadyAccepted as known:
        # Its sender has asked before and did not hear of it: the model is not asked again.
        for message in session.transcript():
            if message.turn == known.turn_id and message.role == "assistant":
                print(message.text, end="")


# With asyncio
# --------------------------------------------------------------------------------------------------


async def ask_async(
    client: AsyncAnthropic, session: holdfast.AsyncSession, prompt: str, request: str | None = None
) -> None:
    """The same. A task that is cancelled ends its turn as interrupted, with all that was shown."""
    try:
        async with session.turn(prompt, format="anthropic", event_id=request) as turn:
            while True:
                context = await turn.context("anthropic")
                reply = await client.messages.create(
                    model=MODEL,
                    max_tokens=1024,
                    system=context.instructions,
                    messages=context,
                    tools=TOOLS,
                    stream=True,
                )
                async for text in turn.deliver(reply, format="anthropic"):
                    print(text, end="", flush=True)
                calls = await turn.calls()
                if not calls:
                    break
                for call in calls:
                    await turn.call(call.name, call.arguments, call.call_id)
                    # On a thread: other sessions of this loop go on while the tool runs.
                    said, failed = await asyncio.to_thread(outcome_of, call)
                    await turn.result(call.call_id, said, error=failed)
    except AlreadyAccepted as known:
        async for message in session.transcript():
            if message.turn == known.turn_id and message.role == "assistant":
                print(message.text, end="")


# The tools
# --------------------------------------------------------------------------------------------------


def outcome_of(call: holdfast.CallToRun) -> tuple[str, bool]:
    """What a tool says, and whether that is an error. A model may call what is not there, and its
    arguments may be no JSON: it is told so, and goes on.
    """
    print(f"[{call.name} {call.arguments}]", flush=True)
    try:
        return {"water": water}[call.name](**call.arguments), False
    except (KeyError, TypeError, ValueError) as wrong:
        return f"{type(wrong).__name__}: {wrong}", True


def water(row: int) -> str:
    return f"row {row} was watered"


# All of it
# --------------------------------------------------------------------------------------------------


def main() -> None:
    arguments = argparse.ArgumentParser(description="A loop of your own with Anthropic's client.")
    arguments.add_argument("--asyncio", action="store_true", help="with the asynchronous client")
    arguments.add_argument("--store", default="loop.db", help="the store: a file or postgresql://…")
    arguments.add_argument("--request", help="the sender's name for the one prompt that is given")
    arguments.add_argument("prompts", nargs="*", default=PROMPTS)
    given = arguments.parse_args()
    with provider() as settings:
        if given.asyncio:
            asyncio.run(talk_async(given, settings))
        else:
            talk(given, settings)


def talk(given: argparse.Namespace, settings: dict[str, str]) -> None:
    client = Anthropic(**settings)
    with holdfast.open(given.store) as store:
        session = store.session("garden")
        session.instructions("You keep the rows of a garden. Be brief.")
        for prompt in given.prompts:
            print(f"> {prompt}", flush=True)
            ask(client, session, prompt, given.request)
            print(flush=True)


async def talk_async(given: argparse.Namespace, settings: dict[str, str]) -> None:
    async with AsyncAnthropic(**settings) as client, holdfast.open_async(given.store) as store:
        session = await store.session("garden")
        await session.instructions("You keep the rows of a garden. Be brief.")
        for prompt in given.prompts:
            print(f"> {prompt}", flush=True)
            await ask_async(client, session, prompt, given.request)
            print(flush=True)


@contextmanager
def provider() -> Iterator[dict[str, str]]:
    """What the client is made with: nothing where there is a key, else a scripted provider."""
    if "ANTHROPIC_API_KEY" in os.environ:
        yield {}
        return
    from holdfast.testing.adapters import ScriptedAnswer, serve

    with serve() as scripted:
        asks = ScriptedAnswer(("One ", "moment. "), [("water", {"row": 7})])
        scripted.answer("Water", asks, ScriptedAnswer(("Row 7 ", "is watered.")))
        scripted.answer("Which", ScriptedAnswer(("It ", "was ", "row 7.")))
        yield {"base_url": scripted.url, "api_key": "none"}


if __name__ == "__main__":
    main()
