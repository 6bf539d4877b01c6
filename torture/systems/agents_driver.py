"""What runs inside the environment of the OpenAI Agents SDK: one turn of a session in a
`SQLiteSession`.

The turn is told as JSON in the only argument: the store, the session, the prompt, the address of
the model and which of the two APIs it speaks. Nothing of Holdfast is imported here.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.memory import SQLiteSession
from openai import AsyncOpenAI

MODELS: dict[str, Any] = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


@function_tool
def look(row: int) -> str:
    """Looks at a row."""
    return f"row {row} is wet"


@function_tool
def water(row: int) -> str:
    """Waters a row, until there is a file that says `go`."""
    Path("watering").touch()
    while not Path("go").exists():
        time.sleep(0.05)
    return f"row {row} was watered"


async def main() -> None:
    task = json.loads(sys.argv[1])
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=task["url"], api_key="none", max_retries=0)
    model = MODELS[task["api"]](model="lantern-1", openai_client=client)
    agent = Agent(
        name="Gardener", instructions="You keep the orchard.", model=model, tools=[look, water]
    )
    session = SQLiteSession(task["session"], task["store"])
    if task["undo"]:
        for _ in range(task["undo"]):
            await session.pop_item()
        return
    await Runner.run(agent, task["prompt"], session=session)


if __name__ == "__main__":
    asyncio.run(main())
