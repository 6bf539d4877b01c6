"""An agent that you have already, with a list of its own, and the three lines that make it durable.

    python examples/retrofit.py [--store retrofit.db] "Hello." "What did I say first?"

`Agent` stands for your agent: it keeps a list of messages, merges and trims it as it likes, and
knows nothing of Holdfast. The lines marked `# Holdfast` are all that is new. `Session.record` finds
what is new in the list, stores it once, and keeps the list's shape as the context, so that the next
process goes on with the list as it was.

What is shown while it streams is safe only once it was recorded. `Turn.deliver` stores each piece
before it is shown: see coding_agent.py.
"""

import argparse
import uuid
from typing import Any

import holdfast

KEEP = 6
"""So many messages the agent's list may have."""


class Agent:
    """An agent as there are many: a list, a model, and a habit of cutting the list short."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = messages or [
            {"role": "system", "content": "You are a parrot with a memory."}
        ]

    def ask(self, text: str) -> str:
        # An id of its own makes each message known for certain, whatever is done to the list:
        # docs/record.md.
        self.messages.append({"id": uuid.uuid4().hex, "role": "user", "content": text})
        # with the real client: client.chat.completions.create(…).choices[0].message
        reply = model(self.messages)
        self.messages.append({"id": uuid.uuid4().hex, "role": "assistant", "content": reply})
        if len(self.messages) > KEEP:
            # all but the system prompt and the newest
            del self.messages[1 : len(self.messages) - KEEP + 1]
        return reply


def main() -> None:
    arguments = argparse.ArgumentParser(description="An agent with its own list, made durable.")
    arguments.add_argument("--store", default="retrofit.db", help="the store's file")
    arguments.add_argument("prompts", nargs="*", default=["Hello.", "How are you?", "Hello."])
    given = arguments.parse_args()

    store = holdfast.open(given.store)
    session = store.session("parrot")  # Holdfast
    # Holdfast: the list as the last process left it
    agent = Agent(list(session.context("openai.chat")))
    for prompt in given.prompts:
        print(f"> {prompt}")
        reply = agent.ask(prompt)
        recorded = session.record(agent.messages)  # Holdfast: before it is shown
        print(f"{reply}  [{len(recorded.new)} new]", flush=True)
    said = sum(1 for _ in session.transcript())
    print(f"The agent's list has {len(agent.messages)} messages, the transcript {said}.")
    store.close()


# The scripted model
# --------------------------------------------------------------------------------------------------


def model(messages: list[dict[str, Any]]) -> str:
    said = [message["content"] for message in messages if message["role"] == "user"]
    return f"You said {said[-1]!r}, and before that {len(said) - 1} things that I can see."


if __name__ == "__main__":
    main()
